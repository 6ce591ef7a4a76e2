//! Windows that move over the spatial axes of images, for convolutions and pooling: checked when
//! made, so that what compiles graphs of them needs no checks of its own.
//!
//! ```text
//!     padding [2, 1]   . . 0 1 2 3 4 .      size 5, window 2, dilation 2, stride 3
//!     window 0         ^   ^
//!     window 1               ^   ^          count (2 + 5 + 1 - reach) / stride + 1 = 2, reach 3
//! ```

use std::num::NonZeroUsize;

use crate::Error;
use crate::shape::count;

/// Windows along one spatial axis. As many of them move along it as fit between its padding.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct WindowRange {
    /// The size of the axis, without padding.
    pub size: usize,
    /// How many indices a window takes together.
    pub window: NonZeroUsize,
    /// How far each window is from the one before.
    pub stride: NonZeroUsize,
    /// How far apart the indices of a window are.
    pub dilation: NonZeroUsize,
    /// How much padding there is before the first index, and behind the last.
    pub padding: [usize; 2],
}

impl WindowRange {
    /// From the first index of a window to behind its last; no more than can be counted.
    #[must_use]
    pub const fn reach(&self) -> usize {
        let steps = self.window.get() - 1;
        steps.saturating_mul(self.dilation.get()).saturating_add(1)
    }

    /// The size of the axis with its padding; no more than can be counted.
    #[must_use]
    pub const fn padded(&self) -> usize {
        let [before, after] = self.padding;
        self.size.saturating_add(before).saturating_add(after)
    }

    /// How many windows there are; none where the padded axis is too short for one.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        let last = self.padded().checked_sub(self.reach())?;
        Some(last / self.stride + 1)
    }

    /// How many indices of the window of this number are no padding.
    #[must_use]
    pub fn inside(&self, number: usize) -> usize {
        let start = number.saturating_mul(self.stride.get());
        let [before, dilation] = [self.padding[0], self.dilation.get()];
        let indices = (0..self.window.get()).map(|index| start.saturating_add(index * dilation));
        let inside = before..before.saturating_add(self.size);
        indices.filter(|index| inside.contains(index)).count()
    }

    /// Whether the windows are the axis in parts, one behind the other.
    #[must_use]
    pub fn is_parted(&self) -> bool {
        let [window, stride] = [self.window.get(), self.stride.get()];
        let is_whole = |count: usize| {
            count.checked_mul(window) == Some(self.size) && (count == 1 || stride == window)
        };
        !self.has_gaps() && self.padding == [0, 0] && self.count().is_some_and(is_whole)
    }

    /// Whether there are indices between those that a window takes together.
    #[must_use]
    pub const fn has_gaps(&self) -> bool {
        self.dilation.get() > 1 && self.window.get() > 1
    }
}

/// Windows over a batch of images, whose channels lie next to each other.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ImageWindows {
    batch: usize,
    along: Vec<WindowRange>,
    counts: Vec<usize>,
    channels: usize,
}

impl ImageWindows {
    /// Windows along the spatial axes of images, each of which has so many channels.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use meshwork_accel::{ImageWindows, WindowRange};
    ///
    /// let [one, two] = [1, 2].map(|number| NonZeroUsize::new(number).expect("not zero"));
    /// let along = WindowRange { size: 5, window: two, stride: two, dilation: one, padding: [0, 1] };
    /// let windows = ImageWindows::new(8, &[along, along], 3)?;
    /// assert_eq!((windows.images(), windows.windows()), (vec![8, 5, 5, 3], vec![8, 3, 3, 3]));
    /// # Ok::<(), meshwork_accel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WindowTooLarge`], and [`Error::ShapeTooLarge`] also for windows and padding that
    /// are.
    pub fn new(batch: usize, along: &[WindowRange], channels: usize) -> Result<Self, Error> {
        let mut counts = Vec::with_capacity(along.len());
        for range in along {
            let [window, size] = [range.reach(), range.padded()];
            let count = range
                .count()
                .ok_or(Error::WindowTooLarge { window, size })?;
            // Gradients have as much padding as a window reaches over.
            let steps = [range.stride, range.dilation].map(|step| Some(step.get()));
            let mut sizes = [size.checked_add(window)].into_iter().chain(steps);
            if !sizes.all(|size| size.is_some_and(|size| isize::try_from(size).is_ok())) {
                let (rows, columns) = (size, window);
                return Err(Error::ShapeTooLarge { rows, columns });
            }
            counts.push(count);
        }
        let windows = Self {
            batch,
            along: along.to_vec(),
            counts,
            channels,
        };
        count(&windows.images())?;
        count(&windows.windows())?;
        Ok(windows)
    }

    /// The windows along each spatial axis.
    #[must_use]
    pub fn along(&self) -> &[WindowRange] {
        &self.along
    }

    /// How many windows there are along each spatial axis.
    #[must_use]
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// How many channels images have.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// The sizes of the images: batch, spatial axes and channels.
    #[must_use]
    pub fn images(&self) -> Vec<usize> {
        let spatial = self.along.iter().map(|range| range.size);
        self.with(spatial, self.channels)
    }

    /// The sizes of something for each window: batch, windows and channels.
    #[must_use]
    pub fn windows(&self) -> Vec<usize> {
        self.with(self.counts.iter().copied(), self.channels)
    }

    fn with(&self, spatial: impl Iterator<Item = usize>, channels: usize) -> Vec<usize> {
        let batch = std::iter::once(self.batch);
        batch.chain(spatial).chain([channels]).collect()
    }
}

/// The sizes of a convolution: each window of the images, times a filter, gives the outputs.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ConvolutionShape {
    over: ImageWindows,
    outputs: usize,
    groups: usize,
}

impl ConvolutionShape {
    /// A convolution over these windows with so many outputs. Channels and outputs are parted into
    /// groups, of which each has sums of its own.
    ///
    /// # Errors
    /// [`Error::UnequalGroups`], [`Error::ShapeTooLarge`].
    pub fn new(over: ImageWindows, outputs: usize, groups: usize) -> Result<Self, Error> {
        for channels in [over.channels, outputs] {
            if channels.checked_rem(groups) != Some(0) {
                return Err(Error::UnequalGroups { channels, groups });
            }
        }
        let shape = Self {
            over,
            outputs,
            groups,
        };
        count(&shape.filter())?;
        count(&shape.outputs())?;
        Ok(shape)
    }

    /// The windows, over images of all channels.
    #[must_use]
    pub const fn over(&self) -> &ImageWindows {
        &self.over
    }

    /// Into how many groups channels and outputs are parted.
    #[must_use]
    pub const fn groups(&self) -> usize {
        self.groups
    }

    /// The sizes of the filter: a window, the channels of a group, and all outputs.
    #[must_use]
    pub fn filter(&self) -> Vec<usize> {
        let window = self.over.along.iter().map(|range| range.window.get());
        let each = self.over.channels / self.groups;
        window.chain([each, self.outputs]).collect()
    }

    /// The sizes of the result: batch, windows and outputs.
    #[must_use]
    pub fn outputs(&self) -> Vec<usize> {
        let counts = self.over.counts.iter().copied();
        self.over.with(counts, self.outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range([size, window, stride, dilation]: [usize; 4], padding: [usize; 2]) -> WindowRange {
        let some = |number| NonZeroUsize::new(number).unwrap();
        WindowRange {
            size,
            window: some(window),
            stride: some(stride),
            dilation: some(dilation),
            padding,
        }
    }

    /// The places of each window's indices on the padded axis, window by window.
    fn walked(range: &WindowRange) -> Vec<Vec<usize>> {
        let (mut windows, mut start) = (Vec::new(), 0);
        loop {
            let places: Vec<usize> = (0..range.window.get())
                .map(|index| start + index * range.dilation.get())
                .collect();
            if places.iter().any(|place| *place >= range.padded()) {
                return windows;
            }
            windows.push(places);
            start += range.stride.get();
        }
    }

    #[test]
    fn windows_are_those_that_a_walk_along_the_axis_finds() {
        for number in 0..6 * 3 * 3 * 3 * 9_usize {
            let sizes = [
                number % 6,
                number / 6 % 3 + 1,
                number / 18 % 3 + 1,
                number / 54 % 3 + 1,
            ];
            let range = range(sizes, [number / 162 % 3, number / 486]);
            let walked = walked(&range);
            let counts = (range.count().unwrap_or(0), walked.len());
            assert_eq!(counts.0, counts.1, "{range:?}");
            let inside = range.padding[0]..range.padding[0] + range.size;
            for (at, places) in walked.iter().enumerate() {
                let own = places.iter().filter(|place| inside.contains(place)).count();
                assert_eq!(range.inside(at), own, "{range:?}");
            }
            let all: Vec<usize> = walked.concat();
            let covered = !all.is_empty() && all == (0..range.size).collect::<Vec<_>>();
            assert_eq!(
                range.is_parted(),
                covered && range.padding == [0, 0],
                "{range:?}"
            );
        }
    }

    #[test]
    fn sizes_of_images_filters_and_outputs_are_those_of_the_windows() {
        let along = [range([7, 3, 2, 1], [1, 1]), range([5, 2, 1, 2], [0, 0])];
        let over = ImageWindows::new(2, &along, 6).unwrap();
        assert_eq!(
            (over.images(), over.windows()),
            (vec![2, 7, 5, 6], vec![2, 4, 3, 6])
        );
        let shape = ConvolutionShape::new(over, 9, 3).unwrap();
        assert_eq!(
            (shape.filter(), shape.outputs()),
            (vec![3, 2, 2, 9], vec![2, 4, 3, 9])
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_by_its_numbers() {
        let refused = |along| ImageWindows::new(1, &[along], 4).unwrap_err();
        let (window, size) = (5, 4);
        let large = range([3, 3, 1, 2], [1, 0]);
        assert_eq!(refused(large), Error::WindowTooLarge { window, size });
        let most = usize::MAX;
        for countless in [
            range([3, 1, 1, 1], [most, most]),
            range([3, 1, 1, 1], [most / 2, 0]),
            range([3, 1, most, 1], [0, 0]),
            range([3, 1, 1, most], [0, 0]),
        ] {
            assert!(
                matches!(refused(countless), Error::ShapeTooLarge { .. }),
                "{countless:?}"
            );
        }
        let over = || ImageWindows::new(1, &[range([3, 1, 1, 1], [0, 0])], 4).unwrap();
        for (channels, outputs, groups) in [(4, 6, 3), (6, 6, 4), (4, 4, 0)] {
            let unequal = ConvolutionShape::new(over(), outputs, groups).unwrap_err();
            assert_eq!(unequal, Error::UnequalGroups { channels, groups });
        }
        let many = ConvolutionShape::new(over(), most, 1).unwrap_err();
        assert!(matches!(many, Error::ShapeTooLarge { .. }), "{many}");
    }
}
