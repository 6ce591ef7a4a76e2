//! How the connections of a process have come about, counted through all epochs.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::statistics::ConnectionCounts;

#[derive(Debug, Default)]
pub(crate) struct ConnectionCounters {
    dialled: AtomicU64,
    answered: AtomicU64,
    kept: AtomicU64,
}

impl ConnectionCounters {
    /// A handshake with a process that this one has dialled is done.
    pub(super) fn dialled(&self) {
        self.dialled.fetch_add(1, Ordering::Relaxed);
    }

    /// A handshake with a process that has dialled this one is done.
    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// A member was greeted on the connection from the epoch before.
    pub(super) fn kept(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> ConnectionCounts {
        let [dialled, answered, kept] =
            [&self.dialled, &self.answered, &self.kept].map(|count| count.load(Ordering::Relaxed));
        ConnectionCounts {
            dialled,
            answered,
            kept,
        }
    }
}
