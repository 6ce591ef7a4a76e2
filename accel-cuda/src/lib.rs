//! NVIDIA's GPUs as an accelerator, with every library loaded when it is needed.
//!
//! This crate does not know other backends and any network. It builds and starts where there is no
//! toolkit, no driver and no GPU: what is missing is an [`Error`] that names the library and the
//! remedy, and never a panic.
//!
//! ```text
//!   libcuda ────> Driver ──> GPU 0 ─┬─ device 0 ── stream, pinned slots, buffers
//!   libnvrtc ──> Compiler ─> kernels └─ device 1 ── stream, pinned slots, buffers
//!   libnccl ───> Nccl ─────> communicators between processes
//!   libcublas ─> products of matrices, where it is; else by a kernel
//! ```
//!
//! # When not to use it
//!
//! Without an NVIDIA GPU, or as a general interface to CUDA. It has run on one GPU, never on
//! several.
//!
//! # Examples
//!
//! ```
//! use meshwork_accel::{Accelerator, DeviceId, ElementType, ReduceOp};
//! use meshwork_accel_cuda::CudaAccelerator;
//!
//! match CudaAccelerator::new() {
//!     Ok(cuda) => {
//!         let mut total = cuda.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//!         let mut part = cuda.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//!         cuda.upload(&[1.5_f32, 2.0], &mut part, 0)?;
//!         cuda.reduce(ReduceOp::Sum, &mut total, &part)?;
//!     }
//!     Err(absent) => println!("no GPU: {absent}"),
//! }
//! # Ok::<(), meshwork_accel::Error>(())
//! ```
//!
//! What has been proved without a GPU, and how to run the rest on one, is in `VERIFIED.md`.
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`CudaAccelerator::new`], [`CudaAccelerator::open`] | all GPUs, or those of a [`CudaConfig`] |
//! | [`gpus`] | which there are |
//! | [`CudaAccelerator::borrow`] | memory of another library, without a copy |
//! | [`Communicator`] | one GPU for each process, by NCCL |
//! | [`CudaDevice`] | one GPU, for adapters of model libraries |
//!
//! # Errors
//!
//! [`Error`] while libraries are looked for, with all places where they were not;
//! [`meshwork_accel::Error`] afterwards. A failed GPU is reported by whatever is asked of it next.
//!
//! # Costs
//!
//! Libraries are loaded when first needed. Kernels are compiled once for each architecture and kept
//! in a [`KernelCache`]. Each device has a stream and some pinned slots, through which transfers of
//! unpinned memory go. What a device does may go on after the call.
//!
//! # Map of the crate
//!
//! `libraries` (where they are looked for), `config` (which devices there are), `accelerator` (the
//! trait), `cuda_device` (one device, for adapters of model libraries), `buffer`, `device` (what
//! each device has of its own), `staging` (how a transfer is cut), `pinned_buffer` (pinned memory
//! of the program), `collectives` (among the devices of a process), `nccl` and `communicator`
//! (between processes), `compute`, `gemm` and `arrange`, `choose` (tensors), `compiler` and `cache`
//! (from the source of the kernels to code), `kernels` (which there are, `kernels.cu` and
//! `kernels/*.cu`), `target` (for which architecture), `error`, `sys` (all that is unsafe).

mod accelerator;
mod arrange;
mod buffer;
mod cache;
mod choose;
mod collectives;
mod communicator;
mod compiler;
mod compute;
mod config;
mod cuda_device;
mod device;
mod error;
mod gemm;
mod kernels;
mod libraries;
mod nccl;
mod pinned_buffer;
mod staging;
mod sys;
mod target;

pub use accelerator::CudaAccelerator;
pub use buffer::CudaBuffer;
pub use cache::KernelCache;
pub use communicator::Communicator;
pub use compiler::Compiler;
pub use config::{CudaConfig, gpus};
pub use cuda_device::CudaDevice;
pub use error::Error;
pub use libraries::{Libraries, Library};
pub use nccl::{Nccl, NcclRank, UniqueId};
pub use sys::external::ExternalMemory;
pub use target::Capability;
