//! `MultiWorkerMirroredStrategy`: constructors, variable scopes, data distribution, the comparison
//! of copies. What else is compared is in `agreement`, running steps in `steps`, reductions outside
//! of steps in `reductions`, elastic training in `training`, tensor parallelism in
//! `tensor_parallel`, leaving in `ending`.

mod agreement;
mod alone;
mod devices;
mod elastic;
mod ending;
mod etcd;
#[cfg(not(feature = "status"))]
mod no_status;
mod reductions;
#[cfg(feature = "status")]
mod status;
mod steps;
mod tensor_parallel;
mod training;

use std::sync::Arc;
use std::time::Duration;

use meshwork_cluster_resolver::{ClusterResolver, EnvironmentResolver, Task, WorkerPlacement};
use meshwork_collectives::{
    self as collectives, ConfigError, Element, Group, GroupConfig, JobIdentity, Prepared, Rank,
    Registered, Timeouts,
};
use meshwork_core::Mesh;

use crate::rendezvous::rendezvous;
use crate::replica::ReplicaPosition;
use crate::replica::cross::CrossReplica;
use crate::statistics::Meter;
use crate::sum::SumOrder;
use crate::variable::Scope;
use crate::{
    CommunicationOptions, CommunicationStats, DifferenceError, DistributedDataset, Error,
    Fingerprint, StrategyObserver, StrategyStatistics, hash,
};

use alone::warn_where_others_are_meant;
use devices::mesh_of;
pub use elastic::{Change, Progress, Training};
use tensor_parallel::Split;
pub(crate) use tensor_parallel::TensorDimension;
use training::Elastic;
pub use training::JoinMode;

/// Synchronous data-parallel training: each replica computes on its part of a global batch, and all
/// apply the same update.
///
/// Every worker runs the same program, and has one replica, or several that are threads of it. A
/// worker that is lost, or makes another call than the others, ends the training on all of them
/// with an error that names it.
#[derive(Debug)]
#[doc(alias("CollectiveAllReduceStrategy", "MirroredStrategy"))]
pub struct MultiWorkerMirroredStrategy {
    group: Group,
    mesh: Mesh,
    communication_stats: CommunicationStats,
    local_replicas: usize,
    options: CommunicationOptions,
    /// The members of the cluster and this process's task; `None` without a cluster, and of a
    /// worker that no cluster lists.
    cluster: Option<(WorkerPlacement, Task)>,
    /// Only where workers may be lost and others come in.
    elastic: Option<Elastic>,
    /// Only where several workers compute one replica.
    split: Option<Split>,
    pub(crate) meter: Arc<Meter>,
    /// This worker's address in etcd.
    #[cfg(feature = "etcd")]
    registration: Option<meshwork_cluster_resolver::EtcdRegistration>,
    #[cfg(feature = "status")]
    status: Option<meshwork_status::Server>,
    #[cfg(feature = "status")]
    reports: Option<meshwork_status::TrainJobReports>,
}

impl MultiWorkerMirroredStrategy {
    /// The strategy that the environment describes: the cluster as [`EnvironmentResolver`] reads it
    /// (`TF_CONFIG`, or else the variables of torchrun, Open MPI, MPICH, Flux, LSF, SkyPilot or
    /// Slurm; of the first three, processes on several hosts meet at `MASTER_ADDR` first), the job
    /// secret or certificates as [`JobIdentity::from_env`] has them, time-outs as in
    /// [`Timeouts::from_env`]. Blocks until all workers have met. Without a cluster, or as its only
    /// worker, this worker trains alone and needs neither; where a secret, certificates, seeds or a
    /// step of Slurm speak of others all the same, it says so in a line.
    ///
    /// With the feature `status`, which is on by default, a worker says over HTTP how it fares
    /// where `MESHWORK_STATUS` names an address, and the chief tells Kubeflow Trainer how far the
    /// training is where Trainer's variables say where.
    ///
    /// # Errors
    /// [`Error::Cluster`], [`Error::Group`], [`Error::Status`], or [`Error::WithoutStatus`].
    pub fn from_env() -> Result<Self, Error> {
        #[cfg(not(feature = "status"))]
        no_status::check_env()?;
        let strategy = Self::from_cluster_env()?;
        #[cfg(feature = "status")]
        let strategy = strategy.with_status_from_env()?;
        Ok(strategy)
    }

    fn from_cluster_env() -> Result<Self, Error> {
        let timeouts = Timeouts::from_env()?;
        let resolver = EnvironmentResolver::from_env();
        let cluster = cluster_of(&resolver, JobIdentity::from_env, timeouts.join())?;
        if cluster.is_none() {
            warn_where_others_are_meant();
        }
        let Some(cluster) = cluster.filter(has_others) else {
            return Self::alone();
        };
        let config = config(&cluster.0, JobIdentity::from_env()?)?.with_environment()?;
        let options = CommunicationOptions::new().with_timeouts(timeouts);
        Self::with(Group::connect(&config)?, options, Some(cluster))
    }

    /// The strategy for the cluster that `resolver` describes. Blocks until all workers have met.
    /// With an empty cluster, or as its only worker, this worker trains alone.
    ///
    /// # Errors
    /// [`Error::Cluster`], [`Error::Group`].
    pub fn new(
        resolver: &dyn ClusterResolver,
        identity: impl Into<JobIdentity>,
        options: CommunicationOptions,
    ) -> Result<Self, Error> {
        let identity = identity.into();
        let known = || Ok(identity.clone());
        let Some(cluster) = place_in(resolver, known, options.timeouts().join())? else {
            let mut alone = Self::alone()?;
            alone.options = options;
            return Ok(alone);
        };
        let config = config(&cluster.0, identity)?.with_timeouts(options.timeouts());
        Self::with(Group::connect(&config)?, options, Some(cluster))
    }

    /// A strategy with this process as its only worker, and one replica.
    ///
    /// # Errors
    /// [`Error::Group`] when the operating system refuses what even one worker needs.
    pub fn alone() -> Result<Self, Error> {
        let mut group = Group::local(1)?;
        Self::from_group(group.pop().expect("a group of one rank has one"))
    }

    /// A strategy with this process as its only worker, and as many replicas, which are threads.
    ///
    /// # Errors
    /// [`Error::LocalReplicas`], and those of [`alone`](Self::alone).
    #[doc(alias = "MirroredStrategy")]
    pub fn mirrored(replicas: usize) -> Result<Self, Error> {
        Self::alone()?.with_local_replicas(replicas)
    }

    /// The strategy of one rank of a group that exists already, such as a thread's of
    /// [`Group::local`].
    ///
    /// # Errors
    /// [`Error::Mesh`]
    pub fn from_group(group: Group) -> Result<Self, Error> {
        let mesh = mesh_of(group.world(), 1)?;
        Ok(Self {
            group,
            mesh,
            communication_stats: CommunicationStats::default(),
            local_replicas: 1,
            options: CommunicationOptions::new(),
            cluster: None,
            elastic: None,
            split: None,
            meter: Meter::new(),
            #[cfg(feature = "etcd")]
            registration: None,
            #[cfg(feature = "status")]
            status: None,
            #[cfg(feature = "status")]
            reports: None,
        })
    }

    fn with(
        mut group: Group,
        options: CommunicationOptions,
        cluster: Option<(WorkerPlacement, Task)>,
    ) -> Result<Self, Error> {
        group.set_communication(options.implementation());
        let mut strategy = Self::from_group(group)?;
        strategy.options = options;
        strategy.cluster = cluster;
        Ok(strategy)
    }

    /// Gives this worker several replicas, each a thread of a step: the same number on every
    /// worker. Where workers may come later, [`train`](Self::train) compares the numbers.
    ///
    /// # Errors
    /// [`Error::LocalReplicas`] for 0 and for more than a group has room for;
    /// [`DifferenceError::Replicas`], on every worker, when the numbers differ; [`Error::Group`].
    #[track_caller]
    pub fn with_local_replicas(mut self, replicas: usize) -> Result<Self, Error> {
        let workers = self.group.world() as usize;
        let most = MOST_REPLICAS / workers;
        if replicas == 0 || replicas > most {
            return self.abort_on_error(Err(Error::LocalReplicas { replicas, most }));
        }
        if !self.is_elastic() {
            self.compare_replicas(replicas)?;
        }
        self.local_replicas = replicas;
        self.mesh = mesh_of(self.group.world(), replicas)?;
        Ok(self)
    }

    #[track_caller]
    fn compare_replicas(&mut self, replicas: usize) -> Result<(), Error> {
        let numbers = self.all_words([replicas as u64])?;
        self.refuse_unlike(&numbers, |rank, replicas, chiefs| {
            let (replicas, chiefs) = (*replicas, *chiefs);
            DifferenceError::Replicas {
                rank,
                replicas,
                chiefs,
            }
        })
    }

    /// Chooses the order in which contributions are added, in the same way on every worker.
    #[must_use]
    pub fn with_sum_order(mut self, order: SumOrder) -> Self {
        self.options = self.options.with_sum_order(order);
        self
    }

    /// Replaces the options, in the same way on every worker. Times of a connection's life, and who
    /// goes on of two, stay as they were when it was made.
    #[must_use]
    pub fn with_options(mut self, options: CommunicationOptions) -> Self {
        self.group.set_communication(options.implementation());
        self.group
            .set_operation_timeout(options.timeouts().operation());
        self.options = options;
        self
    }

    /// A buffer of `len` zeros that the other workers of a host work on where it is: see
    /// [`Group::alloc`].
    ///
    /// # Errors
    /// [`Error::Group`] when there is not that much memory.
    pub fn alloc(&mut self, len: usize) -> Result<Registered<f32>, Error> {
        Ok(self.group.alloc(len)?)
    }

    /// An all-reduce of `buffer` among the workers that can be started again and again, on any
    /// thread: see [`Group::prepare_all_reduce`].
    pub(crate) fn prepare_all_reduce<T, B>(
        &mut self,
        buffer: B,
        op: collectives::ReduceOp,
    ) -> Result<Prepared<B>, Error>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        Ok(self.group.prepare_all_reduce(buffer, op)?)
    }

    /// Makes variables of which all workers hold equal copies.
    ///
    /// # Errors
    /// Those of `build`, which are those of [`Scope::variable`] and [`Scope::mirror`].
    pub fn scope<R>(
        &mut self,
        build: impl FnOnce(&mut Scope<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let built = build(&mut Scope::new(&mut self.group, self.local_replicas));
        self.abort_on_error(built)
    }

    /// Splits a data set of `samples` numbered samples among the workers, `global_batch` samples
    /// of all workers together in each step. An error ends the training on all workers.
    ///
    /// # Errors
    /// [`Error::BatchTooSmall`], [`Error::NoSamples`].
    #[doc(alias = "experimental_distribute_dataset")]
    pub fn distribute_dataset(
        &mut self,
        samples: usize,
        global_batch: usize,
    ) -> Result<DistributedDataset, Error> {
        let (worker, workers) = (self.group.rank(), self.group.world());
        let dataset = DistributedDataset::new(samples, global_batch, worker, workers);
        self.meter.set_global_batch(global_batch);
        self.abort_on_error(dataset)
    }

    /// Checks that all workers hold the same bits in `values`, by comparing a hash of 64 bits
    /// (XXH3). Costs one small operation.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], on every worker, with the ranks that differ from rank 0.
    #[track_caller]
    pub fn verify_replicas(&mut self, values: &[f32]) -> Result<u64, Error> {
        self.verify_fingerprint(Fingerprint::of(values))
    }

    /// As [`verify_replicas`](Self::verify_replicas), of values that are not contiguous.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], on every worker, with the ranks that differ from rank 0.
    #[track_caller]
    pub fn verify_fingerprint(&mut self, copy: Fingerprint) -> Result<u64, Error> {
        let mut hashes = vec![0.0; hash::room(self.group.world() as usize)];
        hash::write(copy, self.group.rank(), &mut hashes);
        self.group
            .all_reduce(&mut hashes, collectives::ReduceOp::Sum)?;
        let ranks = hash::different(&hashes);
        if ranks.is_empty() {
            Ok(copy.value())
        } else {
            Err(Error::ReplicasDiverged { ranks })
        }
    }

    /// How many replicas train together, those of all workers.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.group.world() as usize * self.local_replicas
    }

    /// Replicas of this worker.
    #[must_use]
    pub fn local_replicas(&self) -> usize {
        self.local_replicas
    }

    /// This worker's rank: the chief's is 0.
    #[must_use]
    #[doc(alias = "id_in_cluster")]
    pub fn rank(&self) -> Rank {
        self.group.rank()
    }

    /// Whether this worker is the one that reports, saves checkpoints and gives the initial values.
    #[must_use]
    #[doc(alias("should_checkpoint", "should_save_summary"))]
    pub fn is_chief(&self) -> bool {
        self.group.rank() == Rank::CHIEF
    }

    /// This worker's place among all, as the resolver described the cluster; `None` where there is
    /// no cluster, and a worker trains alone.
    #[must_use]
    #[doc(alias = "cluster_resolver")]
    pub fn cluster(&self) -> Option<&WorkerPlacement> {
        self.cluster.as_ref().map(|(placement, _)| placement)
    }

    /// The workers as a device mesh, in the order of their ranks: a dimension `worker`, and a
    /// dimension `replica` where a worker has several.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// How the workers communicate.
    #[must_use]
    pub fn options(&self) -> CommunicationOptions {
        self.options
    }

    /// Statistics of the all-reduces between workers so far.
    #[must_use]
    pub fn communication_stats(&self) -> CommunicationStats {
        self.communication_stats
    }

    /// How the training fares on this worker at this moment.
    #[must_use]
    pub fn statistics(&self) -> StrategyStatistics {
        self.observer().statistics()
    }

    /// Tells those who look at the training its loss: the last one counts. It costs a store.
    pub fn report_loss(&self, loss: f64) {
        self.meter.set_loss(loss);
    }

    /// Tells those who look at the training how many steps there are to be, counted as
    /// [`StrategyStatistics::steps`] counts them, so that they see how far it is.
    pub fn expect_steps(&self, total: u64) {
        self.meter.set_total_steps(total);
    }

    /// Asks the same from other threads while the training goes on.
    #[must_use]
    pub fn observer(&self) -> StrategyObserver {
        StrategyObserver::new(self.group.observer(), self.meter.clone())
    }

    #[track_caller]
    pub(crate) fn group_mut(&mut self) -> &mut Group {
        &mut self.group
    }

    pub(crate) fn sum_over_workers<const N: usize>(
        &mut self,
        mut numbers: [u64; N],
    ) -> Result<[u64; N], Error> {
        self.group
            .all_reduce(&mut numbers, collectives::ReduceOp::Sum)?;
        Ok(numbers)
    }

    /// Gives every worker the bytes of one, `source`.
    #[track_caller]
    pub(crate) fn bytes_of(&mut self, source: Rank, mut bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut length = [bytes.len() as u64];
        self.group.broadcast(&mut length, source)?;
        // A worker is trusted with the size of its own state.
        let length = usize::try_from(length[0]).expect("a worker holds as many bytes in memory");
        bytes.resize(length, 0);
        self.group.broadcast(&mut bytes, source)?;
        Ok(bytes)
    }

    fn cross(&mut self) -> CrossReplica<'_> {
        let (local, order) = (self.local_replicas, self.options.sum_order());
        CrossReplica::new(&mut self.group, &mut self.communication_stats, local, order)
    }

    fn position(&self, local: usize) -> ReplicaPosition {
        ReplicaPosition {
            local,
            locals: self.local_replicas,
            worker: (self.group.rank(), self.group.world()),
            order: self.options.sum_order(),
        }
    }

    fn timeout(&self) -> Duration {
        self.options.timeouts().operation()
    }
}

/// The placement and task of this process, after a rendezvous if it takes one; `None` where it is
/// the only worker.
fn place_in(
    resolver: &dyn ClusterResolver,
    identity: impl FnOnce() -> Result<JobIdentity, ConfigError>,
    limit: Duration,
) -> Result<Option<(WorkerPlacement, Task)>, Error> {
    let cluster = cluster_of(resolver, identity, limit)?;
    Ok(cluster.filter(has_others))
}

fn has_others(cluster: &(WorkerPlacement, Task)) -> bool {
    cluster.0.world() > 1
}

/// The same; `None` where there is no cluster.
fn cluster_of(
    resolver: &dyn ClusterResolver,
    identity: impl FnOnce() -> Result<JobIdentity, ConfigError>,
    limit: Duration,
) -> Result<Option<(WorkerPlacement, Task)>, Error> {
    let cluster = rendezvous(resolver.snapshot()?, identity, limit)?;
    match cluster.spec()?.is_empty() {
        true => Ok(None),
        false => Ok(Some((cluster.placement()?, cluster.task()?))),
    }
}

fn config(placement: &WorkerPlacement, identity: JobIdentity) -> Result<GroupConfig, Error> {
    let rank = Rank::new(placement.rank());
    Ok(GroupConfig::new(placement.addresses(), rank, identity)?.with_timeouts(Timeouts::default()))
}

/// The most ranks that a group can have.
const MOST_REPLICAS: usize = 4096;

#[cfg(test)]
mod tests;
