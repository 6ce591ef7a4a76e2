//! Byte streams over TCP, as TLS 1.3 with both ends proved: what carries bulk bytes where packets
//! of UDP are small.
//!
//! ```text
//!   handshake   rustls: who the other is, and the keys
//!   record      bytes sealed and opened where they lie
//!   stream      the two directions, each with one buffer and one system call for many records
//!   socket      TCP: where it listens, how it is tuned
//! ```
//!
//! Knows no ranks and no groups: who may connect to whom, and for what, is for admission to say.

#[cfg(any(test, feature = "testing"))]
mod adversary;
mod handshake;
mod record;
mod socket;
mod stream;

#[cfg(any(test, feature = "testing"))]
pub(crate) use adversary::meddle;
pub(crate) use handshake::{Failed, accept, connect};
pub(crate) use socket::{dial, listen, somebody_waits, tune};
#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
pub(crate) use stream::Secured;
