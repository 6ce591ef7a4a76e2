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
//! With [`Carrier::Tls`](crate::Carrier::Tls), the data go over connections of TCP instead, one for
//! each lane, and all else stays as it is.
//!
//! The end of a connection says why: its code, and an encoded abort as its reason.

mod announce;
mod assembly;
mod batches;
mod control;
mod driver;
mod endpoint;
mod gate;
mod heads;
mod lobby;
mod station;
mod streams;
mod stripes;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quinn::VarInt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

pub use announce::announce_loss;
pub(crate) use assembly::Evidence;
#[cfg(any(test, feature = "testing"))]
pub(crate) use heads::decode_any as decode_heads;
pub(crate) use station::{Station, Term};

use crate::agreement::{Past, Proof};
use crate::config::GroupConfig;
use crate::links::Links;
use crate::membership::{Event, Membership, Patience};
use crate::recorder::Recorder;
use crate::waits::Wait;
use crate::{Carrier, Error, Member, Rank, Timeouts, Transport, host};
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
    station: Arc<Station>,
    term: Term,
    recorder: Arc<Recorder>,
    /// Which end with the epoch.
    tasks: Vec<AbortHandle>,
    /// Whether the endpoint serves another epoch.
    handed_over: AtomicBool,
    events: mpsc::Sender<Event>,
    failure: watch::Receiver<Option<Error>>,
    over: watch::Receiver<bool>,
    neighbours: Vec<(Rank, u32)>,
    hosts: Vec<usize>,
    lobby: Arc<Lobby>,
}

/// The way from one epoch to the next.
impl Remote {
    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    pub(crate) fn station(&self) -> &Arc<Station> {
        &self.station
    }

    /// This process's rank, and all members.
    pub(crate) fn place(&self) -> (Rank, Arc<[Member]>) {
        (self.term.rank, self.term.members.clone())
    }

    pub(crate) fn term(&self) -> &Term {
        &self.term
    }

    /// The epoch of this group, once it is over.
    pub(crate) fn past(&self) -> Past {
        Past {
            epoch: self.term.number,
            members: self.term.seats.clone(),
            incarnations: self.lobby.incarnations(),
        }
    }

    /// Who was lost when the epoch ended like this, other than this process, and whose end can be
    /// seen from here.
    pub(crate) fn evidence(&self, end: Option<&Error>) -> Evidence {
        let seat = |rank: Rank| {
            let seat = self.term.seats.get(rank.index()).copied();
            seat.filter(|seat| *seat != self.station.me.seat)
        };
        let culprit = match end {
            Some(Error::RankLost { peer, .. }) => seat(peer.rank()),
            _ => None,
        };
        let proven = self.lobby.ended().into_iter().filter_map(seat);
        // Whoever is blamed may live on: all that is told of it is hearsay.
        let lost = culprit.map(|seat| (seat, Proof::Unreached));
        let neighbours = self.neighbours.iter();
        Evidence {
            lost: lost
                .into_iter()
                .chain(proven.map(|seat| (seat, Proof::Ended)))
                .collect(),
            neighbours: neighbours
                .filter_map(|(rank, process)| Some((seat(*rank)?, *process)))
                .collect(),
        }
    }

    /// How long things may take, and how bytes get from rank to rank.
    pub(crate) fn settings(&self) -> (Timeouts, Transport) {
        let config = &self.station.config;
        (config.timeouts(), config.transport())
    }

    /// What carries the bytes of operations.
    pub(crate) fn carrier(&self) -> Carrier {
        self.station.config.network().carrier()
    }

    /// Leaves the endpoint to the next epoch, and all who call from now on.
    pub(crate) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Relaxed);
        self.tasks.iter().for_each(AbortHandle::abort);
    }

    /// Who wants to be let in, by seat: the incarnation, or 0. Only for seats that nobody has.
    pub(crate) fn at_the_door(&self) -> Vec<u64> {
        let mut doors = vec![0; self.station.config.members().len()];
        for newcomer in self.lobby.at_the_door() {
            if let Some(door) = doors.get_mut(newcomer.seat as usize)
                && !self.term.seats.contains(&newcomer.seat)
            {
                *door = newcomer.incarnation;
            }
        }
        doors
    }
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
        const CLOSING: Duration = Duration::from_millis(300);
        // Whoever goes on with the endpoint sends them anyway.
        if !self.handed_over.load(Ordering::Relaxed) {
            self.lobby.farewells().await;
            let idle = self.station.endpoint.wait_idle();
            let _ = tokio::time::timeout(CLOSING, idle).await;
        }
    }
}

/// Joins the group: listens, dials, and returns when every pair of ranks has a connection.
pub(crate) async fn join(config: &GroupConfig, members: Arc<[Member]>) -> Result<Met, Error> {
    let station = Station::open(config).await?;
    let term = Term::first(config.rank(), members);
    station.meet(term).await
}

impl Station {
    /// Meets the other members of an epoch: every pair of them gets a connection.
    pub(crate) async fn meet(self: &Arc<Self>, term: Term) -> Result<Met, Error> {
        let (events, inbox) = mpsc::channel(EVENTS);
        let lobby = Lobby::new(self, term.clone(), events.clone());
        let (rank, members) = (term.rank, term.members.clone());
        let patience = patience(&self.config, term.number);
        let alone = members.len() == 1;
        let membership = Membership::new(rank, members, patience, std::time::Instant::now());
        let recorder = Recorder::new(rank, term.members.clone(), self.dump_of(term.number));
        let (ready, joined) = oneshot::channel();
        let (failed, failure) = watch::channel(None);
        let (ended, over) = watch::channel(false);
        let mut outbox = driver::Outbox {
            lobby: lobby.clone(),
            recorder: recorder.clone(),
            ready: Some(ready),
            failed,
            ended,
        };
        if alone {
            outbox.begin();
        }
        tokio::spawn(driver::drive(membership, inbox, outbox));
        let accepting = tokio::spawn(lobby::accept(lobby.clone(), self.clone()));
        let renewing = tokio::spawn(lobby::renew(lobby.clone(), self.endpoint.clone()));
        let mut tasks = vec![accepting.abort_handle(), renewing.abort_handle()];
        if let Some(listener) = &self.listener {
            let taking_in = tokio::spawn(lobby::take_in(lobby.clone(), listener.clone()));
            tasks.push(taking_in.abort_handle());
        }
        lobby::dial_lower_ranks(&lobby, &self.endpoint);
        lobby::watch_launcher(&lobby, self.config.launcher());
        let mut remote = Remote {
            station: self.clone(),
            term,
            recorder,
            tasks,
            handed_over: AtomicBool::new(false),
            events,
            failure,
            over,
            neighbours: Vec::new(),
            hosts: Vec::new(),
            lobby: lobby.clone(),
        };
        let links = match joined.await {
            Ok(()) => {
                remote.neighbours = lobby.neighbours();
                remote.hosts = lobby.hosts();
                Ok(lobby.links())
            }
            Err(_) => Err(remote.ended_with().await),
        };
        Ok(Met { remote, links })
    }
}

/// What comes of meeting: streams to all members, or why there are none.
pub(crate) struct Met {
    pub(crate) remote: Remote,
    pub(crate) links: Result<Links, Error>,
}

impl Remote {
    /// The error of a group that was over before it began.
    async fn ended_with(&self) -> Error {
        let mut failure = self.failure.clone();
        let failure = failure
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

fn patience(config: &GroupConfig, epoch: u64) -> Patience {
    let silence = match cfg!(meshwork_bare) {
        true => Duration::from_secs(86_400),
        false => config.timeouts().silence(),
    };
    let join = config.timeouts().join();
    Patience {
        // All members of a later epoch were there a moment ago.
        join: if epoch == 1 {
            join
        } else {
            join.min(4 * silence)
        },
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
