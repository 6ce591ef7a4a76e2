//! PJRT's C interface, made safe: whoever calls what this module offers cannot go wrong in memory.
//!
//! ```text
//!   pjrt (generated) <- args (which struct goes to which function) <- api (the loaded plugin)
//!     <- handle (what a plugin made and must destroy) <- client, buffer, executable, program,
//!        topology, event
//! ```
//!
//! A plugin may be older or newer than the header. Each function is looked for in the plugin's
//! table first, whose size says what it has; structs only ever grow at their end, and say their
//! size too.

mod api;
mod args;
mod buffer;
mod client;
mod device;
mod event;
mod executable;
mod handle;
#[expect(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::use_self,
    reason = "generated from the C header, with its names"
)]
mod pjrt;
mod program;
mod read;
mod topology;

pub use api::{Plugin, PluginVersion};
pub use buffer::Buffer;
pub use client::{DeviceMemory, PjrtClient};
pub use event::Event;
pub use executable::{Executable, Execution};
pub use handle::Live;
pub use program::{PjrtProgram, ProgramMemory};
pub use topology::Topology;
