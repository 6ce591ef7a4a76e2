//! Members that are being greeted: they know this rank already, and hear from it why the group is
//! over if it fails before it has taken them in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Admission;
use super::control_sender::in_looks;
use crate::Rank;
use crate::wire::{Abort, Message};

/// Greetings that may go on with one rank at a time: of a rank that calls again, those before may
/// not have ended yet.
const GREETINGS: usize = 8;

/// A greeting that goes on, until this is dropped.
pub(super) struct Greeting {
    admission: Arc<Admission>,
    rank: Rank,
}

impl Drop for Greeting {
    fn drop(&mut self) {
        self.admission.greetings.send_modify(|going_on| {
            if let Some(others @ 2..) = going_on.remove(&self.rank) {
                going_on.insert(self.rank, others - 1);
            }
        });
    }
}

impl Admission {
    /// `None` if as many go on with this rank as may.
    pub(super) fn begin_greeting(self: &Arc<Self>, rank: Rank) -> Option<Greeting> {
        let has_room = self.greetings.send_if_modified(|going_on| {
            let own = going_on.entry(rank).or_default();
            let has_room = *own < GREETINGS;
            *own += usize::from(has_room);
            has_room
        });
        has_room.then(|| Greeting {
            admission: self.clone(),
            rank,
        })
    }

    /// Tells all members why the group is over, those too of which the membership does not know
    /// yet.
    pub(in crate::quic) fn fail(&self, abort: Abort) {
        // A group fails once.
        let _ = self.failed.set(abort);
        let admitted: Vec<Rank> = self.admitted().keys().copied().collect();
        for rank in admitted {
            self.tell_if_failed(rank);
        }
    }

    /// Tells a member why the group is over, if it is, such as one that has come after that.
    pub(super) fn tell_if_failed(&self, rank: Rank) {
        if let Some(abort) = self.failed.get() {
            self.tell(rank, Message::Abort(abort.clone()));
        }
    }

    /// Waits until those are members whom this rank was greeting when the group failed, no longer
    /// than for the last word to any.
    pub(super) async fn finish_greetings(&self) {
        if self.failed.get().is_some() {
            let mut greetings = self.greetings.subscribe();
            in_looks(greetings.wait_for(BTreeMap::is_empty)).await;
        }
    }
}

#[cfg(test)]
mod tests;
