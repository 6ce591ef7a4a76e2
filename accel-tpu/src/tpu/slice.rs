use meshwork_core::tpu::{TpuCore, TpuError, TpuMesh, TpuRings, TpuTopology, create_tpu_mesh};
use meshwork_core::{DeviceSpec, MeshBuilder};

use super::core_of;
use crate::{DeviceInfo, Error};

/// Where the devices of a slice are, and the rings that meshes lay through them.
///
/// A device of a generation that joins the cores of a chip counts as one core.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Slice {
    topology: TpuTopology,
    cores: Vec<TpuCore>,
    processes: Vec<i32>,
}

impl Slice {
    /// The slice of these devices, which are all it has.
    ///
    /// # Errors
    /// [`Error::NoCoordinates`] where a device is no core of a TPU, [`Error::Slice`] where there is
    /// none.
    pub fn new(devices: &[DeviceInfo]) -> Result<Self, Error> {
        let cores = devices.iter().map(core_of).collect::<Result<Vec<_>, _>>()?;
        let mut sizes = [0; 4];
        for core in &cores {
            for (size, place) in sizes.iter_mut().zip(core.location()) {
                *size = place.saturating_add(1).max(*size);
            }
        }
        let processes = devices.iter().map(DeviceInfo::process).collect();
        let topology = TpuTopology::new(sizes)?;
        // Several slices have cores at the same places, and parts of one leave places empty.
        let (ranks, cores_of_slice) = (cores.len(), topology.cores());
        if ranks != cores_of_slice {
            return Err(TpuError::CoreCount {
                ranks,
                cores: cores_of_slice,
            }
            .into());
        }
        Ok(Self {
            topology,
            cores,
            processes,
        })
    }

    /// Chips along x, y and z, and cores of a chip.
    #[must_use]
    pub const fn topology(&self) -> &TpuTopology {
        &self.topology
    }

    /// Where each device is, in the order of the devices.
    #[must_use]
    pub fn cores(&self) -> &[TpuCore] {
        &self.cores
    }

    /// The mesh of all devices, seen from one process, with rings of neighbours; see
    /// [`create_tpu_mesh`].
    ///
    /// # Errors
    /// [`Error::Slice`] when the mesh has another size, or cannot be laid out so.
    pub fn mesh(
        &self,
        mesh: MeshBuilder,
        rings: &TpuRings,
        host: &DeviceSpec,
        process: i32,
    ) -> Result<TpuMesh, Error> {
        let with_process = self.cores.iter().zip(&self.processes);
        let local = with_process.filter(|(_, of)| **of == process);
        let local: Vec<_> = local.map(|(core, _)| *core).collect();
        Ok(create_tpu_mesh(mesh, &self.topology, rings, host, &local)?)
    }

    /// The devices in the order of a mesh's ranks, as places in the list that the slice was made
    /// of: what a program of as many replicas is compiled for.
    ///
    /// # Errors
    /// [`Error::Slice`] when the mesh has another size, or a device is missing.
    pub fn rank_order(&self, shape: &[usize], rings: &TpuRings) -> Result<Vec<usize>, Error> {
        let order = rings.order(&self.topology, shape)?;
        let place = |core: &TpuCore| {
            let found = self.cores.iter().position(|known| known == core);
            found.ok_or(TpuError::ForeignCore { core: *core })
        };
        Ok(order.iter().map(place).collect::<Result<_, _>>()?)
    }
}
