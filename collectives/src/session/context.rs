//! What ties the ranks of a group together, apart from the bytes of operations.

use std::sync::Arc;

use tokio::sync::watch;

use super::outside_async;
use crate::driver::Driver;
use crate::flight_recorder::{FlightRecorder, Serial, StallObserver};
use crate::{OperationError, Rank, local, quic};

/// What a group and those that were split from it share: they begin and fail together.
pub(crate) struct SessionContext {
    pub(crate) control: ControlPlane,
    /// Goes on from one epoch to the next.
    pub(crate) driver: Arc<Driver>,
    pub(crate) recorder: Arc<FlightRecorder>,
}

/// What ties the ranks together, apart from the bytes of operations.
pub(crate) enum ControlPlane {
    Local(Arc<local::Hub>),
    Remote(Box<quic::Remote>),
}

impl SessionContext {
    pub(crate) fn new(
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
    pub(crate) fn waits(&self, stall_observer: &StallObserver, serial: Serial, awaited: Rank) {
        if let Some(wait) = self.recorder.waits(stall_observer, serial, awaited) {
            match &self.control {
                ControlPlane::Local(hub) => hub.waits(wait),
                ControlPlane::Remote(remote) => remote.waits(wait),
            }
        }
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
    pub(crate) fn failure(&self) -> watch::Receiver<Option<OperationError>> {
        match self {
            Self::Local(hub) => hub.failure(),
            Self::Remote(remote) => remote.failure(),
        }
    }

    pub(crate) async fn give_up(&self, error: OperationError) {
        match self {
            Self::Local(hub) => hub.give_up(error),
            Self::Remote(remote) => remote.give_up(error).await,
        }
    }

    pub(crate) async fn leave(&self, world: u32) {
        match self {
            Self::Local(hub) => hub.leave(world).await,
            Self::Remote(remote) => remote.leave().await,
        }
    }
}
