//! Threads of one process as a group: in-memory pipes, and a shared word on whether it is over.

use std::sync::Arc;

use tokio::sync::watch;

use crate::links::{Incoming, Links, Outgoing};
use crate::{Error, Member, Rank};

/// Bytes that may be under way from one thread to another.
const PIPE_BYTES: usize = 256 * 1024;

/// What the ranks of a local group know of each other.
#[derive(Debug)]
pub(crate) struct Hub {
    failure: watch::Sender<Option<Error>>,
    /// How many have said goodbye.
    gone: watch::Sender<u32>,
}

/// Links among `world` threads, and what they share.
pub(crate) fn wire(world: u32) -> (Vec<Links>, Arc<Hub>) {
    let mut streams: Vec<Vec<Option<(Outgoing, Incoming)>>> = Vec::new();
    for _ in 0..world {
        // The streams to lower ranks are the other ends of those that were made for them.
        let mut own = Vec::new();
        for lower in &mut streams {
            let (here, there) = tokio::io::duplex(PIPE_BYTES);
            lower.push(Some(halves(there)));
            own.push(Some(halves(here)));
        }
        own.push(None);
        streams.push(own);
    }
    let hub = Hub {
        failure: watch::Sender::new(None),
        gone: watch::Sender::new(0),
    };
    (streams.into_iter().map(Links::new).collect(), Arc::new(hub))
}

fn halves(stream: tokio::io::DuplexStream) -> (Outgoing, Incoming) {
    let (incoming, outgoing) = tokio::io::split(stream);
    (Box::new(outgoing), Box::new(incoming))
}

/// Where the members of a local group are.
pub(crate) fn members(world: u32) -> Arc<[Member]> {
    Rank::all(world)
        .map(|rank| Member::new(rank, "a thread of this process"))
        .collect()
}

impl Hub {
    pub(crate) fn failure(&self) -> watch::Receiver<Option<Error>> {
        self.failure.subscribe()
    }

    /// Ends the group for all, with the first error that is given.
    pub(crate) fn give_up(&self, error: Error) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(error);
            }
            first
        });
    }

    /// Says goodbye and waits until all `world` ranks have.
    pub(crate) async fn leave(&self, world: u32) {
        self.gone.send_modify(|gone| *gone += 1);
        let mut gone = self.gone.subscribe();
        // The sender lives in `self`, so the channel cannot be closed.
        let _ = gone.wait_for(|gone| *gone >= world).await;
    }
}
