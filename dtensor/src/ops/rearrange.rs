//! The same elements, in other places.

use meshwork_layout::ops::Op;

use super::kernel;
use crate::{DTensor, Error, Scalar};

impl<T: Scalar> DTensor<T> {
    /// Axes in another order: axis i of the result is axis `perm[i]` of this.
    ///
    /// # Errors
    /// [`Error::Op`] for an order that does not name each axis once, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn transpose(&self, perm: &[usize]) -> Result<Self, Error> {
        let op = Op::Transpose {
            perm: perm.to_vec(),
        };
        self.by_local(&op, |local, _| local.transposed(perm))
    }

    /// The same elements, row-major, in another shape; one size may be [`None`] and is what is
    /// left.
    ///
    /// # Errors
    /// [`Error::Op`] for a shape of another number of elements, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn reshape(&self, shape: &[Option<usize>]) -> Result<Self, Error> {
        self.in_order(&Op::Reshape {
            shape: shape.to_vec(),
        })
    }

    /// A new axis of size 1, at this place in the result, negative counted from the end.
    ///
    /// # Errors
    /// [`Error::Op`] for a place that the result has not, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn expand_dims(&self, axis: isize) -> Result<Self, Error> {
        self.in_order(&Op::ExpandDims { axis })
    }

    /// Without these axes of size 1, or without all of that size if none is given.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there or of another size, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn squeeze(&self, axes: &[isize]) -> Result<Self, Error> {
        self.in_order(&Op::Squeeze {
            axes: axes.to_vec(),
        })
    }

    /// Repeated along new leading axes and along axes of size 1.
    ///
    /// # Errors
    /// [`Error::Op`] for a shape that does not fit, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self, Error> {
        let op = Op::BroadcastTo {
            shape: shape.to_vec(),
        };
        self.by_local(&op, |local, sizes| local.spread(sizes))
    }

    /// Each axis repeated as a whole, a given number of times.
    ///
    /// # Errors
    /// [`Error::Op`] for a wrong number of multiples or one along a cut axis, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn tile(&self, multiples: &[usize]) -> Result<Self, Error> {
        let op = Op::Tile {
            multiples: multiples.to_vec(),
        };
        self.by_local(&op, |local, sizes| local.tiled(multiples, sizes))
    }

    /// Zeros before and after each axis, a pair of counts for each.
    ///
    /// # Errors
    /// [`Error::Op`] for a wrong number of pairs or some along a cut axis, and those of
    /// [`relayout`](Self::relayout).
    #[track_caller]
    pub fn pad(&self, paddings: &[(usize, usize)]) -> Result<Self, Error> {
        let op = Op::Pad {
            paddings: paddings.to_vec(),
        };
        let before: Vec<usize> = paddings.iter().map(|(before, _)| *before).collect();
        self.by_local(&op, |local, sizes| local.padded(&before, sizes))
    }

    /// The sizes of the axes as a vector that is whole everywhere.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "shape")]
    pub fn shape_of(&self) -> Result<DTensor<i64>, Error> {
        let sizes = self
            .shape()
            .iter()
            .map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
        let sizes: Vec<i64> = sizes.collect();
        self.by_block(&Op::ShapeOf, |_, shape| {
            kernel::filled(shape, sizes.iter().copied())
        })
    }

    #[track_caller]
    fn in_order(&self, op: &Op) -> Result<Self, Error> {
        self.by_local(op, |local, sizes| local.reshaped(sizes))
    }
}
