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

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
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
/// Groups that are over and are remembered: a question that was under way when one ended is heard
/// long before so many more have. No number comes twice in an epoch.
const ENDED: usize = 1024;

/// What is being opened, or has been.
#[derive(Default)]
pub(super) struct Opening {
    /// Ranks that are or were dialled.
    dialled: BTreeSet<Rank>,
    /// Streams to a rank for a group that was split, for as long as the group lives here and the
    /// connection stays, by the number of the task that opens them.
    streams: BTreeMap<(Rank, u64), u64>,
    tasks: u64,
    /// Such groups of this rank whose operations have needed another, for as long.
    needed: BTreeSet<(Rank, u64)>,
    /// Those that are over, the last at the back.
    ended: VecDeque<u64>,
}

impl Opening {
    /// Whether a rank is to be dialled now.
    pub(super) fn dials(&mut self, rank: Rank) -> bool {
        self.dialled.insert(rank)
    }

    /// Whether one more group of this rank, or one that is known, may use streams with a rank.
    fn has_room_for(&mut self, rank: Rank, group: u64) -> bool {
        let of_rank = self.needed.range((rank, 0)..=(rank, u64::MAX));
        let is_known = self.needed.contains(&(rank, group));
        if !is_known && of_rank.count() >= usize::from(GROUPS) {
            return false;
        }
        self.needed.insert((rank, group));
        true
    }

    /// The number of the task that is to open streams now: once.
    fn opens(&mut self, rank: Rank, group: u64) -> Option<u64> {
        let Entry::Vacant(place) = self.streams.entry((rank, group)) else {
            return None;
        };
        self.tasks += 1;
        Some(*place.insert(self.tasks))
    }

    /// The same where a rank asks: not for a group that is over here, and not for more groups that
    /// nobody has needed here than that rank can use.
    fn opens_as_asked(&mut self, rank: Rank, group: u64) -> Option<u64> {
        let of_rank = self.streams.range((rank, 0)..=(rank, u64::MAX));
        let unneeded = of_rank.filter(|(name, _)| !self.needed.contains(*name));
        if self.has_ended(group) || unneeded.count() >= usize::from(GROUPS) {
            return None;
        }
        self.opens(rank, group)
    }

    /// A group that was split is over here.
    fn ends(&mut self, group: u64) {
        self.streams.retain(|(_, of), _| *of != group);
        self.needed.retain(|(_, of)| *of != group);
        if self.ended.len() == ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(group);
    }

    fn has_ended(&self, group: u64) -> bool {
        self.ended.contains(&group)
    }

    /// Whether that task is still to open them: the connection that it was for may be closed.
    fn is_opened_by(&self, task: u64, rank: Rank, group: u64) -> bool {
        self.streams.get(&(rank, group)) == Some(&task)
    }

    /// The connection with a rank is closed, and with it all streams.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.dialled.remove(&rank);
        self.streams.retain(|(to, _), _| *to != rank);
        self.needed.retain(|(with, _)| *with != rank);
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
        let (admission, group) = (&self.admission, self.group);
        if group != JOINED {
            // First, so that what arrives from here on finds the group over.
            lock(&admission.opening).ends(group);
            admission.tcp.forget_group(group);
            admission.split_groups.fetch_sub(1, Ordering::Relaxed);
        }
        admission.arrivals.retain(|(_, of, _)| *of != group);
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
            self.take_room(rank, group).await;
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

    /// Counts a group among those that two ranks use together. Where they are too many it ends all
    /// groups, and that ends the wait for this.
    async fn take_room(&self, rank: Rank, group: u64) {
        if group == JOINED || lock(&self.opening).has_room_for(rank, group) {
            return;
        }
        let error = OperationError::TooManyGroups {
            rank: self.me,
            peer: rank,
            most: GROUPS.into(),
        };
        let _ = self.events.send(Event::GiveUp(error)).await;
        pending::<()>().await;
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
        if group == JOINED {
            // Those come with the connection.
            return self.dial_once(rank);
        }
        let task = lock(&self.opening).opens(rank, group);
        if let Some(task) = task {
            self.start_to_open(rank, group, task);
        }
    }

    fn start_to_open(self: &Arc<Self>, rank: Rank, group: u64, task: u64) {
        self.dial_once(rank);
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
                    self.split_stream_arrives((rank, group, lane), arrived);
                }
            }
            // Nobody needs them any more.
            Err(_) if self.is_over(group) => {}
            Err(error) => {
                let _ = self.events.send(Event::GiveUp(error)).await;
            }
        }
    }

    /// Puts a stream of a group that was split where it is asked for, unless that is over here.
    pub(in crate::quic) fn split_stream_arrives(&self, name: (Rank, u64, u8), arrived: Arrived) {
        let (_, group, _) = name;
        self.arrives(name, arrived);
        // Looked at only now: a group that ends from here on takes it along.
        if self.is_over(group) {
            self.arrivals.retain(|(_, of, _)| *of != group);
        }
    }

    /// Whether a group that was split is over here.
    pub(super) fn is_over(&self, group: u64) -> bool {
        lock(&self.opening).has_ended(group)
    }

    /// Streams and lanes that have arrived and that nobody has asked for.
    #[cfg(test)]
    pub(crate) fn unasked(&self) -> usize {
        self.arrivals.len() + self.tcp.unasked()
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

    /// Passes on a message that another rank has handed to this one, or returns it and from whom it
    /// is: if it is for this rank, or none that goes so.
    ///
    /// Whoever has handed it on answers for nonsense, as each looks at a message before; who has
    /// sent it is only said, so one that would not have come from there is dropped.
    pub(in crate::quic) fn route(
        self: &Arc<Self>,
        by: Rank,
        routed: Routed,
    ) -> Result<Option<(Rank, Message)>, OperationError> {
        let message = crate::quic::control::carried(&routed);
        let message = message.map_err(|error| OperationError::Protocol { peer: by, error })?;
        let ends = [routed.from, routed.to].map(Rank::new);
        let ([from, to], world) = (ends, self.hello.world);
        if !crate::quic::control::is_handed_on(by, self.me, ends, world) {
            return Ok(None);
        }
        let goes_so = matches!(message, Message::OpenStreams(_) | Message::WaitProbe(_));
        if to == self.me || !goes_so {
            return Ok(Some((from, message)));
        }
        let next = match self.admitted().contains_key(&to) {
            true => to,
            false => overlay::next_hop(self.me, to, world),
        };
        self.tell(next, Message::Routed(routed));
        Ok(None)
    }

    /// A lower rank needs the streams of a group.
    pub(in crate::quic) fn asked_to_open(self: &Arc<Self>, from: Rank, group: u64) {
        if from >= self.me {
            return;
        }
        if group == JOINED {
            return self.dial_once(from);
        }
        let task = lock(&self.opening).opens_as_asked(from, group);
        if let Some(task) = task {
            self.start_to_open(from, group, task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_over_is_not_opened_again_by_who_asks_late() {
        let mut opening = Opening::default();
        let task = opening.opens(Rank::CHIEF, 7).unwrap();
        assert!(opening.is_opened_by(task, Rank::CHIEF, 7));
        opening.ends(7);
        assert!(!opening.is_opened_by(task, Rank::CHIEF, 7));
        assert_eq!(opening.opens_as_asked(Rank::CHIEF, 7), None);
        assert!(opening.streams.is_empty());
        assert!(opening.opens_as_asked(Rank::CHIEF, 8).is_some());
        for group in (100..).take(2 * ENDED) {
            opening.ends(group);
        }
        assert_eq!(opening.ended.len(), ENDED);
    }

    #[test]
    fn two_ranks_use_so_many_groups_at_a_time_and_who_asks_takes_no_room_from_these() {
        let (mut opening, most) = (Opening::default(), u64::from(GROUPS));
        let [rank, other] = [0, 1].map(Rank::new);
        let asked = (1..).map_while(|group| opening.opens_as_asked(rank, group));
        assert_eq!(asked.count(), usize::from(GROUPS));
        for group in 1001..=1000 + most {
            assert!(opening.has_room_for(rank, group));
            assert!(opening.opens(rank, group).is_some());
        }
        // One of them again, one too many, and as many again with another rank.
        assert!(opening.has_room_for(rank, 1001));
        assert!(!opening.has_room_for(rank, 2000));
        assert!(opening.has_room_for(other, 2000));
        opening.ends(1001);
        assert!(opening.has_room_for(rank, 2001));
        assert!(!opening.has_room_for(rank, 2002));
        opening.forget(rank);
        assert!(opening.has_room_for(rank, 2002));
    }
}
