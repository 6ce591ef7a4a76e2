//! Sums along axes that follow each other, and functions of elements and of what such sums gave.

use ndarray::ArrayD;

use super::filled;
use crate::Scalar;

/// How many sums of a row are made at once.
const LANES: usize = 4;

/// A block as three axes, of which the middle one goes into each sum.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Spans {
    outer: usize,
    along: usize,
    inner: usize,
}

/// An element's place, and that of the sum it goes into.
#[derive(Clone, Copy)]
pub(in crate::ops) struct At {
    pub(in crate::ops) element: usize,
    pub(in crate::ops) sum: usize,
}

impl Spans {
    /// A block of these sizes whose axes from `first` on, `count` of them, go into the sums.
    pub(in crate::ops) fn new(sizes: &[usize], first: usize, count: usize) -> Self {
        let product = |sizes: &[usize]| sizes.iter().product();
        Self {
            outer: product(&sizes[..first]),
            along: product(&sizes[first..first + count]),
            inner: product(&sizes[first + count..]),
        }
    }

    /// The sums of a function of elements, made in 64 bits, as blocks of these sizes.
    pub(in crate::ops) fn sums<T: Scalar>(
        &self,
        sizes: &[usize],
        term: impl Fn(At) -> f64,
    ) -> ArrayD<T> {
        let mut sums = vec![0.0; self.outer * self.inner];
        if self.inner == 1 {
            for (sum, total) in sums.iter_mut().enumerate() {
                // Several at once, which do not wait for each other.
                let mut lanes = [0.0; LANES];
                for step in 0..self.along {
                    let element = sum * self.along + step;
                    lanes[step % LANES] += term(At { element, sum });
                }
                *total = lanes.iter().sum();
            }
        } else {
            self.visit(|at| sums[at.sum] += term(at));
        }
        filled(sizes, sums.into_iter().map(T::from_f64))
    }

    /// A function of each element, as a block of these sizes.
    pub(in crate::ops) fn map<T: Scalar>(
        &self,
        sizes: &[usize],
        function: impl Fn(At) -> T,
    ) -> ArrayD<T> {
        let mut made = vec![T::default(); self.outer * self.along * self.inner];
        self.visit(|at| made[at.element] = function(at));
        filled(sizes, made)
    }

    /// Every element, in order.
    fn visit(&self, mut visit: impl FnMut(At)) {
        if self.inner == 1 {
            for outer in 0..self.outer {
                for element in outer * self.along..(outer + 1) * self.along {
                    let sum = outer;
                    visit(At { element, sum });
                }
            }
            return;
        }
        for row in 0..self.outer * self.along {
            let outer = row / self.along;
            for inner in 0..self.inner {
                let (element, sum) = (row * self.inner + inner, outer * self.inner + inner);
                visit(At { element, sum });
            }
        }
    }
}
