//! A state as one row of bytes that stay in the arrays where they are.

use std::fmt::{self, Debug};
use std::ops::Range;

/// Arrays of a training that others are given from where they are, and that are taken over where
/// they are to be.
///
/// ```
/// use meshwork_strategy::LentArrays;
///
/// let (mut weight, mut bits) = (vec![0.5; 6], vec![0; 3]);
/// let lent = LentArrays::new().with(&mut weight).with_bytes(&mut bits);
/// assert_eq!(lent.bytes(), 6 * 4 + 3);
/// ```
#[derive(Default)]
pub struct LentArrays<'a>(Vec<&'a mut [u8]>);

impl<'a> LentArrays<'a> {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more, which has this place and length on all workers.
    #[must_use]
    pub fn with(self, values: &'a mut [f32]) -> Self {
        self.with_bytes(bytemuck::cast_slice_mut(values))
    }

    /// With one more of another type, as bytes, of which all have to be valid.
    #[must_use]
    pub fn with_bytes(mut self, bytes: &'a mut [u8]) -> Self {
        self.0.push(bytes);
        self
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        len(&self.0)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Debug for LentArrays<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentArrays")
            .field("arrays", &self.0.len())
            .field("bytes", &self.bytes())
            .finish()
    }
}

/// All arrays of a state, one after the other.
#[derive(Debug)]
pub(crate) struct Parts<'a>(Vec<&'a mut [u8]>);

impl<'a> Parts<'a> {
    pub(crate) fn new(arrays: Vec<&'a mut [u8]>) -> Self {
        Self(arrays)
    }

    /// A state of one array.
    pub(crate) fn one(array: &'a mut [u8]) -> Self {
        Self(vec![array])
    }

    /// With what is lent behind them.
    pub(crate) fn with(mut self, lent: LentArrays<'a>) -> Self {
        self.0.extend(lent.0);
        self
    }

    /// Bytes of all arrays.
    pub(crate) fn len(&self) -> usize {
        len(&self.0)
    }

    /// Copies the bytes from this place on.
    pub(crate) fn read(&self, place: usize, into: &mut [u8]) {
        let wanted = place..place + into.len();
        let mut start = 0;
        for array in &self.0 {
            if let Some(common) = common(&wanted, start..start + array.len()) {
                into[within(&common, place)].copy_from_slice(&array[within(&common, start)]);
            }
            start += array.len();
        }
    }

    /// Replaces the bytes from this place on.
    pub(crate) fn write(&mut self, place: usize, bytes: &[u8]) {
        let wanted = place..place + bytes.len();
        let mut start = 0;
        for array in &mut self.0 {
            let end = start + array.len();
            if let Some(common) = common(&wanted, start..end) {
                array[within(&common, start)].copy_from_slice(&bytes[within(&common, place)]);
            }
            start = end;
        }
    }
}

/// Arrays that are in memory together have no more bytes than that.
fn len(arrays: &[&mut [u8]]) -> usize {
    arrays.iter().map(|array| array.len()).sum()
}

/// The places that are in both, if there are any.
fn common(one: &Range<usize>, other: Range<usize>) -> Option<Range<usize>> {
    let common = one.start.max(other.start)..one.end.min(other.end);
    (!common.is_empty()).then_some(common)
}

/// The same places, counted from `start`.
fn within(places: &Range<usize>, start: usize) -> Range<usize> {
    places.start - start..places.end - start
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every place and length in a state of arrays of these lengths, against one array of all.
    #[test]
    fn parts_read_and_write_as_one_array_does() {
        for lengths in [vec![], vec![5], vec![0, 3, 0], vec![1, 2, 4, 0, 3]] {
            let mut arrays: Vec<Vec<u8>> = Vec::new();
            for len in lengths {
                let at = arrays.concat().len();
                arrays.push((0..=u8::MAX).skip(at).take(len).collect());
            }
            let whole = arrays.concat();
            for start in 0..=whole.len() {
                for end in start..=whole.len() {
                    let mut changed = arrays.clone();
                    let mut parts = Parts::new(changed.iter_mut().map(Vec::as_mut_slice).collect());
                    assert_eq!(parts.len(), whole.len());
                    let mut read = vec![99; end - start];
                    parts.read(start, &mut read);
                    assert_eq!(read, whole[start..end]);
                    let new: Vec<u8> = read.iter().map(|byte| byte + 100).collect();
                    parts.write(start, &new);
                    let mut expected = whole.clone();
                    expected[start..end].copy_from_slice(&new);
                    assert_eq!(changed.concat(), expected);
                }
            }
        }
    }

    #[test]
    fn what_is_lent_is_behind_the_other_arrays() {
        let (mut first, mut values, mut bytes) = ([7_u8; 2], [1.0_f32], [9_u8]);
        let lent = LentArrays::new().with(&mut values).with_bytes(&mut bytes);
        assert_eq!((lent.bytes(), lent.is_empty()), (5, false));
        assert_eq!(format!("{lent:?}"), "LentArrays { arrays: 2, bytes: 5 }");
        let parts = Parts::new(vec![&mut first]).with(lent);
        let mut read = [0; 7];
        parts.read(0, &mut read);
        assert_eq!(read, [7, 7, 0, 0, 0x80, 0x3f, 9]);
    }
}
