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
//! # When not to use it
//!
//! To add two slices: [`meshwork_accel::reduce_slice`] does that without devices. Logical devices
//! make no program faster, as they share the cores.
//!
//! # Examples
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
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`CpuAccelerator::new`] | one device |
//! | [`CpuAccelerator::with_logical_devices`], [`CpuAccelerator::on_numa_nodes`] | several, in one memory or each in its own |
//! | [`CpuAccelerator::with_memory_limit`] | devices that run out of memory as GPUs do |
//! | [`product`] | a product of matrices |
//!
//! # Errors
//!
//! [`meshwork_accel::Error`]: devices and ranges that are not there, sizes that differ, a memory
//! limit that is met.
//!
//! # Costs
//!
//! Large buffers are reduced, copied and multiplied by rayon's pool, or by threads on the cores of
//! a NUMA node, which start when first needed; small ones by the calling thread. Operations are
//! done when they return.
//!
//! # Map of the crate
//!
//! `accelerator` (the devices), `buffer` (their memory), `device_threads` (the threads that share
//! large buffers), `collectives` (among devices of one process), `compute` (arithmetic on tensors),
//! `product` (of matrices), `arrange` and `choose` (elements in other places, and some of them),
//! `numa` and `machine` (what the system has).
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
pub use arrange::FOLD_BLOCK;
pub use buffer::CpuBuffer;
pub use product::{Factor, product};

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/devices.md")]
    mod devices {}
}
