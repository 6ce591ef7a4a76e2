//! What a group and the buffers of an accelerator keep of each other between operations.

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceCommunicators, DeviceId};

use super::direct::Direct;
use super::route::{CommunicatorScope, FallbackReason, Route};
use super::slot::{Pinning, Slots};
use super::{CHUNK, DeviceGroup};
use crate::{Group, OperationError};

/// How buffers of an accelerator go between the ranks of a group, kept while the group does other
/// things.
///
/// [`Group::device_route`] makes one with a communicator, [`DeviceRoute::default`] one by way of
/// host memory, and [`Group::with_route`] lends it to a group for operations. A communicator is of
/// the group that made it, and of the ranks that this group had then.
///
/// ```
/// # fn train<A: meshwork_accel::DeviceCommunicators>(
/// #     group: &mut meshwork_collectives::Group,
/// #     accelerator: &A,
/// #     device: meshwork_accel::DeviceId,
/// #     gradients: &mut A::Buffer,
/// # ) -> Result<(), meshwork_collectives::Error> {
/// use meshwork_collectives::{CommunicatorScope, ReduceOp};
///
/// let mut route = group.device_route(accelerator, device, CommunicatorScope::OneHost)?;
/// for _ in 0..100 {
///     group.with_route(accelerator, &mut route).all_reduce(gradients, ReduceOp::Mean)?;
///     group.barrier()?; // in between, the group is free
/// }
/// route.close(group)?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceRoute<B: DeviceBuffer> {
    pub(super) chunk: NonZeroUsize,
    pub(super) slots: Slots<B>,
    pub(super) route: Route,
    /// Where the route is direct.
    pub(super) direct: Option<Direct<B>>,
}

impl<B: DeviceBuffer> Default for DeviceRoute<B> {
    fn default() -> Self {
        Self {
            chunk: CHUNK,
            slots: Slots::default(),
            route: Route::Staged(FallbackReason::NotAsked),
            direct: None,
        }
    }
}

impl<B: DeviceBuffer> DeviceRoute<B> {
    /// By which way buffers go between ranks, and why; the same on every rank.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Whether the host memory that buffers go through is pinned for this rank's device.
    pub fn pinning(&self) -> &Pinning {
        self.slots.pinning()
    }

    /// Ends the communicator, if there is one, when all ranks have called this. One that is dropped
    /// without it is aborted, under the hands of those that have not finished.
    ///
    /// # Errors
    /// Those of [`Group::barrier`].
    #[track_caller]
    pub fn close(self, group: &mut Group) -> Result<(), OperationError> {
        match self.direct {
            Some(_) => group.barrier(),
            None => Ok(()),
        }
    }
}

impl Group {
    /// Finds the way of buffers between `device` and those of the other ranks, as
    /// [`direct_on`](Self::direct_on) does, to be kept. All ranks call it, like any operation.
    ///
    /// # Errors
    /// Those of [`direct_on`](Self::direct_on).
    #[track_caller]
    pub fn device_route<A: DeviceCommunicators>(
        &mut self,
        accelerator: &A,
        device: DeviceId,
        reach: CommunicatorScope,
    ) -> Result<DeviceRoute<A::Buffer>, OperationError> {
        let (direct, route) = Direct::join(self, accelerator, device, reach)?;
        Ok(DeviceRoute {
            route,
            direct,
            ..DeviceRoute::default()
        })
    }

    /// This group for buffers of `accelerator`, which go by a route that was found before.
    pub fn with_route<'a, A: Accelerator>(
        &'a mut self,
        accelerator: &'a A,
        route: &'a mut DeviceRoute<A::Buffer>,
    ) -> DeviceGroup<'a, A> {
        DeviceGroup {
            group: self,
            accelerator,
            kept: Held::Lent(route),
        }
    }
}

/// A route that a group of devices owns, or was lent.
pub(super) enum Held<'a, B: DeviceBuffer> {
    Own(Box<DeviceRoute<B>>),
    Lent(&'a mut DeviceRoute<B>),
}

impl<B: DeviceBuffer> Deref for Held<'_, B> {
    type Target = DeviceRoute<B>;

    fn deref(&self) -> &DeviceRoute<B> {
        match self {
            Self::Own(route) => route,
            Self::Lent(route) => route,
        }
    }
}

impl<B: DeviceBuffer> DerefMut for Held<'_, B> {
    fn deref_mut(&mut self) -> &mut DeviceRoute<B> {
        match self {
            Self::Own(route) => route,
            Self::Lent(route) => route,
        }
    }
}

impl<B: DeviceBuffer> Debug for DeviceRoute<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRoute")
            .field("portion", &self.chunk)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}
