//! Any PJRT plugin as a backend: XLA's compiled programs on TPU, CPU and GPU, and programs compiled
//! for TPU slices that are not there.
//!
//! This crate does not know other backends, the network and model libraries, and it links nothing:
//! a plugin is a shared library that is looked for and loaded at run time.
//!
//! ```text
//!   StableHLO text ──> PjrtClient ───> Executable ──run──> Buffer on device 0, 1, …
//!                      │ devices that are there
//!   Plugin ────────────┤
//!   (libtpu.so, …)     │ devices that need not be
//!   StableHLO text ──> Topology ─> PjrtProgram: memory, collectives, bytes to load later
//! ```
//!
//! # When not to use it
//!
//! As a tensor library: programs are StableHLO text, and buffers have no ops. `meshwork-dtensor`
//! makes programs of ops. Nothing has run on a TPU yet; XLA's CPU plugin has run all of it.
//!
//! # Examples
//!
//! ```no_run
//! use meshwork_accel_tpu::{PjrtClient, CompileOptions, Platform, Plugin};
//! use std::time::Duration;
//!
//! let plugin = Plugin::load(Platform::Cpu.find()?)?;
//! let client = PjrtClient::new(&plugin, &[])?;
//! let double = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!   %y = stablehlo.add %x, %x : tensor<2xf32>
//!   return %y : tensor<2xf32> }";
//! let double = client.compile(double.as_bytes(), &CompileOptions::replicas(1))?;
//! let x = client.upload(0, &[2], &[1.0_f32, 2.5])?;
//! let done = double.execute(&[&[&x]])?;
//! let mut y = [0.0_f32; 2];
//! done.outputs()[0][0].download(&mut y, Duration::from_secs(10))?;
//! assert_eq!(y, [2.0, 5.0]);
//! # Ok::<(), meshwork_accel_tpu::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Platform::find`], [`Plugin::load`] | a plugin |
//! | [`PjrtClient::new`], [`PjrtClient::compile`], [`PjrtClient::upload`] | its devices, a program and its input |
//! | [`Executable::execute`], [`Buffer::download`] | running it, and what comes out |
//! | [`Topology::new`], [`Topology::compile`] | programs for a slice that is not there |
//! | [`open`], [`PjrtAccelerator`] | the same devices as an accelerator |
//! | [`PjrtProgram::memory`], [`PjrtProgram::optimized`] | what the compiler made of a program |
//!
//! # Errors
//!
//! [`Error`] has the plugin's own words and [`Status`], or says which plugin was looked for and
//! where; [`meshwork_accel::Error`] from a [`PjrtAccelerator`]. Every wait has a time, and an error
//! when it is over.
//!
//! # Costs
//!
//! A program takes from milliseconds to minutes to compile, by the threads of the plugin; a
//! [`PjrtAccelerator`] compiles one for each operation, type and length, and keeps those used last.
//! [`PjrtProgram::serialize`] saves the time of the next process. A plugin stays loaded.
//!
//! # Map of the crate
//!
//! `sys` (PJRT's C interface, made safe: plugins, clients, buffers, programs, topologies, events),
//! `platform` (where plugins are found), `compile` (what programs are compiled for), `hlo` (what a
//! compiler made of a program), `accelerator` (a client as a backend of `meshwork-accel`),
//! `stablehlo` (the programs that it runs), [`tpu`] (slices by name, and their order), `generation`
//! and `environment` (what TPUs there are, and what libtpu needs), `survey` (what is here, or what
//! to do), `device_info`, `value`, `status`, `error`.
#![deny(unsafe_code)]

mod accelerator;
mod compile;
mod device_info;
mod environment;
mod error;
mod generation;
mod hlo;
mod platform;
mod stablehlo;
mod status;
mod survey;
mod sys;
pub mod tpu;
mod value;

pub use accelerator::{CompiledGraph, PjrtAccelerator, PjrtBuffer};
pub use compile::CompileOptions;
pub use device_info::DeviceInfo;
pub use error::Error;
pub use hlo::{Instruction, OptimizedProgram};
pub use platform::Platform;
pub use stablehlo::{CollectiveProgram, module};
pub use status::Status;
pub use survey::open;
pub use sys::{
    Buffer, DeviceMemory, Event, Executable, Execution, Live, PjrtClient, PjrtProgram, Plugin,
    PluginVersion, ProgramMemory, Topology,
};
pub use value::{AttributeValue, Attributes};
