//! Arithmetic on rows, in a form that the compiler turns into vector instructions of whichever set
//! its caller is compiled for.

use crate::exp::exp;

/// Sums or extremes of `values` in 16 lanes: `combine` must not care for the order.
#[inline(always)]
pub(crate) fn fold(values: &[f32], start: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = combine(*lane, value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(rest) {
        *lane = combine(*lane, value);
    }
    lanes.into_iter().fold(start, combine)
}

/// The sum of the products of two rows.
#[inline(always)]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((lefts, left), (rights, right)) = (left.as_chunks::<LANES>(), right.as_chunks::<LANES>());
    for (left, right) in lefts.iter().zip(rights) {
        for ((lane, left), right) in lanes.iter_mut().zip(left).zip(right) {
            *lane += left * right;
        }
    }
    let rest = left.iter().zip(right).map(|(left, right)| left * right);
    lanes.into_iter().sum::<f32>() + rest.sum::<f32>()
}

/// Turns a row of scores into its softmax.
#[inline(always)]
pub(crate) fn softmax(row: &mut [f32]) {
    let highest = fold(row, f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
    row.iter_mut()
        .for_each(|score| *score = exp(*score - highest));
    let scale = 1.0 / fold(row, 0.0, |a, b| a + b);
    row.iter_mut().for_each(|weight| *weight *= scale);
}

/// Adds to `into` the first of its size of each of the `rows`, which are `stride` apart, times the
/// row's factor.
#[inline(always)]
pub(crate) fn accumulate(into: &mut [f32], factors: &[f32], rows: &[f32], stride: usize) {
    let len = into.len();
    let row = |index: usize| &rows[index * stride..][..len];
    let (fours, rest) = factors.as_chunks::<4>();
    for (four, [a, b, c, d]) in fours.iter().enumerate() {
        let first = 4 * four;
        let (w, x, y, z) = (row(first), row(first + 1), row(first + 2), row(first + 3));
        for (at, into) in into.iter_mut().enumerate() {
            *into += (a * w[at] + b * x[at]) + (c * y[at] + d * z[at]);
        }
    }
    for (index, factor) in rest.iter().enumerate() {
        for (into, value) in into.iter_mut().zip(row(4 * fours.len() + index)) {
            *into += factor * value;
        }
    }
}

const LANES: usize = 16;
