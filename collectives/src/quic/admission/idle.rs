//! Connections beyond the budget, which are closed while nothing needs them.
//!
//! ```text
//!   higher rank ── Request ──> lower      forgets the connection, then says Close
//!               <── Close ────
//!   forgets it, and may dial again        is asked as if the two had never been connected
//! ```
//!
//! Who dials forgets last, so the lower rank never takes a new connection for a second one. What
//! the two say, and why it loses nothing, is in [`closing`](crate::idle::closing).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::control_sender::ControlSender;
use super::{Admission, lock};
use crate::idle::Closable;
use crate::idle::budget::{self, Idle};
use crate::idle::closing::{Break, End, Reaction};
use crate::membership::Event;
use crate::quic::UNNEEDED;
use crate::wire::{ClosingMessage, Message};
use crate::{Rank, overlay};

/// How often a rank looks whether it has too many connections.
const LOOK: Duration = Duration::from_millis(250);

/// Closes what is beyond the budget and idle, for as long as the epoch lasts.
pub(in crate::quic) async fn keep_to_budget(admission: Arc<Admission>) {
    let look = LOOK.min(admission.network.idle() / 4);
    while !admission.events.is_closed() && admission.can_have_too_many() {
        sleep(look).await;
        admission.close_idle();
    }
}

impl Admission {
    /// Whether this rank could come to have more connections than it is to have.
    fn can_have_too_many(&self) -> bool {
        let others = self.hello.world.saturating_sub(1);
        others > self.network.budget(self.hello.world)
    }

    /// What it takes to close a connection with this rank that was just made. Those of neighbours
    /// stay, for signs of life and what is passed on.
    pub(super) fn closable(&self, rank: Rank) -> Option<Arc<Closable>> {
        let stays = overlay::adjacent(self.me, rank, self.hello.world);
        let end = match rank < self.me {
            true => End::Asks,
            false => End::Decides,
        };
        (!stays && self.can_have_too_many()).then(|| Closable::new(end))
    }

    /// Tries to close the longest idle connections beyond the budget, and again those of which
    /// nothing was heard.
    fn close_idle(&self) {
        for (rank, message) in self.proposals(Instant::now()) {
            self.tell(rank, Message::Closing(message));
        }
    }

    fn proposals(&self, now: Instant) -> Vec<(Rank, ClosingMessage)> {
        let admitted = self.admitted();
        let closable = || {
            let all = admitted.iter();
            all.filter_map(|(rank, member)| Some((*rank, member.closable.as_ref()?)))
        };
        let awaited = closable().filter(|(_, connection)| connection.is_closing());
        let mut tried: Vec<Rank> = awaited.map(|(rank, _)| rank).collect();
        let open = admitted.len() - tried.len();
        let budget = self.network.budget(self.hello.world) as usize;
        let idle = closable().filter_map(|(rank, connection)| {
            let since = connection.idle_since()?;
            Some(Idle { since, rank })
        });
        let excess = open.saturating_sub(budget);
        let idle = idle.collect();
        tried.extend(budget::to_close(now, excess, self.network.idle(), idle));
        tried
            .into_iter()
            .filter_map(|rank| Some((rank, admitted.get(&rank)?.closable.as_ref()?.propose()?)))
            .collect()
    }

    /// Takes in what a member says about closing this connection. Returns whether that is the last
    /// of it.
    pub(in crate::quic) async fn hears_of_closing(
        &self,
        from: Rank,
        connection: Option<&Arc<Closable>>,
        message: ClosingMessage,
    ) -> bool {
        let reaction = match (connection, message) {
            (Some(connection), message) if self.is_open_to(from) => connection.hear(message),
            // This rank has room for all.
            (None, ClosingMessage::Request(request)) => {
                Reaction::Say(ClosingMessage::Keep(request.number))
            }
            (Some(_) | None, _) => Reaction::Nothing,
        };
        match (connection, reaction) {
            (_, Reaction::Say(message)) => self.tell(from, Message::Closing(message)),
            (Some(connection), Reaction::Close(last)) => {
                self.release(from, connection, last).await;
                return true;
            }
            (_, Reaction::Nothing) | (None, Reaction::Close(_)) => {}
        }
        false
    }

    /// Whether something can still be said to a member: not once the group is over.
    fn is_open_to(&self, rank: Rank) -> bool {
        let admitted = self.admitted();
        let member = admitted.get(&rank);
        member.is_some_and(|member| member.control_sender.is_open())
    }

    /// One of the connections with a member has ended without a reason. Returns whether that was
    /// agreed on.
    pub(in crate::quic) async fn breaks(
        &self,
        from: Rank,
        connection: Option<&Arc<Closable>>,
    ) -> bool {
        let Some(connection) = connection else {
            return false;
        };
        match connection.breaks() {
            Break::Lost => false,
            Break::Known => true,
            Break::Agreed => {
                self.release(from, connection, None).await;
                true
            }
        }
    }

    /// Forgets a member whose connection both ends have agreed to close, and closes it: where there
    /// is a last message, once that has arrived.
    async fn release(&self, rank: Rank, connection: &Arc<Closable>, last: Option<ClosingMessage>) {
        // Before the member can be admitted again.
        let _ = self.events.send(Event::Released(rank)).await;
        if let Some(mut control_sender) = self.forget(rank) {
            tracing::debug!("the idle connection to {rank} is closed");
            match last {
                Some(last) => self.part(control_sender, last),
                None => control_sender.hang_up(UNNEEDED, &[]),
            }
        }
        connection.close();
    }

    /// Says the last word on a connection, which goes on in the background.
    fn part(&self, mut control_sender: ControlSender, last: ClosingMessage) {
        control_sender.part(UNNEEDED, Some(Message::Closing(last)));
        let mut farewells = lock(&self.farewells);
        farewells.retain(|farewell| !farewell.is_finished());
        farewells.extend(control_sender.farewell());
    }

    /// Drops all that belongs to the connection with a member, but for streams that groups have.
    fn forget(&self, rank: Rank) -> Option<ControlSender> {
        let mut admitted = self.admitted();
        let member = admitted.remove(&rank)?;
        lock(&self.opening).forget(rank);
        self.arrivals.retain(|(from, ..)| *from != rank);
        self.lanes.retain(|lane| lane.rank != rank.number());
        if let Some(tcp_binding) = &member.tcp_binding {
            self.tcp.forget(tcp_binding);
        }
        Some(member.control_sender)
    }
}
