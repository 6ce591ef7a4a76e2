use super::Mesh;
use crate::{DeviceSpec, Devices, Error, MeshBuilder};

impl Mesh {
    /// The mesh of the CPUs beside this mesh's local devices, one for each, with the same index.
    ///
    /// Dimensions and ids are the same; it has no name, no global devices and no XLA SPMD. A host
    /// that names no replica is taken to be replica 0.
    ///
    /// # Errors
    /// [`Error::RemoteHost`] for a mesh without local devices, [`Error::DeviceWithoutHost`] for a
    /// device without a job or task, [`Error::UnevenLocalDevices`] when the local devices do not
    /// divide the mesh. TensorFlow ends the process in the first two cases.
    pub fn host_mesh(&self) -> Result<Self, Error> {
        if self.local_devices().is_empty() {
            return Err(Error::RemoteHost);
        }
        self.check_readable()?;
        let mut cpus = Vec::with_capacity(self.num_local_devices());
        for device in self.local_devices().iter() {
            let replica = device.replica().unwrap_or(0);
            let cpu = DeviceSpec::default().with_device("CPU", device.device_index())?;
            cpus.push(device.with_replica(replica).merge(&cpu));
        }
        let dims = self.dims().iter().map(|dim| (dim.name(), dim.size()));
        MeshBuilder::new(dims)
            .global_device_ids(self.global_device_ids().clone())
            .local(self.local_device_ids().clone(), Devices::from_iter(cpus))
            .assemble()
    }

    /// Checks the additional requirements of the text form: that a local device says where it is,
    /// and that every process has as many.
    pub(crate) fn check_readable(&self) -> Result<(), Error> {
        let (local, size) = (self.num_local_devices(), self.size());
        if local > 0 && !size.is_multiple_of(local) {
            return Err(Error::UnevenLocalDevices { local, size });
        }
        self.local_devices().check_hosts()
    }
}
