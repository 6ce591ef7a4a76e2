//! How a tensor lies on a device mesh: which part of it each rank holds, who holds an element, and
//! which collectives lay it out anew.
//!
//! This crate does not know the tensor's data, devices or any network: a layout is arithmetic on a
//! mesh and a shape.
//!
//! ```text
//!   a tensor of 4×5, sharded over batch and model, on the mesh batch=2, model=3
//!
//!                 columns 0 1   2 3   4
//!   rows 0 1             rank 0  1    2      batch 0
//!   rows 2 3             rank 3  4    5      batch 1
//!                     model 0    1    2      the last shard is shorter
//! ```
//!
//! # When not to use it
//!
//! To move anything: a plan says what collectives would do, and `meshwork-dtensor` does it.
//! Dimensions are cut into blocks, not in turn as by a block-cyclic layout.
//!
//! # Examples
//!
//! ```
//! use meshwork_core::{Mesh, MeshRank};
//! use meshwork_layout::{Layout, UNSHARDED};
//!
//! let mesh = Mesh::new([("batch", 2), ("model", 3)])?;
//! let layout = Layout::from_names(["batch", "model"], &mesh)?;
//! assert_eq!(layout.shard(MeshRank::new(5), &[4, 5])?.as_slice(), [2..4, 4..5]);
//! assert!(layout.owners(&[2, 4], &[4, 5])?.eq([MeshRank::new(5)]));
//!
//! let rows = Layout::from_names(["batch", UNSHARDED], &mesh)?;
//! assert_eq!(rows.local_shape(MeshRank::new(5), &[4, 5])?.as_slice(), [2, 5]);
//! assert_eq!(rows.copies(), 3);
//! # Ok::<(), meshwork_layout::Error>(())
//! ```
//!
//! ## The cheapest way from one layout to another
//!
//! ```
//! use meshwork_core::Mesh;
//! use meshwork_layout::{Layout, Relayout, StepKind, UNSHARDED};
//!
//! let mesh = Mesh::new([("x", 2), ("y", 4)])?;
//! let rows = Layout::from_names(["y", UNSHARDED], &mesh)?;
//! let columns = Layout::from_names([UNSHARDED, "y"], &mesh)?;
//! let plan = Relayout::new(&rows, &columns, &[8, 8], 4)?.plan()?;
//! assert_eq!(plan.steps()[0].kind(), StepKind::AllToAll);
//! assert_eq!(plan.bytes(), 48); // received by each rank
//! println!("{}", plan.explain()); // collectives, bytes, memory, time
//! # Ok::<(), meshwork_layout::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Layout::from_names`], [`Layout::replicated`] | a layout, by the mesh dimension that cuts each axis |
//! | [`Layout::shard`], [`Layout::local_shape`] | what a rank holds |
//! | [`Layout::owners`] | who holds an element |
//! | [`Layout::with_partial`] | a sum whose terms lie on several ranks |
//! | [`Relayout::new`], [`Relayout::plan`] | the cheapest way to another layout |
//! | [`Plan::steps`], [`Plan::explain`] | what it does, and what that takes |
//! | [`ops::infer`] | what an op makes of the layouts of its operands |
//! | [`LayoutPattern`] | layouts with open dimensions |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `testing` | carries ops and plans out on tensors in memory, for tests; no part of the interface |
//!
//! # Errors
//!
//! [`Error`] of layouts and plans, [`OpError`](ops::OpError) of ops. Both have the values that do
//! not fit.
//!
//! # Costs
//!
//! A question about one rank takes time for the dimensions of tensor and mesh, whatever the sizes;
//! [`Layout::owners`] is lazy. A plan is a search whose time grows with the factors of the mesh's
//! dimensions, not with the tensor; [`Plan::is_proven_cheapest`] says whether it was finished and
//! left nothing out. No threads, no I/O.
//!
//! # Map of the crate
//!
//! `layout` (a mesh, a spec for each tensor dimension, what is still to be reduced;
//! `layout/placement` answers which rank holds what), `spec` (how one dimension is cut), `geometry`
//! (the rule that cuts it), `partial_reduction`, `pattern` (layouts with open dimensions),
//! `any_layout` (what TensorFlow calls a layout), `text` and [`proto`] (its forms), [`ops`] (what
//! ops make of layouts), `plan` (the cheapest collectives from one layout to another), `error`.
#![forbid(unsafe_code)]

mod any_layout;
#[cfg(test)]
mod arbitrary;
mod error;
mod geometry;
mod layout;
pub mod ops;
mod partial_reduction;
mod pattern;
mod plan;
pub mod proto;
mod spec;
mod text;

pub use any_layout::AnyLayout;
pub use error::Error;
pub use layout::{Layout, LayoutType, Ranges, Shape};
pub use partial_reduction::PartialReduction;
pub use pattern::{LayoutPattern, MATCH, SpecPattern};
#[cfg(any(test, feature = "testing"))]
pub use plan::{Broken, Term};
pub use plan::{
    DimPart, Link, Links, MeshPlacement, Plan, PlanExplanation, PlanStep, Relayout, StepKind,
};
pub use spec::{ShardingSpec, UNSHARDED};
