use std::fmt::{self, Display};
use std::ops::Range;

use meshwork_core::{DimName, Mesh, Rank};
use smallvec::SmallVec;

use crate::{Error, ShardingSpec, UNSHARDED, geometry};

/// For each tensor dimension the indices that a rank holds, in elements.
pub type Ranges = SmallVec<[Range<usize>; 4]>;

/// The sizes of all dimensions of a tensor, in elements.
pub type Shape = SmallVec<[usize; 4]>;

/// How tensors of one rank (number of dimensions) lie on a mesh.
///
/// Each tensor dimension is whole on every rank, or cut by one mesh dimension or several; see
/// [`ShardingSpec`]. Ranks that differ only along mesh dimensions that cut nothing hold the same
/// part of the tensor. A mesh dimension may be used once. Layouts are equal when meshes and specs
/// are.
///
/// # Uneven shards
///
/// Any size may be cut by any number of ranks. A dimension of n indices is cut into chunks of
/// ⌈n / ranks⌉ indices; the last chunk with any may be shorter, and later ranks hold none. Further
/// mesh dimensions cut those chunks by the same rule. TensorFlow requires that sizes divide, and
/// where it does not check, rounds down.
///
/// ```
/// use meshwork_core::{Mesh, Rank};
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
    axes: SmallVec<[Axis; 4]>,
    /// The mesh dimensions that cut nothing, major to minor.
    idle: SmallVec<[Cut; 2]>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Axis {
    spec: ShardingSpec,
    cuts: SmallVec<[Cut; 1]>,
}

/// What the mesh says about one of its dimensions.
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
        let cuts_nothing = |dim: &usize| {
            !axes
                .iter()
                .flat_map(|axis| &axis.cuts)
                .any(|cut| cut.dim == *dim)
        };
        let idle = (0..mesh.dims().len())
            .filter(cuts_nothing)
            .map(|dim| Cut::of(mesh, dim))
            .collect();
        Ok(Self {
            mesh: mesh.clone(),
            axes,
            idle,
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
            axes: std::iter::repeat_n(whole, rank).collect(),
            idle: (0..mesh.dims().len())
                .map(|dim| Cut::of(mesh, dim))
                .collect(),
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
        Self::new(kept.map(|(_, spec)| spec.clone()), &self.mesh)
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The spec of each tensor dimension.
    #[doc(alias = "sharding_specs")]
    pub fn specs(&self) -> impl ExactSizeIterator<Item = &ShardingSpec> {
        self.axes.iter().map(|axis| &axis.spec)
    }

    /// How many dimensions the tensors have; not to be taken for a [`Rank`] of the mesh.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// Into how many shards, empty ones among them, a tensor dimension is cut.
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

    /// How many ranks hold each element.
    #[must_use]
    pub fn copies(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.idle.iter().map(|cut| cut.size).product()
    }

    /// Whether every rank holds whole tensors; mesh dimensions of size 1 cut nothing off.
    #[must_use]
    pub fn is_fully_replicated(&self) -> bool {
        self.axes.iter().all(|axis| axis.num_shards() == 1)
    }

    /// Whether at most the first tensor dimension is cut.
    #[must_use]
    pub fn is_batch_parallel(&self) -> bool {
        self.axes.iter().skip(1).all(|axis| axis.num_shards() == 1)
    }

    /// The indices that a rank holds of a tensor of this shape; an empty range lies at the end of
    /// what is cut. [`owners`](Self::owners) asks the other way round.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the mesh, [`Error::RankMismatch`] for a shape of another
    /// rank.
    pub fn shard(&self, rank: Rank, global_shape: &[usize]) -> Result<Ranges, Error> {
        self.check_rank(global_shape)?;
        let coords = self.mesh.coords(rank)?;
        let held = |(axis, &size): (&Axis, &usize)| {
            let part = |piece, cut: &Cut| geometry::part(&piece, cut.size, coords[cut.dim]);
            axis.cuts.iter().fold(0..size, part)
        };
        Ok(self.axes.iter().zip(global_shape).map(held).collect())
    }

    /// The shape of what a rank holds of a tensor of this shape, exact for uneven and empty shards.
    ///
    /// # Errors
    /// Those of [`shard`](Self::shard).
    #[doc(alias = "local_shape_from_global_shape")]
    pub fn local_shape(&self, rank: Rank, global_shape: &[usize]) -> Result<Shape, Error> {
        Ok(self
            .shard(rank, global_shape)?
            .iter()
            .map(Range::len)
            .collect())
    }

    /// The ranks that hold this element of a tensor of this shape, ascending, [`copies`](Self::copies)
    /// of them. Takes no more time than their number.
    ///
    /// # Errors
    /// [`Error::RankMismatch`] for an index or shape of another rank, [`Error::IndexOutside`].
    pub fn owners(
        &self,
        index: &[usize],
        global_shape: &[usize],
    ) -> Result<impl ExactSizeIterator<Item = Rank>, Error> {
        self.check_rank(global_shape)?;
        self.check_rank(index)?;
        let mut first = 0;
        for (axis, (&index, &size)) in index.iter().zip(global_shape).enumerate() {
            if index >= size {
                return Err(Error::IndexOutside { axis, index, size });
            }
            let mut piece = 0..size;
            for cut in &self.axes[axis].cuts {
                let part = geometry::part_of(&piece, cut.size, index);
                piece = geometry::part(&piece, cut.size, part);
                first += part * cut.stride;
            }
        }
        Ok((0..self.copies()).map(move |copy| Rank::new(first + self.copy_offset(copy))))
    }

    /// How far the ranks of a copy lie behind those of copy 0: its number, written in the sizes of
    /// the idle mesh dimensions.
    fn copy_offset(&self, copy: usize) -> usize {
        let digit = |(copy, offset): (usize, usize), cut: &Cut| {
            (copy / cut.size, offset + copy % cut.size * cut.stride)
        };
        self.idle.iter().rev().fold((copy, 0), digit).1
    }

    fn check_rank(&self, numbers: &[usize]) -> Result<(), Error> {
        if numbers.len() == self.rank() {
            return Ok(());
        }
        Err(Error::RankMismatch {
            found: numbers.to_vec(),
            expected: self.rank(),
        })
    }
}

/// TensorFlow's `sharding_specs:x,unsharded,`, without its mesh; a layout that TensorFlow cannot
/// express shows as `[x|y, unsharded]`.
impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.specs().all(|spec| spec.dims().len() <= 1) {
            f.write_str("sharding_specs:")?;
            return self.specs().try_for_each(|spec| write!(f, "{spec},"));
        }
        for (axis, spec) in self.specs().enumerate() {
            let opening = if axis == 0 { "[" } else { ", " };
            write!(f, "{opening}{spec}")?;
        }
        f.write_str("]")
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

#[cfg(test)]
mod tests;
