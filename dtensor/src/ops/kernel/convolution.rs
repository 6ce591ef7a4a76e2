//! Convolutions as products of matrices: each window becomes a row, and the filter has a column for
//! each output. Of many small groups, where a row would be short, channels are worked on side by
//! side.

use std::borrow::Cow;
use std::ops::Range;

use meshwork_layout::ops::{Convolution, OpError};
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD};

use super::windows::{Run, Sliding};
use super::{filled, part};
use crate::Number;

/// The most products of a channel with an output in a group that is worked on side by side with the
/// others.
const NARROW: usize = 256;

/// How many elements of windows are laid out at a time.
const ELEMENTS: usize = 1 << 18;

/// The sizes of a convolution, of which groups may be missing that are elsewhere.
pub(in crate::ops) struct Convolver {
    sliding: Sliding,
    batch: usize,
    channels: usize,
    outputs: usize,
    groups: usize,
}

/// The shapes of the blocks of a convolution.
#[derive(Clone, Copy)]
pub(in crate::ops) struct ConvolutionShapes<'a> {
    pub(in crate::ops) input: &'a [usize],
    pub(in crate::ops) filter: &'a [usize],
}

impl Convolver {
    pub(in crate::ops) fn new(
        of: &Convolution,
        shapes: ConvolutionShapes<'_>,
    ) -> Result<Self, OpError> {
        let ConvolutionShapes { input, filter } = shapes;
        let axes = of.windows.axes();
        let along = of
            .windows
            .along("convolution", &input[1..=axes], &filter[..axes])?;
        Ok(Self {
            sliding: Sliding::new(along),
            batch: input[0],
            channels: input[axes + 1],
            outputs: filter[axes + 1],
            groups: match filter[axes] {
                0 => 1,
                each => input[axes + 1] / each,
            },
        })
    }

    /// The sums of products.
    pub(in crate::ops) fn forward<T: Number>(
        &self,
        input: &ArrayViewD<'_, T>,
        filter: &ArrayViewD<'_, T>,
        sizes: &[usize],
    ) -> ArrayD<T> {
        let (input, filter) = (flat(input), flat(filter));
        let mut output = vec![T::default(); sizes.iter().product()];
        if self.is_empty() {
            return filled(sizes, output);
        }
        if self.is_narrow() {
            self.channelwise(|at| {
                let sums = &mut output[at.output..][..self.outputs];
                add_products(sums, self.shared(&input, &at), &filter[at.filter..]);
            });
            return filled(sizes, output);
        }
        let filter = matrix(&filter, self.outputs);
        for group in 0..self.groups {
            for rows in self.chunks() {
                let columns = self.columns(&input, group, rows.clone());
                let product = T::product(columns.view(), self.of_group(&filter, group));
                self.put(&mut output, group, rows.start, &product);
            }
        }
        filled(sizes, output)
    }

    /// The gradient by the input.
    pub(in crate::ops) fn by_input<T: Number>(
        &self,
        upstream: &ArrayViewD<'_, T>,
        filter: &ArrayViewD<'_, T>,
        sizes: &[usize],
    ) -> ArrayD<T> {
        let (upstream, filter) = (flat(upstream), flat(filter));
        let mut input = vec![T::default(); sizes.iter().product()];
        if self.is_empty() {
            return filled(sizes, input);
        }
        if self.is_narrow() {
            self.channelwise(|at| {
                let sums = &mut input[at.input + at.channel..at.input + self.channels];
                let factors = [&upstream[at.output..], &filter[at.filter..]];
                add_sums(sums, self.each(), factors, self.each_output());
            });
            return filled(sizes, input);
        }
        let (upstream, filter) = (
            matrix(&upstream, self.outputs),
            matrix(&filter, self.outputs),
        );
        for group in 0..self.groups {
            for rows in self.chunks() {
                let slopes = self.of_group(&upstream, group);
                let slopes = part(slopes, 0, rows.clone());
                let columns = T::product(slopes, self.of_group(&filter, group).reversed_axes());
                self.add_columns(&mut input, group, rows.start, &columns);
            }
        }
        filled(sizes, input)
    }

    /// The gradient by the filter.
    pub(in crate::ops) fn by_filter<T: Number>(
        &self,
        input: &ArrayViewD<'_, T>,
        upstream: &ArrayViewD<'_, T>,
        sizes: &[usize],
    ) -> ArrayD<T> {
        let (input, upstream) = (flat(input), flat(upstream));
        let mut filter = vec![T::default(); sizes.iter().product()];
        if self.is_empty() {
            return filled(sizes, filter);
        }
        if self.is_narrow() {
            self.channelwise(|at| {
                let sums = &mut filter[at.filter..][..self.outputs];
                add_products(sums, self.shared(&input, &at), &upstream[at.output..]);
            });
            return filled(sizes, filter);
        }
        let upstream = matrix(&upstream, self.outputs);
        for group in 0..self.groups {
            for rows in self.chunks() {
                let columns = self.columns(&input, group, rows.clone());
                let slopes = self.of_group(&upstream, group);
                let product = T::product(columns.t(), part(slopes, 0, rows));
                let start = group * self.each_output();
                let lines = filter.chunks_exact_mut(self.outputs);
                for (line, terms) in lines.zip(product.outer_iter()) {
                    let sums = line[start..].iter_mut().zip(terms);
                    sums.for_each(|(sum, term)| *sum = sum.plus(*term));
                }
            }
        }
        filled(sizes, filter)
    }

    /// Whether there is nothing to be summed.
    fn is_empty(&self) -> bool {
        let sizes = [
            self.batch,
            self.channels,
            self.outputs,
            self.sliding.positions(),
        ];
        sizes.contains(&0)
    }

    /// Whether groups are too small for products of matrices.
    fn is_narrow(&self) -> bool {
        self.groups > 1 && self.each() * self.each_output() <= NARROW
    }

    /// How many channels a group has, of which there is one if there are channels.
    fn each(&self) -> usize {
        self.channels / self.groups
    }

    /// How many outputs a group has.
    fn each_output(&self) -> usize {
        self.outputs / self.groups
    }

    /// Windows of all images, a number of them at a time.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.batch * self.sliding.positions();
        let row = self.sliding.taps() * self.each();
        let step = (ELEMENTS / row.max(1)).max(1);
        (0..rows)
            .step_by(step)
            .map(move |start| start..rows.min(start + step))
    }

    /// A row for each window: what it takes together of a group's channels.
    fn columns<T: Number>(&self, input: &[T], group: usize, rows: Range<usize>) -> Array2<T> {
        let (each, taps) = (self.each(), self.sliding.taps());
        if self.groups == 1 && self.sliding.is_pointwise() {
            let part = &input[rows.start * each..rows.end * each];
            return matrix(part, each).to_owned();
        }
        let mut columns = Array2::default((rows.len(), taps * each));
        for (row, mut line) in rows.zip(columns.outer_iter_mut()) {
            let line = line.as_slice_mut().expect("a row of a new matrix");
            self.within(row, group, |run, from| {
                let into = run.tap * each;
                let len = run.len * each;
                line[into..into + len].copy_from_slice(&input[from..from + len]);
            });
        }
        columns
    }

    /// Adds such rows where they were taken from.
    fn add_columns<T: Number>(
        &self,
        input: &mut [T],
        group: usize,
        start: usize,
        columns: &Array2<T>,
    ) {
        let each = self.each();
        for (row, line) in columns.outer_iter().enumerate() {
            let line = line.to_slice().expect("a row of a product");
            self.within(start + row, group, |run, from| {
                let len = run.len * each;
                let terms = &line[run.tap * each..][..len];
                let sums = input[from..from + len].iter_mut().zip(terms);
                sums.for_each(|(sum, term)| *sum = sum.plus(*term));
            });
        }
    }

    /// Each run of a window, with the place in the input at which a group's channels begin. Of
    /// several groups, runs are of one index.
    fn within(&self, row: usize, group: usize, mut visit: impl FnMut(Run, usize)) {
        let (image, position) = (
            row / self.sliding.positions(),
            row % self.sliding.positions(),
        );
        let first = image * self.sliding.size();
        let place = |index: usize| (first + index) * self.channels + group * self.each();
        self.sliding.runs(position, &mut |run| {
            if self.groups == 1 {
                return visit(run, place(run.index));
            }
            for step in 0..run.len {
                let (tap, index) = (run.tap + step, run.index + step);
                visit(Run { tap, index, len: 1 }, place(index));
            }
        });
    }

    /// Where each place of each window begins, for each channel of a group.
    fn channelwise(&self, mut visit: impl FnMut(Starts)) {
        let positions = self.sliding.positions();
        for row in 0..self.batch * positions {
            let first = row / positions * self.sliding.size();
            self.sliding.runs(row % positions, &mut |run| {
                for step in 0..run.len {
                    for channel in 0..self.each() {
                        visit(Starts {
                            input: (first + run.index + step) * self.channels,
                            channel,
                            filter: ((run.tap + step) * self.each() + channel) * self.outputs,
                            output: row * self.outputs,
                        });
                    }
                }
            });
        }
    }

    /// This channel of each group.
    fn shared<'a, T>(&self, input: &'a [T], at: &Starts) -> Strided<'a, T> {
        Strided {
            elements: &input[at.input + at.channel..at.input + self.channels],
            step: self.each(),
        }
    }

    /// The columns of a matrix that belong to a group.
    fn of_group<'a, T>(&self, matrix: &ArrayView2<'a, T>, group: usize) -> ArrayView2<'a, T> {
        let start = group * self.each_output();
        part(*matrix, 1, start..start + self.each_output())
    }

    /// Writes the results of a group, from a window on.
    fn put<T: Number>(&self, output: &mut [T], group: usize, row: usize, product: &Array2<T>) {
        let start = group * self.each_output();
        let lines = output.chunks_exact_mut(self.outputs).skip(row);
        for (line, results) in lines.zip(product.outer_iter()) {
            let results = results.to_slice().expect("a row of a product");
            line[start..start + results.len()].copy_from_slice(results);
        }
    }
}

/// The places at which channels begin, in all three blocks, and the number of one of a group.
struct Starts {
    input: usize,
    channel: usize,
    filter: usize,
    output: usize,
}

/// Elements this far apart, from the first on.
struct Strided<'a, T> {
    elements: &'a [T],
    step: usize,
}

/// Adds to each sum the product of its own factor and of that which several share, side by side.
fn add_products<T: Number>(sums: &mut [T], shared: Strided<'_, T>, own: &[T]) {
    let Strided { elements, step } = shared;
    let each = sums.len() / elements.len().div_ceil(step);
    if (each, step) == (1, 1) {
        for (sum, (a, b)) in sums.iter_mut().zip(elements.iter().zip(own)) {
            *sum = sum.plus(a.times(*b));
        }
        return;
    }
    let groups = sums.chunks_exact_mut(each).zip(own.chunks_exact(each));
    for (number, (sums, own)) in groups.enumerate() {
        let shared = elements[number * step];
        for (sum, own) in sums.iter_mut().zip(own) {
            *sum = sum.plus(shared.times(*own));
        }
    }
}

/// Adds the products of so many pairs to each sum, of which each is a step behind the one before.
fn add_sums<T: Number>(sums: &mut [T], step: usize, [left, right]: [&[T]; 2], each: usize) {
    if (each, step) == (1, 1) {
        for (sum, (a, b)) in sums.iter_mut().zip(left.iter().zip(right)) {
            *sum = sum.plus(a.times(*b));
        }
        return;
    }
    let factors = left.chunks_exact(each).zip(right.chunks_exact(each));
    for (sum, (left, right)) in sums.iter_mut().step_by(step).zip(factors) {
        let pairs = left.iter().zip(right);
        *sum = pairs.fold(*sum, |sum, (a, b)| sum.plus(a.times(*b)));
    }
}

/// The elements, row after row.
pub(in crate::ops) fn flat<'a, T: Copy>(block: &'a ArrayViewD<'_, T>) -> Cow<'a, [T]> {
    match block.as_slice() {
        Some(elements) => Cow::Borrowed(elements),
        None => Cow::Owned(block.iter().copied().collect()),
    }
}

/// The elements as rows of so many columns.
fn matrix<T>(elements: &[T], columns: usize) -> ArrayView2<'_, T> {
    let rows = elements.len() / columns;
    ArrayView2::from_shape((rows, columns), elements).expect("rows of as many columns")
}
