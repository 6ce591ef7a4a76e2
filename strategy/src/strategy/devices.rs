//! The names of devices, and the mesh of workers and replicas.

use meshwork_core::{DeviceSpec, Mesh};

use super::MultiWorkerMirroredStrategy;
use crate::Error;

impl MultiWorkerMirroredStrategy {
    /// The logical devices of this worker's replicas, in order.
    ///
    /// ```
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    ///
    /// let strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// let names: Vec<_> = strategy.devices()?.iter().map(ToString::to_string).collect();
    /// assert_eq!(names[1], "/job:localhost/replica:0/task:0/device:CPU:1");
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mesh`] for a job whose name cannot stand in one of a device.
    #[doc(alias("worker_devices", "parameter_devices", "non_slot_devices"))]
    pub fn devices(&self) -> Result<Vec<DeviceSpec>, Error> {
        let (job, task) = self
            .cluster
            .as_ref()
            .map_or(("localhost", 0), |(_, task)| (task.job(), task.index()));
        let host = DeviceSpec::default()
            .with_job(job)?
            .with_replica(0)
            .with_task(task);
        let device = |local: usize| {
            let index = u32::try_from(local).ok();
            Ok(host.clone().with_device("CPU", index)?)
        };
        (0..self.local_replicas).map(device).collect()
    }
}

/// The dimension of replicas only where there are several.
pub(super) fn mesh_of(workers: u32, replicas: usize) -> Result<Mesh, Error> {
    let workers = ("worker", workers as usize);
    Ok(match replicas {
        1 => Mesh::new([workers])?,
        _ => Mesh::new([workers, ("replica", replicas)])?,
    })
}
