//! Named device meshes: ranks, their coordinates along named dimensions, and the devices they stand
//! for.
//!
//! This crate does not know tensors, time, threads or any I/O: a mesh is arithmetic.
//!
//! ```text
//!             model 0   1   2   3
//!   batch 0       ┌───┬───┬───┬───┐   size 8, shape 2×4, strides 4 and 1
//!                 │ 0 │ 1 │ 2 │ 3 │
//!   batch 1       ├───┼───┼───┼───┤   rank 6 has the coordinates batch=1, model=2
//!                 │ 4 │ 5 │ 6 │ 7 │   its group along batch: 2, 6; along model: 4, 5, 6, 7
//!                 └───┴───┴───┴───┘
//! ```
//!
//! # When not to use it
//!
//! Where processes only have numbers: ranks in a row need no mesh. Nothing here finds devices or
//! starts processes, and a mesh does not change once it is made.
//!
//! # Examples
//!
//! ```
//! use meshwork_core::{Mesh, MeshRank};
//!
//! let mesh = Mesh::new([("batch", 2), ("model", 4)])?;
//! assert_eq!(mesh.size(), 8);
//! assert_eq!(mesh.coords(MeshRank::new(6))?.as_slice(), [1, 2]);
//! assert_eq!(mesh.rank_of(&[1, 2])?, MeshRank::new(6));
//!
//! let group = mesh.group_of(MeshRank::new(6), "batch")?;
//! assert!(group.ranks().eq([MeshRank::new(2), MeshRank::new(6)]));
//! # Ok::<(), meshwork_core::Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Mesh::new`], [`Mesh::builder`] | a mesh of named dimensions, with ids and devices |
//! | [`Mesh::coords`], [`Mesh::rank_of`] | where a rank is, and who is there |
//! | [`Mesh::group_of`], [`Mesh::group_along`] | ranks that differ along some dimensions only |
//! | [`Mesh::submesh`], [`Submesh::to_mesh`] | a part of a mesh |
//! | [`CreateMesh`] | the mesh of the devices that processes have |
//! | [`AnyMesh`] | the text form, TensorFlow's |
//! | [`tpu`] | the order of the devices of a TPU slice |
//!
//! # Crate features
//!
//! `protobuf`, on by default, adds the form in which TensorFlow sends a mesh: `proto`,
//! `AnyMesh::encode` and `AnyMesh::decode`.
//!
//! # Errors
//!
//! Every call that can fail returns [`Error`], and those of [`tpu`] [`TpuError`](tpu::TpuError): a
//! value names the mesh's dimension or size and what was asked of it. Nothing is changed by a call
//! that fails.
//!
//! # Costs
//!
//! Every answer about one rank is computed from the shape alone, and ids and devices that count up
//! are kept as runs: a mesh of a million ranks is as quick to ask as one of two. No threads, no
//! I/O.
//!
//! # Map of the crate
//!
//! `mesh` (shape, coordinates, groups, ids, devices, and the builder), `group` (ranks that differ
//! along some dimensions), `submesh` (parts of a mesh, and other views of it), `any_mesh` (what
//! TensorFlow calls a mesh, and its text form), `proto` (its protobuf form), `create` (the mesh
//! of a process's devices), [`tpu`] (the order of a TPU slice), `ids` and `devices` (long lists,
//! kept short), `strided` (ranks at regular distances), `name` (names of dimensions), `rank`,
//! `device` (device names), `error`.
#![forbid(unsafe_code)]

mod any_mesh;
mod create;
mod device;
mod devices;
mod error;
mod ids;
mod mesh;
mod mesh_group;
mod name;
#[cfg(feature = "protobuf")]
pub mod proto;
mod rank;
mod strided;
mod submesh;
pub mod tpu;

pub use any_mesh::{AnyMesh, SingleDevice};
pub use create::{Client, CreateMesh};
pub use device::DeviceSpec;
pub use devices::Devices;
pub use error::Error;
pub use ids::DeviceIds;
pub use mesh::{Coords, Mesh, MeshBuilder, MeshDim};
pub use mesh_group::MeshGroup;
pub use name::DimName;
pub use rank::{MAX_MESH_SIZE, MeshRank};
pub use submesh::Submesh;
