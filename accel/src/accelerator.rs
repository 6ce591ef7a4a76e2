use std::fmt::{self, Display};
use std::ops::Range;

use crate::{Element, ElementType, Error, ReduceOp};

/// One kind of device, and all that the layers above ask of it.
///
/// Calls may return before the device has finished; those on one device take effect in the order
/// they were made, and [`download`](Accelerator::download) and
/// [`synchronize`](Accelerator::synchronize) wait. What a backend can do beyond this (native
/// collectives, matrix products) is a trait of its own.
pub trait Accelerator: Send + Sync {
    /// Memory on one device; freed when dropped.
    type Buffer: DeviceBuffer;

    /// The devices of this process, in order of their [`DeviceId`].
    fn devices(&self) -> &[Device];

    /// Allocates `len` elements on `device`, all zero.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`], [`Error::OutOfMemory`].
    fn allocate(
        &self,
        device: DeviceId,
        element: ElementType,
        len: usize,
    ) -> Result<Self::Buffer, Error>;

    /// Copies the whole of `from` to the elements of `to` that start at `at`.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`].
    fn upload<T: Element>(&self, from: &[T], to: &mut Self::Buffer, at: usize)
    -> Result<(), Error>;

    /// Fills the whole of `to` from the elements of `from` that start at `at`, and waits for it.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`].
    fn download<T: Element>(
        &self,
        from: &Self::Buffer,
        at: usize,
        to: &mut [T],
    ) -> Result<(), Error>;

    /// Copies the elements `range` of `from` to those of `to` that start at `at`; the buffers may
    /// be on different devices.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`].
    fn copy(
        &self,
        from: &Self::Buffer,
        range: Range<usize>,
        to: &mut Self::Buffer,
        at: usize,
    ) -> Result<(), Error>;

    /// Sets the elements `range` of `buffer` to `value`.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`].
    fn fill<T: Element>(
        &self,
        buffer: &mut Self::Buffer,
        range: Range<usize>,
        value: T,
    ) -> Result<(), Error>;

    /// Replaces each element of `into` by `op` of itself and the same element of `from`, as
    /// [`Reduction::reduce`](crate::Reduction::reduce) does, so a mean stays a sum.
    ///
    /// # Shapes
    /// Both buffers hold the same number of elements of the same type on the same device.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::UnsupportedOp`].
    fn reduce(
        &self,
        op: ReduceOp,
        into: &mut Self::Buffer,
        from: &Self::Buffer,
    ) -> Result<(), Error>;

    /// Waits until `device` has finished all that was asked of it.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    fn synchronize(&self, device: DeviceId) -> Result<(), Error>;
}

/// What can be asked of a buffer without touching its elements.
pub trait DeviceBuffer: Send {
    /// Where it lives.
    fn device(&self) -> DeviceId;

    /// What it holds.
    fn element_type(&self) -> ElementType;

    /// How many elements it holds.
    fn len(&self) -> usize;

    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A device's number within its backend and process, from 0.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct DeviceId(usize);

impl DeviceId {
    /// The device with this number; whether it exists is for the backend to say.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

impl Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.0, f)
    }
}

/// One device of a backend.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    id: DeviceId,
    kind: &'static str,
}

impl Device {
    /// Describes a device; `kind` is the type that stands in device names, such as `CPU`.
    #[must_use]
    pub const fn new(id: DeviceId, kind: &'static str) -> Self {
        Self { id, kind }
    }

    /// Its number.
    #[must_use]
    pub const fn id(&self) -> DeviceId {
        self.id
    }

    /// Its type, such as `CPU`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.kind
    }
}
