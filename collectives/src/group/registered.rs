//! Buffers in memory that the other ranks of the host can reach.
#![expect(unsafe_code, reason = "registered memory is given out as a slice")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use meshwork_accel::{Element, HostMemory};

use super::Group;
use crate::{OperationError, SystemError, shm};

/// A buffer that the other ranks of the host work on where it is, without a copy.
///
/// It is a slice like any other, and every operation takes it, or a part of it, like any other. It
/// outlives its group. When an operation has failed its values are unspecified, and nobody else
/// writes to it any more, not even a rank that was stopped in the middle and goes on later.
///
/// ```
/// use meshwork_collectives::{Group, ReduceOp};
///
/// let mut group = Group::local(1)?.remove(0);
/// let mut gradients = group.alloc::<f32>(1000)?;
/// gradients.fill(0.5);
/// group.all_reduce(&mut gradients[..10], ReduceOp::Sum)?;
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
pub struct Registered<T> {
    memory: shm::Registered,
    elements: PhantomData<T>,
}

impl Group {
    /// A buffer of `len` elements, all zero, that the other ranks of the host can reach.
    ///
    /// A rank can have 64 at a time; more than that are plain memory, as all are where
    /// no memory is shared. Other ranks map it when it is first used in an operation.
    ///
    /// # Errors
    /// [`OperationError::System`] when there is not that much memory.
    pub fn alloc<T: Element>(&mut self, len: usize) -> Result<Registered<T>, OperationError> {
        let refused = |kind| SystemError::new("allocating registered memory", kind);
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| refused(std::io::ErrorKind::OutOfMemory))?;
        let registry = self.registry.clone();
        let memory = registry
            .allocate(bytes)
            .map_err(|error| refused(error.kind()))?;
        let elements = PhantomData;
        Ok(Registered { memory, elements })
    }
}

// SAFETY: the memory is owned like that of a `Vec`.
unsafe impl<T: Send> Send for Registered<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Registered<T> {}

impl<T: Element> Deref for Registered<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let span = self.memory.bytes();
        // SAFETY: the mapping begins on a page and lives as long as `self`; other ranks write to it
        // only during an operation, which borrows the buffer mutably.
        unsafe { span.read() }
    }
}

impl<T: Element> DerefMut for Registered<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let span = self.memory.bytes();
        // SAFETY: as above.
        unsafe { span.write() }
    }
}

// SAFETY: the mapping stays where it is until this is dropped, wherever the handle goes; threads
// that are ranks of the same group touch it only in an operation, for which the bytes have been
// given out.
unsafe impl HostMemory for Registered<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }
}

impl<T: Element> AsMut<[T]> for Registered<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

impl<T: Element> fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
