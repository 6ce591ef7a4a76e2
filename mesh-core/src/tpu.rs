//! The order in which the cores of a TPU slice become ranks.
//!
//! Cores of a slice are linked to their neighbours along x, y and z, so an all-reduce is fast where
//! ranks that follow each other sit side by side. [`create_tpu_mesh`] numbers the cores
//! accordingly: blocks of ranks that reduce together lie on rings.
//!
//! ```text
//!   0 ── 1 ── 2 ── 3      a ring over a plane of 4×4 chips: the first row from left to right,
//!   │              │      the others by turns without their first column, which leads back
//!  15    6 ── 5 ── 4
//!   │    │
//!  14    7 ── 8 ── 9
//!   │              │
//!  13 ──12 ──11 ──10
//! ```
//!
//! All of it is arithmetic; that a slice is there, and what it looks like, others find out.

mod cores;
mod create;
mod error;
mod ring;

pub use cores::{TpuAxis, TpuCore, TpuTopology};
pub use create::{RingAcross, RingDims, TpuHosts, TpuMesh, TpuRings, create_tpu_mesh};
pub use error::TpuError;
pub use ring::{RingPlane, all_reduce_ring, rings_across};

#[cfg(test)]
mod tests;
