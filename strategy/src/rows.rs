use std::ops::Range;

#[cfg(feature = "ndarray")]
use ndarray::{ArrayD, Axis, Slice, concatenate};

/// Samples that were put together, and can be cut apart again: a batch.
///
/// Tuples are batches of several parts, such as images and labels, with as many rows each.
pub trait Rows: Sized {
    /// How many samples there are.
    fn rows(&self) -> usize;

    /// Some of the samples, as a batch of their own.
    ///
    /// # Panics
    /// When `range` ends past the last row.
    #[must_use]
    fn cut(&self, range: Range<usize>) -> Self;

    /// The samples of this batch, then those of `next`.
    #[must_use]
    fn join(self, next: Self) -> Self;
}

impl<T: Clone> Rows for Vec<T> {
    fn rows(&self) -> usize {
        self.len()
    }

    fn cut(&self, range: Range<usize>) -> Self {
        self[range].to_vec()
    }

    fn join(mut self, mut next: Self) -> Self {
        self.append(&mut next);
        self
    }
}

/// An array's samples are along its first axis, of which it must have one.
#[cfg(feature = "ndarray")]
impl<T: Clone> Rows for ArrayD<T> {
    fn rows(&self) -> usize {
        self.len_of(Axis(0))
    }

    fn cut(&self, range: Range<usize>) -> Self {
        self.slice_axis(Axis(0), Slice::from(range)).to_owned()
    }

    /// # Panics
    /// When the shapes differ in another axis than the first.
    fn join(self, next: Self) -> Self {
        concatenate(Axis(0), &[self.view(), next.view()]).expect("batches of one data set fit")
    }
}

impl<A: Rows, B: Rows> Rows for (A, B) {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn cut(&self, range: Range<usize>) -> Self {
        (self.0.cut(range.clone()), self.1.cut(range))
    }

    fn join(self, next: Self) -> Self {
        (self.0.join(next.0), self.1.join(next.1))
    }
}
