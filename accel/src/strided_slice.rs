//! Strided slices of row-major arrays, with negative steps: checked when made, so that backends
//! that gather or scatter elements by them (`arrange`) need no bounds checks of their own.

use std::num::NonZeroIsize;

use crate::Error;
use crate::shape::count;

/// Equidistant indices of an axis.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct StridedRange {
    /// The first.
    pub first: usize,
    /// The distance from each to the next; negative steps go backwards.
    pub step: NonZeroIsize,
    /// How many.
    pub count: usize,
}

impl StridedRange {
    /// All indices of an axis of this size.
    #[must_use]
    pub const fn all(size: usize) -> Self {
        Self {
            first: 0,
            step: NonZeroIsize::new(1).expect("1 is not 0"),
            count: size,
        }
    }

    /// The first and the last in ascending order; none where there are none, or they are not all of
    /// an axis of this size.
    fn ends(self, available: usize) -> Option<(usize, usize)> {
        let steps = self.count.checked_sub(1)?;
        let way = self.step.unsigned_abs().get().checked_mul(steps)?;
        let last = match self.step.is_negative() {
            true => self.first.checked_sub(way)?,
            false => self.first.checked_add(way)?,
        };
        let (low, high) = (self.first.min(last), self.first.max(last));
        (high < available).then_some((low, high))
    }
}

/// A strided slice of an array: equidistant indices along each axis.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct StridedSlice {
    whole: Vec<usize>,
    along: Vec<StridedRange>,
}

impl StridedSlice {
    /// These indices along each axis of the sizes `whole`.
    ///
    /// ```
    /// use std::num::NonZeroIsize;
    ///
    /// use meshwork_accel::{StridedRange, StridedSlice};
    ///
    /// // Both rows, the last one first, and every other column.
    /// let [back, two] = [-1, 2].map(|step| NonZeroIsize::new(step).expect("not zero"));
    /// let rows = StridedRange { first: 1, step: back, count: 2 };
    /// let columns = StridedRange { first: 0, step: two, count: 3 };
    /// let steps = StridedSlice::new(&[2, 5], &[rows, columns])?;
    /// assert_eq!((steps.whole_len(), steps.len()), (10, 6));
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AxisCount`], [`Error::StepsOutside`], [`Error::ShapeTooLarge`].
    pub fn new(whole: &[usize], along: &[StridedRange]) -> Result<Self, Error> {
        let (found, expected) = (along.len(), whole.len());
        if found != expected {
            return Err(Error::AxisCount { found, expected });
        }
        count(whole)?;
        for (stride, &available) in along.iter().zip(whole) {
            if stride.count > 0 && stride.ends(available).is_none() {
                return Err(Error::StepsOutside {
                    first: stride.first,
                    step: stride.step.get(),
                    count: stride.count,
                    available,
                });
            }
        }
        Ok(Self {
            whole: whole.to_vec(),
            along: along.to_vec(),
        })
    }

    /// The sizes of the whole.
    #[must_use]
    pub fn whole(&self) -> &[usize] {
        &self.whole
    }

    /// The indices along each axis.
    #[must_use]
    pub fn along(&self) -> &[StridedRange] {
        &self.along
    }

    /// Elements of the whole.
    #[must_use]
    pub fn whole_len(&self) -> usize {
        self.whole.iter().product()
    }

    /// Elements that are chosen; not more than the whole has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.along.iter().map(|stride| stride.count).product()
    }

    /// Whether none is chosen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lowest and the highest index along each axis; none where no element is chosen.
    #[must_use]
    pub fn bounds(&self) -> Option<Vec<(usize, usize)>> {
        let both = self.along.iter().zip(&self.whole);
        both.map(|(stride, &size)| stride.ends(size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stride(first: usize, step: isize, count: usize) -> StridedRange {
        let step = NonZeroIsize::new(step).unwrap();
        StridedRange { first, step, count }
    }

    #[test]
    fn all_indices_are_those_of_steps_of_one() {
        assert_eq!(StridedRange::all(3), stride(0, 1, 3));
    }

    #[test]
    fn steps_stay_on_their_axis() {
        let refused = |along: StridedRange| StridedSlice::new(&[5], &[along]).unwrap_err();
        for along in [
            stride(0, 2, 4),
            stride(5, 1, 1),
            stride(3, -2, 3),
            stride(4, isize::MIN, 3),
            stride(0, isize::MAX, usize::MAX),
        ] {
            let StridedRange { first, step, count } = along;
            let (step, available) = (step.get(), 5);
            let outside = Error::StepsOutside {
                first,
                step,
                count,
                available,
            };
            assert_eq!(refused(along), outside);
        }
        let last = StridedSlice::new(&[5, 2], &[stride(4, -2, 3), stride(0, 1, 2)]).unwrap();
        assert_eq!((last.len(), last.bounds()), (6, Some(vec![(0, 4), (0, 1)])));
        let none = StridedSlice::new(&[5], &[stride(9, 1, 0)]).unwrap();
        assert!(none.is_empty() && none.bounds().is_none());
        let (found, expected) = (0, 1);
        assert_eq!(
            StridedSlice::new(&[5], &[]).unwrap_err(),
            Error::AxisCount { found, expected }
        );
    }
}
