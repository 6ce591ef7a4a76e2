//! Layouts as text.

use std::str::FromStr;

use meshwork_core::Mesh;

use crate::{Error, Layout, Reduction, ShardingSpec};

impl Layout {
    /// Reads what people write for a layout on a mesh that is known: `x|y,unsharded`, and with partial
    /// mesh dimensions `x,unsharded partial:sum:y`.
    ///
    /// One spec for each tensor dimension, between commas: `unsharded`, a mesh dimension, or several
    /// between `|`, major to minor. A comma may follow the last; no specs are those of a scalar. A
    /// blank goes before the partial dimensions.
    ///
    /// ```
    /// use meshwork_core::Mesh;
    /// use meshwork_layout::{Layout, Reduction, UNSHARDED};
    ///
    /// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
    /// let layout = Layout::from_specs("x,unsharded partial:sum:y", &mesh)?;
    /// let same = Layout::from_names(["x", UNSHARDED], &mesh)?;
    /// assert_eq!(layout, same.with_partial(["y"], Reduction::Sum)?);
    /// # Ok::<(), meshwork_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PartialText`], [`Error::UnknownReduction`], and those of [`ShardingSpec`]'s `parse`,
    /// [`new`](Self::new) and [`with_partial`](Self::with_partial).
    pub fn from_specs(text: &str, mesh: &Mesh) -> Result<Self, Error> {
        let (specs, partial) = match text.split_once(PARTIAL) {
            Some((specs, partial)) => (specs, Some(partial)),
            None => (text, None),
        };
        let specs = listed(specs).map(str::parse);
        let layout = Self::new(specs.collect::<Result<Vec<_>, _>>()?, mesh)?;
        match partial {
            Some(partial) => read_partial(layout, partial),
            None => Ok(layout),
        }
    }
}

/// Reads [`UNSHARDED`](crate::UNSHARDED), a mesh dimension, or several between `|`; inverse of
/// [`Display`](std::fmt::Display).
impl FromStr for ShardingSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('|') {
            return Self::nested(text.split('|'));
        }
        Self::from_name(text)
    }
}

/// Makes dimensions partial that are written `sum:x,y`.
fn read_partial(layout: Layout, text: &str) -> Result<Layout, Error> {
    let (word, dims) = text.split_once(':').ok_or_else(|| Error::PartialText {
        text: text.to_owned(),
    })?;
    let reduction = Reduction::from_name(word).ok_or_else(|| Error::UnknownReduction {
        word: word.to_owned(),
    })?;
    layout.with_partial(listed(dims), reduction)
}

/// The words between commas, of which one may follow the last; none in an empty text.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let words = text.strip_suffix(',').unwrap_or(text).split(',');
    words.filter(move |_| !text.is_empty())
}

/// What goes before partial dimensions.
const PARTIAL: &str = " partial:";

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh() -> Mesh {
        Mesh::new([("x", 2), ("y", 4), ("z", 3)]).unwrap()
    }

    #[track_caller]
    fn check(text: &str, shown: &str) {
        let layout = Layout::from_specs(text, &mesh()).unwrap();
        assert_eq!(layout.to_string(), shown, "{text:?}");
        let again = shown.strip_prefix("sharding_specs:").unwrap();
        assert_eq!(Layout::from_specs(again, &mesh()), Ok(layout), "{shown:?}");
    }

    #[test]
    fn specs_are_read_with_and_without_the_last_comma() {
        check("", "sharding_specs:");
        check("x", "sharding_specs:x,");
        check("x,unsharded,", "sharding_specs:x,unsharded,");
        check("z|x,y", "sharding_specs:z|x,y,");
        check(" partial:max:z", "sharding_specs: partial:max:z,");
        check(" partial:sum:y,x,", "sharding_specs: partial:sum:x,y,");
        check(
            "x,unsharded partial:min:y",
            "sharding_specs:x,unsharded, partial:min:y,",
        );
    }

    #[test]
    fn what_is_no_spec_is_refused() {
        let refused = |text| Layout::from_specs(text, &mesh()).unwrap_err();
        for text in [
            "x,,y",
            ",",
            "x|",
            "|x",
            "x|unsharded",
            "match",
            "any,x",
            "q",
            "X",
        ] {
            assert!(matches!(refused(text), Error::Mesh(_)), "{text:?}");
        }
        assert!(matches!(refused("x,x"), Error::RepeatedDim { .. }));
        assert!(matches!(refused("x|x"), Error::RepeatedDim { .. }));
        assert!(matches!(
            refused("x, partial:sum:x"),
            Error::CutAndPartial { .. }
        ));
    }

    #[test]
    fn what_is_partial_says_how_it_is_reduced() {
        let refused = |text| Layout::from_specs(text, &mesh()).unwrap_err().to_string();
        assert_eq!(
            refused("x partial:y"),
            "partial mesh dimensions \"y\" have no reduction: write them such as partial:sum:y"
        );
        assert_eq!(
            refused("x partial:mean:y"),
            "\"mean\" is no reduction: use one of sum, product, min, max"
        );
    }
}
