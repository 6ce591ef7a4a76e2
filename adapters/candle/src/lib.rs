//! Trains candle models on many workers: candle's variables and gradients in and out of a strategy.
//!
//! This crate does not know the network: it copies numbers between candle and
//! [`meshwork_strategy`].
//!
//! ```text
//!   VarMap ── sorted by name ──> scope.mirror       every worker starts with rank 0's values
//!   GradStore ── buckets ──> replica.all_reduce ──> GradStore ──> the optimizer, unchanged
//! ```
//!
//! A training loop as people write it needs its optimizer wrapped, and a part of the data for each
//! worker: see [`Distributed`].
//!
//! # When not to use it
//!
//! For models of other libraries, and for variables that are not `f32`. Layers that look at other
//! samples of a batch, such as batch normalisation, need [`BatchNorm`] of this crate.
//!
//! # Examples
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{Init, Optimizer, SGD, VarMap};
//! use meshwork_candle::{Distributed, Error};
//!
//! let vars = VarMap::new();
//! let weight = vars.get(1, "weight", Init::Const(5.0), DType::F32, &Device::Cpu)?;
//! let mut optimizer = Distributed::new(SGD::new(vars.all_vars(), 0.5)?, &vars)?;
//! optimizer.backward_step(&weight.sqr()?.sum_all()?)?;
//! assert_eq!(weight.to_vec1::<f32>()?, [0.0]);
//! # Ok::<(), Error>(())
//! ```
//!
//! What it stands on is there for programs that do more between backward pass and optimizer:
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{Init, Optimizer, SGD, VarMap};
//! use meshwork_candle::{Error, MirroredVars};
//! use meshwork_strategy::MultiWorkerMirroredStrategy;
//!
//! let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
//! let model = VarMap::new();
//! let weight = model.get(1, "weight", Init::Const(5.0), DType::F32, &Device::Cpu)?;
//! let mut mirrored = MirroredVars::new(&mut strategy, &model)?;
//! let mut optimizer = SGD::new(model.all_vars(), 0.5)?;
//! let loss = weight.sqr()?.sum_all()?;
//! let mut gradients = loss.backward()?;
//! strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0))?;
//! optimizer.step(&gradients)?;
//! assert_eq!(weight.to_vec1::<f32>()?, [0.0]);
//! mirrored.verify(&mut strategy)?;
//! # Ok::<(), Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Distributed::new`], [`Distributed::backward_step`] | an optimizer of many workers |
//! | [`Distributed::backward_step_weighted`] | parts of several sizes, or none |
//! | [`Distributed::accumulate`], [`Distributed::with_max_norm`] | several batches in a step, clipped gradients |
//! | [`MirroredVars::new`], [`MirroredVars::all_reduce`] | the same in parts, for loops of your own |
//! | [`MirroredVars::hooked`], [`MirroredVars::backward`] | sums during the backward pass |
//! | [`MirroredVars::save`], [`MirroredVars::restore`] | snapshots |
//! | [`Sharded`], [`ShardedStack`] | optimizers and models in parts |
//! | [`BatchNorm`] | batch normalisation over all workers |
//! | [`LowCommunicationVars`] | many steps between exchanges |
//! | [`QuorumVars`] | the same, ended by those who have come |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `status` | on by default: workers say over HTTP how they fare, where `MESHWORK_STATUS` says so |
//! | `cuda` | sums gradients on NVIDIA's GPUs where they lie; `nvcc` is needed to build it |
//!
//! # Errors
//!
//! [`Error`] names the variable, or passes on what the strategy and candle say. Workers whose
//! models differ are told when variables are mirrored, and those whose loss is not finite before
//! the step of [`Distributed`].
//!
//! # Costs
//!
//! Gradients are read out of candle into room that is allocated once, and their sums are written
//! back. Variables are hashed in each step, to compare the copies. Batch normalisation waits for
//! the other workers in each layer.
//!
//! # Map of the crate
//!
//! `distributed` (the wrapped optimizer), `sharded` (one whose state is in parts), `stack` (models
//! in parts, run by the units of `unit`, begun by `initial`), `low_communication` (many steps
//! between exchanges), `vars` (nearly all else), `batch_norm` (layers that look at the batches of
//! all), `gradient_hooks` (gradients caught while others are still computed), `values`, `tensor`
//! and `lent` (values read out, and in place), `cuda` (variables on GPUs), `error`.
#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]

mod batch_norm;
#[cfg(feature = "cuda")]
mod cuda;
mod distributed;
mod error;
mod gradient_hooks;
mod initial;
mod lent;
mod low_communication;
mod sharded;
mod stack;
mod tensor;
#[cfg(test)]
mod testing;
mod unit;
mod values;
mod vars;

pub use batch_norm::{BatchNorm, BatchNorms, Inputs};
#[cfg(feature = "cuda")]
pub use cuda::CudaVars;
pub use distributed::Distributed;
pub use error::Error;
pub use low_communication::{LowCommunicationVars, QuorumVars};
pub use sharded::Sharded;
pub use stack::ShardedStack;
pub use unit::{ModuleTape, ModuleUnit};
pub use vars::MirroredVars;

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../../docs/book/src/a-model-that-does-not-fit.md")]
    mod a_model_that_does_not_fit {}
    #[doc = include_str!("../../../docs/book/src/candle.md")]
    mod candle {}
}
