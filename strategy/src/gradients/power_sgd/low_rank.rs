//! One matrix of gradients as a product of rank r: a step of the power method in each step of the
//! training, begun where the last one ended.
//!
//! With `M` a worker's gradient and what was left out before: `P = M Q` is summed over the workers
//! and made orthonormal, then `Q = Mᵀ P` is summed, and `P Qᵀ` stands for the sum of all `M`. Each
//! worker keeps `M − P Qᵀ`, with its own `Q`, for the next step: together they lose nothing. All
//! that follows from sums is computed in the same order on all workers, so they have equal bits.
//!
//! A step is made as a whole or not at all: until both sums are there, everything that is new is in
//! the memory of the gradient.

use std::num::NonZeroUsize;

/// Factors have one row for each of the r products.
#[derive(Clone, Debug)]
pub(super) struct LowRank {
    rows: usize,
    columns: usize,
    /// Another for each matrix, the same on all workers.
    number: u64,
    steps: u64,
    /// r × rows, orthonormal.
    left: Vec<f32>,
    /// r × columns.
    right: Vec<f32>,
    /// With what the step under way begins: `right` with rows of norm 1.
    first: Vec<f32>,
    /// What was left out so far.
    residual: Vec<f32>,
}

/// What one step leaves to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept<'a> {
    /// rows × columns.
    pub(super) residual: &'a [f32],
    /// r × columns.
    pub(super) right: &'a [f32],
}

/// A row whose norm falls below this part of it depends on the others, but for rounding.
const DEPENDENT: f64 = 1e-6;

impl LowRank {
    pub(super) fn new(rows: usize, columns: usize, rank: NonZeroUsize, number: u64) -> Self {
        let rank = rank.get();
        Self {
            rows,
            columns,
            number,
            steps: 0,
            left: vec![0.0; rank * rows],
            right: vec![0.0; rank * columns],
            first: vec![0.0; rank * columns],
            residual: vec![0.0; rows * columns],
        }
    }

    pub(super) fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    pub(super) fn right_shape(&self) -> [usize; 2] {
        [self.right.len() / self.columns, self.columns]
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Between two steps.
    pub(super) fn kept(&self) -> Kept<'_> {
        Kept {
            residual: &self.residual,
            right: &self.right,
        }
    }

    /// After so many steps, which left this: of these shapes.
    pub(super) fn go_on_from(&mut self, steps: u64, kept: Kept<'_>) {
        self.steps = steps;
        self.residual.copy_from_slice(kept.residual);
        self.right.copy_from_slice(kept.right);
    }

    /// Adds to this worker's gradient what was left out, and appends `M Q` to `message`.
    pub(super) fn project(&mut self, gradient: &mut [f32], message: &mut Vec<f32>) {
        for (one, left_out) in gradient.iter_mut().zip(&self.residual) {
            *one += left_out;
        }
        self.begin_right();
        for right in self.first.chunks_exact(self.columns) {
            let rows = gradient.chunks_exact(self.columns);
            message.extend(rows.map(|row| dot(row, right)));
        }
    }

    /// Takes the sum of all `M Q` from the front of `sums`, appends this worker's `Mᵀ P`, and
    /// returns what is behind. In the place of `M` is then what this step leaves out.
    pub(super) fn project_back<'a>(
        &mut self,
        sums: &'a [f32],
        gradient: &mut [f32],
        message: &mut Vec<f32>,
    ) -> &'a [f32] {
        let (own, rest) = sums.split_at(self.left.len());
        self.left.copy_from_slice(own);
        orthonormalize(&mut self.left, self.rows);
        let start = message.len();
        message.resize(start + self.right.len(), 0.0);
        let rights = message[start..].chunks_exact_mut(self.columns);
        for (left, right) in self.left.chunks_exact(self.rows).zip(rights) {
            let rows = gradient.chunks_exact(self.columns);
            for (factor, row) in left.iter().zip(rows) {
                add(right, row, *factor);
            }
        }
        let factors = [self.left.as_slice(), &message[start..]];
        add_product(gradient, self.columns, factors, -1.0);
        rest
    }

    /// Takes the sum of all `Mᵀ P` from the front of `sums`, by which the step is made, gives the
    /// approximate sum of all gradients, and returns what is behind.
    pub(super) fn expand<'a>(&mut self, sums: &'a [f32], gradient: &mut [f32]) -> &'a [f32] {
        let (own, rest) = sums.split_at(self.right.len());
        self.right.copy_from_slice(own);
        self.residual.copy_from_slice(gradient);
        gradient.fill(0.0);
        let factors = [self.left.as_slice(), &self.right];
        add_product(gradient, self.columns, factors, 1.0);
        self.steps += 1;
        let are_finite = |values: &[f32]| values.iter().all(|one| one.is_finite());
        if !are_finite(&self.left) || !are_finite(&self.right) {
            // The caller sees such a gradient; the next ones have nothing of it.
            self.residual.fill(0.0);
            self.right.fill(0.0);
        }
        rest
    }

    /// Rows of norm 1 to begin with, and others in the place of those that have become zero.
    fn begin_right(&mut self) {
        let (number, steps) = (self.number, self.steps);
        self.first.copy_from_slice(&self.right);
        let mut place = 0;
        for row in self.first.chunks_exact_mut(self.columns) {
            if row.iter().all(|one| *one == 0.0) {
                for (at, one) in (place..).zip(row.iter_mut()) {
                    *one = noise(number, steps, at);
                }
            }
            place += row.len() as u64;
            let norm = norm(row);
            scale(row, norm.recip());
        }
    }
}

/// Adds `sign` times the product of factors to a matrix of rows of this length.
fn add_product(matrix: &mut [f32], columns: usize, factors: [&[f32]; 2], sign: f32) {
    let [left, right] = factors;
    let rows = matrix.len() / columns;
    for (left, right) in left.chunks_exact(rows).zip(right.chunks_exact(columns)) {
        for (factor, row) in left.iter().zip(matrix.chunks_exact_mut(columns)) {
            add(row, right, sign * factor);
        }
    }
}

/// Makes rows orthonormal, each in turn against those before it (modified Gram-Schmidt, twice). One
/// that depends on them becomes zero.
fn orthonormalize(rows: &mut [f32], columns: usize) {
    for at in 0..rows.len() / columns {
        let (before, own) = rows.split_at_mut(at * columns);
        let own = &mut own[..columns];
        let whole = norm(own);
        for _ in 0..2 {
            for other in before.chunks_exact(columns) {
                let along = own.iter().zip(other);
                let along: f64 = along.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                for (own, other) in own.iter_mut().zip(other) {
                    *own = rounded(f64::from(*own) - along * f64::from(*other));
                }
            }
        }
        let norm = norm(own);
        // Infinite is no sign of dependence: what is no number stays one, to be found.
        match norm.is_finite() && norm <= whole * DEPENDENT {
            true => own.fill(0.0),
            false => scale(own, norm.recip()),
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|one| f64::from(*one).powi(2));
    squares.sum::<f64>().sqrt()
}

fn scale(values: &mut [f32], by: f64) {
    for one in values {
        *one = rounded(f64::from(*one) * by);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "gradients are of this precision"
)]
fn rounded(value: f64) -> f32 {
    value as f32
}

/// In eight sums, which a processor forms at the same time.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (ones, rest) = one.as_chunks::<8>();
    let (others, other_rest) = other.as_chunks::<8>();
    for (one, other) in ones.iter().zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    let rest = rest.iter().zip(other_rest);
    sums.iter().sum::<f32>() + rest.map(|(one, other)| one * other).sum::<f32>()
}

fn add(to: &mut [f32], from: &[f32], factor: f32) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

/// A number from -1 to 1 that is a fixed function of its place (`SplitMix64`).
fn noise(number: u64, steps: u64, place: u64) -> f32 {
    let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ steps.rotate_left(32);
    let mut bits = (key ^ place).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
    }
    (bits >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
}

#[cfg(test)]
mod tests;
