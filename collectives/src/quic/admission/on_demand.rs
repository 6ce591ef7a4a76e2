//! Connections and streams that are opened when an operation needs them.
//!
//! ```text
//!   the lower of two ranks             the higher
//!     needs it ── OpenStreams ──────>   dials, if they are not connected, and opens
//!                                       needs it: the same, unasked
//! ```
//!
//! Only the higher rank opens, so two that need each other at once open once. The question finds
//! its way over neighbours, and is answered by the higher rank's background, whatever its program
//! does: so a send needs no receive to begin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::{Admission, lock};
use crate::idle::{Closable, Counted};
use crate::links::{Connected, Connecting, Connector, Links};
use crate::membership::Event;
use crate::quic::streams::{Arrived, Data, GROUPS, joined};
use crate::quic::{JOINED, streams};
use crate::wire::{Message, Routed};
use crate::{DataTransport, Member, OperationError, Rank, overlay};

/// When the higher rank is asked to open streams first: most often it opens them by itself.
const FIRST_ASKED: Duration = Duration::from_millis(5);
/// And how long between two questions at most, of which each may be lost.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// What is being opened, or has been.
#[derive(Default)]
pub(super) struct Opening {
    /// Ranks that are or were dialled.
    dialled: BTreeSet<Rank>,
    /// Streams to a rank for a group, for as long as the group lives here and the connection stays,
    /// by the number of the task that opens them.
    streams: BTreeMap<(Rank, u64), u64>,
    tasks: u64,
}

impl Opening {
    /// Whether a rank is to be dialled now.
    pub(super) fn dials(&mut self, rank: Rank) -> bool {
        self.dialled.insert(rank)
    }

    /// The number of the task that is to open streams now: once, and no more than two ranks can
    /// have.
    fn opens(&mut self, rank: Rank, group: u64) -> Option<u64> {
        let of_rank = self.streams.range((rank, 0)..=(rank, u64::MAX));
        let is_new = !self.streams.contains_key(&(rank, group));
        if !is_new || of_rank.count() > usize::from(GROUPS) {
            return None;
        }
        self.tasks += 1;
        self.streams.insert((rank, group), self.tasks);
        Some(self.tasks)
    }

    /// Whether that task is still to open them: the connection that it was for may be closed.
    fn is_opened_by(&self, task: u64, rank: Rank, group: u64) -> bool {
        self.streams.get(&(rank, group)) == Some(&task)
    }

    /// The connection with a rank is closed, and with it all streams.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.dialled.remove(&rank);
        self.streams.retain(|(to, _), _| *to != rank);
    }
}

/// Opens the streams of one group. Ends with the group, and with it what nobody took.
struct OnDemand {
    admission: Arc<Admission>,
    /// Ranks in the group as the others of the group that was joined.
    members: Arc<[Member]>,
    group: u64,
}

impl Connector for OnDemand {
    fn connect(&self, to: Rank) -> Connecting {
        let admission = self.admission.clone();
        let (rank, group) = (self.members[to.index()].rank(), self.group);
        Box::pin(async move { admission.connect(rank, group).await })
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        let opening = &mut lock(&self.admission.opening).streams;
        opening.retain(|(_, group), _| *group != self.group);
        let arrivals = &self.admission.arrivals;
        arrivals.retain(|(_, group, _)| *group != self.group);
        if self.group != JOINED {
            self.admission.split_groups.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Admission {
    /// Streams among these members, for a group with this number, as they are needed.
    pub(in crate::quic) fn links(self: &Arc<Self>, members: Arc<[Member]>, group: u64) -> Links {
        let world = members.len();
        let admission = self.clone();
        if group != JOINED {
            self.split_groups.fetch_add(1, Ordering::Relaxed);
        }
        let connector = OnDemand {
            admission,
            members,
            group,
        };
        Links::on_demand(world, Arc::new(connector))
    }

    /// The streams of a group with a member, once they are open; again if the connection is closed
    /// before they can be held.
    async fn connect(self: &Arc<Self>, rank: Rank, group: u64) -> Connected {
        loop {
            let lanes = self.streams_with(rank, group).await;
            let closable = lanes.first().and_then(Arrived::closable).cloned();
            let lanes = lanes.into_iter().map(|lane| lane.data);
            let (outgoing, incoming) = joined(lanes.collect());
            let Some(connection) = closable else {
                return Connected {
                    outgoing,
                    incoming,
                    held: None,
                };
            };
            if let Some(held) = connection.hold().await {
                return Connected {
                    outgoing: Box::new(Counted::new(outgoing, connection.clone())),
                    incoming: Box::new(Counted::new(incoming, connection)),
                    held: Some(held),
                };
            }
        }
    }

    /// A stream for each lane of a group with a member, once they are open.
    async fn streams_with(self: &Arc<Self>, rank: Rank, group: u64) -> Vec<Arrived> {
        if rank < self.me {
            self.open_streams(rank, group);
        }
        let opened = self.opened(rank, group);
        tokio::pin!(opened);
        let mut pause = FIRST_ASKED;
        loop {
            tokio::select! {
                biased;
                opened = &mut opened => return opened,
                () = sleep(pause) => {}
            }
            match rank < self.me {
                // They are open, unless the connection was closed.
                true => self.open_streams(rank, group),
                false => self.tell_any(rank, Message::OpenStreams(group)),
            }
            pause = ASKED_AGAIN.min(4 * pause);
        }
    }

    /// What the higher rank has opened: all lanes over one connection.
    async fn opened(&self, rank: Rank, group: u64) -> Vec<Arrived> {
        if rank > self.me && group != JOINED && self.data_transport() == DataTransport::Tls {
            return self.opened_over_tcp(rank, group).await;
        }
        let mut lanes = BTreeMap::new();
        while let Some(lane) = (0..self.lane_count()).find(|lane| !lanes.contains_key(lane)) {
            let arrived = self.arrivals.take((rank, group, lane)).await;
            // Those before may be over one that was closed meanwhile.
            lanes.retain(|_, before: &mut Arrived| before.is_over(arrived.closable()));
            lanes.insert(lane, arrived);
        }
        lanes.into_values().collect()
    }

    async fn opened_over_tcp(&self, rank: Rank, group: u64) -> Vec<Arrived> {
        loop {
            let admissions = self.admissions.notified();
            let member = {
                let admitted = self.admitted();
                let member = admitted.get(&rank);
                member
                    .and_then(|member| Some((member.tcp_binding.clone()?, member.closable.clone())))
            };
            let Some((tcp_binding, closable)) = member else {
                admissions.await;
                continue;
            };
            let lanes = self.tcp.lanes(&tcp_binding, group, self.lane_count());
            let Some(connection) = closable else {
                let lanes = lanes.await.into_iter();
                return lanes.map(|lane| Arrived::new(lane, None)).collect();
            };
            tokio::select! {
                lanes = lanes => {
                    let arrived = |lane| Arrived::new(lane, Some(connection.clone()));
                    return lanes.into_iter().map(arrived).collect();
                }
                () = connection.closed() => {}
            }
        }
    }

    /// Starts to open the streams of a group to a lower rank, unless they are open.
    fn open_streams(self: &Arc<Self>, rank: Rank, group: u64) {
        let Some(task) = lock(&self.opening).opens(rank, group) else {
            return;
        };
        self.dial_once(rank);
        if group == JOINED {
            // Those come with the connection.
            return;
        }
        self.attend(self.clone().open(rank, group, task));
    }

    /// Opens the streams of a group to a lower rank, and puts them where they are asked for.
    async fn open(self: Arc<Self>, rank: Rank, group: u64, task: u64) {
        let connection = self.connected(rank).await;
        let _held = match &connection {
            Some(connection) => connection.hold().await,
            None => None,
        };
        if !lock(&self.opening).is_opened_by(task, rank, group) {
            // Of a connection that is closed; whoever needs the streams asks again.
            return;
        }
        match self.open_lanes(rank, group).await {
            Ok(lanes) => {
                for (lane, data) in (0..).zip(lanes) {
                    let arrived = Arrived::new(data, connection.clone());
                    self.arrives((rank, group, lane), arrived);
                }
            }
            Err(error) => {
                let _ = self.events.send(Event::GiveUp(error)).await;
            }
        }
    }

    /// A stream for each lane with a lower rank that is connected.
    async fn open_lanes(
        self: &Arc<Self>,
        rank: Rank,
        group: u64,
    ) -> Result<Vec<Data>, OperationError> {
        let member = self.member(rank);
        match self.data_transport() {
            DataTransport::Quic => streams::open_all(self, &member, group).await,
            DataTransport::Tls => self.tcp_lanes_of(&member, group).await,
        }
    }

    /// Waits until a rank is connected. Returns what closes the connection, if it need not stay.
    async fn connected(&self, rank: Rank) -> Option<Arc<Closable>> {
        loop {
            let admissions = self.admissions.notified();
            if let Some(member) = self.admitted().get(&rank) {
                return member.closable.clone();
            }
            admissions.await;
        }
    }

    /// Sends a message to a member, over others if the two are not connected. It may be lost.
    pub(super) fn tell_any(&self, to: Rank, message: Message) {
        if self.admitted().contains_key(&to) {
            return self.tell(to, message);
        }
        let routed = Routed::new(self.me, to, &message);
        let next = overlay::next_hop(self.me, to, self.hello.world);
        self.tell(next, Message::Routed(routed));
    }

    /// Passes a message on, or returns from whom it is if it is for this rank.
    pub(in crate::quic) fn route(
        self: &Arc<Self>,
        routed: Routed,
    ) -> Result<Option<(Rank, Message)>, OperationError> {
        let [from, to] = [routed.from, routed.to].map(Rank::new);
        if to == self.me {
            let message = routed.message();
            let error = |error| OperationError::Protocol { peer: from, error };
            return message.map(|message| Some((from, message))).map_err(error);
        }
        if to.number() < self.hello.world {
            let next = match self.admitted().contains_key(&to) {
                true => to,
                false => overlay::next_hop(self.me, to, self.hello.world),
            };
            self.tell(next, Message::Routed(routed));
        }
        Ok(None)
    }

    /// A lower rank needs the streams of a group.
    pub(in crate::quic) fn asked_to_open(self: &Arc<Self>, from: Rank, group: u64) {
        if from < self.me {
            self.open_streams(from, group);
        }
    }
}
