//! The operations that candle's convolutional networks and transformers spend their training in,
//! for `f32` on CPUs: each stands in for candle's own of the same name, forward and backward.
//!
//! This crate does not know strategies and the network: it is useful to a single process too.
//!
//! # When not to use it
//!
//! On GPUs, or for other types than `f32`: candle's own operations do the work there. For inference
//! alone, what is gained is less.
//!
//! # Examples
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use candle_nn::{Conv2dConfig, Optimizer, SGD, VarBuilder, VarMap};
//! use meshwork_candle_ops as ops;
//!
//! let vars = VarMap::new();
//! let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
//! let first = candle_nn::conv2d(1, 4, 3, Conv2dConfig::default(), builder.pp("first"))?;
//! let last = candle_nn::linear(4 * 3 * 3, 10, builder.pp("last"))?;
//! let mut optimizer = SGD::new(vars.all_vars(), 0.1)?;
//!
//! let images = Tensor::rand(0.0_f32, 1.0, (2, 1, 8, 8), &Device::Cpu)?;
//! let labels = Tensor::new(&[3_u32, 7], &Device::Cpu)?;
//! let hidden = ops::silu(&ops::conv2d(&first, &images)?)?;
//! let pooled = ops::avg_pool2d(&hidden, 2)?;
//! let scores = ops::linear(&last, &pooled.flatten_from(1)?)?;
//! optimizer.backward_step(&ops::cross_entropy(&scores, &labels)?)?;
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! | | why it is faster than candle's own |
//! |---|---|
//! | [`conv2d`] | products of matrices in the backward pass too, and no gradient for images that need none |
//! | [`linear`] | a column sum for the bias, and the same |
//! | [`silu`] | an exponential that the compiler turns into vector instructions |
//! | [`avg_pool2d`], [`max_pool2d`] | one pass over rows, forward and backward |
//! | [`cross_entropy`] | softmax and loss in one pass over the scores |
//! | [`layer_norm`], [`gelu_erf`] | one pass over rows, forward and backward, where candle has a backward pass of many operations, or none |
//! | [`causal_attention`] | one head of one sequence at a time, which fits into the fastest cache, and no scores kept |
//! | [`sgd_step`] | values are written where they are, in two passes |
//!
//! Layers stay candle's: their variables, names and initial values are as before. Tensors on other
//! devices or of another type go to candle's own operation, which has the same meaning.
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`conv2d`], [`linear`] | layers of candle, applied |
//! | [`silu`], [`gelu_erf`], [`layer_norm`] | activations and norms |
//! | [`max_pool2d`], [`avg_pool2d`] | pooling |
//! | [`causal_attention`] | attention of a transformer |
//! | [`cross_entropy`] | the loss |
//! | [`sgd_step`] | a step of the optimizer |
//!
//! # Errors
//!
//! `candle_core::Error`, as of candle's own operations; what is found here is an [`Error`] within
//! it, with the sizes that do not go together.
//!
//! # Costs
//!
//! Work is split over rayon's current pool, or done by the calling thread where that has one, and
//! results do not depend on the number of its threads.
//! [`causal_attention`] keeps no scores for its backward pass. A training step allocates and frees
//! the same sizes again and again; glibc's allocator returns large ones to the kernel each time. A
//! program that trains should choose another, such as mimalloc.
//!
//! # Map of the crate
//!
//! One module for each operation; `conv2d/geometry` (which elements a kernel meets), `elementwise`
//! (one pass for two of them), `exp`, `vector` and `product` (the arithmetic), `spread` (over
//! threads), `storage` (the values of tensors), `error`.

mod attention;
mod conv2d;
mod cross_entropy;
mod elementwise;
mod error;
mod exp;
mod gelu;
mod layer_norm;
mod linear;
mod pool;
mod product;
mod sgd;
mod silu;
mod spread;
mod storage;
mod vector;

pub use attention::causal_attention;
pub use conv2d::conv2d;
pub use cross_entropy::cross_entropy;
pub use error::Error;
pub use gelu::gelu_erf;
pub use layer_norm::layer_norm;
pub use linear::linear;
pub use pool::{avg_pool2d, max_pool2d};
pub use sgd::sgd_step;
pub use silu::silu;
