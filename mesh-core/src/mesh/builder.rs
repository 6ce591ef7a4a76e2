//! `MeshBuilder`, and all checks that a mesh has to pass. `assemble` checks less, for meshes read
//! from text or protobuf, where TensorFlow allows more.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Coords, Mesh, MeshDim, Parts};
use crate::{DeviceIds, Devices, DimName, Error, MAX_MESH_SIZE};

/// A builder of meshes: [`Mesh::builder`] starts it, [`build`](Self::build) checks everything.
///
/// ```
/// use meshwork_core::{DeviceIds, Devices, Error, Mesh};
///
/// // The second of two processes with two devices each.
/// let local = Devices::parse(["/job:w/task:1/device:GPU:0", "/job:w/task:1/device:GPU:1"])?;
/// let mesh = Mesh::builder([("batch", 2), ("model", 2)])
///     .name("grid")
///     .local(DeviceIds::new([2, 3])?, local)
///     .build()?;
/// assert_eq!(
///     mesh.to_string(),
///     "grid|batch=2,model=2|0,1,2,3|2,3|/job:w/task:1/device:GPU:0,/job:w/task:1/device:GPU:1"
/// );
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MeshBuilder {
    dims: Vec<(String, usize)>,
    name: String,
    ids: Option<DeviceIds>,
    local: Option<(DeviceIds, Devices)>,
    global_devices: Devices,
    xla_spmd: bool,
}

impl MeshBuilder {
    pub(crate) fn new(dims: impl IntoIterator<Item = (impl AsRef<str>, usize)>) -> Self {
        let dims = dims.into_iter();
        Self {
            dims: dims
                .map(|(name, size)| (name.as_ref().to_owned(), size))
                .collect(),
            name: String::new(),
            ids: None,
            local: None,
            global_devices: Devices::default(),
            xla_spmd: false,
        }
    }

    /// The sizes of the dimensions as they were given, major to minor.
    pub(crate) fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|(_, size)| *size).collect()
    }

    /// The name; none by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The device ids, in rank order; 0 and up by default.
    pub fn global_device_ids(mut self, ids: DeviceIds) -> Self {
        self.ids = Some(ids);
        self
    }

    /// The devices of this process and their ids, in the same order; none by default.
    ///
    /// Give a mesh without devices none by leaving this out: two empty lists are an error where no
    /// device at all is given.
    #[doc(alias = "local_device_ids")]
    #[doc(alias = "local_devices")]
    pub fn local(mut self, ids: DeviceIds, devices: Devices) -> Self {
        self.local = Some((ids, devices));
        self
    }

    /// The devices of all ranks, in rank order; unknown by default.
    pub fn global_devices(mut self, devices: Devices) -> Self {
        self.global_devices = devices;
        self
    }

    /// Marks the mesh as one whose programs the XLA compiler partitions; TPU only.
    #[doc(alias = "use_xla_spmd")]
    pub fn xla_spmd(mut self) -> Self {
        self.xla_spmd = true;
        self
    }

    /// Builds the mesh after all checks.
    ///
    /// # Errors
    /// - Those of [`Mesh::new`], and [`Error::MeshNameCharacter`].
    /// - For the ids: [`Error::IdCount`], [`Error::IdsNotConsecutive`], [`Error::ForeignLocalId`].
    /// - For the devices: [`Error::NoDevices`], [`Error::LocalDeviceCount`],
    ///   [`Error::DuplicateDevice`] (but one CPU may stand for every local rank),
    ///   [`Error::GlobalDeviceCount`], [`Error::DeviceWithoutType`], [`Error::MixedDeviceTypes`],
    ///   [`Error::SpmdNeedsTpu`].
    pub fn build(self) -> Result<Mesh, Error> {
        if let Some(ids) = &self.ids {
            ids.check_consecutive()?;
        }
        let no_device =
            |(ids, devices): &(DeviceIds, Devices)| ids.is_empty() && devices.is_empty();
        if self.local.as_ref().is_some_and(no_device) && self.global_devices.is_empty() {
            return Err(Error::NoDevices);
        }
        let mesh = self.assemble()?;
        if mesh.local_devices().len() != mesh.local_device_ids().len() {
            return Err(mesh.0.local_device_count());
        }
        match mesh.device_type() {
            Some(device_type) if mesh.use_xla_spmd() && device_type != "TPU" => {
                Err(Error::SpmdNeedsTpu {
                    device_type: device_type.to_owned(),
                })
            }
            _ => Ok(mesh),
        }
    }

    /// Builds a mesh with the checks that every mesh passes, without those of a new one: meshes
    /// that are read may have ids in any order, local ids without devices, and XLA SPMD for any
    /// device.
    pub(crate) fn assemble(self) -> Result<Mesh, Error> {
        let dims = checked_dims(self.dims)?;
        let (size, strides) = row_major(&dims)?;
        let ids = self.ids.unwrap_or_else(|| DeviceIds::counted(size));
        let (local_ids, local_devices) = self.local.unwrap_or_default();
        let parts = Parts {
            name: self.name,
            dims,
            strides,
            size,
            ids,
            local_ids,
            local_devices,
            global_devices: self.global_devices,
            xla_spmd: self.xla_spmd,
        };
        parts.check_name()?;
        parts.check_devices()?;
        parts.check_ids()?;
        Ok(Mesh(Arc::new(parts)))
    }
}

impl Parts {
    pub(super) fn check_name(&self) -> Result<(), Error> {
        match self.name.chars().find(|&c| c.is_control() || c == '|') {
            None => Ok(()),
            Some(character) => Err(Error::MeshNameCharacter {
                name: self.name.clone(),
                character,
            }),
        }
    }

    pub(super) fn check_devices(&self) -> Result<(), Error> {
        let (local, global) = (&self.local_devices, &self.global_devices);
        local.check_distinct()?;
        global.check_distinct()?;
        if !local.is_empty() && local.len() != self.local_ids.len() {
            return Err(self.local_device_count());
        }
        if !global.is_empty() && global.len() != self.size {
            return Err(Error::GlobalDeviceCount {
                found: global.len(),
                expected: self.size,
            });
        }
        local.check_type()?;
        global.check_type()?;
        match (local.device_type(), global.device_type()) {
            (Some(local), Some(global)) if local != global => Err(Error::LocalDeviceType {
                local: local.to_owned(),
                global: global.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), Error> {
        if self.ids.len() != self.size {
            return Err(Error::IdCount {
                found: self.ids.len(),
                expected: self.size,
            });
        }
        match self.local_ids.first_outside(&self.ids) {
            None => Ok(()),
            Some(id) => Err(Error::ForeignLocalId { id }),
        }
    }

    pub(super) fn local_device_count(&self) -> Error {
        Error::LocalDeviceCount {
            ids: self.local_ids.len(),
            devices: self.local_devices.len(),
        }
    }
}

fn checked_dims(dims: Vec<(String, usize)>) -> Result<SmallVec<[MeshDim; 2]>, Error> {
    let mut checked: SmallVec<[MeshDim; 2]> = SmallVec::new();
    for (name, size) in dims {
        let name = DimName::new(name)?;
        if size == 0 {
            return Err(Error::EmptyDim { name });
        }
        if checked.iter().any(|dim| dim.name == name) {
            return Err(Error::DuplicateDim { name });
        }
        checked.push(MeshDim { name, size });
    }
    Ok(checked)
}

/// The product of all sizes, and for each dimension the product of the sizes after it.
fn row_major(dims: &[MeshDim]) -> Result<(usize, Coords), Error> {
    let mut strides: Coords = SmallVec::with_capacity(dims.len());
    let mut size: usize = 1;
    for dim in dims.iter().rev() {
        strides.push(size);
        size = size
            .checked_mul(dim.size)
            .filter(|&size| size <= MAX_MESH_SIZE)
            .ok_or_else(|| Error::TooManyRanks {
                shape: dims.iter().map(MeshDim::size).collect(),
            })?;
    }
    strides.reverse();
    Ok((size, strides))
}
