//! Groups of ranks along dimensions.

use smallvec::SmallVec;

use super::Mesh;
use crate::strided::Digit;
use crate::{Error, MeshGroup, MeshRank};

impl Mesh {
    /// The ranks that have all coordinates of `rank` but the one along `dim`, `rank` among them.
    ///
    /// # Errors
    /// [`Error::UnknownDim`], [`Error::RankOutside`].
    pub fn group_of(&self, rank: MeshRank, dim: &str) -> Result<MeshGroup, Error> {
        self.group_along(rank, [dim])
    }

    /// The ranks that have all coordinates of `rank` but those along `dims`, `rank` among them; for
    /// no dimension, `rank` alone.
    ///
    /// The order of `dims` is that of the group: its ranks are counted along the last fastest.
    ///
    /// ```
    /// use meshwork_core::{Mesh, MeshRank};
    ///
    /// let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)])?;
    /// let ranks = |dims: [&str; 2]| -> Result<Vec<usize>, _> {
    ///     let group = mesh.group_along(MeshRank::new(3), dims)?;
    ///     Ok::<_, meshwork_core::Error>(group.ranks().map(MeshRank::index).collect())
    /// };
    /// assert_eq!(ranks(["x", "z"])?, [2, 3, 6, 7]);
    /// assert_eq!(ranks(["z", "x"])?, [2, 6, 3, 7]);
    /// # Ok::<(), meshwork_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownDim`], [`Error::RepeatedDim`], [`Error::RankOutside`].
    pub fn group_along(
        &self,
        rank: MeshRank,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<MeshGroup, Error> {
        let dims = self.dim_indices(dims)?;
        self.check_rank(rank)?;
        let digits = dims.iter().map(|&dim| self.digit(dim));
        let past_first: usize = digits
            .clone()
            .map(|digit| rank.index() / digit.stride % digit.size * digit.stride)
            .sum();
        Ok(MeshGroup::new(rank.index() - past_first, digits))
    }

    /// The places of dimensions among [`dims`](Self::dims).
    pub(crate) fn dim_indices(
        &self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<SmallVec<[usize; 4]>, Error> {
        let mut indices: SmallVec<[usize; 4]> = SmallVec::new();
        for dim in dims {
            let index = self.dim_index(dim.as_ref())?;
            if indices.contains(&index) {
                let name = self.dims()[index].name().clone();
                return Err(Error::RepeatedDim { name });
            }
            indices.push(index);
        }
        Ok(indices)
    }

    /// A dimension as a direction in which ranks lie.
    pub(crate) fn digit(&self, dim: usize) -> Digit {
        Digit {
            size: self.dims()[dim].size(),
            stride: self.strides()[dim],
        }
    }
}
