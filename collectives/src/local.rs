//! Threads of one process as a group: a shared word on whether it is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::shm::ShmCommunicator;
use crate::wait_for_graph::{WaitEdge, WaitForGraph};
use crate::{Member, OperationError, Rank};

/// What the ranks of a local group know of each other.
#[derive(Debug)]
pub(crate) struct Hub {
    failure: watch::Sender<Option<OperationError>>,
    /// How many have said goodbye.
    gone: watch::Sender<u32>,
    /// Domains of split groups on their way to their ranks, by number and place.
    handed: Mutex<BTreeMap<(u64, usize), ShmCommunicator>>,
    waits: Mutex<WaitForGraph>,
}

/// Where the members of a local group are.
pub(crate) fn members(world: u32) -> Arc<[Member]> {
    Rank::all(world)
        .map(|rank| Member::new(rank, "a thread of this process"))
        .collect()
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            failure: watch::Sender::new(None),
            gone: watch::Sender::new(0),
            handed: Mutex::default(),
            waits: Mutex::default(),
        })
    }

    pub(crate) fn failure(&self) -> watch::Receiver<Option<OperationError>> {
        self.failure.subscribe()
    }

    /// Ends the group for all, with the first error that is given.
    pub(crate) fn give_up(&self, error: OperationError) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(error);
            }
            first
        });
    }

    /// Notes that a rank waits, and ends the group if it waits in vain.
    pub(crate) fn waits(&self, wait: WaitEdge) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let conflict = waits.hear(Instant::now(), wait);
        drop(waits);
        if let Some(conflict) = conflict {
            self.give_up(conflict.into());
        }
    }

    /// Leaves the domains of a split group for its ranks.
    pub(crate) fn hand_over(&self, number: u64, communicators: Vec<ShmCommunicator>) {
        let places = communicators.into_iter().enumerate();
        let entries = places.map(|(place, communicator)| ((number, place), communicator));
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.extend(entries);
    }

    pub(crate) fn take_over(&self, number: u64, place: usize) -> Option<ShmCommunicator> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.remove(&(number, place))
    }

    /// Says goodbye and waits until all `world` ranks have.
    pub(crate) async fn leave(&self, world: u32) {
        self.gone.send_modify(|gone| *gone += 1);
        let mut gone = self.gone.subscribe();
        // The sender lives in `self`, so the channel cannot be closed.
        let _ = gone.wait_for(|gone| *gone >= world).await;
    }
}
