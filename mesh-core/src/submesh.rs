//! `Submesh`: slices, splits, flattened and reordered dimensions of a mesh as strided views,
//! without a list of ranks. The strided arithmetic is in `strided`.

use std::ops::Range;

use smallvec::SmallVec;

use crate::strided::{Digit, Strided};
use crate::{DeviceIds, Devices, DimName, Error, Mesh, MeshBuilder, MeshRank};

/// A view of a mesh or a part of it, sliced, split, flattened or reordered, that maps its ranks to
/// those of the mesh.
///
/// [`Mesh::submesh`] starts with all of the mesh as it is; each method makes a view of the view. No
/// rank is touched until [`to_mesh`](Self::to_mesh) asks for ids and devices, so a view of a
/// million ranks takes a few numbers.
///
/// ```text
///            y=0  1  2  3
///      x=0  ┌──┬──┬──┬──┐    fix("x", 1):                  y: 4 5 6 7
///           │0 │1 │2 │3 │    select("y", 1..3):         x, y: 1 2 | 5 6
///      x=1  ├──┼──┼──┼──┤    split("y", a=2, b=2):   x, a, b: 0 1 | 2 3 || 4 5 | 6 7
///           │4 │5 │6 │7 │    reorder(["y", "x"]):        y, x: 0 4 | 1 5 | 2 6 | 3 7
///           └──┴──┴──┴──┘    flatten(["y", "x"], "z"):     z: 0 4 1 5 2 6 3 7
/// ```
///
/// ```
/// use meshwork_core::{Mesh, MeshRank};
///
/// let mesh = Mesh::new([("pipeline", 2), ("batch", 2), ("model", 4)])?;
/// let stage = mesh.submesh().fix("pipeline", 1)?.flatten(["batch", "model"], "all")?;
/// assert!(stage.shape().shape().eq([8]));
/// assert_eq!(stage.rank_in_mesh(MeshRank::new(3))?, MeshRank::new(11));
/// assert_eq!(stage.rank_of(MeshRank::new(11)), Some(MeshRank::new(3)));
/// assert_eq!(stage.rank_of(MeshRank::new(2)), None);
/// # Ok::<(), meshwork_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Submesh {
    mesh: Mesh,
    first: usize,
    dims: SmallVec<[Dim; 4]>,
    shape: Mesh,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Dim {
    name: DimName,
    /// Major to minor, none of size 1 and no two that could be one.
    digits: SmallVec<[Digit; 2]>,
}

impl Mesh {
    /// A view of all of this mesh, to slice or rearrange.
    #[must_use]
    pub fn submesh(&self) -> Submesh {
        let dims = self.dims().iter().enumerate();
        Submesh {
            mesh: self.clone(),
            first: 0,
            dims: dims
                .map(|(index, dim)| Dim::new(dim.name().clone(), [self.digit(index)]))
                .collect(),
            shape: self.bare(),
        }
    }
}

impl Submesh {
    /// The ranks whose coordinate along `dim` is in `coords`; the dimension is then as long as
    /// that.
    ///
    /// # Errors
    /// [`Error::UnknownDim`]; [`Error::RangeOutside`] for coordinates that the dimension does not
    /// have, or for none; [`Error::NotStrided`] for a part of a dimension that was flattened from
    /// ranks at irregular distances: take the part first.
    pub fn select(mut self, dim: &str, coords: Range<usize>) -> Result<Self, Error> {
        let index = self.shape.dim_index(dim)?;
        let size = self.shape.dims()[index].size();
        let name = self.dims[index].name.clone();
        let Range { start, end } = coords;
        if start >= end || end > size {
            return Err(Error::RangeOutside {
                dim: name,
                start,
                end,
                size,
            });
        }
        if end - start < size {
            let [digit] = self.dims[index].digits.as_slice() else {
                return Err(Error::NotStrided { dim: name });
            };
            let (size, stride) = (end - start, digit.stride);
            self.first += start * stride;
            self.dims[index] = Dim::new(name, [Digit { size, stride }]);
        }
        self.reshaped()
    }

    /// The ranks with this coordinate along `dim`, without that dimension.
    ///
    /// # Errors
    /// [`Error::UnknownDim`], [`Error::CoordOutside`].
    pub fn fix(mut self, dim: &str, coord: usize) -> Result<Self, Error> {
        let index = self.shape.dim_index(dim)?;
        let size = self.shape.dims()[index].size();
        let Dim { name, digits } = self.dims.remove(index);
        if coord >= size {
            let dim = name;
            return Err(Error::CoordOutside { dim, coord, size });
        }
        self.first = Strided::new(self.first, digits).at(coord);
        self.reshaped()
    }

    /// The same ranks with `dim` as several dimensions, major to minor, in its place.
    ///
    /// # Errors
    /// [`Error::UnknownDim`]; [`Error::SplitSize`] when the sizes do not multiply to that of `dim`;
    /// [`Error::NotStrided`] for a dimension that was flattened from others and is cut across them;
    /// those of [`Mesh::new`].
    pub fn split(
        mut self,
        dim: &str,
        parts: impl IntoIterator<Item = (impl AsRef<str>, usize)>,
    ) -> Result<Self, Error> {
        let index = self.shape.dim_index(dim)?;
        let size = self.shape.dims()[index].size();
        let Dim { name, mut digits } = self.dims.remove(index);
        let mut named = Vec::new();
        for (part, size) in parts {
            named.push((DimName::new(part)?, size));
        }
        let sizes = named.iter().map(|(_, size)| *size);
        if sizes.clone().try_fold(1, usize::checked_mul) != Some(size) {
            let (dim, parts) = (name, sizes.collect());
            return Err(Error::SplitSize { dim, size, parts });
        }
        for (part, size) in named.into_iter().rev() {
            let Some(taken) = take_minor(&mut digits, size) else {
                return Err(Error::NotStrided { dim: name });
            };
            self.dims.insert(index, Dim::new(part, taken));
        }
        self.reshaped()
    }

    /// The same ranks with `dims` as one dimension, counted along the last fastest, in the place of
    /// the first.
    ///
    /// # Errors
    /// [`Error::UnknownDim`], [`Error::RepeatedDim`], those of [`Mesh::new`] for the name;
    /// [`Error::NoDims`] for no dimension.
    pub fn flatten(
        mut self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
        name: impl AsRef<str>,
    ) -> Result<Self, Error> {
        let indices = self.shape.dim_indices(dims)?;
        let first = *indices.first().ok_or(Error::NoDims)?;
        let digits = indices
            .iter()
            .flat_map(|&index| self.dims[index].digits.clone());
        let flat = Dim::new(DimName::new(name)?, digits);
        self.dims[first] = flat;
        let mut index = 0;
        self.dims.retain(|_| {
            index += 1;
            index - 1 == first || !indices.contains(&(index - 1))
        });
        self.reshaped()
    }

    /// The same ranks with the dimensions in this order.
    ///
    /// # Errors
    /// [`Error::UnknownDim`], [`Error::RepeatedDim`]; [`Error::DimsLeftOut`] unless all are named.
    pub fn reorder(
        mut self,
        dims: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, Error> {
        let indices = self.shape.dim_indices(dims)?;
        if indices.len() != self.dims.len() {
            return Err(Error::DimsLeftOut {
                found: indices.len(),
                expected: self.dims.len(),
            });
        }
        self.dims = indices
            .iter()
            .map(|&index| self.dims[index].clone())
            .collect();
        self.reshaped()
    }

    /// The dimensions of this view, as a mesh without devices: coordinates and groups of its ranks.
    #[must_use]
    pub fn shape(&self) -> &Mesh {
        &self.shape
    }

    /// The mesh of which this is a part.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The rank of the mesh that a rank of this view stands for; inverse of
    /// [`rank_of`](Self::rank_of).
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    pub fn rank_in_mesh(&self, rank: MeshRank) -> Result<MeshRank, Error> {
        self.shape.check_rank(rank)?;
        Ok(MeshRank::new(self.strided().at(rank.index())))
    }

    /// The rank of this view that stands for a rank of the mesh, if it is part of it; inverse of
    /// [`rank_in_mesh`](Self::rank_in_mesh).
    #[must_use]
    pub fn rank_of(&self, rank: MeshRank) -> Option<MeshRank> {
        self.strided().position(rank.index()).map(MeshRank::new)
    }

    /// A mesh of its own, whose ranks have the ids and devices they have here; it has no name.
    ///
    /// Takes time in proportion to its number of ranks and of local devices.
    ///
    /// # Errors
    /// None that a view can meet: those of [`MeshBuilder::build`] are passed on.
    pub fn to_mesh(&self) -> Result<Mesh, Error> {
        let strided = self.strided();
        let ranks = || (0..self.shape.size()).map(|position| MeshRank::new(strided.at(position)));
        let ids = ranks().map(|rank| self.mesh.device_id(rank));
        let ids = DeviceIds::new(ids.collect::<Result<Vec<_>, _>>()?)?;
        let here = |id: &i64| ids.position(*id).is_some();
        let local_ids = self.mesh.local_device_ids();
        let devices = local_ids.iter().zip(self.mesh.local_devices().texts());
        let local = Devices::parse(devices.filter(|(id, _)| here(id)).map(|(_, text)| text))?;
        let local_ids = DeviceIds::new(local_ids.iter().filter(here))?;
        let all = self.mesh.global_devices();
        let global = ranks().filter_map(|rank| all.text(rank.index()));
        let builder = self.builder().local(local_ids, local);
        let builder = builder.global_devices(Devices::parse(global)?);
        let builder = match self.mesh.use_xla_spmd() {
            true => builder.xla_spmd(),
            false => builder,
        };
        builder.global_device_ids(ids).assemble()
    }

    fn strided(&self) -> Strided {
        let digits = self.dims.iter().flat_map(|dim| dim.digits.iter().copied());
        Strided::new(self.first, digits)
    }

    fn builder(&self) -> MeshBuilder {
        MeshBuilder::new(self.dims.iter().map(|dim| (&dim.name, dim.size())))
    }

    /// Checks the names of the dimensions, after they were changed.
    fn reshaped(mut self) -> Result<Self, Error> {
        self.shape = self.builder().assemble()?;
        Ok(self)
    }
}

impl Dim {
    fn new(name: DimName, digits: impl IntoIterator<Item = Digit>) -> Self {
        let mut merged: SmallVec<[Digit; 2]> = SmallVec::new();
        for digit in digits.into_iter().filter(|digit| digit.size > 1) {
            match merged.last_mut() {
                // Ranks that go on where the lower digit ends.
                Some(last) if last.stride == digit.stride * digit.size => {
                    last.size *= digit.size;
                    last.stride = digit.stride;
                }
                _ => merged.push(digit),
            }
        }
        Self {
            name,
            digits: merged,
        }
    }

    /// At most the size of the mesh.
    fn size(&self) -> usize {
        self.digits.iter().map(|digit| digit.size).product()
    }
}

/// Splits off the lowest digits of a number that together count `size` values, if some do.
fn take_minor(digits: &mut SmallVec<[Digit; 2]>, mut size: usize) -> Option<SmallVec<[Digit; 2]>> {
    let mut taken = SmallVec::new();
    while size > 1 {
        let last = digits.pop()?;
        let stride = last.stride;
        if size.is_multiple_of(last.size) {
            size /= last.size;
            taken.insert(0, last);
        } else if last.size.is_multiple_of(size) {
            taken.insert(0, Digit { size, stride });
            digits.push(Digit {
                size: last.size / size,
                stride: stride * size,
            });
            size = 1;
        } else {
            return None;
        }
    }
    Some(taken)
}

#[cfg(test)]
mod tests;
