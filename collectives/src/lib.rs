//! Moves and reduces buffers between ranks, encrypted and authenticated from the first packet.
//!
//! This crate does not know tensors, layouts, strategies and device APIs. A [`Group`] joins the
//! threads of one process ([`Group::local`]) or processes anywhere ([`Group::connect`]); every
//! process of a job holds the same [`JobSecret`] and knows the same list of members.
//!
//! ```text
//!    rank 0                    rank 1                     all_reduce(sum)
//!   [1, 2] ── TLS 1.3 / QUIC ── [10, 20]        =>   rank 0: [11, 22]  rank 1: [11, 22]
//! ```
//!
//! ```no_run
//! use meshwork_collectives::{Group, GroupConfig, JobSecret, Rank, ReduceOp};
//!
//! let members = ["10.0.0.1:4000", "10.0.0.2:4000"];
//! let config = GroupConfig::new(members, Rank::new(0), JobSecret::from_env()?)?;
//! let mut group = Group::connect(&config)?;
//! let mut gradients = vec![0.5_f32; 1000];
//! group.all_reduce(&mut gradients, ReduceOp::Sum)?;
//! group.leave()?;
//! # Ok::<(), meshwork_collectives::Error>(())
//! ```
//!
//! No call waits for ever: a rank that dies, falls silent or makes another call ends the group on
//! every rank, with an error that names it.
//!
//! Map of the crate: `group` (the entry), `config`, `communication` (which algorithm); the pure
//! parts [`schedule`] (algorithms as data, and their checker), `contract` (what ranks must agree
//! on), `waits` (who waits for whom), `membership` (who is here, and when it is over), `agreement`
//! (who goes on after that), `wire` (bytes), [`diagnosis`] (why it failed, from the dumps of a
//! `recorder`); `execute` (walks a schedule over `links`); `identity` (the job's private CA);
//! `local` and `quic` (transports), `tls` (bulk bytes over TCP); `driver` (which thread drives the
//! network); `host` (processes of the same machine). With the feature `testing`, `sim` plays whole
//! jobs in virtual time.

mod agreement;
mod communication;
mod config;
mod contract;
mod data_transport;
#[cfg(any(test, feature = "testing"))]
pub mod decoders;
pub mod diagnosis;
mod driver;
mod error;
mod failure;
mod flight_recorder;
mod group;
mod host;
mod identity;
mod links;
mod local;
mod medium;
mod membership;
mod operation;
mod quic;
mod session;
mod shm;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
mod tls;
mod wait_for_graph;
mod wire;

pub use meshwork_accel::{Element, ElementType, ReduceOp, bf16, f16};

pub use agreement::TwoMemberPolicy;
pub use communication::{Choices, Communication, CostModel, LinkCost, Payload, Prediction};
pub use config::{Congestion, GroupConfig, Network, Timeouts, Transport};
pub use contract::Call;
pub use data_transport::DataTransport;
pub use error::{
    ConfigError, Error, JoinError, LossCause, Member, OperationError, Refusal, SystemError,
    UnauthenticatedCause, UnauthenticatedPeer, fmt_with_causes,
};
pub use group::{
    CommunicatorScope, DeviceGroup, DeviceRoute, Epoch, FallbackReason, Group, Pending, Pinning,
    Prepared, Registered, Route,
};
pub use identity::{Certificates, JobSecret};
pub use meshwork_schedule as schedule;
pub use meshwork_schedule::Algorithm;
pub use meshwork_schedule::Rank;
pub use quic::announce_loss;
pub use wire::WireError;
