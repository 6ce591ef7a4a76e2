//! What a group and the buffers of an accelerator keep of each other between operations.

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};

use meshwork_accel::{Accelerator, DeviceBuffer, DeviceCommunicators, DeviceId};

use super::direct::Direct;
use super::route::{Detour, Reach, Route};
use super::slot::{Pinning, Slots};
use super::{DeviceGroup, PORTION};
use crate::{Error, Group};

/// How buffers of an accelerator go between the ranks of a group, kept while the group does other things.
///
/// [`Group::link`] makes one with a communicator, [`DeviceLink::default`] one by way of host memory, and
/// [`Group::through`] lends it to a group for operations. A communicator is of the group that made it, and of
/// the ranks that this group had then.
///
/// ```
/// # fn train<A: meshwork_accel::DeviceCommunicators>(
/// #     group: &mut meshwork_collectives::Group,
/// #     accelerator: &A,
/// #     device: meshwork_accel::DeviceId,
/// #     gradients: &mut A::Buffer,
/// # ) -> Result<(), meshwork_collectives::Error> {
/// use meshwork_collectives::{Reach, ReduceOp};
///
/// let mut link = group.link(accelerator, device, Reach::OneHost)?;
/// for _ in 0..100 {
///     group.through(accelerator, &mut link).all_reduce(gradients, ReduceOp::Mean)?;
///     group.barrier()?; // in between, the group is free
/// }
/// link.close(group)
/// # }
/// ```
pub struct DeviceLink<B: DeviceBuffer> {
    pub(super) portion: NonZeroUsize,
    pub(super) slots: Slots<B>,
    pub(super) route: Route,
    /// Where the route is direct.
    pub(super) direct: Option<Direct<B>>,
}

impl<B: DeviceBuffer> Default for DeviceLink<B> {
    fn default() -> Self {
        Self {
            portion: PORTION,
            slots: Slots::default(),
            route: Route::Staged(Detour::NotAsked),
            direct: None,
        }
    }
}

impl<B: DeviceBuffer> DeviceLink<B> {
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
    pub fn close(self, group: &mut Group) -> Result<(), Error> {
        match self.direct {
            Some(_) => group.barrier(),
            None => Ok(()),
        }
    }
}

impl Group {
    /// Makes a link between buffers of `device` on all ranks, as [`over`](Self::over) does, to be kept. All
    /// ranks call it, like any operation.
    ///
    /// # Errors
    /// Those of [`over`](Self::over).
    #[track_caller]
    pub fn link<A: DeviceCommunicators>(
        &mut self,
        accelerator: &A,
        device: DeviceId,
        reach: Reach,
    ) -> Result<DeviceLink<A::Buffer>, Error> {
        let (direct, route) = Direct::join(self, accelerator, device, reach)?;
        Ok(DeviceLink {
            route,
            direct,
            ..DeviceLink::default()
        })
    }

    /// This group for buffers of `accelerator`, which go by a link that was made before.
    pub fn through<'a, A: Accelerator>(
        &'a mut self,
        accelerator: &'a A,
        link: &'a mut DeviceLink<A::Buffer>,
    ) -> DeviceGroup<'a, A> {
        DeviceGroup {
            group: self,
            accelerator,
            link: Held::Lent(link),
        }
    }
}

/// A link that a group of devices owns, or was lent.
pub(super) enum Held<'a, B: DeviceBuffer> {
    Own(Box<DeviceLink<B>>),
    Lent(&'a mut DeviceLink<B>),
}

impl<B: DeviceBuffer> Deref for Held<'_, B> {
    type Target = DeviceLink<B>;

    fn deref(&self) -> &DeviceLink<B> {
        match self {
            Self::Own(link) => link,
            Self::Lent(link) => link,
        }
    }
}

impl<B: DeviceBuffer> DerefMut for Held<'_, B> {
    fn deref_mut(&mut self) -> &mut DeviceLink<B> {
        match self {
            Self::Own(link) => link,
            Self::Lent(link) => link,
        }
    }
}

impl<B: DeviceBuffer> Debug for DeviceLink<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLink")
            .field("portion", &self.portion)
            .field("route", &self.route)
            .finish_non_exhaustive()
    }
}
