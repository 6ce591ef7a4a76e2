use std::fmt::{self, Display};
use std::ops::Range;

use meshwork_core::{DimName, Mesh, Rank};
use smallvec::SmallVec;

use crate::{Error, Reduction, ShardingSpec, UNSHARDED, geometry};

/// For each tensor dimension the indices that a rank holds, in elements.
pub type Ranges = SmallVec<[Range<usize>; 4]>;

/// The sizes of all dimensions of a tensor, in elements.
pub type Shape = SmallVec<[usize; 4]>;

/// How tensors of one rank (number of dimensions) lie on a mesh.
///
/// Each tensor dimension is whole on every rank, or cut by one mesh dimension or several; see
/// [`ShardingSpec`]. A mesh dimension is in one of three states:
///
/// - it *cuts* one tensor dimension: ranks that differ along it hold different indices;
/// - it is [*partial*](Self::with_partial): they hold a term each of every element, still to be
///   reduced;
/// - it is *idle*: they hold the same.
///
/// Layouts are equal when meshes, specs and partial dimensions are.
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
    partial: Option<Partial>,
    /// The mesh dimensions that neither cut nor are partial, major to minor.
    idle: SmallVec<[Cut; 2]>,
}

/// The mesh dimensions along which elements are still to be reduced.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Partial {
    reduction: Reduction,
    /// Major to minor, never empty.
    cuts: SmallVec<[Cut; 1]>,
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
        Ok(Self {
            mesh: mesh.clone(),
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

    /// The same layout with exactly these mesh dimensions partial: along them each rank holds a term
    /// of every element, and the value is what `reduction` makes of the terms.
    ///
    /// This is what is left of a sum over an axis that they cut, until an all-reduce or a
    /// reduce-scatter finishes it. Their order does not matter; without any, nothing is partial.
    /// TensorFlow has no such layouts, it reduces at once.
    ///
    /// ```
    /// use meshwork_core::Mesh;
    /// use meshwork_layout::{Layout, Reduction};
    ///
    /// let mesh = Mesh::new([("batch", 4), ("model", 2)])?;
    /// let loss = Layout::replicated(&mesh, 0).with_partial(["batch"], Reduction::Sum)?;
    /// assert_eq!(loss.reduction(), Some(Reduction::Sum));
    /// assert_eq!((loss.terms(), loss.copies()), (4, 2));
    /// # Ok::<(), meshwork_layout::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mesh`] for a mesh dimension that the mesh does not have, [`Error::CutAndPartial`] for
    /// one that cuts a tensor dimension, [`Error::RepeatedPartial`] for one that is given twice.
    pub fn with_partial(
        self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
        reduction: Reduction,
    ) -> Result<Self, Error> {
        let mut cuts: SmallVec<[Cut; 1]> = SmallVec::new();
        for dim in dims {
            let cut = Cut::of(&self.mesh, self.mesh.dim_index(dim.as_ref())?);
            let dim = || self.mesh.dims()[cut.dim].name().clone();
            if let Some(axis) = self.axes.iter().position(|axis| axis.cuts.contains(&cut)) {
                return Err(Error::CutAndPartial { dim: dim(), axis });
            }
            if cuts.contains(&cut) {
                return Err(Error::RepeatedPartial { dim: dim() });
            }
            cuts.push(cut);
        }
        cuts.sort_unstable_by_key(|cut| cut.dim);
        let cutting = self.axes.iter().flat_map(|axis| &axis.cuts);
        Ok(Self {
            idle: idle(&self.mesh, cutting.chain(&cuts)),
            partial: (!cuts.is_empty()).then_some(Partial { reduction, cuts }),
            ..self
        })
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
        let rest = Self::new(kept.map(|(_, spec)| spec.clone()), &self.mesh)?;
        match self.reduction() {
            Some(reduction) => rest.with_partial(self.partial(), reduction),
            None => Ok(rest),
        }
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

    /// The partial mesh dimensions, major to minor.
    #[doc(alias = "unreduced")]
    pub fn partial(&self) -> impl ExactSizeIterator<Item = &DimName> {
        let cuts = self.partial_cuts().iter();
        cuts.map(|cut| self.mesh.dims()[cut.dim].name())
    }

    /// What is to be done along the [`partial`](Self::partial) mesh dimensions, if there are any.
    #[must_use]
    pub fn reduction(&self) -> Option<Reduction> {
        self.partial.as_ref().map(|partial| partial.reduction)
    }

    /// How many terms are to be reduced to one element: 1 where nothing is partial.
    #[must_use]
    pub fn terms(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.partial_cuts().iter().map(|cut| cut.size).product()
    }

    /// How many ranks hold each element, or each of its [`terms`](Self::terms).
    #[must_use]
    pub fn copies(&self) -> usize {
        // A factor of the mesh's size, which fits.
        self.idle.iter().map(|cut| cut.size).product()
    }

    /// Whether every rank holds whole tensors, of final values; mesh dimensions of size 1 cut nothing
    /// off and have nothing to reduce.
    #[must_use]
    pub fn is_fully_replicated(&self) -> bool {
        self.copies() == self.mesh.size()
    }

    /// Whether at most the first tensor dimension is cut, and values are final.
    #[must_use]
    pub fn is_batch_parallel(&self) -> bool {
        let whole = |axis: &Axis| axis.num_shards() == 1;
        self.axes.iter().skip(1).all(whole) && self.terms() == 1
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

    /// The ranks that hold this element of a tensor of this shape, or a term of it, ascending:
    /// [`copies`](Self::copies) × [`terms`](Self::terms). Takes no more time than their number.
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
        let mut whole: SmallVec<[Cut; 4]> = self
            .idle
            .iter()
            .chain(self.partial_cuts())
            .copied()
            .collect();
        whole.sort_unstable_by_key(|cut| cut.dim);
        let holders = self.copies() * self.terms();
        Ok((0..holders).map(move |holder| Rank::new(first + offset(holder, &whole))))
    }

    fn partial_cuts(&self) -> &[Cut] {
        self.partial.as_ref().map_or(&[], |partial| &partial.cuts)
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

/// TensorFlow's `sharding_specs:x,unsharded,`, without its mesh. What TensorFlow cannot express is
/// added so that it would refuse it: `sharding_specs:x|y,unsharded, partial:sum:z,`.
impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sharding_specs:")?;
        self.specs().try_for_each(|spec| write!(f, "{spec},"))?;
        if let Some(reduction) = self.reduction() {
            write!(f, " partial:{reduction}:")?;
            self.partial().try_for_each(|dim| write!(f, "{dim},"))?;
        }
        Ok(())
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

/// How far the rank of this number lies behind that of number 0, where ranks are counted along these
/// mesh dimensions, the last fastest.
fn offset(number: usize, along: &[Cut]) -> usize {
    let digit = |(number, offset): (usize, usize), cut: &Cut| {
        (number / cut.size, offset + number % cut.size * cut.stride)
    };
    along.iter().rev().fold((number, 0), digit).1
}

#[cfg(test)]
mod tests;
