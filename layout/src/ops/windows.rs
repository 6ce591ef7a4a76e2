//! Windows that move along spatial axes, for convolutions and pooling: strides, dilations, padding,
//! and where each window lies. Sizes are those of TensorFlow's `Conv2D`:
//!
//! ```text
//!   reach    r = (window - 1) * dilation + 1         indices from a window's first to its last
//!   VALID    count = (size - r) / stride + 1         no padding
//!   SAME     count = ceil(size / stride)             padding (count - 1) * stride + r - size if
//!                                                    positive, the smaller half of it before
//! ```

use std::ops::Range;

use super::OpError;

/// How windows move along the spatial axes of a convolution or of pooling.
///
/// ```
/// use meshwork_layout::ops::{Padding, Windows};
///
/// let windows = Windows::strides([2, 2]).padded(Padding::Same);
/// let [rows, _] = windows.along("convolution", &[7, 8], &[3, 3])?[..] else { unreachable!() };
/// assert_eq!((rows.count(), rows.before()), (4, 1));
/// # Ok::<(), meshwork_layout::ops::OpError>(())
/// ```
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Windows {
    strides: Vec<usize>,
    dilations: Vec<usize>,
    padding: Padding,
}

/// What lies around the spatial axes.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub enum Padding {
    /// Nothing: windows lie inside.
    #[default]
    Valid,
    /// As much as makes one window for each stride, the smaller half of it before.
    Same,
    /// This much before and after each spatial axis.
    Explicit(Vec<(usize, usize)>),
}

/// The windows along one spatial axis.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WindowAxis {
    size: usize,
    window: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    count: usize,
}

impl Windows {
    /// Windows this far apart along each spatial axis, without padding and dilation.
    pub fn strides(strides: impl IntoIterator<Item = usize>) -> Self {
        let strides: Vec<usize> = strides.into_iter().collect();
        Self {
            dilations: vec![1; strides.len()],
            strides,
            padding: Padding::Valid,
        }
    }

    /// The same with padding.
    #[must_use]
    pub fn padded(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// The same with the indices of a window this far apart along each spatial axis.
    #[must_use]
    #[doc(alias = "atrous")]
    pub fn dilated(self, dilations: impl IntoIterator<Item = usize>) -> Self {
        let dilations = dilations.into_iter().collect();
        Self { dilations, ..self }
    }

    /// How many spatial axes there are.
    #[must_use]
    pub fn axes(&self) -> usize {
        self.strides.len()
    }

    /// Strides, dilations and padding.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn parts(&self) -> (&[usize], &[usize], &Padding) {
        (&self.strides, &self.dilations, &self.padding)
    }

    /// The windows of an op along spatial axes of these sizes; `window` has how many indices along
    /// each it takes together.
    ///
    /// # Errors
    /// [`OpError::EntryCount`], [`OpError::ZeroWindow`], [`OpError::WindowTooLarge`],
    /// [`OpError::TooLarge`].
    pub fn along(
        &self,
        op: &'static str,
        sizes: &[usize],
        window: &[usize],
    ) -> Result<Vec<WindowAxis>, OpError> {
        let expected = self.axes();
        let paddings = match &self.padding {
            Padding::Explicit(paddings) => paddings.len(),
            Padding::Valid | Padding::Same => expected,
        };
        let counts = [self.dilations.len(), paddings, sizes.len(), window.len()];
        if let Some(found) = counts.into_iter().find(|found| *found != expected) {
            return Err(OpError::EntryCount {
                op,
                found,
                expected,
            });
        }
        let axes = 0..expected;
        axes.map(|axis| self.axis(op, axis, sizes[axis], window[axis]))
            .collect()
    }

    fn axis(
        &self,
        op: &'static str,
        axis: usize,
        size: usize,
        window: usize,
    ) -> Result<WindowAxis, OpError> {
        let (stride, dilation) = (self.strides[axis], self.dilations[axis]);
        let parameters = [
            ("stride", stride),
            ("dilation", dilation),
            ("window", window),
        ];
        if let Some((parameter, _)) = parameters.into_iter().find(|(_, value)| *value == 0) {
            return Err(OpError::ZeroWindow {
                op,
                parameter,
                axis: axis + 1,
            });
        }
        let reach = (window - 1).checked_mul(dilation);
        let reach = reach.and_then(|reach| reach.checked_add(1));
        let reach = reach.ok_or(OpError::TooLarge { op })?;
        let padding = self.around(axis, size, reach);
        let (before, padded) = padding.ok_or(OpError::TooLarge { op })?;
        let count = match (&self.padding, padded.checked_sub(reach)) {
            (Padding::Same, _) => size.div_ceil(stride),
            (_, Some(last)) => last / stride + 1,
            (_, None) => {
                return Err(OpError::WindowTooLarge {
                    op,
                    axis: axis + 1,
                    window: reach,
                    size: padded,
                });
            }
        };
        Ok(WindowAxis {
            size,
            window,
            stride,
            dilation,
            before,
            count,
        })
    }

    /// The padding before an axis, and its size with all padding; none if that cannot be counted.
    fn around(&self, axis: usize, size: usize, reach: usize) -> Option<(usize, usize)> {
        let (before, after) = match &self.padding {
            Padding::Valid => (0, 0),
            Padding::Same => {
                let stride = self.strides[axis];
                let last = size.div_ceil(stride).saturating_sub(1) * stride;
                let all = last.checked_add(reach)?.saturating_sub(size);
                (all / 2, all - all / 2)
            }
            Padding::Explicit(paddings) => paddings[axis],
        };
        Some((before, size.checked_add(before)?.checked_add(after)?))
    }
}

impl WindowAxis {
    /// How many windows there are: the size of the result.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many indices a window takes together.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// The size of the axis, without padding.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// How much padding there is before the first index.
    #[must_use]
    pub fn before(&self) -> usize {
        self.before
    }

    /// How much padding the last window reaches over behind the last index.
    #[must_use]
    pub fn after(&self) -> usize {
        let last = self.count.saturating_sub(1).saturating_mul(self.stride);
        let reach = (self.window - 1).saturating_mul(self.dilation);
        let end = last.saturating_add(reach).saturating_add(1);
        end.saturating_sub(self.size.saturating_add(self.before))
    }

    /// How far each window is from the one before.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Whether each window is one index, and each index has its window.
    #[must_use]
    pub fn is_pointwise(&self) -> bool {
        self.window == 1 && self.stride == 1 && self.count == self.size && self.before == 0
    }

    /// How far apart the indices of a window are.
    #[must_use]
    pub fn dilation(&self) -> usize {
        self.dilation
    }

    /// The places of a window that do not fall on padding, and the index of the axis on which the
    /// first of them falls. The others follow, a [`dilation`](Self::dilation) apart.
    #[must_use]
    pub fn inside(&self, window: usize) -> (Range<usize>, usize) {
        let start = window * self.stride;
        let padded = self.before.saturating_sub(start);
        let first = padded.div_ceil(self.dilation).min(self.window);
        let end = (self.size + self.before).saturating_sub(start);
        let end = end.div_ceil(self.dilation).min(self.window).max(first);
        // Of an empty range there is no index.
        let index = start.saturating_add(first.saturating_mul(self.dilation));
        let index = index.saturating_sub(self.before);
        (first..end, index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(windows: &Windows, size: usize, window: usize) -> Result<WindowAxis, OpError> {
        Ok(windows.along("pool", &[size], &[window])?[0])
    }

    #[test]
    fn sizes_are_those_that_tensorflow_documents() {
        let same = |size, window, stride| {
            let windows = Windows::strides([stride]).padded(Padding::Same);
            let axis = one(&windows, size, window).unwrap();
            (axis.count(), axis.before())
        };
        assert_eq!(same(13, 6, 5), (3, 1));
        assert_eq!(same(28, 3, 1), (28, 1));
        assert_eq!(same(28, 2, 2), (14, 0));
        assert_eq!(same(5, 1, 3), (2, 0));
        assert_eq!(same(0, 3, 2), (0, 1));
        let valid = one(&Windows::strides([5]), 13, 6).unwrap();
        assert_eq!(valid.count(), 2);
    }

    #[test]
    fn windows_that_cannot_move_or_do_not_fit_are_refused() {
        let zero = |parameter| OpError::ZeroWindow {
            op: "pool",
            parameter,
            axis: 1,
        };
        assert_eq!(one(&Windows::strides([0]), 4, 2), Err(zero("stride")));
        assert_eq!(one(&Windows::strides([1]), 4, 0), Err(zero("window")));
        let dilated = Windows::strides([1]).dilated([0]);
        assert_eq!(one(&dilated, 4, 2), Err(zero("dilation")));
        let large = OpError::WindowTooLarge {
            op: "pool",
            axis: 1,
            window: 5,
            size: 4,
        };
        let message = "the window of pool reaches over 5 indices of axis 1, which has 4 with its \
                       padding: take a smaller window, or pad";
        assert_eq!(large.to_string(), message);
        let dilated = Windows::strides([1]).dilated([2]);
        assert_eq!(one(&dilated, 4, 3), Err(large));
        let uncountable = Windows::strides([1]).dilated([usize::MAX]);
        let too_large = Err(OpError::TooLarge { op: "pool" });
        assert_eq!(one(&uncountable, 4, 3), too_large);
        let count = OpError::EntryCount {
            op: "pool",
            found: 2,
            expected: 1,
        };
        let padded = Windows::strides([1]).padded(Padding::Explicit(vec![(0, 0); 2]));
        assert_eq!(one(&padded, 4, 2), Err(count));
    }

    proptest! {
        #[test]
        fn what_is_inside_is_what_is_not_padding(
            size in 0_usize..9, window in 1_usize..5, stride in 1_usize..4, dilation in 1_usize..4,
            padding in prop_oneof![
                Just(Padding::Valid), Just(Padding::Same),
                (0_usize..5, 0_usize..5).prop_map(|pair| Padding::Explicit(vec![pair])),
            ],
        ) {
            let windows = Windows::strides([stride]).dilated([dilation]).padded(padding);
            let Ok(axis) = one(&windows, size, window) else { return Ok(()) };
            let ends = (0..axis.count()).map(|at| at * axis.stride() + (window - 1) * dilation + 1);
            let beyond = ends.map(|end| end.saturating_sub(size + axis.before())).max();
            prop_assert!(beyond.is_none_or(|beyond| beyond == axis.after()));
            for at in 0..axis.count() {
                let on = |place: usize| (at * stride + place * dilation).checked_sub(axis.before());
                let index = |place| on(place).filter(|index| *index < size);
                let places: Vec<usize> = (0..window).filter(|place| index(*place).is_some()).collect();
                let (inside, first) = axis.inside(at);
                prop_assert_eq!(inside.clone().collect::<Vec<_>>(), places);
                if !inside.is_empty() {
                    prop_assert_eq!(Some(first), index(inside.start));
                }
            }
        }
    }
}
