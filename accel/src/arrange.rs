//! Elements put in other places, and made one along an axis, for backends that do so.

use std::ops::Range;

use crate::shape::count;
use crate::{Accelerator, DeviceBuffer, ElementType, Error, ReduceOp, StridedSlice, extent};

/// Rearranges row-major arrays in buffers (slices, transpositions) without regard to the element
/// type; and gathers elements by the indices in another buffer.
///
/// The methods that a backend need not have say [`Error::Unsupported`] where it does not.
pub trait Arrange: Accelerator {
    /// A new buffer on the same device: the elements of a box, row after row.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a buffer of another length than the whole has,
    /// [`Error::TooManyAxes`], and those of [`allocate`](Accelerator::allocate).
    fn cut(&self, from: &Self::Buffer, part: &Region) -> Result<Self::Buffer, Error>;

    /// Replaces the elements of a box of `into` by those of `from`; inverse of [`cut`](Self::cut).
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::TooManyAxes`].
    fn paste(
        &self,
        from: &Self::Buffer,
        into: &mut Self::Buffer,
        part: &Region,
    ) -> Result<(), Error>;

    /// A new buffer on the same device with the axes in other places, and repeated.
    ///
    /// # Errors
    /// Those of [`cut`](Self::cut).
    fn arrange(&self, from: &Self::Buffer, to: &Arrangement) -> Result<Self::Buffer, Error>;

    /// A new buffer on the same device: the elements at some indices of each axis.
    ///
    /// # Errors
    /// Those of [`cut`](Self::cut), and [`Error::Unsupported`].
    fn step(&self, from: &Self::Buffer, by: &StridedSlice) -> Result<Self::Buffer, Error> {
        let _ = (from, by);
        let operation = "a choice in steps";
        Err(Error::Unsupported { operation })
    }

    /// A new buffer on the same device: along the middle one of three axes the elements at the
    /// indices that another buffer holds, whole numbers of any type. One that the axis does not
    /// have takes zeros.
    ///
    /// # Shapes
    /// `[outer, len, inner]` and `[count]` give `[outer, count, inner]`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], [`Error::LengthMismatch`] for a buffer of another length,
    /// [`Error::UnsupportedElement`] for indices that are no whole numbers,
    /// [`Error::ShapeTooLarge`], [`Error::Unsupported`], and those of
    /// [`allocate`](Accelerator::allocate).
    fn take(
        &self,
        from: &Self::Buffer,
        sizes: [usize; 3],
        indices: &Self::Buffer,
    ) -> Result<Self::Buffer, Error> {
        let _ = (from, sizes, indices);
        let operation = "a choice by indices";
        Err(Error::Unsupported { operation })
    }

    /// A new buffer on the same device: for each index, a whole number of any type, a row of one
    /// element for each of `classes`, 1 for that very index and 0 for all others.
    ///
    /// # Errors
    /// [`Error::UnsupportedElement`] for indices that are no whole numbers,
    /// [`Error::ReversedRange`], [`Error::ShapeTooLarge`], [`Error::Unsupported`], and those of
    /// [`allocate`](Accelerator::allocate).
    fn one_hot(
        &self,
        indices: &Self::Buffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<Self::Buffer, Error> {
        let _ = (indices, classes, element);
        let operation = "one-hot rows";
        Err(Error::Unsupported { operation })
    }
}

/// Elements along an axis made one.
///
/// In which order floats are combined is the backend's choice. Those of 16 bits are combined in 32,
/// and rounded once.
pub trait Fold: Accelerator {
    /// A new buffer on the same device: `op` of the elements along the middle one of three axes.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for a buffer of another length, [`Error::NoSources`] for an axis
    /// without elements, [`Error::UnsupportedOp`], and for [`ReduceOp::Mean`] always: what to
    /// divide by the caller knows; and those of [`allocate`](Accelerator::allocate).
    fn fold(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<Self::Buffer, Error>;

    /// A new buffer on the same device: along the middle one of three axes, `op` of each element
    /// and all before it.
    ///
    /// # Errors
    /// Those of [`fold`](Self::fold), but for an axis without elements, of which nothing comes; and
    /// [`Error::Unsupported`].
    fn scan(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<Self::Buffer, Error> {
        let _ = (op, sizes, from);
        let operation = "a scan";
        Err(Error::Unsupported { operation })
    }

    /// A new buffer of `I64` on the same device: along the middle one of three axes the index of
    /// the first of the largest elements, or for [`ReduceOp::Min`] of the smallest. NaN is neither,
    /// but for one at index 0.
    ///
    /// # Errors
    /// Those of [`fold`](Self::fold), with [`Error::UnsupportedOp`] for all ops but `Min` and `Max`
    /// and for truth values; and [`Error::Unsupported`].
    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<Self::Buffer, Error> {
        let _ = (op, sizes, from);
        let operation = "the index of an extreme";
        Err(Error::Unsupported { operation })
    }

    /// Refuses arguments of [`fold`](Self::fold), as every backend does first.
    ///
    /// # Errors
    /// [`Error::NoSources`], and those of [`check_scan`](Self::check_scan).
    fn check_fold(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<(), Error> {
        self.check_scan(op, sizes, from)?;
        match sizes[1] {
            0 => Err(Error::NoSources { op }),
            1.. => Ok(()),
        }
    }

    /// Refuses arguments of [`scan`](Self::scan).
    ///
    /// # Errors
    /// [`Error::UnsupportedOp`], [`Error::ShapeTooLarge`], [`Error::LengthMismatch`].
    fn check_scan(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<(), Error> {
        let element = from.element_type();
        if !op.supports(element) || op == ReduceOp::Mean {
            return Err(Error::UnsupportedOp { op, element });
        }
        from.check_len(count(&sizes)?)
    }

    /// Refuses arguments of [`arg_reduce`](Self::arg_reduce).
    ///
    /// # Errors
    /// Those of [`check_fold`](Self::check_fold).
    fn check_arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &Self::Buffer,
    ) -> Result<(), Error> {
        let element = from.element_type();
        if !op.has_index(element) {
            return Err(Error::UnsupportedOp { op, element });
        }
        self.check_fold(op, sizes, from)
    }
}

/// A box of a whole of these sizes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Region {
    whole: Vec<usize>,
    part: Vec<Range<usize>>,
}

impl Region {
    /// The indices `part` along each axis of the sizes `whole`.
    ///
    /// ```
    /// use meshwork_accel::Region;
    ///
    /// let columns = Region::new(&[4, 6], &[0..4, 2..5])?;
    /// assert_eq!((columns.whole_len(), columns.len()), (24, 12));
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AxisCount`], [`Error::ReversedRange`], [`Error::OutOfRange`],
    /// [`Error::ShapeTooLarge`].
    pub fn new(whole: &[usize], part: &[Range<usize>]) -> Result<Self, Error> {
        let (found, expected) = (part.len(), whole.len());
        if found != expected {
            return Err(Error::AxisCount { found, expected });
        }
        count(whole)?;
        for (range, &available) in part.iter().zip(whole) {
            extent(range, available)?;
        }
        Ok(Self {
            whole: whole.to_vec(),
            part: part.to_vec(),
        })
    }

    /// The sizes of the whole.
    #[must_use]
    pub fn whole(&self) -> &[usize] {
        &self.whole
    }

    /// The indices along each axis.
    #[must_use]
    pub fn part(&self) -> &[Range<usize>] {
        &self.part
    }

    /// Elements of the whole.
    #[must_use]
    pub fn whole_len(&self) -> usize {
        self.whole.iter().product()
    }

    /// Elements of the box.
    #[must_use]
    pub fn len(&self) -> usize {
        self.part.iter().map(Range::len).product()
    }

    /// Whether the box has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the axes of a block go in another, which repeats it along all other axes.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Arrangement {
    from: Vec<usize>,
    places: Vec<usize>,
    to: Vec<usize>,
}

impl Arrangement {
    /// Axis `i` of the sizes `from` becomes axis `places[i]` of the sizes `to`. An axis of size 1
    /// may become one of any size, along which it is repeated.
    ///
    /// ```
    /// use meshwork_accel::Arrangement;
    ///
    /// // Rows of 3 as columns, four times.
    /// let columns = Arrangement::new(&[2, 3], &[2, 1], &[4, 3, 2])?;
    /// assert_eq!((columns.from_len(), columns.len()), (6, 24));
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AxisCount`], [`Error::AxisOutside`], [`Error::LengthMismatch`] for an axis of
    /// another size, [`Error::ShapeTooLarge`].
    pub fn new(from: &[usize], places: &[usize], to: &[usize]) -> Result<Self, Error> {
        let (found, expected) = (places.len(), from.len());
        if found != expected {
            return Err(Error::AxisCount { found, expected });
        }
        count(from)?;
        count(to)?;
        for (number, (&left, &axis)) in from.iter().zip(places).enumerate() {
            let is_again = places[..number].contains(&axis);
            let size = to.get(axis).filter(|_| !is_again);
            let axes = to.len();
            let right = *size.ok_or(Error::AxisOutside { axis, axes })?;
            if left != right && left != 1 {
                return Err(Error::LengthMismatch { left, right });
            }
        }
        Ok(Self {
            from: from.to_vec(),
            places: places.to_vec(),
            to: to.to_vec(),
        })
    }

    /// Sizes of the axes before.
    #[must_use]
    pub fn from(&self) -> &[usize] {
        &self.from
    }

    /// Where each of them goes.
    #[must_use]
    pub fn places(&self) -> &[usize] {
        &self.places
    }

    /// Sizes of the axes after.
    #[must_use]
    pub fn to(&self) -> &[usize] {
        &self.to
    }

    /// Elements before.
    #[must_use]
    pub fn from_len(&self) -> usize {
        self.from.iter().product()
    }

    /// Elements after.
    #[must_use]
    pub fn len(&self) -> usize {
        self.to.iter().product()
    }

    /// Whether there are none after.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_lies_inside_its_whole() {
        let refused = |part: &[Range<usize>]| Region::new(&[2, 3], part).unwrap_err();
        let (found, expected) = (3, 2);
        let three = [0..1, 0..1, 0..1];
        assert_eq!(refused(&three), Error::AxisCount { found, expected });
        assert!(matches!(refused(&[0..2, 1..4]), Error::OutOfRange { .. }));
        let (start, end) = (2, 1);
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
        let reversed = refused(&[0..2, 2..1]);
        assert_eq!(reversed, Error::ReversedRange { start, end });
        assert!(Region::new(&[2, 3], &[0..2, 3..3]).unwrap().is_empty());
        assert_eq!(Region::new(&[], &[]).unwrap().len(), 1);
        let large = Region::new(&[usize::MAX, 2], &[0..0, 0..0]);
        assert!(matches!(large, Err(Error::ShapeTooLarge { .. })));
    }

    #[test]
    fn axes_go_to_places_of_their_own_that_fit() {
        let refused =
            |places: &[usize], to: &[usize]| Arrangement::new(&[2, 1], places, to).unwrap_err();
        let axes = 2;
        assert_eq!(
            refused(&[0, 2], &[2, 1]),
            Error::AxisOutside { axis: 2, axes }
        );
        assert_eq!(
            refused(&[1, 1], &[2, 2]),
            Error::AxisOutside { axis: 1, axes }
        );
        let (left, right) = (2, 3);
        assert_eq!(
            refused(&[0, 1], &[3, 1]),
            Error::LengthMismatch { left, right }
        );
        assert!(matches!(refused(&[0], &[2]), Error::AxisCount { .. }));
        assert_eq!(
            Arrangement::new(&[2, 1], &[1, 0], &[5, 2]).unwrap().len(),
            10
        );
    }
}
