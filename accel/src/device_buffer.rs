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

    /// Its element type; refuses elements that are no floats.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`].
    fn check_float(&self) -> Result<ElementType, Error> {
        match self.element_type() {
            element if element.is_float() => Ok(element),
            element => Err(Error::UnsupportedElement { element }),
        }
    }

    /// Refuses elements that are no whole numbers: floats and truth values.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`].
    fn check_whole_numbers(&self) -> Result<(), Error> {
        let element = self.element_type();
        if element.is_float() || element == ElementType::Bool {
            return Err(Error::UnsupportedElement { element });
        }
        Ok(())
    }

    /// Refuses a buffer on another device.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`].
    fn check_device(&self, right: DeviceId) -> Result<(), Error> {
        let left = self.device();
        match left == right {
            true => Ok(()),
            false => Err(Error::DeviceMismatch { left, right }),
        }
    }

    /// Refuses another number of elements than it holds.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    fn check_len(&self, right: usize) -> Result<(), Error> {
        equal(self.len(), right)
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

/// Refuses lengths that differ.
pub(crate) fn equal(left: usize, right: usize) -> Result<(), Error> {
    match left == right {
        true => Ok(()),
        false => Err(Error::LengthMismatch { left, right }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ElementType::{Bf16, Bool, F64, U8};

    use super::*;

    /// The number of its device, and what it would hold.
    pub(crate) struct Buffer(pub(crate) usize, pub(crate) ElementType, pub(crate) usize);

    impl DeviceBuffer for Buffer {
        fn device(&self) -> DeviceId {
            DeviceId::new(self.0)
        }

        fn element_type(&self) -> ElementType {
            self.1
        }

        fn len(&self) -> usize {
            self.2
        }
    }

    #[test]
    fn other_devices_and_lengths_are_refused_with_its_own_first() {
        let buffer = Buffer(1, F64, 3);
        let [own, other] = [1, 2].map(DeviceId::new);
        assert_eq!(buffer.check_device(own), Ok(()));
        let apart = Error::DeviceMismatch {
            left: own,
            right: other,
        };
        assert_eq!(buffer.check_device(other), Err(apart));
        assert_eq!(buffer.check_len(3), Ok(()));
        let unequal = Error::LengthMismatch { left: 3, right: 4 };
        assert_eq!(buffer.check_len(4), Err(unequal));
    }

    #[test]
    fn elements_are_floats_or_whole_numbers_and_truth_values_neither() {
        for (element, is_float, is_whole) in [
            (F64, true, false),
            (Bf16, true, false),
            (U8, false, true),
            (Bool, false, false),
        ] {
            let buffer = Buffer(0, element, 0);
            let refused = Error::UnsupportedElement { element };
            let float = is_float.then_some(element).ok_or_else(|| refused.clone());
            assert_eq!(buffer.check_float(), float);
            let whole = is_whole.then_some(()).ok_or(refused);
            assert_eq!(buffer.check_whole_numbers(), whole);
        }
    }
}
