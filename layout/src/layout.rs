//! `Layout`: which mesh dimensions shard which tensor dimensions; partial and idle ones;
//! replication. Which indices a rank holds is in `layout/placement`, the chunking rule in
//! `geometry`, the cheapest way from one layout to another in `plan`.

use std::ops::Range;

use meshwork_core::{DimName, Mesh};
use smallvec::SmallVec;

use crate::{Error, PartialReduction, ShardingSpec, UNSHARDED};

mod partial;
mod placement;

/// For each tensor dimension the indices that a rank holds, in elements.
pub type Ranges = SmallVec<[Range<usize>; 4]>;

/// The sizes of all dimensions of a tensor, in elements.
pub type Shape = SmallVec<[usize; 4]>;

/// The layout of tensors of one rank (number of dimensions) on a mesh.
///
/// Each tensor dimension is whole on every rank, or cut by one mesh dimension or several; see
/// [`ShardingSpec`]. A mesh dimension is in one of three states:
///
/// - it *cuts* one tensor dimension: ranks that differ along it hold different indices;
/// - it is [*partial*](Self::with_partial): they hold a term each of every element, still to be
///   reduced;
/// - it is *idle*: they hold the same.
///
/// Layouts are equal when meshes, types, specs and partial dimensions are.
///
/// # Uneven shards
///
/// Any size may be cut by any number of ranks. A dimension of n indices is cut into chunks of
/// ⌈n / ranks⌉ indices; the last chunk with any may be shorter, and later ranks hold none. Further
/// mesh dimensions cut those chunks by the same rule. TensorFlow requires that sizes divide, and
/// where it does not check, rounds down.
///
/// ```
/// use meshwork_core::{Mesh, MeshRank};
/// use meshwork_layout::Layout;
///
/// let mesh = Mesh::new([("x", 4)])?;
/// let layout = Layout::batch_sharded(&mesh, "x", 1)?;
/// let shards = mesh.ranks().map(|rank| layout.shard(rank, &[5]).unwrap()[0].clone());
/// assert!(shards.eq([0..2, 2..4, 4..5, 5..5]));
/// # Ok::<(), meshwork_layout::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Layout {
    mesh: Mesh,
    layout_type: LayoutType,
    axes: SmallVec<[Axis; 4]>,
    partial: Option<Partial>,
    /// The mesh dimensions that neither cut nor are partial, major to minor.
    idle: SmallVec<[Cut; 2]>,
}

/// The meaning of sharded tensor dimensions for ops; the placement of elements is the same for all
/// types.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LayoutType {
    /// The parts are parts of one tensor.
    #[default]
    Static,
    /// Each rank's part is a tensor of its own along the dimensions that are cut; see
    /// [`Layout::to_parted`].
    Parted,
}

/// The mesh dimensions along which elements are still to be reduced.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Partial {
    reduction: PartialReduction,
    /// Major to minor, never empty.
    cuts: SmallVec<[Cut; 1]>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Axis {
    spec: ShardingSpec,
    cuts: SmallVec<[Cut; 1]>,
}

/// A mesh dimension: its number, size and stride.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Cut {
    dim: usize,
    size: usize,
    stride: usize,
}

impl Layout {
    /// A layout with one spec for each tensor dimension.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a mesh dimension that the mesh does not have, [`Error::RepeatedDim`] for
    /// one that is used twice.
    pub fn new(specs: impl IntoIterator<Item = ShardingSpec>, mesh: &Mesh) -> Result<Self, Error> {
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        let mut used: Vec<(DimName, usize)> = Vec::new();
        for (axis, spec) in specs.into_iter().enumerate() {
            let mut cuts = SmallVec::new();
            for dim in spec.dims() {
                if let Some((_, first)) = used.iter().find(|(other, _)| other == dim) {
                    return Err(Error::RepeatedDim {
                        dim: dim.clone(),
                        first: *first,
                        second: axis,
                    });
                }
                cuts.push(Cut::of(mesh, mesh.dim_index(dim.as_str())?));
                used.push((dim.clone(), axis));
            }
            axes.push(Axis { spec, cuts });
        }
        Ok(Self {
            mesh: mesh.clone(),
            layout_type: LayoutType::Static,
            idle: idle(mesh, axes.iter().flat_map(|axis| &axis.cuts)),
            axes,
            partial: None,
        })
    }

    /// A layout with a word for each tensor dimension, as TensorFlow writes it: the name of a mesh
    /// dimension, or [`UNSHARDED`].
    ///
    /// # Errors
    /// Those of [`new`](Self::new) and of [`ShardingSpec::from_name`].
    pub fn from_names(
        names: impl IntoIterator<Item = impl AsRef<str>>,
        mesh: &Mesh,
    ) -> Result<Self, Error> {
        let specs = names
            .into_iter()
            .map(|name| ShardingSpec::from_name(name.as_ref()));
        Self::new(specs.collect::<Result<Vec<_>, _>>()?, mesh)
    }

    /// The layout by which every rank holds whole tensors of `rank` dimensions.
    #[must_use]
    pub fn replicated(mesh: &Mesh, rank: usize) -> Self {
        let whole = Axis {
            spec: ShardingSpec::unsharded(),
            cuts: SmallVec::new(),
        };
        Self {
            mesh: mesh.clone(),
            layout_type: LayoutType::Static,
            axes: std::iter::repeat_n(whole, rank).collect(),
            partial: None,
            idle: idle(mesh, []),
        }
    }

    /// The layout for tensors of `rank` dimensions of which the first is cut by `dim`.
    ///
    /// # Errors
    /// Those of [`axis_sharded`](Self::axis_sharded).
    pub fn batch_sharded(mesh: &Mesh, dim: &str, rank: usize) -> Result<Self, Error> {
        Self::axis_sharded(mesh, dim, rank, 0)
    }

    /// The layout for tensors of `rank` dimensions of which the last is cut by `dim`.
    ///
    /// # Errors
    /// Those of [`axis_sharded`](Self::axis_sharded).
    pub fn inner_sharded(mesh: &Mesh, dim: &str, rank: usize) -> Result<Self, Error> {
        Self::axis_sharded(mesh, dim, rank, rank.saturating_sub(1))
    }

    /// The layout for tensors of `rank` dimensions of which `axis` is cut by `dim`.
    ///
    /// # Errors
    /// [`Error::AxisOutside`], so for rank 0 always; [`Error::Mesh`] for a mesh dimension that the
    /// mesh does not have.
    pub fn axis_sharded(mesh: &Mesh, dim: &str, rank: usize, axis: usize) -> Result<Self, Error> {
        if axis >= rank {
            return Err(Error::AxisOutside { axis, rank });
        }
        Self::from_names(
            (0..rank).map(|other| if other == axis { dim } else { UNSHARDED }),
            mesh,
        )
    }

    /// This layout without these tensor dimensions; the order and repetitions do not matter.
    ///
    /// # Errors
    /// [`Error::AxisOutside`], where TensorFlow ignores the dimension.
    pub fn delete(&self, axes: &[usize]) -> Result<Self, Error> {
        if let Some(&axis) = axes.iter().find(|&&axis| axis >= self.rank()) {
            let rank = self.rank();
            return Err(Error::AxisOutside { axis, rank });
        }
        let kept = self
            .specs()
            .enumerate()
            .filter(|(axis, _)| !axes.contains(axis));
        self.with_specs(kept.map(|(_, spec)| spec.clone()))
    }

    /// The same layout, of the type [`LayoutType::Parted`]: each rank's part is a tensor of its own
    /// along the dimensions that are cut, so nothing is to be exchanged to compute along them.
    #[must_use]
    pub fn to_parted(&self) -> Self {
        Self {
            layout_type: LayoutType::Parted,
            ..self.clone()
        }
    }

    /// This layout with other specs.
    pub(crate) fn with_specs(
        &self,
        specs: impl IntoIterator<Item = ShardingSpec>,
    ) -> Result<Self, Error> {
        let mut other = Self::new(specs, &self.mesh)?;
        other.layout_type = self.layout_type;
        match self.reduction() {
            Some(reduction) => other.with_partial(self.partial(), reduction),
            None => Ok(other),
        }
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The meaning of sharded tensor dimensions for ops.
    #[must_use]
    pub fn layout_type(&self) -> LayoutType {
        self.layout_type
    }

    /// The spec of each tensor dimension.
    #[doc(alias = "sharding_specs")]
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &ShardingSpec> {
        self.axes.iter().map(|axis| &axis.spec)
    }

    /// The number of dimensions of the tensors; not to be confused with a
    /// [`MeshRank`](meshwork_core::MeshRank) of the mesh.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// The number of shards, empty ones included, into which a tensor dimension is cut.
    ///
    /// # Errors
    /// [`Error::AxisOutside`].
    pub fn num_shards(&self, axis: usize) -> Result<usize, Error> {
        let rank = self.rank();
        let axis = self
            .axes
            .get(axis)
            .ok_or(Error::AxisOutside { axis, rank })?;
        Ok(axis.num_shards())
    }

    /// The number of ranks that hold each element, or each of its [`terms`](Self::terms).
    #[must_use]
    pub fn copies(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.idle.iter().map(|cut| cut.size).product()
    }

    /// Whether no tensor dimension is cut and values are final, by name: a mesh dimension of size 1
    /// that cuts counts, though every rank holds whole tensors; that is so where
    /// [`copies`](Self::copies) are as many as ranks.
    #[must_use]
    pub fn is_fully_replicated(&self) -> bool {
        self.specs().all(ShardingSpec::is_unsharded) && self.partial.is_none()
    }

    /// Whether the first tensor dimension is cut, no other is, and values are final, by name: a
    /// mesh dimension of size 1 counts.
    #[must_use]
    pub fn is_batch_parallel(&self) -> bool {
        let mut specs = self.specs();
        let batch = specs.next().is_some_and(|first| !first.is_unsharded());
        batch && specs.all(ShardingSpec::is_unsharded) && self.partial.is_none()
    }
}

impl Axis {
    fn num_shards(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.cuts.iter().map(|cut| cut.size).product()
    }
}

impl Cut {
    fn of(mesh: &Mesh, dim: usize) -> Self {
        Self {
            dim,
            size: mesh.dims()[dim].size(),
            stride: mesh.strides()[dim],
        }
    }
}

/// The mesh dimensions that are in none of these, major to minor.
fn idle<'a>(mesh: &Mesh, used: impl IntoIterator<Item = &'a Cut>) -> SmallVec<[Cut; 2]> {
    let used: SmallVec<[usize; 4]> = used.into_iter().map(|cut| cut.dim).collect();
    let idle = (0..mesh.dims().len()).filter(|dim| !used.contains(dim));
    idle.map(|dim| Cut::of(mesh, dim)).collect()
}

#[cfg(test)]
mod tests;
