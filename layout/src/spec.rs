//! `ShardingSpec`: the mesh dimensions that shard one tensor dimension, major to minor. Several for
//! one tensor dimension are an extension of TensorFlow's specs; `pattern` has those that are left
//! open.

use std::fmt::{self, Display};

use meshwork_core::DimName;
use smallvec::SmallVec;

use crate::Error;

/// The word for a tensor dimension that is not cut, where mesh dimensions are named by text; no
/// mesh dimension has this name.
pub const UNSHARDED: &str = "unsharded";

/// How one tensor dimension is cut: by which mesh dimensions, major to minor.
///
/// No mesh dimension leaves it whole, which is TensorFlow's *unsharded*. One cuts it into as many
/// shards as the mesh has ranks along it. Several cut one after the other, each the shards of those
/// before it; TensorFlow has no such specs.
///
/// ```
/// use meshwork_layout::{ShardingSpec, UNSHARDED};
///
/// let nested = ShardingSpec::nested(["batch", "model"])?;
/// assert!(nested.dims().iter().map(|dim| dim.as_str()).eq(["batch", "model"]));
/// assert_eq!(ShardingSpec::from_name(UNSHARDED)?, ShardingSpec::unsharded());
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ShardingSpec {
    dims: SmallVec<[DimName; 1]>,
}

impl ShardingSpec {
    /// Not cut: every rank holds the whole dimension.
    #[must_use]
    pub fn unsharded() -> Self {
        Self::default()
    }

    /// Cut by one mesh dimension.
    #[must_use]
    pub fn sharded(dim: DimName) -> Self {
        Self {
            dims: SmallVec::from_iter([dim]),
        }
    }

    /// Cut by several mesh dimensions, major to minor; by none, not cut.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a text that is no name of a mesh dimension. A dimension named twice is
    /// for [`Layout::new`](crate::Layout::new) to refuse.
    pub fn nested(dims: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, Error> {
        let dims = dims
            .into_iter()
            .map(DimName::new)
            .collect::<Result<_, _>>()?;
        Ok(Self { dims })
    }

    /// Not cut for [`UNSHARDED`], otherwise cut by the mesh dimension of this name.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a text that is no name of a mesh dimension.
    pub fn from_name(name: &str) -> Result<Self, Error> {
        if name == UNSHARDED {
            return Ok(Self::unsharded());
        }
        Ok(Self::sharded(DimName::new(name)?))
    }

    /// The mesh dimensions that cut this dimension, major to minor.
    #[must_use]
    pub fn dims(&self) -> &[DimName] {
        &self.dims
    }

    /// Whether no mesh dimension cuts this dimension. One of size 1 counts: it makes one shard, by
    /// name.
    #[must_use]
    pub fn is_unsharded(&self) -> bool {
        self.dims.is_empty()
    }
}

/// [`UNSHARDED`], a name, or several names between `|`, which no name has.
impl Display for ShardingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.dims() else {
            return f.write_str(UNSHARDED);
        };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|dim| write!(f, "|{dim}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_shows_its_dimensions_major_to_minor() {
        assert_eq!(ShardingSpec::unsharded().to_string(), "unsharded");
        assert_eq!(ShardingSpec::from_name("x").unwrap().to_string(), "x");
        assert_eq!(ShardingSpec::nested(["y", "x"]).unwrap().to_string(), "y|x");
    }

    #[test]
    fn a_list_of_no_dimensions_is_unsharded() {
        assert_eq!(ShardingSpec::nested([""; 0]), Ok(ShardingSpec::unsharded()));
        assert!(ShardingSpec::unsharded().is_unsharded());
        assert!(!ShardingSpec::from_name("x").unwrap().is_unsharded());
    }

    #[test]
    fn a_reserved_word_is_no_mesh_dimension() {
        for name in ["match", "any"] {
            let reserved = meshwork_core::Error::ReservedDimName { name: name.into() };
            assert_eq!(ShardingSpec::from_name(name), Err(Error::Mesh(reserved)));
        }
        let reserved = meshwork_core::Error::ReservedDimName {
            name: UNSHARDED.into(),
        };
        assert_eq!(
            ShardingSpec::nested([UNSHARDED]),
            Err(Error::Mesh(reserved))
        );
    }
}
