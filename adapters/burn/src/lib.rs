//! Trains burn modules on many workers: burn's parameters and gradients in and out of a strategy.
//!
//! This crate does not know the network: it copies numbers between burn and [`meshwork_strategy`].
//!
//! ```text
//!   module ── in the order it declares ──> scope.mirror    every worker starts with rank 0's values
//!   GradientsParams ── registered buffers ──> all-reduce ──> GradientsParams ──> the optimizer
//! ```
//!
//! # When not to use it
//!
//! For models of other libraries, and for modules whose parameters are not `f32`.
//!
//! # Examples
//!
//! ```
//! use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
//! use burn_optim::{GradientsParams, SgdConfig};
//! use meshwork_burn::{Error, MirroredParams};
//! use meshwork_strategy::MultiWorkerMirroredStrategy;
//! # #[derive(Module, Debug)]
//! # struct Model { weight: Param<Tensor<1>> }
//!
//! let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
//! let model = Model { weight: Param::from_data([5.0], &Device::flex().autodiff()) };
//! let (mut mirrored, model) = MirroredParams::new(&mut strategy, model)?;
//! let loss = model.weight.val().square().sum();
//! let gradients = GradientsParams::from_grads(loss.backward(), &model);
//! let step = strategy.run(|replica| mirrored.all_reduce(replica, &model, gradients, 1.0));
//! let model = SgdConfig::new().init().step(0.5, model, step?.into_first());
//! assert_eq!(model.weight.val().into_scalar::<f32>(), 0.0);
//! # Ok::<(), Error>(())
//! ```
//!
//! Gradients of the last layers can be reduced while those of the first are computed, where the
//! backward pass is made in stages: see [`MirroredParams::start`].
//!
//! Programs that train by burn's own learner need one argument more: `Distributed`, with the
//! feature `train`.
//!
//! [`ShardedParams`] takes the place of an optimizer, and keeps a part of its state in each worker.
//! [`ShardedUnits`] runs a model unit by unit, and keeps a part of everything in each.
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | `Distributed::from_env` | burn's learner on many workers, with the feature `train` |
//! | [`MirroredParams::new`] | parameters that are equal on all workers |
//! | [`MirroredParams::all_reduce`] | gradients, summed |
//! | [`MirroredParams::start`], [`MirroredParams::finish`] | the same, in stages of the backward pass |
//! | [`MirroredParams::save`], [`save_optimizer`] | snapshots |
//! | [`ShardedParams`] | an optimizer whose state is in parts |
//! | [`ShardedUnits`], [`BurnUnit`] | models that are in parts themselves |
//! | [`LowCommunicationParams`] | many steps between exchanges |
//! | [`QuorumParams`] | the same, ended by those who have come |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `flex` | on by default: reads parameters of burn's own CPU backend where they are |
//! | `train` | `Distributed`, for burn's learner |
//! | `cuda` | sums gradients on NVIDIA's GPUs where they lie; with burn's fusion |
//!
//! # Errors
//!
//! [`Error`] names the parameter, or passes on what the strategy and burn say. Workers whose
//! modules differ are told at [`MirroredParams::new`].
//!
//! # Costs
//!
//! Gradients are copied out of burn and their sums back into the same memory; room for all of them
//! is allocated once. Parameters are hashed in each step, to compare the copies, but
//! [`without_checks`](MirroredParams::without_checks). With `cuda`, burn's queue is waited for
//! before each bucket.
//!
//! # Map of the crate
//!
//! `params` (the entry), `sharded` (an optimizer in parts), `stack`, `unit` and `activation`
//! (models in parts), `values` (out of modules and back), `learner` (burn's learner), `walk`
//! (through modules), `visits` (what is done with each parameter there), `tensor` (numbers out of
//! burn), `low_communication` (slow links), `snapshot` and `optimizer` (parameters and the
//! optimizer's state in checkpoints), `cuda` (gradients on GPUs), `error`.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]

mod activation;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
#[cfg(feature = "train")]
mod learner;
mod low_communication;
mod optimizer;
mod params;
mod sharded;
mod snapshot;
mod stack;
mod tensor;
#[cfg(test)]
#[path = "../../candle/src/testing.rs"]
mod testing;
mod unit;
mod values;
mod visits;
mod walk;

pub use activation::Activation;
pub use error::Error;
#[cfg(feature = "train")]
pub use learner::{Distributed, Field, Fields, GatherOutput};
pub use low_communication::{LowCommunicationParams, QuorumParams};
pub use optimizer::{restore_optimizer, save_optimizer};
pub use params::MirroredParams;
pub use sharded::ShardedParams;
pub use stack::ShardedUnits;
pub use unit::BurnUnit;

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/book/src/burn.md")]
    mod burn {}
}
