//! What ties the ranks of a group together, apart from the bytes of operations.

use std::sync::Arc;

use tokio::sync::watch;

use super::outside_async;
use crate::memory::Watch;
use crate::pilot::Pilot;
use crate::recorder::{Onlooker, Pen, Recorder, Serial};
use crate::{Carrier, Error, Member, Rank, local, quic};

/// What a group and those that were split from it share: they begin and fail together.
pub(in crate::group) struct Ties {
    pub(in crate::group) bond: Bond,
    /// Goes on from one epoch to the next.
    pub(in crate::group) pilot: Arc<Pilot>,
    pub(in crate::group) recorder: Arc<Recorder>,
}

/// What ties the ranks together, apart from the bytes of operations.
pub(in crate::group) enum Bond {
    Local(Arc<local::Hub>),
    Remote(Box<quic::Remote>),
}

impl Bond {
    /// What carries the bytes of operations between processes.
    pub(in crate::group) fn carrier(&self) -> Carrier {
        match self {
            Self::Local(_) => Carrier::default(),
            Self::Remote(remote) => remote.carrier(),
        }
    }
}

impl Ties {
    pub(in crate::group) fn new(
        bond: Bond,
        pilot: Arc<Pilot>,
        recorder: Arc<Recorder>,
    ) -> Arc<Self> {
        Arc::new(Self {
            bond,
            pilot,
            recorder,
        })
    }

    /// Notes that an operation waits for a rank at length, and tells the others in time.
    pub(in crate::group) fn waits(&self, onlooker: &Onlooker, serial: Serial, awaited: Rank) {
        if let Some(wait) = self.recorder.waits(onlooker, serial, awaited) {
            match &self.bond {
                Bond::Local(hub) => hub.waits(wait),
                Bond::Remote(remote) => remote.waits(wait),
            }
        }
    }
}

/// Looks on while an operation waits for ranks that share memory with this one.
pub(super) struct Lookout<'a> {
    pub(super) ties: &'a Ties,
    pub(super) failure: &'a watch::Receiver<Option<Error>>,
    pub(super) members: &'a [Member],
    pub(super) pen: &'a Pen,
    pub(super) serial: Serial,
}

impl Watch for Lookout<'_> {
    fn over(&self) -> bool {
        self.failure.borrow().is_some()
    }

    fn waits(&self, place: usize) {
        let awaited = self.members[place].rank();
        self.ties.waits(&self.pen.onlooker(), self.serial, awaited);
    }
}

impl Drop for Ties {
    fn drop(&mut self) {
        if let (Bond::Remote(remote), Ok(())) = (&self.bond, outside_async()) {
            self.pilot.block_on(remote.flush());
        }
    }
}

impl Bond {
    pub(in crate::group) fn failure(&self) -> watch::Receiver<Option<Error>> {
        match self {
            Self::Local(hub) => hub.failure(),
            Self::Remote(remote) => remote.failure(),
        }
    }

    pub(super) async fn give_up(&self, error: Error) {
        match self {
            Self::Local(hub) => hub.give_up(error),
            Self::Remote(remote) => remote.give_up(error).await,
        }
    }

    pub(super) async fn leave(&self, world: u32) {
        match self {
            Self::Local(hub) => hub.leave(world).await,
            Self::Remote(remote) => remote.leave().await,
        }
    }
}
