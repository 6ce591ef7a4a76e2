//! Members that are being greeted: they know this rank already, and hear from it why the group is
//! over if it fails before it has taken them in.

use std::sync::Arc;

use super::Admission;
use super::control_sender::in_looks;
use crate::Rank;
use crate::wire::{Abort, Message};

/// A greeting that goes on, until this is dropped.
pub(super) struct Greeting(Arc<Admission>);

impl Drop for Greeting {
    fn drop(&mut self) {
        self.0.greetings.send_modify(|going_on| *going_on -= 1);
    }
}

impl Admission {
    pub(super) fn begin_greeting(self: &Arc<Self>) -> Greeting {
        self.greetings.send_modify(|going_on| *going_on += 1);
        Greeting(self.clone())
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
            in_looks(greetings.wait_for(|going_on| *going_on == 0)).await;
        }
    }
}

#[cfg(test)]
mod tests;
