//! What ties the ranks of a group together, apart from the bytes of operations.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::outside_async;
use crate::driver::Driver;
use crate::flight_recorder::{FlightRecorder, Serial, StallObserver};
use crate::wait_for_graph::{WaitEdge, WaitId};
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

    /// Waits until a wait over links is to be looked at: so long, or until somebody asks.
    pub(crate) async fn until_look(&self, pause: Duration) {
        let asked = async {
            match &self.control {
                ControlPlane::Local(_) => pending().await,
                ControlPlane::Remote(remote) => remote.probe_arrival().await,
            }
        };
        // Either is a reason to look.
        let _ = timeout(pause, asked).await;
    }

    /// Notes that an operation waits for a rank at length, and finds out whether in vain.
    pub(crate) fn waits(&self, stall_observer: &StallObserver, serial: Serial, awaited: Rank) {
        let is_due = |wait| self.control.is_due(wait);
        let wait = self.recorder.waits(stall_observer, serial, awaited, is_due);
        if let Some(wait) = wait {
            self.control.waits(&wait);
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
    /// Whether a wait of this rank, which is still there, is to be looked at.
    fn is_due(&self, wait: WaitId) -> bool {
        match self {
            Self::Local(hub) => hub.is_due(wait),
            Self::Remote(remote) => remote.is_due(wait),
        }
    }

    fn waits(&self, wait: &WaitEdge) {
        match self {
            Self::Local(hub) => hub.waits(wait),
            Self::Remote(remote) => remote.waits(wait),
        }
    }

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
