//! Host memory that a device reads and writes by itself, while the program does something else.
#![expect(
    unsafe_code,
    reason = "that memory stays where it is, only its owner can promise"
)]

use std::fmt::{self, Debug};
use std::ops::Range;

use crate::{DeviceBuffer, Error};

/// Host memory that can be given to a [`PinnedBuffer`].
///
/// # Safety
/// All calls give the same bytes at the same address, wherever `self` is moved to. They live as
/// long as `self`, and this process touches them through what a call has given only.
pub unsafe trait HostMemory: Send {
    /// All of it.
    fn bytes(&mut self) -> &mut [u8];
}

// SAFETY: what a vector holds stays where it is while the vector is moved; to let it grow takes the
// vector itself, which nobody has who has a `HostMemory`. It is freed with it.
unsafe impl HostMemory for Vec<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

/// Host memory that is pinned, so that a device copies from and to it without the processor.
///
/// Transfers are asynchronous; those of one pinned buffer take effect in the order in which they
/// were begun, and whatever is asked of their buffers later waits for them. They wait for what was
/// asked of a buffer before the last [`catch_up`](Self::catch_up), and for the making of one that
/// is newer, not for what was asked since: so transfers of several pinned buffers, from a device
/// and to it, go on side by side.
#[doc(alias("pin_memory", "cudaHostRegister"))]
pub trait PinnedBuffer: Send {
    /// Memory on the device.
    type Buffer: DeviceBuffer;

    /// Lets transfers that begin from now on wait for all that was asked of the device before.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`].
    fn catch_up(&mut self) -> Result<(), Error>;

    /// Begins to fill the bytes `into` of the memory with elements of `from`, those from `at` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], also for bytes that the memory does not have;
    /// [`Error::ReversedRange`], [`Error::PartOfElement`], [`Error::DeviceMismatch`],
    /// [`Error::DeviceFailed`].
    fn download(&mut self, from: &Self::Buffer, at: usize, into: Range<usize>)
    -> Result<(), Error>;

    /// Begins to copy the bytes `from` of the memory to elements of `to`, those from `at` on.
    ///
    /// # Errors
    /// Those of [`download`](Self::download).
    fn upload(&mut self, from: Range<usize>, to: &mut Self::Buffer, at: usize)
    -> Result<(), Error>;

    /// The memory, when nothing is under way to it or from it any more.
    ///
    /// # Errors
    /// [`Error::DeviceFailed`].
    fn memory(&mut self) -> Result<&mut [u8], Error>;
}

/// Memory that comes back, as it could not be pinned.
pub struct NotPinned {
    /// The memory, as it was.
    pub memory: Box<dyn HostMemory>,
    /// Why, where that is more than that the backend does not pin memory at all.
    pub reason: Option<Error>,
}

impl Debug for NotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotPinned")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}
