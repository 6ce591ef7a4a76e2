//! Draws meshes and layouts: the part of the `meshwork` command that programs use too.
//!
//! The command starts programs through `meshwork-launcher`, and explains failures, plans, devices
//! and clusters through the crates that know them; it adds arguments and words.
//!
//! # When not to use it
//!
//! For what the command does, which is no interface of this library: `cargo install --path cli`
//! installs it.
//!
//! # Examples
//!
//! ```
//! use meshwork_cli::draw::Picture;
//! use meshwork_core::Mesh;
//!
//! let mesh = Mesh::new([("x", 2), ("y", 4)])?;
//! assert!(Picture::of_mesh(&mesh)?.to_text().contains("y=3"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`draw::Picture::of_mesh`], [`draw::Picture::of_tensor`] | a picture |
//! | [`draw::Picture::to_text`], [`draw::Picture::to_svg`] | showing it |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `tools` (default) | pictures, and all commands but `run`, `relay`, `relay-token` and `secret` |
//! | `services` | `meshwork resolve` asks Google Compute Engine, Kubernetes and Cloud TPU too |
//!
//! # Errors
//!
//! [`draw::DrawError`]: a shape that does not fit its layout, or a picture too large to read.
//!
//! # Costs
//!
//! A picture has a bounded number of cells. No threads, no I/O.
//!
//! # Map of the crate
//!
//! [`draw`] (pictures as text and SVG); all else belongs to the command.
#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "the meshwork command starts workers as process groups, which only Unix systems have: build it for Linux, macOS or a BSD"
);

#[cfg(feature = "tools")]
pub mod draw;
