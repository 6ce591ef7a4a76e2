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

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{Admission, lock};
use crate::links::{Connecting, Connector, Links};
use crate::membership::Event;
use crate::quic::streams::{Data, GROUPS, joined};
use crate::quic::{JOINED, streams};
use crate::tasks::spawn;
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
    /// Streams to a rank for a group, for as long as the group lives here.
    streams: BTreeSet<(Rank, u64)>,
}

impl Opening {
    /// Whether a rank is to be dialled now.
    pub(super) fn dials(&mut self, rank: Rank) -> bool {
        self.dialled.insert(rank)
    }

    /// Whether streams are to be opened now: once, and no more than two ranks can have.
    fn opens(&mut self, rank: Rank, group: u64) -> bool {
        let of_rank = self.streams.range((rank, 0)..=(rank, u64::MAX));
        of_rank.count() < usize::from(GROUPS) + 1 && self.streams.insert((rank, group))
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
        Box::pin(async move { joined(admission.streams_with(rank, group).await) })
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        let opening = &mut lock(&self.admission.opening).streams;
        opening.retain(|(_, group)| *group != self.group);
        let arrivals = &self.admission.arrivals;
        arrivals.retain(|(_, group, _)| *group != self.group);
    }
}

impl Admission {
    /// Streams among these members, for a group with this number, as they are needed.
    pub(in crate::quic) fn links(self: &Arc<Self>, members: Arc<[Member]>, group: u64) -> Links {
        let world = members.len();
        let admission = self.clone();
        let connector = OnDemand {
            admission,
            members,
            group,
        };
        Links::on_demand(world, Arc::new(connector))
    }

    /// A stream for each lane of a group with a member, once they are open.
    async fn streams_with(self: &Arc<Self>, rank: Rank, group: u64) -> Vec<Data> {
        if rank < self.me {
            self.open_streams(rank, group);
            return self.opened(rank, group).await;
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
            self.tell_any(rank, Message::OpenStreams(group));
            pause = ASKED_AGAIN.min(4 * pause);
        }
    }

    /// What the higher rank has opened.
    async fn opened(&self, rank: Rank, group: u64) -> Vec<Data> {
        if rank > self.me && group != JOINED && self.data_transport() == DataTransport::Tls {
            let tcp_binding = loop {
                let admissions = self.admissions.notified();
                match self.member_tcp_binding(rank) {
                    Some(tcp_binding) => break tcp_binding,
                    None => admissions.await,
                }
            };
            return self.tcp.lanes(&tcp_binding, group, self.lane_count()).await;
        }
        let mut lanes = Vec::new();
        for lane in 0..self.lane_count() {
            lanes.push(self.arrivals.take((rank, group, lane)).await);
        }
        lanes
    }

    /// Starts to open the streams of a group to a lower rank, unless they are open.
    fn open_streams(self: &Arc<Self>, rank: Rank, group: u64) {
        if !lock(&self.opening).opens(rank, group) {
            return;
        }
        self.dial_once(rank);
        if group == JOINED {
            // Those come with the connection.
            return;
        }
        let admission = self.clone();
        spawn(async move {
            admission.connected(rank).await;
            match admission.open_lanes(rank, group).await {
                Ok(lanes) => {
                    for (lane, data) in (0..).zip(lanes) {
                        admission.arrivals.put((rank, group, lane), data);
                    }
                }
                Err(error) => {
                    let _ = admission.events.send(Event::GiveUp(error)).await;
                }
            }
        });
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

    /// Waits until a rank is connected.
    async fn connected(&self, rank: Rank) {
        loop {
            let admissions = self.admissions.notified();
            if self.admitted().contains_key(&rank) {
                return;
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
