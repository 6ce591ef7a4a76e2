use std::sync::PoisonError;
use std::time::Instant;

use super::Admission;
use crate::membership::Event;
use crate::wait_for_graph::{Deadlock, WaitEdge};
use crate::wire::{Message, WaitReport};
use crate::{OperationError, Rank};

impl Admission {
    /// Tells all others that this rank waits.
    pub(in crate::quic) fn waits(&self, wait: WaitEdge) {
        let others = Rank::all(self.hello.world).filter(|rank| *rank != self.me);
        for rank in others {
            self.tell_any(rank, Message::WaitReport(WaitReport::from(&wait)));
        }
        if let Some(conflict) = self.hear(wait) {
            // A full queue has other news; the wait is told of again.
            let _ = self.events.try_send(Event::GiveUp(conflict.into()));
        }
    }

    /// What a member's word that it waits comes to.
    pub(in crate::quic) fn told_of_wait(&self, from: Rank, waiting: &WaitReport) -> Event {
        match WaitEdge::told(from, waiting) {
            Ok(wait) => self.hear(wait).map_or(Event::Heard(from), |conflict| {
                Event::GiveUp(conflict.into())
            }),
            Err(error) => Event::GiveUp(OperationError::Protocol { peer: from, error }),
        }
    }

    fn hear(&self, wait: WaitEdge) -> Option<Deadlock> {
        // Nothing that holds the lock can panic half-way through a change.
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.hear(Instant::now(), wait)
    }
}
