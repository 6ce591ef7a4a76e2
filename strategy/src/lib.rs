//! Trains one model on many processes: every worker holds a copy, and all copies stay equal.
//!
//! This crate does not know which backend computes and which model library describes the model: it
//! sees named `f32` variables, gradients in flat buffers, and samples by their index.
//!
//! ```text
//!   global batch of 8    worker 0: 0 1 2 3 ── gradient ─┐
//!   0 1 2 3 4 5 6 7                                     ├─ all_reduce(sum) ── the same update
//!                        worker 1: 4 5 6 7 ── gradient ─┘                     on both workers
//! ```
//!
//! ```
//! use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReduceOp};
//!
//! // Who trains is in TF_CONFIG; without it, one worker trains alone.
//! let mut strategy = MultiWorkerMirroredStrategy::from_env()?;
//! let mut weight = strategy.scope(|scope| scope.variable("weight", &[1], vec![0.0]))?;
//! let numbers = strategy.distribute_dataset(100, 10)?.shuffled(1);
//! for batch in (0..20).flat_map(|epoch| numbers.epoch(epoch)) {
//!     strategy.run(|replica| {
//!         // Fits y = 3 x: this worker's part of the mean gradient over the global batch.
//!         let slope = |x: f32| 2.0 * x * (x * weight.values()[0] - 3.0 * x);
//!         let part: f32 = batch.indices().iter().map(|i| slope(*i as f32 / 100.0)).sum();
//!         let mut gradient = [part / batch.global_len() as f32];
//!         replica.all_reduce(ReduceOp::Sum, &mut gradient)?;
//!         weight.values_mut()[0] -= 0.5 * gradient[0];
//!         Ok::<_, Error>(())
//!     })?;
//! }
//! assert!((weight.values()[0] - 3.0).abs() < 1e-3);
//! strategy.leave()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Map of the crate: `strategy` (the entry), `replica` (what a step can do), `variable` (names,
//! shapes, the scope that makes copies equal), `flat` (many gradients as one buffer), `dataset`
//! (which worker takes which samples), `input` (batches from anywhere, dealt to replicas),
//! `packing` (what is reduced together), `hash` (equal copies), `distributed` (one value per replica), `error`.
#![forbid(unsafe_code)]

mod dataset;
mod distributed;
mod error;
mod flat;
mod hash;
mod input;
mod options;
mod packing;
mod replica;
mod strategy;
mod variable;

pub use meshwork_cluster_resolver::{ClusterResolver, SimpleResolver, TfConfigResolver};
pub use meshwork_collectives::{Communication, JobSecret, Rank, Timeouts};

pub use dataset::{Batch, DistributedDataset, Epoch};
pub use distributed::{PerReplica, Reduce};
pub use error::Error;
pub use flat::FlatBuffer;
pub use input::{
    AutoShard, Cursor, DistributedBatches, Input, InputContext, Pieces, Prefetch, Rows, Shard,
    Share, piece_sizes,
};
pub use options::CommunicationOptions;
pub use packing::packs;
pub use replica::{ReduceOp, ReplicaContext};
pub use strategy::{MultiWorkerMirroredStrategy, Traffic};
pub use variable::{MirroredVariable, Scope, VariableSpec};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
mod readme {}
