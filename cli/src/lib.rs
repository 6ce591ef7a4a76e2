//! Starts one program as many workers on this machine, watches them, and ends them together; draws
//! meshes and layouts.
//!
//! This crate does not know what the workers compute, which library they use, or any other machine:
//! several hosts are the business of Slurm, Kubernetes and the like.
//!
//! ```text
//!                         TF_CONFIG, MESHWORK_JOB_SECRET_FILE
//!                    ┌──> worker 0 ──stdout, stderr──┐
//!   Launch ──spawn───┼──> worker 1 ──────────────────┼──> "[1] line" on your terminal
//!                    └──> worker 2 ── fails first    ┘
//!                              │
//!   Outcome <──"rank 2 failed first: killed by signal 9 (SIGKILL); the other 2 were ended"
//! ```
//!
//! ```
//! use meshwork_cli::launch::{Launch, Outcome};
//!
//! let outcome = Launch::new("sh")
//!     .args(["-c", "echo \"I am told: $TF_CONFIG\""])
//!     .workers(2)?
//!     .run()?;
//! assert_eq!(outcome, Outcome::Succeeded);
//! # Ok::<(), meshwork_cli::launch::LaunchError>(())
//! ```
//!
//! The `meshwork` command is a thin layer over [`launch`], `meshwork run -n 4 -- PROGRAM ARGS…`,
//! and over [`draw`], `meshwork draw --mesh x=2,y=4`.
//!
//! Map of the crate: [`draw`] (pictures as text and SVG); [`launch`] (the builder, what comes out
//! of a run, what each worker is told); under it `ports`, `environment`, `secret` and `cores` (what
//! a worker is handed), `workers` (the processes and their one owner), `run_state` (what to do
//! when, as a pure function of events and time), `supervisor` (does it), `output` (prefixed lines),
//! `signals`, `announce` (tells survivors whom they lost).
#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "meshwork-cli supervises workers through process groups and signals, which only Unix systems have: build it for Linux, macOS or a BSD"
);

pub mod draw;
#[cfg(unix)]
pub mod launch;
