//! The text form of a layout, as [`AnyLayout`] describes it, and the short one of its specs.

use std::fmt::{self, Display};
use std::str::FromStr;

use meshwork_core::{AnyMesh, Mesh};

use crate::pattern::{ANY, SpecPattern};
use crate::{
    AnyLayout, Error, Layout, LayoutPattern, LayoutType, MATCH, PartialReduction, ShardingSpec,
};

impl Layout {
    /// Parses the short text form of a layout on a given mesh: `x|y,unsharded`, and with partial
    /// mesh dimensions `x,unsharded partial:sum:y`; inverse of [`to_specs`](Self::to_specs).
    ///
    /// One spec for each tensor dimension, between commas: `unsharded`, a mesh dimension, or
    /// several between `|`, major to minor. A comma may follow the last; no specs are those of a
    /// scalar. A blank goes before the partial dimensions.
    ///
    /// ```
    /// use meshwork_core::Mesh;
    /// use meshwork_layout::{Layout, PartialReduction, UNSHARDED};
    ///
    /// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
    /// let layout = Layout::from_specs("x,unsharded partial:sum:y", &mesh)?;
    /// let same = Layout::from_names(["x", UNSHARDED], &mesh)?;
    /// assert_eq!(layout, same.with_partial(["y"], PartialReduction::Sum)?);
    /// # Ok::<(), meshwork_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PartialText`], [`Error::UnknownReduction`], and those of [`ShardingSpec`]'s
    /// `parse`, [`new`](Self::new) and [`with_partial`](Self::with_partial).
    pub fn from_specs(text: &str, mesh: &Mesh) -> Result<Self, Error> {
        let (specs, partial) = split_partial(text);
        let specs = listed(specs).map(str::parse);
        let layout = Self::new(specs.collect::<Result<Vec<_>, _>>()?, mesh)?;
        match partial {
            Some(partial) => {
                let (dims, reduction) = read_partial(partial)?;
                layout.with_partial(dims, reduction)
            }
            None => Ok(layout),
        }
    }

    /// The short text form: specs without mesh and type; inverse of
    /// [`from_specs`](Self::from_specs).
    #[must_use]
    pub fn to_specs(&self) -> String {
        let specs: Vec<_> = self.specs().map(ToString::to_string).collect();
        let mut text = specs.join(",");
        if let Some(reduction) = self.reduction() {
            let dims: Vec<_> = self.partial().map(AsRef::as_ref).collect();
            text += &format!("{PARTIAL}{reduction}:{}", dims.join(","));
        }
        text
    }
}

impl AnyLayout {
    /// Reads the text form.
    ///
    /// As TensorFlow does, except that a comma that is missing after the last spec is an error,
    /// where TensorFlow loses the spec; that a mesh may have blanks in its name; and for what only
    /// this crate can express. A mesh dimension with ` mesh:` or ` partial:` in its name is not
    /// read back.
    ///
    /// # Errors
    /// - [`Error::LayoutText`], [`Error::LayoutTypeText`], [`Error::LastComma`] for what is no
    ///   layout, [`Error::PartialText`] and [`Error::UnknownReduction`] for what is partial.
    /// - [`Error::NotOneDevice`], [`Error::Mesh`] for a mesh that cannot be read or is not of the
    ///   kind that the layout needs.
    /// - Those of [`LayoutPattern::new`] and [`Layout::with_partial`].
    #[doc(alias = "from_string")]
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text == EMPTY {
            return Ok(Self::Empty);
        }
        let (head, mesh) = split_mesh(text).ok_or_else(|| Error::LayoutText {
            text: text.to_owned(),
        })?;
        let typed = |layout_type: LayoutType| head.strip_prefix(layout_type.prefix());
        if let Some(specs) = typed(LayoutType::Static) {
            Ok(read_pattern(specs, mesh)?.into())
        } else if let Some(specs) = typed(LayoutType::Parted) {
            Ok(read_pattern(specs, mesh)?.to_parted().into())
        } else if head.strip_suffix(',').unwrap_or(head) == SINGLE_DEVICE {
            Self::from_single_device_mesh(&AnyMesh::parse(mesh)?)
        } else {
            Err(Error::LayoutTypeText {
                text: head.to_owned(),
            })
        }
    }
}

/// The text form, as TensorFlow's `to_string` writes it where TensorFlow can express the layout.
impl Display for AnyLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(EMPTY),
            Self::SingleDevice(device) => write!(f, "{SINGLE_DEVICE},{MESH}{device}"),
            Self::Pattern(pattern) => pattern.fmt(f),
        }
    }
}

/// The text form, as that of [`AnyLayout`].
impl Display for LayoutPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.layout_type().prefix())?;
        self.specs().try_for_each(|spec| write!(f, "{spec},"))?;
        if let Some(reduction) = self.reduction() {
            write!(f, "{PARTIAL}{reduction}:")?;
            self.partial().try_for_each(|dim| write!(f, "{dim},"))?;
        }
        write!(f, "{MESH}{}", self.mesh())
    }
}

/// The text form, as that of [`AnyLayout`]; [`Layout::to_specs`] is the short one.
impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LayoutPattern::from(self.clone()).fmt(f)
    }
}

impl FromStr for AnyLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl FromStr for LayoutPattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        AnyLayout::parse(text)?.try_into()
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        AnyLayout::parse(text)?.try_into()
    }
}

/// Reads [`UNSHARDED`](crate::UNSHARDED), a mesh dimension, or several between `|`; inverse of
/// [`Display`](Display).
impl FromStr for ShardingSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains('|') {
            return Self::nested(text.split('|'));
        }
        Self::from_name(text)
    }
}

impl LayoutType {
    fn prefix(self) -> &'static str {
        match self {
            Self::Static => "sharding_specs:",
            Self::Parted => "parted:",
        }
    }
}

/// A pattern with a word for each tensor dimension: `match`, `any`, or what `read` takes.
///
/// TensorFlow's word for a tensor without dimensions, `scalar`, is one here too, unless the mesh
/// has a dimension of that name.
pub(crate) fn pattern(
    words: &[&str],
    mesh: &Mesh,
    read: fn(&str) -> Result<ShardingSpec, Error>,
) -> Result<LayoutPattern, Error> {
    let words = match words {
        [SCALAR] if !mesh.contains_dim(SCALAR) => &[],
        words => words,
    };
    let specs = words.iter().map(|&word| match word {
        MATCH => Ok(SpecPattern::Match),
        ANY => Ok(SpecPattern::Any),
        word => read(word).map(SpecPattern::Exactly),
    });
    LayoutPattern::new(specs.collect::<Result<Vec<_>, _>>()?, mesh)
}

/// Reads `x,unsharded, partial:sum:y,` on the mesh of this text.
fn read_pattern(specs: &str, mesh: &str) -> Result<LayoutPattern, Error> {
    let mesh = Mesh::try_from(AnyMesh::parse(mesh)?)?;
    let (specs, partial) = split_partial(specs);
    if !specs.is_empty() && !specs.ends_with(',') {
        return Err(Error::LastComma {
            specs: specs.to_owned(),
        });
    }
    let words: Vec<&str> = listed(specs).collect();
    let pattern = pattern(&words, &mesh, str::parse)?;
    match partial {
        Some(partial) => {
            let (dims, reduction) = read_partial(partial)?;
            pattern.with_partial(dims, reduction)
        }
        None => Ok(pattern),
    }
}

/// Reads partial dimensions and their reduction, written `sum:x,y`.
fn read_partial(text: &str) -> Result<(impl Iterator<Item = &str>, PartialReduction), Error> {
    let (word, dims) = text.split_once(':').ok_or_else(|| Error::PartialText {
        text: text.to_owned(),
    })?;
    let reduction = PartialReduction::from_name(word).ok_or_else(|| Error::UnknownReduction {
        word: word.to_owned(),
    })?;
    Ok((listed(dims), reduction))
}

fn split_partial(text: &str) -> (&str, Option<&str>) {
    match text.split_once(PARTIAL) {
        Some((specs, partial)) => (specs, Some(partial)),
        None => (text, None),
    }
}

/// Splits a text into the part before the mesh, and the mesh, which begins with `mesh:` or after
/// the only blank.
fn split_mesh(text: &str) -> Option<(&str, &str)> {
    let ends = |at: usize| text[..at].ends_with([',', ':']);
    let mut starts = text.match_indices(MESH).map(|(at, _)| at);
    if let Some(at) = starts.find(|&at| ends(at)) {
        return Some((&text[..at], &text[at + MESH.len()..]));
    }
    let (head, mesh) = text.split_once(' ')?;
    let mesh = mesh.strip_prefix(MESH.trim_start()).unwrap_or(mesh);
    (!mesh.contains(' ')).then_some((head, mesh))
}

/// The words between commas, of which one may follow the last; none in an empty text.
fn listed(text: &str) -> impl Iterator<Item = &str> {
    let words = text.strip_suffix(',').unwrap_or(text).split(',');
    words.filter(move |_| !text.is_empty())
}

const EMPTY: &str = "empty_layout";
const SINGLE_DEVICE: &str = "maximal:true";
const SCALAR: &str = "scalar";

/// The separator before the mesh.
const MESH: &str = " mesh:";

/// The separator before partial dimensions.
const PARTIAL: &str = " partial:";

#[cfg(test)]
mod tests;
