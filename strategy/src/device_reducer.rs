//! Gradients that stay on the devices of an accelerator.

use std::fmt::{self, Debug};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceCommunicators, DeviceId, NativeCollectives};
use meshwork_collectives::{
    self as collectives, CommunicatorScope, DeviceRoute, Group, Pinning, Route,
};

use crate::communication_stats::CommunicationStats;
use crate::{
    CrossReplica, Error, MultiWorkerMirroredStrategy, PerReplica, ReplicaContext, ReplicaReduceOp,
};

/// Reduces buffers of an accelerator over all replicas: results of a step are summed without the
/// program downloading them.
///
/// [`staged_on`](MultiWorkerMirroredStrategy::staged_on) makes one for any accelerator, whose
/// buffers go through host memory between workers; by
/// [`direct_on`](MultiWorkerMirroredStrategy::direct_on) they go from device to device where
/// all workers can, by NCCL and the like. Make it once, outside of the steps. Sums are in the order
/// of the algorithm, whatever [`SumOrder`](crate::SumOrder) is chosen for host memory.
///
/// ```
/// # fn train<A: meshwork_accel::DeviceCommunicators>(
/// #     mut strategy: meshwork_strategy::MultiWorkerMirroredStrategy,
/// #     accelerator: &A,
/// #     device: meshwork_accel::DeviceId,
/// #     gradient: &mut A::Buffer,
/// # ) -> Result<(), meshwork_strategy::Error> {
/// use meshwork_strategy::{CommunicatorScope, ReplicaReduceOp};
///
/// let devices = strategy.direct_on(accelerator, device, CommunicatorScope::OneHost)?;
/// println!("gradients go {}", devices.route());
/// for _ in 0..100 {
///     strategy.run(|replica| {
///         // … the device computes `gradient` …
///         devices.all_reduce(replica, ReplicaReduceOp::Mean, gradient)
///     })?;
/// }
/// devices.close(&mut strategy)
/// # }
/// ```
pub struct DeviceReducer<'a, A: Accelerator> {
    accelerator: &'a A,
    /// Replicas of a worker are threads, one of which at a time reduces for all.
    route: Mutex<DeviceRoute<A::Buffer>>,
}

impl MultiWorkerMirroredStrategy {
    /// A reducer of buffers of `accelerator` that goes through host memory between workers.
    #[must_use]
    pub fn staged_on<'a, A: Accelerator>(&self, accelerator: &'a A) -> DeviceReducer<'a, A> {
        let route = Mutex::default();
        DeviceReducer { accelerator, route }
    }

    /// A reducer of buffers of `accelerator` that goes from device to device where all workers can
    /// and `reach` allows it: [`route`](DeviceReducer::route) says so, or why not. All workers call
    /// it; `device` is the one by which this worker takes part.
    ///
    /// It makes a communicator, which takes up to seconds. When workers have changed, make another.
    /// Where two workers have one device, one of them warns, by `tracing`.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[doc(alias = "NCCL")]
    #[track_caller]
    pub fn direct_on<'a, A: DeviceCommunicators>(
        &mut self,
        accelerator: &'a A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<DeviceReducer<'a, A>, Error> {
        let route = self.device_route(accelerator, device, reach)?;
        let route = Mutex::new(route);
        Ok(DeviceReducer { accelerator, route })
    }
}

impl<A: Accelerator> DeviceReducer<'_, A> {
    /// By which way buffers go between workers, and why; the same on every worker.
    pub fn route(&self) -> Route {
        self.kept().route().clone()
    }

    /// Whether the host memory that buffers go through is pinned for this worker's device.
    pub fn pinning(&self) -> Pinning {
        self.kept().pinning().clone()
    }

    /// Replaces `values`, on every worker, by their sum or mean over all workers, each of which has
    /// one replica; for several see [`all_reduce_each`](Self::all_reduce_each). All end with the
    /// same bits.
    ///
    /// # Shapes
    /// `values` has the same length on every worker.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] and [`Error::IntegerMean`], before anything is sent;
    /// [`Error::Group`]. `values` are then unspecified.
    #[track_caller]
    pub fn all_reduce(
        &self,
        replica: &mut ReplicaContext<'_>,
        op: ReplicaReduceOp,
        values: &mut A::Buffer,
    ) -> Result<(), Error> {
        let op = op.of(values)?;
        let (group, communication_stats) = replica.only_worker()?;
        // The sum and the mean of one.
        if group.world() == 1 {
            return Ok(());
        }
        counted(
            group,
            communication_stats,
            values.element_type().size() * values.len(),
            |group| {
                let mut route = self.kept();
                group
                    .with_route(self.accelerator, &mut route)
                    .all_reduce(values, op)
            },
        )
    }

    /// Replaces every replica's buffer by the sum or mean of those of all replicas of all workers.
    /// The devices of a worker reduce among themselves first.
    ///
    /// ```
    /// # use meshwork_accel::{Accelerator, NativeCollectives};
    /// # fn step<A: NativeCollectives + Sync>(
    /// #     strategy: &mut meshwork_strategy::MultiWorkerMirroredStrategy,
    /// #     accelerator: &A,
    /// #     gradient_on: impl Fn(usize) -> A::Buffer + Sync,
    /// # ) -> Result<(), meshwork_strategy::Error>
    /// # where
    /// #     A::Buffer: 'static,
    /// # {
    /// use meshwork_strategy::ReplicaReduceOp;
    ///
    /// let devices = strategy.staged_on(accelerator);
    /// let sums = strategy.run_each(|replica| {
    ///     let gradient = gradient_on(replica.local_id());
    ///     replica.merge_call(gradient, |cross, mut gradients| {
    ///         devices.all_reduce_each(cross, ReplicaReduceOp::Sum, &mut gradients)?;
    ///         Ok(gradients)
    ///     })
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes
    /// All buffers have the same length, on every worker, each on a device of its own.
    ///
    /// # Errors
    /// [`Error::IntegerMean`], before anything is sent; [`Error::Group`].
    #[track_caller]
    pub fn all_reduce_each(
        &self,
        cross: &mut CrossReplica<'_>,
        op: ReplicaReduceOp,
        values: &mut PerReplica<A::Buffer>,
    ) -> Result<(), Error>
    where
        A: NativeCollectives,
    {
        let mut buffers: Vec<&mut A::Buffer> = values.local_results_mut().collect();
        let (mut bytes, mut asked) = (0, collectives::ReduceOp::Sum);
        for buffer in &buffers {
            asked = op.of(&**buffer)?;
            bytes += buffer.element_type().size() * buffer.len();
        }
        let (group, communication_stats) = cross.worker();
        counted(group, communication_stats, bytes, |group| {
            let mut route = self.kept();
            let mut devices = group.with_route(self.accelerator, &mut route);
            devices.all_reduce_each(&mut buffers, asked)
        })
    }

    /// Ends the communicator, if there is one, when all workers have called this.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[track_caller]
    pub fn close(self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let route = self.route.into_inner();
        let route = route.unwrap_or_else(PoisonError::into_inner);
        Ok(route.close(strategy.group_mut())?)
    }

    fn kept(&self) -> MutexGuard<'_, DeviceRoute<A::Buffer>> {
        self.route.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplicaReduceOp {
    /// For what a buffer holds.
    fn of(self, buffer: &impl DeviceBuffer) -> Result<collectives::ReduceOp, Error> {
        let found = buffer.element_type();
        match self {
            Self::Sum => Ok(collectives::ReduceOp::Sum),
            Self::Mean if found.is_float() => Ok(collectives::ReduceOp::Mean),
            Self::Mean => Err(Error::IntegerMean { found }),
        }
    }
}

#[track_caller]
fn counted(
    group: &mut Group,
    communication_stats: &mut CommunicationStats,
    bytes: usize,
    reduce: impl FnOnce(&mut Group) -> Result<(), collectives::OperationError>,
) -> Result<(), Error> {
    let began = Instant::now();
    reduce(group)?;
    communication_stats.count(bytes, began.elapsed());
    Ok(())
}

impl<A: Accelerator> Debug for DeviceReducer<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceReducer")
            .field("route", self.kept().route())
            .finish_non_exhaustive()
    }
}
