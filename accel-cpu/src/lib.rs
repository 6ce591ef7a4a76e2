//! The CPU as an accelerator: host memory behind [`Accelerator`](meshwork_accel::Accelerator).
//!
//! This crate does not know other backends and any network. One process can have several logical
//! CPU devices, so that programs for many devices run and are tested on one machine:
//!
//! ```text
//!   process ── CpuAccelerator ─┬─ device 0   (same memory, same cores)
//!                              └─ device 1
//! ```
//!
//! ```
//! use meshwork_accel::{Accelerator, DeviceId, ElementType, ReduceOp};
//! use meshwork_accel_cpu::CpuAccelerator;
//!
//! let cpu = CpuAccelerator::new();
//! let mut total = cpu.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//! let mut part = cpu.allocate(DeviceId::new(0), ElementType::F32, 2)?;
//! cpu.upload(&[1.5_f32, 2.0], &mut part, 0)?;
//! cpu.reduce(ReduceOp::Sum, &mut total, &part)?;
//! let mut host = [0.0_f32; 2];
//! cpu.download(&total, 0, &mut host)?;
//! assert_eq!(host, [1.5, 2.0]);
//! # Ok::<(), meshwork_accel::Error>(())
//! ```
//!
//! Map of the crate: `accelerator` (the devices), `buffer` (their memory), `device_threads` (the
//! threads that share large buffers), `collectives` (among devices of one process), `compute`
//! (arithmetic on tensors), `product` (of matrices), `arrange` and `choose` (elements in other
//! places, and some of them), `numa` and `machine` (what the system has).
#![deny(unsafe_code)]

mod accelerator;
mod arrange;
mod buffer;
mod choose;
mod collectives;
mod compute;
mod device_threads;
mod machine;
mod numa;
mod product;

pub use accelerator::CpuAccelerator;
pub use buffer::CpuBuffer;
pub use product::{Factor, product};

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/devices.md")]
    mod devices {}
}
