//! Attention of stacks of matrices: a few queries at a time, so that their weights stay in the
//! cache.

use std::ops::Range;

use meshwork_layout::ops::AttentionMask;
use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewD, ArrayViewMut2, Axis, Ix2};

use super::{part, spread};
use crate::Float;

/// How many queries are worked on at a time.
const QUERIES: usize = 64;

/// The blocks of an attention, and which keys their queries see.
pub(in crate::ops) struct AttentionBlocks<'a, T> {
    pub(in crate::ops) query: ArrayViewD<'a, T>,
    pub(in crate::ops) key: ArrayViewD<'a, T>,
    pub(in crate::ops) value: ArrayViewD<'a, T>,
    pub(in crate::ops) mask: AttentionMask,
    /// The number of the first query.
    pub(in crate::ops) start: usize,
}

/// The gradients by query, key and value, for each place of the stack.
pub(in crate::ops) type Attended<T> = [ArrayD<T>; 3];

/// The matrices at one place of the stack.
struct Matrices<'a, T> {
    query: ArrayView2<'a, T>,
    key: ArrayView2<'a, T>,
    value: ArrayView2<'a, T>,
}

impl<T: Float> AttentionBlocks<'_, T> {
    /// The result, whose axes before the last two have the sizes of the stack.
    pub(in crate::ops) fn forward(&self, sizes: &[usize]) -> ArrayD<T> {
        let mut output = ArrayD::default(sizes);
        let stack = &sizes[..sizes.len() - 2];
        self.each(stack, |place, matrices| {
            let mut output = at(&mut output, stack, place);
            for start in (0..matrices.query.nrows()).step_by(QUERIES) {
                let weights = self.weights(&matrices, start);
                let visible = part(matrices.value, 0, 0..weights.ncols());
                let rows = start..start + weights.nrows();
                let seen = T::product(weights.view(), visible);
                rows_of(&mut output, rows).assign(&seen);
            }
        });
        output
    }

    /// With P the weights and G the gradient by the result: Pᵀ·G by the value, and with
    /// S = P ∘ (G·Vᵀ - the sum of each row of P ∘ (G·Vᵀ)) / √depth, S·K by the query and Sᵀ·Q by
    /// the key.
    pub(in crate::ops) fn backward(&self, upstream: &ArrayViewD<'_, T>) -> Attended<T> {
        let stack = &upstream.shape()[..upstream.ndim() - 2];
        let mut made = [&self.query, &self.key, &self.value].map(|operand| {
            let matrix = &operand.shape()[operand.ndim() - 2..];
            ArrayD::default([stack, matrix].concat())
        });
        self.each(stack, |place, matrices| {
            let [by_query, by_key, by_value] = &mut made;
            let mut by_query = at(by_query, stack, place);
            let (mut by_key, mut by_value) = (at(by_key, stack, place), at(by_value, stack, place));
            let slopes = matrix_at(upstream, stack, place);
            for start in (0..matrices.query.nrows()).step_by(QUERIES) {
                let weights = self.weights(&matrices, start);
                let (rows, keys) = (start..start + weights.nrows(), 0..weights.ncols());
                let slopes = part(slopes, 0, rows.clone());
                add(&mut by_value, &T::product(weights.t(), slopes));
                let value = part(matrices.value, 0, keys.clone());
                let scores = self.through_softmax(&weights, T::product(slopes, value.t()));
                let key = part(matrices.key, 0, keys);
                let made = T::product(scores.view(), key);
                rows_of(&mut by_query, rows.clone()).assign(&made);
                let query = part(matrices.query, 0, rows);
                add(&mut by_key, &T::product(scores.t(), query));
            }
        });
        made
    }

    /// The weights of a few queries from one on, for the keys that one of them sees.
    fn weights(&self, matrices: &Matrices<'_, T>, start: usize) -> Array2<T> {
        let rows = start..(start + QUERIES).min(matrices.query.nrows());
        let keys = matrices.key.nrows();
        let visible = |row: usize| match self.mask {
            AttentionMask::Full => keys,
            AttentionMask::Causal => keys.min(self.start + row + 1),
        };
        let query = part(matrices.query, 0, rows.clone());
        let key = part(matrices.key, 0, 0..visible(rows.end.saturating_sub(1)));
        let mut weights = T::product(query, key.t());
        let scale = self.scale();
        for (row, mut line) in rows.zip(weights.outer_iter_mut()) {
            let (seen, rest) = line.view_mut().split_at(Axis(0), visible(row));
            softmax(
                seen.into_slice().expect("a part of a row of a product"),
                scale,
            );
            rest.into_iter().for_each(|weight| *weight = T::default());
        }
        weights
    }

    /// The gradient by the products of queries and keys, from the weights and that by them.
    fn through_softmax(&self, weights: &Array2<T>, mut slopes: Array2<T>) -> Array2<T> {
        let scale = self.scale();
        for (mut slopes, weights) in slopes.outer_iter_mut().zip(weights.outer_iter()) {
            let terms = slopes.iter().zip(weights);
            let sum = terms.fold(T::default(), |sum, (slope, p)| sum.plus(slope.times(*p)));
            for (slope, p) in slopes.iter_mut().zip(weights) {
                *slope = slope.minus(sum).times(*p).times(scale);
            }
        }
        slopes
    }

    /// 1 / √depth.
    fn scale(&self) -> T {
        let depth = T::from_index(self.query.shape()[self.query.ndim() - 1]);
        T::from_f64(1.0 / depth.to_f64().sqrt())
    }

    /// The matrices at each place of a stack, row-major.
    fn each(&self, stack: &[usize], mut visit: impl FnMut(usize, Matrices<'_, T>)) {
        for place in 0..stack.iter().product() {
            visit(
                place,
                Matrices {
                    query: matrix_at(&self.query, stack, place),
                    key: matrix_at(&self.key, stack, place),
                    value: matrix_at(&self.value, stack, place),
                },
            );
        }
    }
}

/// Scaled numbers as weights that add up to 1.
fn softmax<T: Float>(row: &mut [T], scale: T) {
    let larger = |a: T, b: &T| if *b > a { *b } else { a };
    let neutral = T::neutral(meshwork_layout::PartialReduction::Max);
    let largest = row.iter().fold(neutral, larger);
    let mut sum = T::default();
    for weight in row.iter_mut() {
        *weight = weight.minus(largest).times(scale).exp();
        sum = sum.plus(*weight);
    }
    let inverse = T::from_f64(1.0).over(sum);
    row.iter_mut()
        .for_each(|weight| *weight = weight.times(inverse));
}

/// The matrix at a place of a stack, to which the axes before the last two are repeated.
fn matrix_at<'a, T: Float>(
    block: &'a ArrayViewD<'_, T>,
    stack: &[usize],
    place: usize,
) -> ArrayView2<'a, T> {
    let matrix = &block.shape()[block.ndim() - 2..];
    let mut whole = spread(block, &[stack, matrix].concat());
    for index in index_of(stack, place) {
        whole = whole.index_axis_move(Axis(0), index);
    }
    whole
        .into_dimensionality::<Ix2>()
        .expect("two axes are left")
}

fn at<'a, T>(block: &'a mut ArrayD<T>, stack: &[usize], place: usize) -> ArrayViewMut2<'a, T> {
    let mut whole = block.view_mut();
    for index in index_of(stack, place) {
        whole = whole.index_axis_move(Axis(0), index);
    }
    whole
        .into_dimensionality::<Ix2>()
        .expect("two axes are left")
}

fn index_of(stack: &[usize], mut place: usize) -> Vec<usize> {
    let mut index = vec![0; stack.len()];
    for (index, size) in index.iter_mut().zip(stack).rev() {
        *index = place % size;
        place /= size;
    }
    index
}

fn rows_of<'a, T>(
    matrix: &'a mut ArrayViewMut2<'_, T>,
    rows: Range<usize>,
) -> ArrayViewMut2<'a, T> {
    matrix.slice_axis_mut(Axis(0), rows.into())
}

/// Adds a matrix to the first rows of another.
fn add<T: Float>(sums: &mut ArrayViewMut2<'_, T>, terms: &Array2<T>) {
    let mut sums = rows_of(sums, 0..terms.nrows());
    sums.zip_mut_with(terms, |sum, term| *sum = sum.plus(*term));
}
