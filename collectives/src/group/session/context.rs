//! What ties the ranks of a group together, apart from the bytes of operations.

use std::sync::Arc;

use tokio::sync::watch;

use super::outside_async;
use crate::driver::Driver;
use crate::flight_recorder::{FlightRecorder, OperationLog, Serial, StallObserver};
use crate::shm::WaitObserver;
use crate::{DataTransport, Error, Member, Rank, local, quic};

/// What a group and those that were split from it share: they begin and fail together.
pub(in crate::group) struct SessionContext {
    pub(in crate::group) control: ControlPlane,
    /// Goes on from one epoch to the next.
    pub(in crate::group) driver: Arc<Driver>,
    pub(in crate::group) recorder: Arc<FlightRecorder>,
}

/// What ties the ranks together, apart from the bytes of operations.
pub(in crate::group) enum ControlPlane {
    Local(Arc<local::Hub>),
    Remote(Box<quic::Remote>),
}

impl ControlPlane {
    /// What carries the bytes of operations between processes.
    pub(in crate::group) fn data_transport(&self) -> DataTransport {
        match self {
            Self::Local(_) => DataTransport::default(),
            Self::Remote(remote) => remote.data_transport(),
        }
    }
}

impl SessionContext {
    pub(in crate::group) fn new(
        control: ControlPlane,
        driver: Arc<Driver>,
        recorder: Arc<FlightRecorder>,
    ) -> Arc<Self> {
        Arc::new(Self {
            control,
            driver,
            recorder,
        })
    }

    /// Notes that an operation waits for a rank at length, and tells the others in time.
    pub(in crate::group) fn waits(
        &self,
        stall_observer: &StallObserver,
        serial: Serial,
        awaited: Rank,
    ) {
        if let Some(wait) = self.recorder.waits(stall_observer, serial, awaited) {
            match &self.control {
                ControlPlane::Local(hub) => hub.waits(wait),
                ControlPlane::Remote(remote) => remote.waits(wait),
            }
        }
    }
}

/// Looks on while an operation waits for ranks that share memory with this one.
pub(super) struct ShmStallObserver<'a> {
    pub(super) context: &'a SessionContext,
    pub(super) failure: &'a watch::Receiver<Option<Error>>,
    pub(super) members: &'a [Member],
    pub(super) log: &'a OperationLog,
    pub(super) serial: Serial,
}

impl WaitObserver for ShmStallObserver<'_> {
    fn over(&self) -> bool {
        self.failure.borrow().is_some()
    }

    fn waits(&self, place: usize) {
        let awaited = self.members[place].rank();
        self.context
            .waits(&self.log.stall_observer(), self.serial, awaited);
    }
}

impl Drop for SessionContext {
    fn drop(&mut self) {
        if let (ControlPlane::Remote(remote), Ok(())) = (&self.control, outside_async()) {
            self.driver.block_on(remote.flush());
        }
    }
}

impl ControlPlane {
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
