//! The two traits that every backend implements: `Accelerator` (allocate, upload, download, copy,
//! fill, reduce, pin, synchronize) and `DeviceBuffer`, whose checks of types and ranges backends
//! share. Collectives, compute and rearranging are traits of their own; `capability` asks for them.

use std::ops::Range;

use crate::{
    Device, DeviceBuffer, DeviceId, Element, ElementType, Error, HostMemory, Memory, NotPinned,
    PinnedBuffer, ReduceOp,
};

/// A backend: one kind of device, and all operations that the layers above need of it.
///
/// Calls may return before the device has finished; those on one device take effect in the order
/// they were made, and [`download`](Accelerator::download) and
/// [`synchronize`](Accelerator::synchronize) wait. Arguments are checked before anything is done,
/// and nothing is a legal length. What a backend can do beyond this is a trait of its own, such as
/// [`NativeCollectives`](crate::NativeCollectives).
pub trait Accelerator: Send + Sync {
    /// Memory on one device; freed when dropped.
    type Buffer: DeviceBuffer;

    /// The devices of this process, in order of their [`DeviceId`].
    fn devices(&self) -> &[Device];

    /// The memory of `device` at this moment; [`Memory::UNKNOWN`] where a backend does not know it.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    fn memory(&self, device: DeviceId) -> Result<Memory, Error> {
        let available = self.devices().len();
        match self.devices().get(device.index()) {
            Some(_) => Ok(Memory::UNKNOWN),
            None => Err(Error::UnknownDevice { device, available }),
        }
    }

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

    /// Allocates a buffer of these elements on `device`. A backend that need not clear memory first
    /// does not.
    ///
    /// # Errors
    /// Those of [`allocate`](Accelerator::allocate).
    fn allocate_from<T: Element>(
        &self,
        device: DeviceId,
        elements: &[T],
    ) -> Result<Self::Buffer, Error> {
        let mut made = self.allocate(device, T::TYPE, elements.len())?;
        self.upload(elements, &mut made, 0)?;
        Ok(made)
    }

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
    /// Ranges never overlap, as one buffer cannot be borrowed twice:
    ///
    /// ```compile_fail,E0502
    /// # use meshwork_accel::Accelerator;
    /// fn shift<A: Accelerator>(accelerator: &A, buffer: &mut A::Buffer) {
    ///     let _ = accelerator.copy(buffer, 0..2, buffer, 1);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`], [`Error::ReversedRange`].
    fn copy(
        &self,
        from: &Self::Buffer,
        range: Range<usize>,
        to: &mut Self::Buffer,
        at: usize,
    ) -> Result<(), Error>;

    /// Another buffer of the same elements on the same device, so that one can change and the other
    /// not. A backend whose buffers can share memory until then need not copy.
    ///
    /// # Errors
    /// Those of [`allocate`](Accelerator::allocate).
    fn duplicate(&self, from: &Self::Buffer) -> Result<Self::Buffer, Error> {
        let mut made = self.allocate(from.device(), from.element_type(), from.len())?;
        self.copy(from, 0..from.len(), &mut made, 0)?;
        Ok(made)
    }

    /// Sets the elements `range` of `buffer` to `value`.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`], [`Error::OutOfRange`], [`Error::ReversedRange`].
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

    /// Pins `memory`, so that `device` copies from and to it by itself; gives it back where that
    /// cannot be, as in a backend that has nothing to pin it for.
    ///
    /// # Errors
    /// [`NotPinned`], with [`Error::UnknownDevice`] or [`Error::DeviceFailed`] where those are the
    /// reason.
    fn pin(
        &self,
        device: DeviceId,
        memory: Box<dyn HostMemory>,
    ) -> Result<Box<dyn PinnedBuffer<Buffer = Self::Buffer>>, NotPinned> {
        let available = self.devices().len();
        let unknown = Error::UnknownDevice { device, available };
        let reason = (device.index() >= available).then_some(unknown);
        Err(NotPinned { memory, reason })
    }

    /// Waits until `device` has finished all that was asked of it.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`].
    fn synchronize(&self, device: DeviceId) -> Result<(), Error>;
}
