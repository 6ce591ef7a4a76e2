//! Trains one model on many processes: every worker holds a copy, and all copies stay equal.
//!
//! This crate does not know which backend computes and which model library describes the model: it
//! sees named variables, gradients in buffers, and samples by their index or in batches.
//!
//! ```text
//!   global batch of 8    worker 0: 0 1 2 3 ── gradient ─┐
//!   0 1 2 3 4 5 6 7                                     ├─ all_reduce(sum) ── the same update
//!                        worker 1: 4 5 6 7 ── gradient ─┘                     on both workers
//! ```
//!
//! # When not to use it
//!
//! For collectives without a model: use `meshwork-collectives`. With burn or candle, begin with
//! `meshwork-burn` and `meshwork-candle`. There are no parameter servers, and workers wait for each
//! other in every step, but in [`low_communication`].
//!
//! # Examples
//!
//! ```
//! use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};
//!
//! // Who trains is in TF_CONFIG or said by a launcher; else, one worker trains alone.
//! let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
//! let mut weight = strategy.scope(|scope| scope.variable("weight", &[1], vec![0.0]))?;
//! let numbers = strategy.distribute_dataset(100, 10)?.shuffled(1);
//! for batch in (0..20).flat_map(|epoch| numbers.epoch(epoch)) {
//!     strategy.run(|replica| {
//!         // Fits y = 3 x: this worker's part of the mean gradient over the global batch.
//!         let slope = |x: f32| 2.0 * x * (x * weight.values()[0] - 3.0 * x);
//!         let part: f32 = batch.indices().iter().map(|i| slope(*i as f32 / 100.0)).sum();
//!         let mut gradient = [part / batch.global_len() as f32];
//!         replica.all_reduce(ReplicaReduceOp::Sum, &mut gradient)?;
//!         weight.values_mut()[0] -= 0.5 * gradient[0];
//!         Ok::<_, Error>(())
//!     })?;
//! }
//! assert!((weight.values()[0] - 3.0).abs() < 1e-3);
//! strategy.leave()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! ## Reduce gradients while the backward pass goes on
//!
//! ```
//! use meshwork_strategy::{Error, GradientBuckets, MultiWorkerMirroredStrategy, VariableSpec};
//!
//! let mut strategy = MultiWorkerMirroredStrategy::alone()?;
//! let specs = [VariableSpec::new("w", &[2, 2])?, VariableSpec::new("b", &[2])?];
//! let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0)?;
//! strategy.run(|replica| {
//!     for index in [1, 0] {
//!         gradients.gradient_mut(index)?.fill(0.5); // the last layer first
//!         gradients.ready(replica, index)?; // its bucket is reduced from now on
//!     }
//!     gradients.finish(replica)
//! })?;
//! assert_eq!(gradients.gradient(1), [0.5, 0.5]);
//! # Ok::<(), Error>(())
//! ```
//!
//! ## Train a model that does not fit into one worker
//!
//! ```
//! use meshwork_strategy::sharded::{AdamW, Shard, ShardedModel, Sharding, UnitSpec};
//! use meshwork_strategy::{MultiWorkerMirroredStrategy, VariableSpec};
//!
//! let mut strategy = MultiWorkerMirroredStrategy::alone()?;
//! let units = [UnitSpec::new("head", [VariableSpec::new("head.weight", &[64, 10])?])];
//! let sharding = Sharding::new(Shard::Parameters); // or Optimizer, or Gradients
//! let model = ShardedModel::new(&mut strategy, sharding, &units, AdamW::new(1e-3), |_, _, rows| {
//!     rows.fill(0.1); // this worker's rows only
//! })?;
//! # let _ = model;
//! # Ok::<(), meshwork_strategy::Error>(())
//! ```
//!
//! ## Save and restore
//!
//! ```
//! use meshwork_strategy::{Checkpoints, Cursor, MultiWorkerMirroredStrategy, Snapshot};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let checkpoints = Checkpoints::new(folder.path());
//! let mut strategy = MultiWorkerMirroredStrategy::alone()?;
//! let snapshot = Snapshot::new(120, Cursor::start()); // and the values of variables
//! strategy.save_checkpoint(&checkpoints, &snapshot)?;
//! assert_eq!(strategy.restore_checkpoint(&checkpoints)?.snapshot(), Some(&snapshot));
//! # Ok::<(), meshwork_strategy::Error>(())
//! ```
//!
//! ## Go on when workers come and go
//!
//! ```no_run
//! # fn train<T: meshwork_strategy::Training>(mut training: T) -> Result<(), T::Error> {
//! use meshwork_strategy::MultiWorkerMirroredStrategy;
//!
//! let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
//! strategy.train(&mut training)?; // which makes steps, and saves its state
//! # Ok(())
//! # }
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`MultiWorkerMirroredStrategy::from_env`] | joins the others |
//! | [`MultiWorkerMirroredStrategy::scope`] | variables, equal on all workers |
//! | [`MultiWorkerMirroredStrategy::agree`] | settings, equal on all workers |
//! | [`MultiWorkerMirroredStrategy::distribute_dataset`] | this worker's samples |
//! | [`MultiWorkerMirroredStrategy::run`] | a step |
//! | [`ReplicaContext::all_reduce`] | a sum or mean of all, in a step |
//! | [`GradientBuckets`], [`FlatGradients`] | gradients of many variables together |
//! | [`MultiWorkerMirroredStrategy::save_checkpoint`], [`MultiWorkerMirroredStrategy::restore_checkpoint`] | what a training goes on from |
//! | [`MultiWorkerMirroredStrategy::elastic_from_env`], [`Training`] | workers that come and go |
//! | [`sharded`], [`low_communication`] | models that do not fit, and slow links |
//! | [`MultiWorkerMirroredStrategy::leave`] | the end |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `status` | on by default: workers say over HTTP how they fare, where `MESHWORK_STATUS` says so, and the chief tells Kubeflow Trainer |
//! | `ndarray` | `DistributedVariable`; reductions, gathers and batches of ndarray's arrays |
//! | `etcd` | workers of elastic jobs register in etcd, and newcomers find them there |
//! | `opentelemetry` | `export_spans`, which sends spans to a collector |
//!
//! # Errors
//!
//! [`Error`] is what the strategy finds, such as workers whose models differ, and what comes from
//! below: the group, the resolver, a checkpoint. It is the same on all workers; the others are told
//! why one leaves. [`misuse`] lists what goes wrong, and who says so.
//!
//! # Costs
//!
//! A step waits for the slowest worker. [`GradientBuckets`] and [`FlatGradients`] take the memory
//! of the gradients once more. Where copies are compared, a hash of each goes along with the sum.
//! Each further replica of a worker is a thread, while a step lasts. A status takes one thread.
//!
//! # Map of the crate
//!
//! `strategy` (the entry: workers and their replicas, steps, reductions, names of devices;
//! trainings whose workers change), `replica` (what a step can do, and where the replicas of a
//! worker meet), `variable` and `distributed_variable` (names, shapes, copies and when they are
//! brought together), `dataset` (which worker takes which samples), `input` and `rows` (batches
//! from anywhere, distributed to replicas), `flat_gradients` (many gradients as one buffer),
//! `device_reducer` (buffers that stay on devices), `device_gradients` (gradients of a library that
//! do), `gradients` and `bucketing` (what is reduced together, and when), `step_sum` (sums by code
//! that does not get hold of its step), [`sharded`] (a part of everything in each worker),
//! [`low_communication`] (many steps between exchanges), `snapshot`, `cursor`, `readers` and
//! `checkpoint` (what a training goes on from), `state_transfer` (how those get it that have it
//! not), `communication_stats` (of a replica's reductions), `statistics` (how all of it fares, for
//! others to see), `spans` (what it does, for a collector), `sum` (orders of adding), `value` and
//! `distributed` (numbers, one value for each replica), `hash` (equal copies), `options`, `error`;
//! [`misuse`] has no code: it lists what goes wrong, and who says so.
#![forbid(unsafe_code)]

mod bucketing;
mod checkpoint;
mod communication_stats;
mod cursor;
mod dataset;
mod device_gradients;
mod device_reducer;
mod distributed;
#[cfg(feature = "ndarray")]
mod distributed_variable;
mod error;
mod flat_gradients;
mod gradients;
mod hash;
mod input;
pub mod low_communication;
mod options;
mod readers;
mod rendezvous;
mod replica;
mod rows;
pub mod sharded;
mod snapshot;
#[cfg(feature = "opentelemetry")]
mod spans;
mod state_transfer;
mod statistics;
mod step_sum;
mod strategy;
mod sum;
#[cfg(test)]
mod testing;
mod value;
mod variable;

pub use meshwork_checkpoint::{Error as CheckpointError, FileDamage};
pub use meshwork_cluster_resolver::{
    ClusterResolver, EnvironmentResolver, SimpleResolver, TfConfigResolver,
};
pub use meshwork_collectives::{
    Certificates, Communication, CommunicatorScope, Compression, ElementType, FallbackReason,
    JobIdentity, JobSecret, Pinning, Rank, Registered, Rounding, Route, Timeouts, TwoMemberPolicy,
    bf16, f16, fmt_with_causes,
};
#[cfg(feature = "opentelemetry")]
pub use meshwork_status::{SpanExport, SpanOrigin};

pub use bucketing::bucket_ranges;
pub use checkpoint::{Checkpoints, Restored};
pub use communication_stats::CommunicationStats;
pub use cursor::Cursor;
pub use dataset::{Batch, DataEpoch, DistributedDataset};
pub use device_gradients::{BufferOf, DeviceGradients, DeviceTensors, Packed};
pub use device_reducer::DeviceReducer;
pub use distributed::{PerReplica, Reduce};
#[cfg(feature = "ndarray")]
pub use distributed_variable::{Aggregation, DistributedVariable, Synchronization, VariablePolicy};
pub use error::{
    DifferenceError, Error, LowCommunicationError, Part, SavedOtherwise, ShardGroupError,
    SnapshotDamage, StateError,
};
pub use flat_gradients::FlatGradients;
pub use gradients::{CommunicationDtype, GradientBuckets};
pub use hash::Fingerprint;
pub use input::{
    AutoShard, DistributedBatches, Input, InputContext, InputShard, Prefetch, ReplicaShards,
    StepShards, replica_batch_sizes,
};
pub use options::CommunicationOptions;
pub use readers::Readers;
pub use rendezvous::rendezvous;
#[cfg(feature = "ndarray")]
pub use replica::IndexedSlices;
pub use replica::cross::CrossReplica;
pub use replica::{ReplicaContext, ReplicaReduceOp};
pub use rows::Rows;
pub use snapshot::Snapshot;
#[cfg(feature = "opentelemetry")]
pub use spans::export_spans;
pub use state_transfer::LentArrays;
pub use statistics::{StrategyObserver, StrategyStatistics};
pub use step_sum::StepSum;
pub use strategy::{Change, JoinMode, MultiWorkerMirroredStrategy, Progress, Training};
pub use sum::SumOrder;
pub use value::Value;
pub use variable::{MirroredVariable, Scope, VariableSpec};

#[doc = include_str!("misuse.md")]
pub mod misuse {}

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/clusters.md")]
    mod clusters {}

    #[doc = include_str!("../../docs/book/src/five-minutes.md")]
    mod five_minutes {}

    #[cfg(feature = "opentelemetry")]
    #[doc = include_str!("../../docs/book/src/monitoring.md")]
    mod monitoring {}

    #[doc = include_str!("../../docs/book/src/slow-links.md")]
    mod slow_links {}

    #[doc = include_str!("../../docs/book/src/when-a-worker-dies.md")]
    mod when_a_worker_dies {}

    #[doc = include_str!("../../docs/book/src/your-own-model.md")]
    mod your_own_model {}
}
