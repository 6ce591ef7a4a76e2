//! Threads of one process as a group: a shared word on whether it is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use crate::shm::ShmCommunicator;
use crate::wait_for_graph::{Action, WaitEdge, WaitForGraph, WaitId};
use crate::{Member, OperationError, Rank};

/// What the ranks of a local group know of each other.
#[derive(Debug)]
pub(crate) struct Hub {
    failure: watch::Sender<Option<OperationError>>,
    /// How many have said goodbye.
    gone: watch::Sender<u32>,
    /// Domains of split groups on their way to their ranks, by number and place.
    handed: Mutex<BTreeMap<(u64, usize), ShmCommunicator>>,
    /// Of each rank that has waited or is waited for.
    graphs: Mutex<BTreeMap<Rank, WaitForGraph>>,
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
            graphs: Mutex::default(),
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

    /// Whether a wait, which is still there, is to be looked at.
    pub(crate) fn is_due(&self, WaitId { waiter, serial }: WaitId) -> bool {
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = graphs.entry(waiter).or_default();
        graph.is_due(Instant::now(), serial)
    }

    /// Hands on what ranks ask each other along this wait, and ends the group if it is in vain.
    pub(crate) fn waits(&self, wait: &WaitEdge) {
        let now = Instant::now();
        let mut graphs = self.graphs.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = graphs.entry(wait.waiter).or_default();
        for action in graph.look(now, wait) {
            match action {
                Action::Send(to, probe) => graphs.entry(to).or_default().arrives(now, probe),
                Action::GiveUp(deadlock) => self.give_up(deadlock.into()),
            }
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
