//! What a rank knows of its group at a moment, as plain numbers.
//!
//! They are put together by whoever asks, from what the flight recorder keeps anyway: operations
//! only set numbers.

use std::time::{Duration, Instant};

use crate::Rank;

/// One rank's numbers of its group, and of those that were split from it.
///
/// Counts go on through changes of members; ranks are those of the present view.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Whose numbers these are.
    pub rank: Rank,
    /// Its address, as the others know it.
    pub address: String,
    /// How many ranks there are.
    pub world: u32,
    /// Which rank of its host this is, from 0.
    pub local_rank: u32,
    /// The number of the view, from 1: how often the members have changed.
    pub view: u64,
    /// Since the rank joined.
    pub age: Duration,
    /// What operations have moved, by transport.
    pub traffic: Vec<Traffic>,
    /// Time that the rank has spent in operations, on waiting for others and on moving bytes.
    pub in_operations: Duration,
    /// The operation that it is in: of several, the one that began first.
    pub current: Option<CurrentCall>,
    /// For whom operations have waited at length, from the time on that a look found them waiting:
    /// only ranks that were waited for.
    pub awaited: Vec<AwaitedRank>,
    /// The ranks that this one has connections with, in order. None among threads.
    pub peers: Vec<Peer>,
    /// How its connections have come about.
    pub connections: ConnectionCounts,
    /// Why earlier views ended, the first first, as far as that was by a failure.
    pub departures: Vec<Departure>,
    /// Who has come since this rank joined, the first first.
    pub arrivals: Vec<Arrival>,
    /// Why the group is over, if it has failed.
    pub failure: Option<String>,
}

/// What operations have moved by one transport.
///
/// An operation that goes host by host counts as one over links; its bytes count where they went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Traffic {
    /// `memory`, `quic` or `tls`.
    pub transport: &'static str,
    /// Operations that have ended.
    pub operations: u64,
    /// Bytes of their buffers: of an all-reduce those of one rank, of a gather those of all. None
    /// are counted of gathers, scatters and all-to-alls whose blocks differ in length.
    pub bytes: u64,
    /// Bytes of the last operations, up to 256 of each group, by the time that these took.
    pub recent_gigabytes_per_second: Option<f64>,
}

/// An operation that a rank is in.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct CurrentCall {
    /// What was called, as in `all_reduce of 64 f32, sum`.
    pub what: String,
    /// The `file:line` of the caller.
    pub site: String,
    /// Since it was called.
    pub since: Duration,
    /// Whom it waits for, where it has waited at length.
    pub awaited: Option<Rank>,
}

/// How long a rank was waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct AwaitedRank {
    /// The rank.
    pub rank: Rank,
    /// For how long, in all operations together.
    pub waited: Duration,
}

/// The connections with another rank at the moment, which all are QUIC's. Numbers begin anew where
/// an idle connection was closed and another made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Peer {
    /// The rank at the other end.
    pub rank: Rank,
    /// How long a packet and its confirmation take.
    pub round_trip: Duration,
    /// Bytes of the packets to it, headers and all.
    pub bytes_sent: u64,
    /// Bytes of the packets from it.
    pub bytes_received: u64,
    /// Packets to it.
    pub packets_sent: u64,
    /// Packets to it that were lost, so that what they held was sent again.
    pub packets_lost: u64,
}

/// How the connections of a rank have come about, all of which are QUIC's, since its process began
/// to join. None among threads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConnectionCounts {
    /// Handshakes with processes that it has dialled, those included by which the members agree on
    /// the next view.
    pub dialled: u64,
    /// Handshakes with processes that have dialled it.
    pub answered: u64,
    /// Connections that one view has left to the next, each of which has saved a handshake.
    pub kept: u64,
}

/// Why a view ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Departure {
    /// The number of the view.
    pub view: u64,
    /// The address of the rank at fault, where there is one: it keeps it, unlike its rank.
    pub address: Option<String>,
    /// The error that the view ended with.
    pub reason: String,
    /// Since the group went on without it.
    pub ago: Duration,
}

/// A rank that has come.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Arrival {
    /// The number of its first view.
    pub view: u64,
    /// Its address, which it keeps, unlike its rank.
    pub address: String,
    /// Since that view began.
    pub ago: Duration,
}

impl Departure {
    pub(crate) fn since(mut self, at: Instant) -> Self {
        self.ago = at.elapsed();
        self
    }
}

impl Arrival {
    pub(crate) fn since(mut self, at: Instant) -> Self {
        self.ago = at.elapsed();
        self
    }
}

impl Statistics {
    /// The share of its time that the rank has spent in operations, from 0 to 1.
    #[must_use]
    pub fn waiting_share(&self) -> f64 {
        match self.age.as_secs_f64() {
            0.0 => 0.0,
            age => (self.in_operations.as_secs_f64() / age).min(1.0),
        }
    }

    /// Operations by all transports.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.traffic.iter().map(|traffic| traffic.operations).sum()
    }

    /// Bytes by all transports.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.traffic.iter().map(|traffic| traffic.bytes).sum()
    }
}
