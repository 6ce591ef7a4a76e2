//! Draws meshes and layouts: the part of the `meshwork` command that programs use too.
//!
//! The command starts programs through `meshwork-launcher`, and explains failures, plans, devices
//! and clusters through the crates that know them; it adds arguments and words.
//!
//! Map of the crate: [`draw`] (pictures as text and SVG); all else belongs to the command.
#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "the meshwork command starts workers as process groups, which only Unix systems have: build it for Linux, macOS or a BSD"
);

pub mod draw;
