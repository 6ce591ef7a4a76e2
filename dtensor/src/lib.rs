//! Tensors spread over a device mesh: values, the ops on them, and the plans that move them.
//!
//! This crate does not know model libraries, and nothing about networks but that clients can
//! exchange bytes: layouts say what has to move, groups of ranks move it.
//!
//! ```text
//!     client 0          client 1            one program on every client
//!   ┌─────┬─────┐     ┌─────┬─────┐
//!   │CPU 0│CPU 1│     │CPU 0│CPU 1│         a tensor of 4×4, cut by x and y:
//!   │ 0 1 │ 2 3 │     │ 8 9 │10 11│         each device holds a part,
//!   │ 4 5 │ 6 7 │     │12 13│14 15│         each client those of its devices
//!   └─────┴─────┘     └─────┴─────┘
//!      x = 0             x = 1
//! ```
//!
//! # When not to use it
//!
//! For data-parallel training, where every worker has the whole model: `meshwork-strategy` does
//! that with less. As the array library of one process: the host computes with one thread.
//!
//! # Examples
//!
//! ```
//! use meshwork_core::CreateMesh;
//! use meshwork_dtensor::{Initialize, context, create_distributed_mesh};
//! use meshwork_layout::Layout;
//! use std::num::NonZeroU32;
//!
//! let four = NonZeroU32::new(4).expect("not zero");
//! meshwork_dtensor::initialize_accelerator_system(Initialize::new().logical_cpu_devices(four))?;
//! let mesh = create_distributed_mesh(CreateMesh::new().dims([("x", 2), ("y", 2)]))?;
//! let numbers = ndarray::Array2::from_shape_fn((4, 4), |(i, j)| 4 * i as i32 + j as i32);
//! let layout = Layout::from_names(["x", "y"], &mesh)?;
//! let tensor = context()?.copy_to_mesh(numbers.clone(), &layout)?;
//! assert_eq!(tensor.unpack()?[1], ndarray::array![[2, 3], [6, 7]].into_dyn());
//! assert_eq!(tensor.to_host()?, numbers.into_dyn());
//! meshwork_dtensor::shutdown_accelerator_system()?;
//! # Ok::<(), meshwork_dtensor::Error>(())
//! ```
//!
//! ## Lay a tensor out anew
//!
//! ```
//! # use meshwork_core::CreateMesh;
//! # use meshwork_dtensor::{Initialize, context, create_distributed_mesh};
//! # use std::num::NonZeroU32;
//! use meshwork_layout::{Layout, Relayout, UNSHARDED};
//!
//! # let four = NonZeroU32::new(4).expect("not zero");
//! # meshwork_dtensor::initialize_accelerator_system(Initialize::new().logical_cpu_devices(four))?;
//! let mesh = create_distributed_mesh(CreateMesh::new().dims([("x", 4)]))?;
//! let rows = Layout::from_names(["x", UNSHARDED], &mesh)?;
//! let columns = Layout::from_names([UNSHARDED, "x"], &mesh)?;
//! let tensor = context()?.copy_to_mesh(ndarray::Array2::<f32>::zeros((8, 8)), &rows)?;
//! println!("{}", Relayout::new(&rows, &columns, &[8, 8], 4)?.plan()?.explain()); // what it takes
//! let tensor = tensor.relayout(&columns)?;
//! assert_eq!(tensor.layout(), &columns);
//! # meshwork_dtensor::shutdown_accelerator_system()?;
//! # Ok::<(), meshwork_dtensor::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`initialize_accelerator_system`], [`shutdown_accelerator_system`] | the beginning and the end |
//! | [`create_distributed_mesh`] | the devices of all processes |
//! | [`Context::copy_to_mesh`], [`DTensor::to_host`] | a tensor from the host, and back |
//! | [`DTensor::relayout`] | another layout |
//! | [`DTensor::matmul`], [`DTensor::sum`], … | ops, on parts where the layouts allow it |
//! | [`Tape`], [`DTensor::gradients`] | gradients |
//! | [`DVariable`], [`Sgd`], [`AdamW`] | training |
//! | [`compile()`] | a step that is traced once and run as a whole |
//! | [`Context::save`], [`Context::saved`], [`Context::restore`] | checkpoints, in any layout |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `cuda` | GPUs, found through NVIDIA's driver at run time |
//! | `tpu` | devices of PJRT plugins, found at run time |
//!
//! # Errors
//!
//! [`Error`] has the layouts, shapes or meshes that do not fit, or what is not there. Clients that
//! do different things are told what each did ([`ClientStatement`]).
//!
//! # Costs
//!
//! Each client holds the blocks of its devices; ops make new blocks, from memory that is used
//! again. Relayouts move what their plan says. A tape keeps what gradients need until it is
//! dropped. The first call of a compiled step carries it out op by op.
//!
//! # Map of the crate
//!
//! `environment` and `config` (what a process is told), `device_type`, `system` (initialised and
//! shut down), `process` (the one of this process, by TensorFlow's names), `context` (a client and
//! its process group: who agrees on what), `device_placement` (whose devices are where), `backend`
//! (accelerators that hold blocks and compute), `blocks` (here, there or both), `tensor` (the
//! values), `scalar` (their elements), `ops` (what is done to them), `record` (ops as data), `tape`
//! (gradients), `optimizer`, `program` and `compiled` (whole steps), `cnn` and `transformer` (two
//! to measure them by), `random`, `scope` (default meshes), `variable`, `dataset`, `checkpoint`,
//! `transfer_plan` (a plan as exchanges of blocks: pure) and `exchange` (carried out), `error`.
#![forbid(unsafe_code)]

mod backend;
mod blocks;
mod checkpoint;
mod cnn;
mod compiled;
mod config;
mod context;
mod dataset;
mod device_placement;
mod device_type;
mod environment;
mod error;
mod exchange;
mod ops;
mod optimizer;
mod process;
mod program;
mod random;
mod record;
mod scalar;
mod scope;
mod system;
mod tape;
mod tensor;
#[cfg(test)]
mod testing;
mod transfer_plan;
mod transformer;
mod variable;

// Callers name the elements of tensors, and what they are.
pub use meshwork_accel::{Element, ElementType, bf16, f16};
// Errors say what is wrong with a file.
pub use meshwork_checkpoint::{Error as CheckpointError, FileDamage};

pub use backend::{Backend, BackendBuilder};
pub use checkpoint::{Save, Saved};
pub use cnn::{Cnn, CnnSizes, ImageBatch};
pub use compiled::{Compiled, HostValue, Tensors, Variable, VariableSet, compile, repeat, scan};
pub use config::Config;
pub use context::Context;
pub use dataset::DTensorDataset;
pub use device_type::{DeviceCounts, DeviceType};
pub use environment::{
    CLIENT_ID, ENABLE_HEARTBEAT, ENABLE_MULTI_DEVICE_EXPANSION, Environment,
    GPU_USE_NCCL_COMMUNICATION, JOB_NAME, JOBS, USE_PARALLEL_EXECUTOR,
};
pub use error::{Apart, ClientStatement, Error, Subject};
pub use exchange::Block;
pub use ops::{BatchNormOutput, Function, ReduceAxes};
pub use optimizer::{AdamW, Momentum, Sgd};
pub use process::{
    client_id, config, context, create_distributed_mesh, create_mesh, full_job_name,
    heartbeat_enabled, initialize_accelerator_system, is_initialized, job_name, jobs,
    local_devices, num_clients, num_global_devices, num_local_devices, preferred_device_type,
    shutdown_accelerator_system,
};
pub use program::Program;
pub use scalar::{Float, Number, Scalar};
pub use scope::{MeshScope, current_default_mesh, full, range, zeros};
pub use system::{Initialize, System};
pub use tape::Tape;
pub use tensor::DTensor;
pub use transformer::{TokenBatch, Transformer, TransformerSizes};
pub use variable::{DVariable, SavedAs};

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/meshes-layouts-plans.md")]
    mod meshes_layouts_plans {}

    #[doc = include_str!("../../docs/book/src/training-on-a-mesh.md")]
    mod training_on_a_mesh {}
}
