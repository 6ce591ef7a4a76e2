//! A character transformer, the text it learns from, and ways of training it on several workers,
//! for the program beside this library and for benchmarks.
//!
//! ```
//! use candle_core::Device;
//! use candle_nn::VarMap;
//! use text::{AdamW, Corpus, Model, Size, clip, rate};
//!
//! let corpus = Corpus::from_text(&"How much wood would a woodchuck chuck? ".repeat(40), 16)?;
//! let size = Size::new(1, 16, 2, 16)?;
//! let vars = VarMap::new();
//! let model = Model::seeded(&vars, size, corpus.characters(), 1, &Device::Cpu)?;
//! let mut optimizer = AdamW::new(&vars)?;
//! for step in 0..3 {
//!     // Worker 0 of a job takes rows 0 to 3 of each step's batch, worker 1 would take 4 to 7.
//!     let loss = model.loss(&corpus.batch(1, step, 0..4))?;
//!     let gradients = loss.backward()?;
//!     let scale = clip(&vars, &gradients, 1.0)?;
//!     optimizer.step(&gradients, rate(step, 3, 1e-3), scale)?;
//! }
//! let (loss, windows) = model.validation_loss(&corpus, 0, 1)?;
//! assert!(loss / (windows as f64) < 5.0);
//! # Ok::<(), text::Error>(())
//! ```
//!
//! | module | |
//! |---|---|
//! | `corpus` | a folder of text, its characters, batches of it |
//! | `model`, `initial` | the transformer, the first values of its variables |
//! | `optimizer` | AdamW, clipping, the learning rate of each step |
//! | `exchange` | how workers come to one model: in each step, or now and then |
//! | `split_model` | the transformer with a part of its state in each worker |
//! | `devices` | what workers compute on |
//! | `error` | what can go wrong |

mod corpus;
mod devices;
mod error;
mod exchange;
mod initial;
mod model;
mod optimizer;
mod split_model;

pub use corpus::{Batch, Corpus};
pub use devices::Devices;
pub use error::{Error, one_line};
pub use exchange::{
    Compress, Exchange, Method, OUTER_RATE, SharedVars, sent_for_sum, validation_loss,
};
pub use model::{Model, Size};
pub use optimizer::{AdamW, clip, rate};
pub use split_model::{Split, SplitModel};
