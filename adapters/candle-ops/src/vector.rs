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
    each(row, |score| exp(score - highest));
    let scale = 1.0 / fold(row, 0.0, |a, b| a + b);
    each(row, |weight| weight * scale);
}

/// Replaces each value of a row. A loop over a row of unknown length takes several vectors at a
/// time, and what is left one by one: most of a short row.
#[inline(always)]
fn each(row: &mut [f32], new: impl Fn(f32) -> f32) {
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for value in chunk {
            *value = new(*value);
        }
    }
    for value in rest {
        *value = new(*value);
    }
}

/// The same by the value beside it in a row of the same length.
#[inline(always)]
pub(crate) fn each_beside(row: &mut [f32], beside: &[f32], new: impl Fn(f32, f32) -> f32) {
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    let (besides, beside) = beside.as_chunks::<LANES>();
    for (chunk, beside) in chunks.iter_mut().zip(besides) {
        for (value, beside) in chunk.iter_mut().zip(beside) {
            *value = new(*value, *beside);
        }
    }
    for (value, beside) in rest.iter_mut().zip(beside) {
        *value = new(*value, *beside);
    }
}

/// Adds to `into` the first of its size of each of the `rows`, which are `stride` apart, times the
/// row's factor.
#[inline(always)]
pub(crate) fn accumulate(into: &mut [f32], factors: &[f32], rows: &[f32], stride: usize) {
    let mut column = 0;
    let (wide, rest) = into.as_chunks_mut::<WIDE>();
    for into in wide {
        accumulate_columns(into, column, factors, rows, stride);
        column += WIDE;
    }
    let (narrow, rest) = rest.as_chunks_mut::<LANES>();
    for into in narrow {
        accumulate_columns(into, column, factors, rows, stride);
        column += LANES;
    }
    let (short, rest) = rest.as_chunks_mut::<SHORT>();
    for into in short {
        accumulate_columns(into, column, factors, rows, stride);
        column += SHORT;
    }
    for into in rest.as_chunks_mut::<1>().0 {
        accumulate_columns(into, column, factors, rows, stride);
        column += 1;
    }
}

/// The same of the columns from one on, so few that their sums stay in registers from the first row
/// to the last.
#[inline(always)]
fn accumulate_columns<const N: usize>(
    into: &mut [f32; N],
    column: usize,
    factors: &[f32],
    rows: &[f32],
    stride: usize,
) {
    let row = |index: usize| {
        let mut row = [0.0; N];
        row.copy_from_slice(&rows[index * stride + column..][..N]);
        row
    };
    let mut sums = *into;
    let (fours, rest) = factors.as_chunks::<4>();
    for (four, [a, b, c, d]) in fours.iter().enumerate() {
        let first = 4 * four;
        let (w, x, y, z) = (row(first), row(first + 1), row(first + 2), row(first + 3));
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum += (a * w[at] + b * x[at]) + (c * y[at] + d * z[at]);
        }
    }
    for (index, factor) in rest.iter().enumerate() {
        for (sum, value) in sums.iter_mut().zip(row(4 * fours.len() + index)) {
            *sum += factor * value;
        }
    }
    *into = sums;
}

/// What `accumulate` keeps in registers, where an addition waits for the one before.
const WIDE: usize = 4 * LANES;
/// What heads of many transformers are multiples of.
const SHORT: usize = 8;

const LANES: usize = 16;
