//! `Mesh`: named dimensions, row-major ranks and their coordinates. Checks of a new mesh are in
//! `builder`, devices and ids in `mesh/devices`, groups of ranks along dimensions in `mesh/groups`,
//! the CPU mesh beside it in `mesh/host`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{DeviceIds, DeviceSpec, Devices, DimName, Error, MeshRank};

mod builder;
mod devices;
mod groups;
mod host;

pub use builder::MeshBuilder;

/// Coordinates of one rank, or anything else with one number for each mesh dimension.
pub type Coords = SmallVec<[usize; 4]>;

/// Ranks arranged along named dimensions, and the devices they stand for.
///
/// Dimensions go from major to minor: ranks are counted row-major, so the last coordinate changes
/// fastest. Each rank has a device id, by default its number. A process knows which ids and devices
/// are its own, the *local* ones, and may know the devices of all ranks, the *global* ones. A mesh
/// of which a process has no device is [remote](Self::is_remote); one without any device is still
/// good for arithmetic. Clones share their contents.
///
/// Meshes are equal when all of this is: dimensions, name, ids, and devices as they were written,
/// which is when their text forms and protobuf forms are.
///
/// Invariants and conventions:
///
/// - a dimension of size 0 is refused, whatever the other sizes; a mesh without dimensions has one
///   rank; no device at all is [`AnyMesh::Empty`](crate::AnyMesh::Empty), and not a mesh;
/// - sizes whose product is above [`MAX_MESH_SIZE`](crate::MAX_MESH_SIZE) are refused;
/// - two dimensions of one name are refused, and names that [`DimName`] refuses, and two ranks of
///   one id or device (but one CPU may stand for all local ranks);
/// - a rank outside the mesh is an error. TensorFlow wraps it around in `coords`, and a second
///   method checks.
///
/// ```
/// use meshwork_core::{DimName, Mesh, MeshRank};
///
/// let mesh = Mesh::new([("batch", 2), ("model", 4)])?;
/// assert!(mesh.shape().eq([2, 4]));
/// assert_eq!(mesh.strides(), [4, 1]);
/// assert_eq!(mesh.dim_size("model")?, 4);
/// let coords = mesh.named_coords(MeshRank::new(5))?.map(|(dim, coord)| (dim.as_str(), coord));
/// assert!(coords.eq([("batch", 1), ("model", 1)]));
/// # Ok::<(), meshwork_core::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mesh(Arc<Parts>);

/// By what tells most meshes of a program apart: tables of relayouts and devices ask for it in each
/// op, and what is equal is then compared whole.
impl Hash for Mesh {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.size.hash(state);
        self.0.strides.hash(state);
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Parts {
    name: String,
    dims: SmallVec<[MeshDim; 2]>,
    strides: Coords,
    size: usize,
    ids: DeviceIds,
    local_ids: DeviceIds,
    local_devices: Devices,
    global_devices: Devices,
    xla_spmd: bool,
}

/// One dimension of a [`Mesh`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MeshDim {
    name: DimName,
    size: usize,
}

impl MeshDim {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &DimName {
        &self.name
    }

    /// How many ranks there are along this dimension; never 0.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Mesh {
    /// A mesh of these dimensions, major to minor, without a name and without devices.
    ///
    /// # Errors
    /// Those of [`DimName::new`], [`Error::EmptyDim`] for a size of 0, [`Error::DuplicateDim`], and
    /// [`Error::TooManyRanks`].
    pub fn new(dims: impl IntoIterator<Item = (impl AsRef<str>, usize)>) -> Result<Self, Error> {
        Self::builder(dims).build()
    }

    /// Starts a builder for a mesh of these dimensions, major to minor, with ids or devices.
    pub fn builder(dims: impl IntoIterator<Item = (impl AsRef<str>, usize)>) -> MeshBuilder {
        MeshBuilder::new(dims)
    }

    /// The same mesh under this name; an empty one takes the name away.
    ///
    /// # Errors
    /// [`Error::MeshNameCharacter`] for a name with a control character or `|`, which could not be
    /// read back from text.
    pub fn with_name(self, name: impl Into<String>) -> Result<Self, Error> {
        let mut parts = Arc::unwrap_or_clone(self.0);
        parts.name = name.into();
        parts.check_name()?;
        Ok(Self(Arc::new(parts)))
    }

    /// The same mesh with a device for each rank, in rank order, all of them local, in place of the
    /// devices it had.
    ///
    /// # Errors
    /// [`Error::DeviceCount`], [`Error::DuplicateDevice`] (but one CPU may stand for every rank),
    /// [`Error::DeviceWithoutType`], [`Error::MixedDeviceTypes`].
    pub fn with_devices(
        self,
        devices: impl IntoIterator<Item = DeviceSpec>,
    ) -> Result<Self, Error> {
        let mut parts = Arc::unwrap_or_clone(self.0);
        parts.local_ids = parts.ids.clone();
        parts.local_devices = devices.into_iter().collect();
        parts.global_devices = Devices::default();
        if parts.local_devices.len() != parts.size {
            return Err(Error::DeviceCount {
                found: parts.local_devices.len(),
                expected: parts.size,
            });
        }
        parts.check_devices()?;
        Ok(Self(Arc::new(parts)))
    }

    /// The name; empty for a mesh without one.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The dimensions, major to minor.
    #[must_use]
    pub fn dims(&self) -> &[MeshDim] {
        &self.0.dims
    }

    /// The names of the dimensions, major to minor.
    pub fn dim_names(&self) -> impl ExactSizeIterator<Item = &DimName> {
        self.dims().iter().map(MeshDim::name)
    }

    /// The sizes of the dimensions, major to minor.
    pub fn shape(&self) -> impl ExactSizeIterator<Item = usize> {
        self.dims().iter().map(MeshDim::size)
    }

    /// How far apart, in ranks, neighbours along each dimension are; 1 for the last dimension.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.0.strides
    }

    /// How many ranks there are; never 0.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// All ranks, ascending.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = MeshRank> + use<> {
        (0..self.size()).map(MeshRank::new)
    }

    /// Whether the mesh has a dimension of this name.
    #[must_use]
    pub fn contains_dim(&self, name: &str) -> bool {
        self.dim_index(name).is_ok()
    }

    /// The place of a dimension among [`dims`](Self::dims).
    ///
    /// # Errors
    /// [`Error::UnknownDim`].
    pub fn dim_index(&self, name: &str) -> Result<usize, Error> {
        let found = self.dim_names().position(|dim| dim.as_str() == name);
        found.ok_or_else(|| Error::UnknownDim {
            name: name.to_owned(),
            known: self.dim_names().cloned().collect(),
        })
    }

    /// The size of a dimension.
    ///
    /// # Errors
    /// [`Error::UnknownDim`].
    pub fn dim_size(&self, name: &str) -> Result<usize, Error> {
        Ok(self.dims()[self.dim_index(name)?].size)
    }

    /// The coordinates of a rank, major to minor; inverse of [`rank_of`](Self::rank_of).
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    #[doc(alias = "device_location")]
    pub fn coords(&self, rank: MeshRank) -> Result<Coords, Error> {
        self.check_rank(rank)?;
        let along = self.strides().iter().zip(self.shape());
        Ok(along
            .map(|(stride, size)| rank.index() / stride % size)
            .collect())
    }

    /// The coordinates of a rank with the names of their dimensions, major to minor.
    ///
    /// # Errors
    /// [`Error::RankOutside`].
    #[doc(alias = "unravel_index")]
    pub fn named_coords(
        &self,
        rank: MeshRank,
    ) -> Result<impl ExactSizeIterator<Item = (&DimName, usize)>, Error> {
        Ok(self.dim_names().zip(self.coords(rank)?))
    }

    /// The rank with these coordinates, major to minor; inverse of [`coords`](Self::coords).
    ///
    /// # Errors
    /// [`Error::CoordCount`], [`Error::CoordOutside`].
    pub fn rank_of(&self, coords: &[usize]) -> Result<MeshRank, Error> {
        if coords.len() != self.dims().len() {
            return Err(Error::CoordCount {
                found: coords.len(),
                expected: self.dims().len(),
            });
        }
        // Below `size` throughout, because each coordinate is below the size of its dimension.
        let mut rank = 0;
        for ((dim, stride), &coord) in self.dims().iter().zip(self.strides()).zip(coords) {
            if coord >= dim.size {
                return Err(Error::CoordOutside {
                    dim: dim.name.clone(),
                    coord,
                    size: dim.size,
                });
            }
            rank += coord * stride;
        }
        Ok(MeshRank::new(rank))
    }

    /// The same dimensions without name and devices, and with the ids 0 and up.
    pub(crate) fn bare(&self) -> Self {
        let parts = &*self.0;
        Self(Arc::new(Parts {
            name: String::new(),
            dims: parts.dims.clone(),
            strides: parts.strides.clone(),
            size: parts.size,
            ids: DeviceIds::counted(parts.size),
            local_ids: DeviceIds::default(),
            local_devices: Devices::default(),
            global_devices: Devices::default(),
            xla_spmd: false,
        }))
    }

    pub(crate) fn check_rank(&self, rank: MeshRank) -> Result<(), Error> {
        let size = self.size();
        if rank.index() < size {
            Ok(())
        } else {
            Err(Error::RankOutside { rank, size })
        }
    }
}

#[cfg(test)]
mod tests;
