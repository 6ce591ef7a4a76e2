//! Pooling: the largest elements or the means of windows, channel by channel.

use meshwork_layout::ops::{OpError, Pool, Pooling};
use ndarray::{ArrayD, ArrayViewD};

use super::convolution::flat;
use super::windows::Sliding;
use super::{filled, is_nan};
use crate::Number;

/// The sizes of a pooling.
pub(in crate::ops) struct Pooler {
    sliding: Sliding,
    pooling: Pooling,
    channels: usize,
}

impl Pooler {
    pub(in crate::ops) fn new(of: &Pool, input: &[usize]) -> Result<Self, OpError> {
        let last = input.len() - 1;
        let along = of.windows.along("pool", &input[1..last], &of.window)?;
        Ok(Self {
            sliding: Sliding::new(along),
            pooling: of.pooling,
            channels: input[last],
        })
    }

    pub(in crate::ops) fn forward<T: Number>(
        &self,
        input: &ArrayViewD<'_, T>,
        sizes: &[usize],
    ) -> ArrayD<T> {
        let input = flat(input);
        let mut output = vec![T::default(); sizes.iter().product()];
        if self.channels == 0 {
            return filled(sizes, output);
        }
        for (row, made) in output.chunks_exact_mut(self.channels).enumerate() {
            let count = self.channels_under(row, |number, start| {
                let found = made.iter_mut().zip(&input[start..]);
                for (made, element) in found {
                    *made = match (number, self.pooling) {
                        (0, _) => *element,
                        (_, Pooling::Mean) => made.plus(*element),
                        (_, Pooling::Max) if exceeds(*element, *made) => *element,
                        (_, Pooling::Max) => *made,
                    };
                }
            });
            if self.pooling == Pooling::Mean {
                let count = T::from_index(count);
                made.iter_mut().for_each(|sum| *sum = sum.over(count));
            }
        }
        filled(sizes, output)
    }

    pub(in crate::ops) fn backward<T: Number>(
        &self,
        input: &ArrayViewD<'_, T>,
        upstream: &ArrayViewD<'_, T>,
    ) -> ArrayD<T> {
        let (sizes, input) = (input.shape(), flat(input));
        let upstream = flat(upstream);
        let mut gradient = vec![T::default(); input.len()];
        if self.channels == 0 {
            return filled(sizes, gradient);
        }
        for (row, slopes) in upstream.chunks_exact(self.channels).enumerate() {
            match self.pooling {
                Pooling::Max => {
                    let best = self.largest(row, &input);
                    for (place, slope) in best.into_iter().zip(slopes) {
                        gradient[place] = gradient[place].plus(*slope);
                    }
                }
                Pooling::Mean => {
                    let count = T::from_index(self.channels_under(row, |_, _| ()));
                    self.channels_under(row, |_, start| {
                        for (sum, slope) in gradient[start..].iter_mut().zip(slopes) {
                            *sum = sum.plus(slope.over(count));
                        }
                    });
                }
            }
        }
        filled(sizes, gradient)
    }

    /// For each channel the place of the first of the largest elements of a window.
    fn largest<T: Number>(&self, row: usize, input: &[T]) -> Vec<usize> {
        let mut best = vec![0; self.channels];
        self.channels_under(row, |number, start| {
            for (place, best) in (start..).zip(&mut best) {
                if number == 0 || exceeds(input[place], input[*best]) {
                    *best = place;
                }
            }
        });
        best
    }

    /// Each place of a window that is no padding: its number, and where its channels begin. How
    /// many there are.
    fn channels_under(&self, row: usize, mut visit: impl FnMut(usize, usize)) -> usize {
        let positions = self.sliding.positions();
        let first = row / positions * self.sliding.size();
        let mut count = 0;
        self.sliding.runs(row % positions, &mut |run| {
            for step in 0..run.len {
                visit(count, (first + run.index + step) * self.channels);
                count += 1;
            }
        });
        count
    }
}

/// Whether an element takes the place of the largest so far: the first that is no number does, and
/// keeps it.
fn exceeds<T: Number>(element: T, largest: T) -> bool {
    element > largest || (is_nan(element) && !is_nan(largest))
}
