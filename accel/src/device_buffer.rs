//! What is known of a buffer, and the parts that it has.

use std::ops::Range;

use crate::{DeviceId, ElementType, Error};

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

    /// Refuses elements of another type than it holds.
    ///
    /// # Errors
    /// [`Error::ElementMismatch`].
    fn check_element(&self, other: ElementType) -> Result<(), Error> {
        let buffer = self.element_type();
        if buffer == other {
            return Ok(());
        }
        Err(Error::ElementMismatch { buffer, other })
    }

    /// Refuses `len` elements from `start` on, unless it holds all of them.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    fn check_part(&self, start: usize, len: usize) -> Result<(), Error> {
        let available = self.len();
        match start.checked_add(len) {
            Some(end) if end <= available => Ok(()),
            _ => Err(Error::OutOfRange {
                start,
                len,
                available,
            }),
        }
    }

    /// How many elements `range` has, all of which it holds.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::OutOfRange`].
    fn check_range(&self, range: &Range<usize>) -> Result<usize, Error> {
        extent(range, self.len())
    }
}

/// How many of the `available` elements, bytes or indices `range` has, if there are all of them.
///
/// ```
/// use meshwork_accel::{Error, extent};
///
/// assert_eq!(extent(&(2..5), 5), Ok(3));
/// let (start, len, available) = (2, 4, 5);
/// assert_eq!(extent(&(2..6), 5), Err(Error::OutOfRange { start, len, available }));
/// ```
///
/// # Errors
/// [`Error::ReversedRange`], [`Error::OutOfRange`].
pub fn extent(range: &Range<usize>, available: usize) -> Result<usize, Error> {
    let (start, end) = (range.start, range.end);
    let len = end
        .checked_sub(start)
        .ok_or(Error::ReversedRange { start, end })?;
    if end > available {
        return Err(Error::OutOfRange {
            start,
            len,
            available,
        });
    }
    Ok(len)
}
