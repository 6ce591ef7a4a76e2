//! What crosses to NVIDIA's libraries: the tables of their functions, which cudarc declares, and
//! owners of what these give out.
//!
//! ```text
//!   shared (a library, loaded)  ──>  driver, compiler, collectives, blas (its functions, as a table)
//!                                        │
//!   gpu ── stream ── memory ── slot      v      owners: safe to use, freed when dropped
//!    ├──── module (kernels)            calls, each return code looked at
//!    └──── pool (of memory)
//! ```
//!
//! Nothing outside this module is unsafe, and no pointer leaves it.

pub(crate) mod blas;
pub(crate) mod collectives;
pub(crate) mod compiler;
pub(crate) mod driver;
pub(crate) mod external;
mod foreign;
pub(crate) mod gpu;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pinned;
mod pool;
mod shared_library;
pub(crate) mod slot;
pub(crate) mod stream;

#[cfg(test)]
mod tests;
