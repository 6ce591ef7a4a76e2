//! Processes as a group: mutual TLS over QUIC between every pair of ranks.
//!
//! ```text
//!            rank 0          rank 1          rank 2
//!   dials      -               0              0, 1        the higher rank dials the lower
//!
//!   the connection of a pair:   stream 0  control   hello, heartbeats, goodbye
//!                               stream 1  data      frames of operations
//!   further connections:        stream 0  data      its stripes of the same bytes
//! ```
//!
//! The end of a connection says why: its code, and an encoded abort as its reason.

mod announce;
mod batches;
mod control;
mod driver;
mod endpoint;
mod lobby;
mod streams;
mod stripes;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Endpoint, VarInt};
use tokio::sync::{mpsc, oneshot, watch};

pub use announce::announce_loss;

use crate::config::GroupConfig;
use crate::identity::{Identity, Role};
use crate::links::Links;
use crate::membership::{Event, Membership, Patience};
use crate::recorder::Recorder;
use crate::waits::Wait;
use crate::{Error, Member, Rank, host};
use lobby::Lobby;

/// The group has failed; the reason holds an encoded abort.
const ABORT: VarInt = VarInt::from_u32(1);
/// The sender has finished.
const GOODBYE: VarInt = VarInt::from_u32(2);
/// The connection was never part of the group.
const TURNED_AWAY: VarInt = VarInt::from_u32(3);

/// Events that may wait for the driver; beyond it their senders wait.
const EVENTS: usize = 1024;

/// The way to a group's driver, which runs on the group's own thread.
pub(crate) struct Remote {
    endpoint: Endpoint,
    events: mpsc::Sender<Event>,
    failure: watch::Receiver<Option<Error>>,
    over: watch::Receiver<bool>,
    neighbours: Vec<(Rank, u32)>,
    hosts: Vec<usize>,
    lobby: Arc<Lobby>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("neighbours", &self.neighbours)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// The host of each member, as the first member on it.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        self.hosts.clone()
    }

    /// New streams to these members, for a group of them with this number. They all ask for it.
    pub(crate) async fn streams(&self, members: &[Member], number: u64) -> Result<Links, Error> {
        self.lobby.streams(members, number).await
    }

    /// The members that run on this host, by rank, this one among them, and their process ids.
    pub(crate) fn neighbours(&self) -> &[(Rank, u32)] {
        &self.neighbours
    }

    /// Whether this host has a core for each of its ranks.
    pub(crate) fn has_cores(&self) -> bool {
        let processes = self.neighbours.iter().map(|(_, process)| *process);
        host::cores(processes).is_some_and(|cores| cores >= self.neighbours.len())
    }

    pub(crate) fn failure(&self) -> watch::Receiver<Option<Error>> {
        self.failure.clone()
    }

    pub(crate) async fn give_up(&self, error: Error) {
        // A driver that is gone has already ended the group.
        let _ = self.events.send(Event::GiveUp(error)).await;
    }

    /// Tells the others what this rank waits for.
    pub(crate) fn waits(&self, wait: Wait) {
        self.lobby.waits(wait);
    }

    /// Says goodbye and waits until all have.
    pub(crate) async fn leave(&self) {
        let _ = self.events.send(Event::Leave).await;
        let _ = self.over.clone().wait_for(|over| *over).await;
    }

    /// Gives the last packets, which tell the others why, a short time to go out.
    pub(crate) async fn flush(&self) {
        const FLUSHING: Duration = Duration::from_millis(300);
        let _ = tokio::time::timeout(FLUSHING, self.endpoint.wait_idle()).await;
    }
}

/// Joins the group: listens, dials, and returns when every pair of ranks has a connection.
pub(crate) async fn join(
    config: &GroupConfig,
    members: Arc<[Member]>,
    recorder: Arc<Recorder>,
) -> Result<(Links, Remote), Error> {
    let rank = config.rank();
    let identity = match config.certificates() {
        Some(certificates) => Identity::from_files(certificates, Role::Rank(rank))?,
        None => Identity::new(config.secret(), Role::Rank(rank))?,
    };
    let endpoint = endpoint::listen(config, &identity).await?;
    let (events, inbox) = mpsc::channel(EVENTS);
    let host = config.host().map_or_else(host::host, str::to_owned);
    let means = (identity, config.network(), host);
    let lobby = Lobby::new(rank, members.clone(), means, events.clone());
    let patience = patience(config);
    let membership = Membership::new(rank, members, patience, std::time::Instant::now());
    let (ready, joined) = oneshot::channel();
    let (failed, failure) = watch::channel(None);
    let (ended, over) = watch::channel(false);
    let outbox = driver::Outbox {
        lobby: lobby.clone(),
        recorder,
        ready: Some(ready),
        failed,
        ended,
    };
    tokio::spawn(driver::drive(membership, inbox, outbox));
    tokio::spawn(lobby::accept(lobby.clone(), endpoint.clone()));
    tokio::spawn(lobby::renew(lobby.clone(), endpoint.clone()));
    lobby::dial_lower_ranks(&lobby, &endpoint);
    lobby::watch_launcher(&lobby, config.launcher());
    let mut remote = Remote {
        endpoint,
        events,
        failure,
        over,
        neighbours: Vec::new(),
        hosts: Vec::new(),
        lobby: lobby.clone(),
    };
    match joined.await {
        Ok(()) => {
            remote.neighbours = lobby.neighbours();
            remote.hosts = lobby.hosts();
            Ok((lobby.links(), remote))
        }
        Err(_) => Err(remote.ended_with().await),
    }
}

impl Remote {
    /// The error of a group that was over before it began.
    async fn ended_with(mut self) -> Error {
        let failure = self
            .failure
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|error| error.clone());
        self.flush().await;
        failure.unwrap_or(Error::System {
            what: "joining",
            kind: std::io::ErrorKind::BrokenPipe,
        })
    }
}

fn patience(config: &GroupConfig) -> Patience {
    let silence = match cfg!(meshwork_bare) {
        true => Duration::from_secs(86_400),
        false => config.timeouts().silence(),
    };
    Patience {
        join: config.timeouts().join(),
        heartbeat: silence / 6,
        silence,
    }
}

/// The first of an address's IPs that is of the same version as `like`.
async fn resolve(address: &str, like: SocketAddr) -> Result<Option<SocketAddr>, std::io::Error> {
    let found = tokio::net::lookup_host(address).await?;
    Ok(found
        .into_iter()
        .find(|candidate| candidate.is_ipv4() == like.is_ipv4()))
}
