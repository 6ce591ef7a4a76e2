//! Along waits for each other, ranks are asked whether these lead back to where they began.

use std::time::Instant;

use super::{Admission, lock};
use crate::membership::Event;
use crate::wait_for_graph::{Action, Probe, WaitEdge, WaitId};
use crate::wire::{Message, WaitProbe};
use crate::{OperationError, Rank};

impl Admission {
    /// Whether a wait of this rank, which is still there, is to be looked at.
    pub(in crate::quic) fn is_due(&self, wait: WaitId) -> bool {
        lock(&self.wait_for_graph).is_due(Instant::now(), wait.serial)
    }

    /// Waits until a probe comes.
    pub(in crate::quic) async fn probe_arrival(&self) {
        self.probes.notified().await;
    }

    /// Asks, and passes on what others have asked, along this wait.
    pub(in crate::quic) fn waits(&self, wait: &WaitEdge) {
        let actions = lock(&self.wait_for_graph).look(Instant::now(), wait);
        for action in actions {
            match action {
                Action::Send(to, probe) => {
                    let told = Box::new(WaitProbe::from(&probe));
                    self.tell_any(to, Message::WaitProbe(told));
                }
                // A full queue has other news; the next probe finds the same.
                Action::GiveUp(deadlock) => {
                    let _ = self.events.try_send(Event::GiveUp(deadlock.into()));
                }
            }
        }
    }

    /// What a probe from a member comes to: it is kept until this rank is seen to wait.
    pub(in crate::quic) fn probed(&self, from: Rank, probe: &WaitProbe) -> Event {
        match Probe::told(from, probe) {
            Ok(probe) => {
                lock(&self.wait_for_graph).arrives(Instant::now(), probe);
                self.probes.notify_waiters();
                Event::Heard(from)
            }
            Err(error) => Event::GiveUp(OperationError::Protocol { peer: from, error }),
        }
    }
}
