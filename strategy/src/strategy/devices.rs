//! The names of devices, which of its host's a worker takes, by which way their buffers go, and the
//! mesh of workers and replicas.

use meshwork_accel::{DeviceCommunicators, DeviceId};
use meshwork_collectives::{CommunicatorScope, DeviceRoute, FallbackReason, Rank, Route};
use meshwork_core::{DeviceSpec, Mesh};

use super::MultiWorkerMirroredStrategy;
use crate::Error;

impl MultiWorkerMirroredStrategy {
    /// This worker's number among those of its host, from 0 in the order of their ranks: that of
    /// its GPU, where a host has one for each of its workers.
    ///
    /// Each container with processes of its own counts as a host. Where a launcher shows each
    /// process one GPU alone, as by `CUDA_VISIBLE_DEVICES`, that is GPU 0, whatever number the
    /// worker has. When a worker of an elastic job is lost, those behind it move up, and one that
    /// comes is the last: there, choose by the worker's place in the [`cluster`](Self::cluster),
    /// which stays.
    ///
    /// ```
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    ///
    /// let strategy = MultiWorkerMirroredStrategy::from_env()?;
    /// let gpu = strategy.local_rank(); // as in Device::new_cuda(gpu)
    /// # assert_eq!(gpu, 0);
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    #[must_use]
    #[doc(alias("LOCAL_RANK", "local_device_id", "set_device"))]
    pub fn local_rank(&self) -> usize {
        let joined = self.split.as_ref().map(|split| &split.joined);
        let group = joined.unwrap_or(&self.group);
        group.hosts().local_rank(group.rank().index())
    }

    /// The way of buffers between workers, with a warning where two have one device and so no
    /// communicator.
    #[track_caller]
    pub(crate) fn device_route<A: DeviceCommunicators>(
        &mut self,
        accelerator: &A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<DeviceRoute<A::Buffer>, Error> {
        let way = self.group.device_route(accelerator, device, reach)?;
        if let Some(warning) = shared_device(way.route(), self.group.rank()) {
            tracing::warn!("{warning}");
        }
        Ok(way)
    }

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

/// What one of two workers says that have one device.
fn shared_device(route: &Route, own: Rank) -> Option<String> {
    match route {
        Route::Staged(FallbackReason::DeviceShared { rank, .. }) if *rank == own => Some(format!(
            "buffers of devices go {route}: give each worker of a host a device of its own, such as \
             that with the number of its local_rank"
        )),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::each;

    #[test]
    fn workers_of_a_host_are_numbered_in_the_order_of_their_ranks() {
        assert_eq!(each(2, |strategy| strategy.local_rank()), [0, 1]);
        let alone = MultiWorkerMirroredStrategy::alone().unwrap();
        assert_eq!(alone.local_rank(), 0);
    }

    #[test]
    fn workers_that_are_split_keep_their_numbers_on_the_host() {
        let mesh = Mesh::new([("data", 2), ("tensor", 2)]).unwrap();
        let numbers = each(4, |strategy| {
            let (strategy, _tensor) = strategy.split_along(&mesh, "tensor").unwrap();
            let number = strategy.local_rank();
            strategy.leave().unwrap();
            number
        });
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn one_of_two_workers_with_one_device_says_so_with_the_remedy() {
        let [rank, peer] = [1, 2].map(Rank::new);
        let shared = Route::Staged(FallbackReason::DeviceShared { rank, peer });
        let warning = shared_device(&shared, rank).unwrap();
        assert!(
            warning.contains("rank 1 and rank 2 have one device: give each worker"),
            "{warning}"
        );
        assert!(warning.contains("local_rank"), "{warning}");
        assert_eq!(shared_device(&shared, peer), None);
        let staged = Route::Staged(FallbackReason::NotAsked);
        assert_eq!(shared_device(&staged, rank), None);
    }
}
