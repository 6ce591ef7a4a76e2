//! Bytes that another rank may reach, without a lifetime: flags say when they may be touched.

#![expect(
    unsafe_code,
    reason = "what other ranks share with this one can only be reached by address"
)]

use std::ops::Range;
use std::ptr::NonNull;

use bytemuck::NoUninit;
use meshwork_accel::Element;

use super::mapping::Mapping;

/// Where bytes are, and how many. Making one is harmless, reading and writing are not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Span {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a length; reading and writing through them is unsafe in itself.
unsafe impl Send for Span {}

/// This rank's contribution to a fold, and where the result goes.
#[derive(Clone, Copy)]
pub(super) struct FoldSpans {
    pub(super) own: Span,
    pub(super) into: Span,
}

impl FoldSpans {
    /// The result replaces the contribution.
    pub(super) fn in_place(own: Span) -> Self {
        Self { own, into: own }
    }
}

impl Span {
    /// For reading only: nobody may write through it, wherever the slice came from.
    pub(crate) fn of<T: NoUninit>(slice: &[T]) -> Self {
        Self {
            start: NonNull::from(slice).cast(),
            bytes: size_of_val(slice),
        }
    }

    /// For reading and writing, by other threads too, until the slice itself is used again.
    pub(crate) fn of_mut<T: NoUninit>(slice: &mut [T]) -> Self {
        Self {
            start: NonNull::from(&mut *slice).cast(),
            bytes: size_of_val(slice),
        }
    }

    pub(crate) fn of_mapping(mapping: &Mapping) -> Self {
        Self {
            start: mapping.start(),
            bytes: mapping.bytes(),
        }
    }

    /// An address that another thread of this process has told.
    pub(crate) fn at(address: usize, bytes: usize) -> Option<Self> {
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(address))?;
        Some(Self { start, bytes })
    }

    /// The address, for [`Span::at`].
    pub(crate) fn address(self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// The part at these bytes, `None` when it reaches past the end.
    pub(crate) fn part(self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.bytes {
            return None;
        }
        // SAFETY: at most one past the end of the bytes that the span was made for.
        let start = unsafe { self.start.add(range.start) };
        Some(Self {
            start,
            bytes: range.len(),
        })
    }

    /// The same bytes, `None` where no element of this type may begin.
    pub(crate) fn aligned<T>(self) -> Option<Self> {
        self.start.cast::<T>().is_aligned().then_some(self)
    }

    /// The bytes as elements; what is left over at the end is not part of the slice.
    ///
    /// # Safety
    /// The bytes are mapped, aligned and values of `T`, and nobody writes to them during `'a`.
    pub(crate) unsafe fn read<'a, T: Element>(self) -> &'a [T] {
        debug_assert!(self.start.cast::<T>().is_aligned());
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts(self.start.cast().as_ptr(), self.bytes / size_of::<T>())
        }
    }

    /// The bytes as elements; what is left over at the end is not part of the slice.
    ///
    /// # Safety
    /// The bytes are mapped, aligned and values of `T`, and nobody else touches them during `'a`.
    pub(crate) unsafe fn write<'a, T: Element>(self) -> &'a mut [T] {
        debug_assert!(self.start.cast::<T>().is_aligned());
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.cast().as_ptr(), self.bytes / size_of::<T>())
        }
    }
}
