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
//! # When not to use it
//!
//! To train a model: `meshwork-strategy` is made for that. To send messages now and then, or to
//! clients that are no ranks: all ranks make the same calls in the same order. A group has at most
//! 4,096 ranks.
//!
//! # Examples
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
//! ## Go on computing while an operation runs
//!
//! ```
//! use meshwork_collectives::{Group, ReduceOp};
//!
//! let mut group = Group::local(1)?.remove(0);
//! let sum = group.start_all_reduce(vec![1.0_f32; 4], ReduceOp::Sum)?;
//! // … compute something, then:
//! assert_eq!(sum.wait()?, [1.0; 4]); // `sum.await?` in asynchronous code
//! # Ok::<(), meshwork_collectives::Error>(())
//! ```
//!
//! ## Groups of some of the ranks
//!
//! ```
//! # use meshwork_collectives::{Error, Group, ReduceOp};
//! # std::thread::scope(|scope| {
//! # for mut group in Group::local(4)? {
//! # scope.spawn(move || {
//! let rank = group.rank().number();
//! let mut row = group.split(Some(rank / 2), 0)?.expect("every rank has a color");
//! let mut sum = [rank];
//! row.all_reduce(&mut sum, ReduceOp::Sum)?;
//! assert_eq!(sum, [if rank < 2 { 1 } else { 5 }]);
//! # row.leave()?;
//! # group.leave()?;
//! # Ok::<(), Error>(())
//! # });
//! # }
//! # Ok::<(), Error>(())
//! # })?;
//! # Ok::<(), Error>(())
//! ```
//!
//! ## Buffers on devices
//!
//! Of any [`Accelerator`](meshwork_accel::Accelerator), through host memory, or from device to
//! device by [`Group::direct_on`]:
//!
//! ```
//! # fn step<A: meshwork_accel::Accelerator>(
//! #     group: &mut meshwork_collectives::Group,
//! #     accelerator: &A,
//! #     gradients: &mut A::Buffer,
//! # ) -> Result<(), meshwork_collectives::OperationError> {
//! # use meshwork_collectives::ReduceOp;
//! let mut devices = group.staged_on(accelerator);
//! devices.all_reduce(gradients, ReduceOp::Mean)?;
//! # Ok(())
//! # }
//! ```
//!
//! ## When a rank is lost
//!
//! ```no_run
//! # fn step(
//! #     group: &mut meshwork_collectives::Group,
//! #     gradients: &mut [f32],
//! # ) -> Result<(), meshwork_collectives::OperationError> {
//! # use meshwork_collectives::ReduceOp;
//! let mine = gradients.to_vec();
//! while let Err(error) = group.all_reduce(gradients, ReduceOp::Sum) {
//!     if !error.is_loss() {
//!         return Err(error); // `error.rank_at_fault()` says whose it is
//!     }
//!     group.shrink()?; // the others go on
//!     gradients.copy_from_slice(&mine);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Group::connect`], [`Group::local`] | a group of processes, or of threads |
//! | [`Group::all_reduce`], [`Group::broadcast`], [`Group::all_gather`], … | operations of all ranks |
//! | [`Group::send`], [`Group::receive`] | of two |
//! | [`Group::start_all_reduce`], … | the same while the program goes on |
//! | [`Group::alloc`] | a buffer that ranks of a host use in place |
//! | [`Group::split`] | groups of some ranks |
//! | [`Group::staged_on`], [`Group::direct_on`] | buffers of devices |
//! | [`Group::shrink`], [`Group::grow`] | going on when ranks come and go |
//! | [`Group::observer`] | what it is doing, for other threads |
//! | [`Group::leave`] | the end |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `testing` | the simulator of whole jobs, and readers of bytes from others, for tests; no part of the interface |
//!
//! # Errors
//!
//! [`Error`] is one of [`ConfigError`], [`JoinError`] and [`OperationError`]. No call waits for
//! ever: a rank that dies, falls silent or makes another call ends the group on every rank, with an
//! error that names it ([`OperationError::rank_at_fault`]); every later call returns it again.
//!
//! # Costs
//!
//! A group of processes has one thread, for the network between operations; the thread that waits
//! for an operation drives the network itself. Operations that are started run on a second one. A
//! rank is connected to about 2 log₂ N of N others from the start, and to more as operations need
//! it. Ranks of a host share 1.7 MiB each and 256 KiB for each pair, at most 4 MiB a rank; large
//! buffers of [`Group::alloc`] are reduced in place.
//!
//! # Map of the crate
//!
//! `group` (the entry), `config`, `error`, `communication` (which algorithm), `measured_links` (how
//! fast links are), `compression` (fewer bytes for values); `schedule` is a crate of its own
//! (algorithms as data, and their checker); pure are `contract` (what ranks must agree on),
//! `wait_for_graph` (who waits for whom), `membership` (who is here, and when it is over),
//! `agreement` (who goes on after that), `wire` (bytes) and [`diagnosis`] (why a group failed, from
//! the dumps of its `flight_recorder`). A `session` hands each `operation` to its `medium`: `shm`
//! (memory of one host) or `links` (streams, and hierarchies over hosts). `identity` (the job's
//! private CA), `quic` and `tls` (the network), `local` (threads), `host` (processes of the same
//! machine), `driver` (which thread drives the network). `sim` plays whole jobs in virtual time,
//! for tests.

mod agreement;
mod communication;
mod compression;
mod config;
mod contract;
mod core_sharing;
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
mod idle;
mod links;
mod local;
mod measured_links;
mod medium;
mod membership;
mod notice;
mod open_files;
mod operation;
mod overlay;
mod quic;
mod relay;
mod session;
mod shm;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
mod statistics;
mod tasks;
mod tls;
mod wait_for_graph;
mod wire;

pub use meshwork_accel::{Element, ElementType, ReduceOp, bf16, f16};

pub use agreement::TwoMemberPolicy;
pub use communication::{Choices, Communication, CostModel, LinkCost, Payload, Prediction};
pub use compression::{Compression, Rounding};
pub use config::{Congestion, GroupConfig, Network, Timeouts, Transport};
pub use contract::Call;
pub use data_transport::DataTransport;
pub use error::{
    CertificateProblem, ConfigError, Error, FileLimit, JoinError, LossCause, Member,
    OperationError, Refusal, RelayRefusal, SystemError, UnauthenticatedCause, UnauthenticatedPeer,
    fmt_with_causes,
};
pub use group::{
    CommunicatorScope, DeviceGroup, DeviceRoute, Epoch, ErrorFeedback, FallbackReason, Group,
    Observer, Operations, Pending, Pinning, Prepared, Registered, Route,
};
pub use identity::{Certificates, JobIdentity, JobSecret};
pub use measured_links::{LinkSpeed, MeasuredLinks};
pub use meshwork_schedule as schedule;
pub use meshwork_schedule::Algorithm;
pub use meshwork_schedule::Rank;
pub use quic::{Rendezvous, announce_loss};
pub use relay::{Relay, RelayEvent, RelayLimits, RelayToken};
pub use statistics::{
    Arrival, AwaitedRank, ConnectionCounts, CurrentCall, Departure, Peer, Statistics, Traffic,
};
pub use wire::WireError;

/// Chapters of the book, whose programs are compiled and run.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../../docs/book/src/coming-from-mpi.md")]
    mod coming_from_mpi {}
}
