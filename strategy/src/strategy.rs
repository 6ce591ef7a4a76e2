use std::fmt::Display;
use std::time::Duration;

use meshwork_cluster_resolver::{ClusterResolver, TfConfigResolver, WorkerPlacement};
use meshwork_collectives::{self as collectives, Group, GroupConfig, JobSecret, Rank, Timeouts};
use meshwork_core::Mesh;

use crate::distributed::{PerReplica, Reduce};
use crate::replica::{ReduceOp, ReplicaContext};
use crate::variable::Scope;
use crate::{
    AutoShard, CommunicationOptions, Cursor, DistributedBatches, DistributedDataset, Error, Input,
    InputContext, Rows, hash,
};

/// Synchronous data-parallel training: each worker computes on its part of a global batch, and all
/// apply the same update.
///
/// Every worker runs the same program. A worker that is lost, or makes another call than the
/// others, ends the training on all of them with an error that names it.
#[derive(Debug)]
#[doc(alias = "CollectiveAllReduceStrategy")]
pub struct MultiWorkerMirroredStrategy {
    group: Group,
    mesh: Mesh,
    traffic: Traffic,
}

impl MultiWorkerMirroredStrategy {
    /// The strategy that the environment describes: the cluster in `TF_CONFIG`, the job secret in
    /// `MESHWORK_JOB_SECRET`, time-outs as in [`Timeouts::from_env`]. Blocks until all workers
    /// have met. Without `TF_CONFIG`, or as the only worker in it, this worker trains alone and
    /// needs no secret.
    ///
    /// # Errors
    /// [`Error::Cluster`], [`Error::NoTask`], [`Error::Group`].
    pub fn from_env() -> Result<Self, Error> {
        let Some(placement) = placement(&TfConfigResolver::from_env())? else {
            return Self::alone();
        };
        let config = config(&placement, JobSecret::from_env()?)?.with_environment()?;
        Self::over(Group::connect(&config)?)
    }

    /// The strategy for the cluster that `resolver` describes. Blocks until all workers have met.
    /// With an empty cluster, or as its only worker, this worker trains alone.
    ///
    /// # Errors
    /// [`Error::Cluster`], [`Error::NoTask`], [`Error::Group`].
    pub fn new(
        resolver: &dyn ClusterResolver,
        secret: JobSecret,
        options: CommunicationOptions,
    ) -> Result<Self, Error> {
        let Some(placement) = placement(resolver)? else {
            return Self::alone();
        };
        let config = config(&placement, secret)?.with_timeouts(options.timeouts());
        let mut group = Group::connect(&config)?;
        group.set_communication(options.implementation());
        Self::over(group)
    }

    /// A strategy with this process as its only worker.
    ///
    /// # Errors
    /// [`Error::Group`] when the operating system refuses what even one worker needs.
    pub fn alone() -> Result<Self, Error> {
        let mut group = Group::local(1)?;
        let only = group.pop().ok_or(collectives::Error::WorldSize {
            members: 0,
            limit: 1,
        })?;
        Self::over(only)
    }

    /// The strategy of one rank of a group that exists already, such as a thread's of
    /// [`Group::local`].
    ///
    /// # Errors
    /// [`Error::Mesh`]
    pub fn over(group: Group) -> Result<Self, Error> {
        let mesh = Mesh::new([("worker", group.world() as usize)])?;
        Ok(Self {
            group,
            mesh,
            traffic: Traffic::default(),
        })
    }

    /// Makes variables of which all workers hold equal copies.
    ///
    /// # Errors
    /// Those of `build`, which are those of [`Scope::variable`] and [`Scope::mirror`].
    pub fn scope<R>(
        &mut self,
        build: impl FnOnce(&mut Scope<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.report(|strategy| build(&mut Scope::new(&mut strategy.group)))
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
        let worker = (self.group.rank(), self.group.world());
        self.report(|_| DistributedDataset::new(samples, global_batch, worker))
    }

    /// Deals the batches of `input` to the replicas of all workers, from a cursor on. An error ends
    /// the training on all workers.
    ///
    /// # Errors
    /// Those of [`Input::pieces`], and [`Error::CursorElsewhere`].
    #[doc(alias("experimental_distribute_dataset", "distribute_datasets_from_function"))]
    pub fn distribute_batches<B: Rows + Send + 'static>(
        &mut self,
        input: &Input<B>,
        policy: AutoShard,
        from: Cursor,
    ) -> Result<DistributedBatches<B>, Error> {
        self.report(|strategy| {
            DistributedBatches::new(input, policy, strategy.input_context()?, from)
        })
    }

    /// Which of the workers' inputs is this one's.
    ///
    /// # Errors
    /// None that a strategy can have.
    pub fn input_context(&self) -> Result<InputContext, Error> {
        let workers = self.group.world() as usize;
        InputContext::new(workers, self.rank().index(), self.num_replicas_in_sync())
    }

    /// Runs one step on this worker's replica.
    ///
    /// An error of the step ends the training on all workers, which report it as this one's.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn run<R, E: From<Error> + Display>(
        &mut self,
        step: impl FnOnce(&mut ReplicaContext<'_>) -> Result<R, E>,
    ) -> Result<PerReplica<R>, E> {
        self.report(|strategy| {
            step(&mut ReplicaContext::new(
                &mut strategy.group,
                &mut strategy.traffic,
            ))
        })
        .map(|value| PerReplica::new(vec![value]))
    }

    /// Reduces what the replicas of all workers have computed; every worker gets the result.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[track_caller]
    pub fn reduce<T: Reduce>(&mut self, op: ReduceOp, value: PerReplica<T>) -> Result<T, Error> {
        value.into_first().reduce(&mut self.group, op)
    }

    /// Checks that all workers hold the same bits in `values`, by comparing a hash of 64 bits
    /// (XXH3). Costs one small operation.
    ///
    /// # Errors
    /// [`Error::ReplicasDiverged`], on every worker, with the ranks that differ from rank 0.
    #[track_caller]
    pub fn verify_replicas(&mut self, values: &[f32]) -> Result<u64, Error> {
        let hash = hash::of(values);
        let mut hashes = vec![0.0; hash::room(self.num_replicas_in_sync())];
        hash::write(hash, self.group.rank(), &mut hashes);
        self.group
            .all_reduce(&mut hashes, collectives::ReduceOp::Sum)?;
        let ranks = hash::different(&hashes);
        if ranks.is_empty() {
            Ok(hash)
        } else {
            Err(Error::ReplicasDiverged { ranks })
        }
    }

    /// Leaves the group: returns when all workers have finished.
    ///
    /// # Errors
    /// [`Error::Group`] when a worker was lost before.
    #[track_caller]
    pub fn leave(self) -> Result<(), Error> {
        Ok(self.group.leave()?)
    }

    /// Ends the training on all workers, which report `reason` as this worker's: for a failure
    /// outside a step, such as data that cannot be read.
    pub fn abort(&mut self, reason: impl Display) {
        self.group.abort(reason.to_string());
    }

    /// How many replicas train together.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.group.world() as usize
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

    /// The workers as a device mesh: one dimension, `worker`, in the order of their ranks.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// What all-reduces of steps have moved so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    #[track_caller]
    pub(crate) fn sum_over_workers<const N: usize>(
        &mut self,
        mut numbers: [u64; N],
    ) -> Result<[u64; N], Error> {
        self.group
            .all_reduce(&mut numbers, collectives::ReduceOp::Sum)?;
        Ok(numbers)
    }

    /// Tells the other workers about an error before it is returned.
    fn report<R, E: Display>(
        &mut self,
        action: impl FnOnce(&mut Self) -> Result<R, E>,
    ) -> Result<R, E> {
        let result = action(self);
        if let Err(error) = &result {
            // Changes nothing if the group has failed already, which then is the error.
            self.abort(error);
        }
        result
    }
}

/// What the all-reduces of a replica have moved, and how long they took. A worker that is alone
/// moves nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Traffic {
    operations: u64,
    bytes: u64,
    busy: Duration,
}

impl Traffic {
    pub(crate) fn count(&mut self, bytes: usize, busy: Duration) {
        self.operations += 1;
        self.bytes += bytes as u64;
        self.busy += busy;
    }

    /// How many all-reduces there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Bytes of all reduced buffers together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time in which this replica waited for all-reduces.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// What was moved since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        Self {
            operations: self.operations.saturating_sub(earlier.operations),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }

    /// Algorithm bandwidth in GB/s: bytes of the buffers by the time, 0 when nothing was moved.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        if self.busy.is_zero() {
            0.0
        } else {
            self.bytes as f64 / self.busy.as_secs_f64() / 1e9
        }
    }
}

/// Which worker this process is; `None` where it is the only one, and has nobody to meet.
fn placement(resolver: &dyn ClusterResolver) -> Result<Option<WorkerPlacement>, Error> {
    let spec = resolver.cluster_spec()?;
    if spec.is_empty() {
        return Ok(None);
    }
    let placement = WorkerPlacement::resolve(resolver)?;
    Ok((placement.world() > 1).then_some(placement))
}

fn config(placement: &WorkerPlacement, secret: JobSecret) -> Result<GroupConfig, Error> {
    let rank = Rank::new(placement.rank());
    Ok(GroupConfig::new(placement.addresses(), rank, secret)?.with_timeouts(Timeouts::default()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use meshwork_cluster_resolver::{ClusterSpec, SimpleResolver};

    use super::*;

    fn each<R: Send>(
        world: u32,
        program: impl Fn(MultiWorkerMirroredStrategy) -> R + Sync,
    ) -> Vec<R> {
        thread::scope(|scope| {
            let program = &program;
            let ranks: Vec<_> = Group::local(world)
                .unwrap()
                .into_iter()
                .map(|group| {
                    scope.spawn(move || program(MultiWorkerMirroredStrategy::over(group).unwrap()))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn every_worker_begins_with_the_chiefs_values() {
        let values = each(3, |mut strategy| {
            let own = strategy.rank().number() as f32;
            let variables = strategy.scope(|scope| {
                let weight = scope.variable("weight", &[2, 2], vec![own; 4])?;
                Ok((weight, scope.variable("bias", &[2], vec![own + 0.5; 2])?))
            });
            let (weight, bias) = variables.unwrap();
            strategy.leave().unwrap();
            [weight.values(), bias.values()].concat()
        });
        assert_eq!(values, vec![vec![0.0, 0.0, 0.0, 0.0, 0.5, 0.5]; 3]);
    }

    #[test]
    fn workers_with_different_shapes_all_fail_and_name_the_variable() {
        let errors = each(3, |mut strategy| {
            let width = if strategy.rank() == Rank::new(2) {
                5
            } else {
                4
            };
            let built = strategy
                .scope(|scope| scope.variable("fc.weight", &[2, width], vec![0.0; 2 * width]));
            built
                .and_then(|_| strategy.reduce(ReduceOp::Sum, PerReplica::new(vec![1.0_f32])))
                .unwrap_err()
        });
        for error in errors {
            let text = error.to_string();
            assert!(
                text.contains("fc.weight of shape [2, 5] on rank 2")
                    && text.contains("[2, 4] on rank 0"),
                "{text}"
            );
        }
    }

    #[test]
    fn one_name_for_two_variables_is_refused() {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let refused = strategy.scope(|scope| {
            scope.variable("w", &[1], vec![0.0])?;
            scope.variable("w", &[1], vec![0.0])
        });
        assert_eq!(
            refused,
            Err(Error::DuplicateVariable {
                name: "w".to_owned()
            })
        );
    }

    #[test]
    fn sums_and_means_are_over_all_replicas_and_counted_as_traffic() {
        each(4, |mut strategy| {
            let step = strategy.run(|replica| {
                let own = replica.replica_id().number() as f32;
                let (mut sum, mut mean) = ([own, 1.0], [own, 1.0]);
                replica.all_reduce(ReduceOp::Sum, &mut sum)?;
                replica.all_reduce(ReduceOp::Mean, &mut mean)?;
                Ok::<_, Error>((sum, mean))
            });
            assert_eq!(step.unwrap().into_first(), ([6.0, 4.0], [1.5, 1.0]));
            let rank = PerReplica::new(vec![f64::from(strategy.rank().number())]);
            assert_eq!(strategy.reduce(ReduceOp::Mean, rank).unwrap(), 1.5);
            assert_eq!(
                (strategy.traffic().operations(), strategy.traffic().bytes()),
                (2, 16)
            );
            strategy.leave().unwrap();
        });
    }

    #[test]
    fn the_error_of_one_workers_step_ends_all_with_its_reason() {
        let errors = each(3, |mut strategy| {
            let broken = strategy.rank() == Rank::new(1);
            strategy
                .run(|replica| {
                    if broken {
                        return Err(Error::NoSamples);
                    }
                    replica.all_reduce(ReduceOp::Sum, &mut [1.0])
                })
                .unwrap_err()
        });
        assert_eq!(errors[1], Error::NoSamples);
        for error in [&errors[0], &errors[2]] {
            let text = error.to_string();
            assert!(
                text.starts_with("rank 1 (") && text.contains(&Error::NoSamples.to_string()),
                "{text}"
            );
        }
    }

    #[test]
    fn copies_that_differ_in_one_bit_are_found_and_named() {
        each(3, |mut strategy| {
            let mut values = vec![1.0_f32; 100];
            assert!(strategy.verify_replicas(&values).is_ok());
            if strategy.rank() == Rank::new(2) {
                values[50] = f32::from_bits(1.0_f32.to_bits() + 1);
            }
            let expected = Error::ReplicasDiverged {
                ranks: vec![Rank::new(2)],
            };
            assert_eq!(strategy.verify_replicas(&values), Err(expected));
            strategy.leave().unwrap();
        });
    }

    #[test]
    fn a_checked_sum_finds_copies_that_differed_before_it() {
        each(3, |mut strategy| {
            let rank = strategy.rank().number();
            let mut copy = [1.0, 2.0];
            let mut step = |copy: &[f32]| {
                strategy.run(|replica| {
                    let mut values = vec![rank as f32; 1 + replica.check_len()];
                    replica.all_reduce_checked(&mut values, copy)?;
                    Ok::<_, Error>(values[0])
                })
            };
            assert_eq!(step(&copy).unwrap().into_first(), 3.0);
            if rank == 1 {
                copy[1] = 2.5;
            }
            // Whoever finds it first may end the group before another has looked.
            let text = step(&copy).unwrap_err().to_string();
            assert!(
                text.contains("those of rank 1 differ from rank 0's"),
                "{text}"
            );
        });
    }

    #[test]
    fn a_checked_sum_needs_room_for_its_hashes() {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let refused = strategy.run(|replica| replica.all_reduce_checked(&mut [1.0; 3], &[1.0]));
        assert_eq!(
            refused,
            Err(Error::NoRoomForCheck {
                found: 3,
                needed: 4
            })
        );
    }

    #[test]
    fn a_cluster_without_this_processs_task_is_refused() {
        let spec = ClusterSpec::from_addresses(["a:1", "b:1"]).unwrap();
        let secret = JobSecret::generate().unwrap();
        let refused = MultiWorkerMirroredStrategy::new(
            &SimpleResolver::new(spec),
            secret,
            CommunicationOptions::new(),
        );
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("task"), "{text}");
    }

    #[test]
    fn an_empty_cluster_is_one_worker_and_needs_no_secret_of_others() {
        let resolver = TfConfigResolver::from_json("{}");
        let secret = JobSecret::generate().unwrap();
        let strategy =
            MultiWorkerMirroredStrategy::new(&resolver, secret, CommunicationOptions::new())
                .unwrap();
        assert_eq!(
            (strategy.num_replicas_in_sync(), strategy.is_chief()),
            (1, true)
        );
        assert_eq!(strategy.mesh().size(), 1);
    }
}
