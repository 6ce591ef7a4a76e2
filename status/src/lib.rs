//! Says over HTTP how a rank fares, while it works.
//!
//! This crate does not know what the program computes: it has the numbers of the rank's group, and
//! those that the program adds. Each rank serves its own; whoever looks at a job asks all of them.
//!
//! ```text
//!   GET /             a page that shows all ranks of the job
//!   GET /metrics      OpenMetrics, for Prometheus and whatever reads it
//!   GET /status.json  the same and what the rank is doing, for programs
//!   GET /dump.json    its last operations, for `meshwork doctor --live`
//!   GET /healthz      200, or 503 and why the group has failed
//!   GET /job.json     what all ranks say, which are asked for it, and who makes them wait
//!   GET /ranks.jsonl  and /operations.jsonl: some ranks, a line each
//! ```
//!
//! # When not to use it
//!
//! On a network that others can read: what is served is not encrypted, nor is the token. To keep
//! history: that is for Prometheus, which reads `/metrics`.
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use meshwork_collectives::Group;
//! use meshwork_status::{Server, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = Group::local(1)?.remove(0);
//! let settings = Settings::new("127.0.0.1:0".parse()?)?;
//! let server = Server::start(&settings, Arc::new(group.observer()))?;
//! println!("http://{}/metrics", server.address());
//! # Ok(())
//! # }
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Settings::from_env`], [`Settings::new`] | where to listen, and who may ask |
//! | [`Server::start`] | serves until it is dropped |
//! | [`StatusSource`], [`Report`] | numbers of the program |
//! | [`StatusClient::fetch`], [`targets`] | asking many ranks at once |
//! | [`Look`], [`culprit()`] | what all said, and who makes the others wait |
//! | [`TrainJob`] | telling Kubeflow Trainer |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `opentelemetry` | `SpanExport`, which sends the spans of `tracing` to a collector |
//!
//! # Errors
//!
//! [`Error`] at the start names the address, file or variable. [`FetchError`] says why a rank has
//! not answered. Once a server runs, it fails nobody: what cannot be answered is a status of HTTP.
//!
//! # Costs
//!
//! Reading costs the training nothing that it would notice: one thread answers, at most 500
//! requests in a second, each in bounded time and memory. Spans and reports have a thread each.
//!
//! # Map of the crate
//!
//! `report` (what is told), `metrics`, `json` and `operations` (its forms), `process` (what the
//! kernel says of this one), `access` (who may ask), `settings` (where, and from whom), `server`,
//! `page`; `folder` and `directory` (where a job's servers are), `client` (asking many at once),
//! `gather` (for others); `snapshot` (what a rank said), `look` (what all said), `culprit` (who
//! makes them wait), `job`; `spans` (sent to a collector), `train_job` (what Kubeflow Trainer is
//! told); `error`. Pure are `report` and its forms, and all from `snapshot` to `job`.
#![forbid(unsafe_code)]

mod access;
mod client;
mod culprit;
mod directory;
mod error;
mod folder;
mod gather;
mod job;
mod json;
mod look;
mod metrics;
mod operations;
mod page;
mod process;
mod report;
mod runtime;
mod server;
mod settings;
mod snapshot;
#[cfg(feature = "opentelemetry")]
mod spans;
mod train_job;

pub use access::Token;
pub use client::{StatusClient, Target};
pub use culprit::{Culprit, CulpritCause, culprit};
pub use error::{Error, FetchError};
pub use folder::targets;
pub use job::{Job, JobWatch, Slowest, State};
pub use look::{Look, Silence, Unanswered};
pub use process::CpuTimes;
pub use report::{Metric, MetricKind, Report, StatusSource};
pub use server::Server;
pub use settings::Settings;
pub use snapshot::{MemberChange, PeerLink, RankCall, RankStatus};
#[cfg(feature = "opentelemetry")]
pub use spans::{SpanExport, SpanOrigin};
pub use train_job::{TrainJob, TrainJobReports};
