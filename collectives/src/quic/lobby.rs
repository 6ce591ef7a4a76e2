//! Where members are admitted: shared by all that dial and accept.

mod accept;
mod dial;
mod knocks;
mod lanes;
mod renewal;
mod speaker;
mod strangers;
mod tcp;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::Connection;
use ring::digest;
use tokio::sync::mpsc;

use super::station::{Station, Term};
use super::streams::{Arrivals, Data, Stream};
use super::{ABORT, GOODBYE, TURNED_AWAY};
use super::{control, streams};
use crate::identity::{Identity, Role};
use crate::links::Links;
use crate::membership::Event;
use crate::waits::Waits;
use crate::wire::{Decision, Hello, Lane, Message, Newcomer};
use crate::{Carrier, Error, Member, Network, Rank, Refusal, Timeouts, agreement, host};

pub(super) use accept::accept;
pub(super) use dial::dial_lower_ranks;
use knocks::Knocks;
pub(super) use renewal::renew;
use speaker::Speaker;
use strangers::Log;
pub(super) use tcp::take_in;
use tcp::{Tcp, Tie};

/// The members so far, and what everyone who wants to be one is measured by.
pub(super) struct Lobby {
    me: Rank,
    members: Arc<[Member]>,
    /// The seat of each rank.
    places: Arc<[agreement::Seat]>,
    identity: Arc<Identity>,
    network: Network,
    timeouts: Timeouts,
    hello: Hello,
    epoch: u64,
    /// What began this epoch, for those who have missed it.
    decision: Option<Decision>,
    /// The incarnations of the members, by seat: of a later epoch all, as they were decided on, of
    /// the first those who have greeted. Each seat has one in an epoch.
    met: Mutex<BTreeMap<agreement::Seat, u64>>,
    /// Members whose processes have ended, as the kernel has told this process or its launcher.
    ended: Mutex<BTreeSet<Rank>>,
    /// Who wants to be let in.
    knocks: Knocks,
    events: mpsc::Sender<Event>,
    seats: Mutex<Vec<Option<Seat>>>,
    /// Streams of split groups, by the rank at the other end, the group's number and the lane.
    arrivals: Arrivals<(Rank, u64, u8)>,
    /// Connections besides the one that was greeted, each with its data stream.
    lanes: Arrivals<Lane, (Connection, Data)>,
    /// Connections over TCP.
    tcp: Tcp,
    waits: Mutex<Waits>,
    log: Log,
}

/// A member that has been admitted.
struct Seat {
    speaker: Speaker,
    /// Its process id, if it runs on this host.
    shares_host: Option<u32>,
    /// What it calls its host; empty where it cannot tell.
    host: String,
    /// Taken when the group begins.
    data: Option<Vec<Data>>,
    /// What its connections over TCP have to prove, where there are such.
    tie: Option<Tie>,
}

/// A connection whose two ends have agreed on everything.
struct Admitted {
    connections: Vec<Connection>,
    hello: Hello,
    control: Stream,
    /// One for each connection, or each lane over TCP.
    data: Vec<Data>,
    tie: Option<Tie>,
}

impl Lobby {
    pub(super) fn new(station: &Station, term: Term, events: mpsc::Sender<Event>) -> Arc<Self> {
        let Term {
            rank: me, members, ..
        } = term;
        let network = station.config.network();
        let hello = Hello {
            rank: me.number(),
            incarnation: station.me.incarnation,
            world: u32::try_from(members.len()).expect("a group checks its size before it joins"),
            members: fingerprint(term.number, &members),
            process: std::process::id(),
            host: station.host.clone(),
            connections: network.connections(),
            carrier: network.carrier().code(),
        };
        let seats = Mutex::new(members.iter().map(|_| None).collect());
        Arc::new(Self {
            me,
            members,
            places: term.seats,
            epoch: term.number,
            met: Mutex::new(incarnations(term.decision.as_ref(), station.me)),
            ended: Mutex::default(),
            decision: term.decision,
            knocks: Knocks::default(),
            identity: station.identity.clone(),
            network,
            timeouts: station.config.timeouts(),
            hello,
            events,
            seats,
            arrivals: Arrivals::default(),
            lanes: Arrivals::default(),
            tcp: Tcp::default(),
            waits: Mutex::default(),
            log: Log::default(),
        })
    }

    /// The data streams of all members, once they are all in.
    pub(super) fn links(&self) -> Links {
        let mut seats = self.seats();
        let streams = seats
            .iter_mut()
            .map(|seat| Some(streams::joined(seat.as_mut()?.data.take()?)));
        Links::new(streams.collect::<Vec<_>>())
    }

    /// The members that run on this host, this one among them, and their process ids.
    pub(super) fn neighbours(&self) -> Vec<(Rank, u32)> {
        let mut neighbours = vec![(self.me, self.hello.process)];
        let seats = self.seats();
        for (rank, seat) in self.members.iter().zip(seats.iter()) {
            if let Some(process) = seat.as_ref().and_then(|seat| seat.shares_host) {
                neighbours.push((rank.rank(), process));
            }
        }
        neighbours.sort_unstable();
        neighbours
    }

    /// The host of each member, as the first member on it. Those that cannot tell are apart.
    pub(super) fn hosts(&self) -> Vec<usize> {
        let seats = self.seats();
        let name = |place: usize| match &seats[place] {
            Some(seat) => seat.host.as_str(),
            None => self.hello.host.as_str(),
        };
        let same = |place: usize, other: usize| {
            place == other || (!name(place).is_empty() && name(place) == name(other))
        };
        (0..seats.len())
            .map(|place| {
                (0..place)
                    .find(|other| same(place, *other))
                    .unwrap_or(place)
            })
            .collect()
    }

    /// A member's connections, the one with control first.
    pub(super) fn connections(&self, rank: Rank) -> Option<Vec<Connection>> {
        let seats = self.seats();
        let seat = seats.get(rank.index())?.as_ref()?;
        Some(seat.speaker.connections().to_vec())
    }

    /// What ties a member's connections over TCP to it.
    fn seated_tie(&self, rank: Rank) -> Option<Tie> {
        self.seats().get(rank.index())?.as_ref()?.tie.clone()
    }

    /// How many connections each pair of ranks has.
    pub(super) fn lane_count(&self) -> u8 {
        self.hello.connections
    }

    /// What carries the bytes of operations.
    pub(super) fn carrier(&self) -> Carrier {
        self.network.carrier()
    }

    /// The incarnations of the members that are known, by seat.
    pub(super) fn incarnations(&self) -> BTreeMap<agreement::Seat, u64> {
        lock(&self.met).clone()
    }

    /// Whether the process that greets is the member of this rank: the first that does is, where it
    /// was not decided before. It may have met all others too, and voted, even if it ends at once.
    fn meets(&self, rank: Rank, incarnation: u64) -> bool {
        let seat = self.places.get(rank.index());
        seat.is_some_and(|seat| *lock(&self.met).entry(*seat).or_insert(incarnation) == incarnation)
    }

    /// Members whose processes have ended, and not only by hearsay.
    pub(super) fn ended(&self) -> Vec<Rank> {
        lock(&self.ended).iter().copied().collect()
    }

    /// The rank of another member by its seat, if it is in this epoch.
    fn rank_at(&self, seat: agreement::Seat) -> Option<Rank> {
        let place = self.places.iter().position(|place| *place == seat)?;
        let rank = Rank::new(u32::try_from(place).ok()?);
        (rank != self.me).then_some(rank)
    }

    /// What the certificate of a rank says: its seat, which it keeps through all epochs.
    fn role(&self, rank: Rank) -> Role {
        let seat = self.places.get(rank.index());
        Role::Rank(seat.map_or(rank, |seat| Rank::new(*seat)))
    }

    pub(super) fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    pub(super) fn me(&self) -> Rank {
        self.me
    }

    pub(super) fn arrivals(&self) -> &Arrivals<(Rank, u64, u8)> {
        &self.arrivals
    }

    /// Sends a message to a member, without waiting. An abort is the last one.
    pub(super) fn tell(&self, rank: Rank, message: Message) {
        let mut seats = self.seats();
        let Some(seat) = &mut seats[rank.index()] else {
            return;
        };
        match message {
            Message::Abort(abort) if abort.buries(rank) => seat.speaker.hang_up(ABORT),
            Message::Abort(_) => seat.speaker.part(ABORT, Some(message)),
            message => seat.speaker.tell(message),
        }
    }

    /// Waits until all last words are confirmed, which takes a bounded time.
    pub(super) async fn farewells(&self) {
        let farewells: Vec<_> = {
            let mut seats = self.seats();
            let seats = seats.iter_mut().flatten();
            seats.filter_map(|seat| seat.speaker.farewell()).collect()
        };
        for farewell in farewells {
            let _ = farewell.await;
        }
    }

    /// Ends all connections of a group that has finished.
    pub(super) fn close_all(&self) {
        for seat in self.seats().iter_mut().flatten() {
            seat.speaker.part(GOODBYE, None);
        }
    }

    fn admit(self: &Arc<Self>, rank: Rank, admitted: Admitted) {
        let Admitted {
            connections,
            hello,
            control: (send, receive),
            data,
            tie,
        } = admitted;
        let shares_host = self.shares_host(&hello).then_some(hello.process);
        let mut seats = self.seats();
        if seats[rank.index()].is_some() {
            speaker::close(&connections, TURNED_AWAY, &[]);
            return;
        }
        tracing::debug!("connected to {rank}");
        seats[rank.index()] = Some(Seat {
            speaker: Speaker::new(send, connections.clone()),
            shares_host,
            host: hello.host,
            data: Some(data),
            tie,
        });
        drop(seats);
        for (lane, connection) in (0..).zip(&connections) {
            let arriving = streams::receive(self.clone(), (rank, lane), connection.clone());
            tokio::spawn(arriving);
        }
        let (lobby, kernel, events) = (self.clone(), self.clone(), self.events.clone());
        tokio::spawn(async move {
            // First of all events of this rank: nobody can be lost who has not joined.
            let _ = events.send(Event::Joined(rank)).await;
            tokio::join!(
                control::listen(rank, receive, lobby),
                control::until_any_closed(rank, connections, events.clone()),
                async {
                    if let Some(process) = shares_host
                        && host::process_ended(process).await.is_ok()
                    {
                        lock(&kernel.ended).insert(rank);
                        let _ = events.send(Event::Died(rank)).await;
                    }
                },
                async {
                    if let Some(process) = shares_host
                        && host::process_stopped(process).await.is_ok()
                    {
                        let _ = events.send(Event::Stopped(rank)).await;
                    }
                },
            );
        });
    }

    fn shares_host(&self, hello: &Hello) -> bool {
        !hello.host.is_empty() && hello.host == self.hello.host
    }

    /// Whether `hello` fits this group; the certificate has been checked before.
    fn examine(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.world != self.hello.world {
            return Err(Refusal::World {
                expected: self.hello.world,
                found: hello.world,
            });
        }
        if hello.members != self.hello.members {
            return Err(Refusal::Members);
        }
        if hello.connections != self.hello.connections {
            return Err(Refusal::Connections {
                expected: self.hello.connections.into(),
                found: hello.connections.into(),
            });
        }
        if hello.carrier != self.hello.carrier {
            let found = Carrier::from_code(hello.carrier.into());
            return Err(Refusal::Carrier {
                expected: self.network.carrier(),
                found: found.unwrap_or_default(),
            });
        }
        Ok(())
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Option<Seat>>> {
        lock(&self.seats)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds a lock of a lobby can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who is at which seat, as far as the decision that began an epoch says, or there was none.
fn incarnations(decision: Option<&Decision>, me: Newcomer) -> BTreeMap<agreement::Seat, u64> {
    let decided = decision.into_iter().flat_map(Decision::members);
    let known = decided.chain([me]);
    known
        .map(|process| (process.seat, process.incarnation))
        .collect()
}

/// Ends the group when the launcher ends, so that no rank is left behind.
pub(super) fn watch_launcher(lobby: &Arc<Lobby>, launcher: Option<u32>) {
    let Some(process) = launcher else { return };
    let events = lobby.events.clone();
    tokio::spawn(async move {
        if host::process_ended(process).await.is_ok() {
            let _ = events
                .send(Event::GiveUp(Error::LauncherLost { process }))
                .await;
        }
    });
}

fn fingerprint(epoch: u64, members: &[Member]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&epoch.to_le_bytes());
    for member in members {
        context.update(member.address().as_bytes());
        context.update(b"\n");
    }
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}
