//! Parts of a tensor, by their indices.

use meshwork_accel::StridedRange;
use meshwork_layout::ops::{Index, Op};

use super::local::Local;
use super::{Call, place};
use crate::{DTensor, Error, Scalar};

impl<T: Scalar> DTensor<T> {
    /// A box: from these indices on, of these sizes; [`None`] is all that are left.
    ///
    /// # Errors
    /// [`Error::Op`] for a box that is not inside, and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn slice(&self, begin: &[usize], size: &[Option<usize>]) -> Result<Self, Error> {
        let op = Op::Slice {
            begin: begin.to_vec(),
            size: size.to_vec(),
        };
        self.by_local(&op, |local, sizes| {
            local.cut(|place| {
                let both = begin.iter().zip(&*sizes[place]);
                both.map(|(start, size)| *start..start + size).collect()
            })
        })
    }

    /// Indices along each axis as Python's brackets take them; axes that are not named are whole.
    ///
    /// # Errors
    /// [`Error::Op`] for an index outside, two ellipses, or steps that do not meet the bounds of
    /// shards, and those of [`relayout`](Self::relayout).
    #[track_caller]
    #[doc(alias = "getitem")]
    pub fn strided_slice(&self, indices: &[Index]) -> Result<Self, Error> {
        self.by_local(&Op::StridedSlice(indices.to_vec()), |local, sizes| {
            let along = |place: usize| strides(indices, &local.sizes()[place], &sizes[place]);
            local.stepped(along)?.reshaped(sizes)
        })
    }

    /// The slices along an axis at the indices that the other tensor holds, whose axes take the
    /// place of that one.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, [`Error::IndexOutside`] (which ends the process
    /// group of all clients), [`Error::OtherContext`], and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn gather<I: Scalar>(&self, indices: &DTensor<I>, axis: isize) -> Result<Self, Error> {
        let along = place(axis, self.rank());
        let placements = [self.placement(), indices.placement()];
        let call = Call::of(&Op::Gather { axis }, self.context(), &placements)?;
        let (params, indices) = (call.operand(0, self)?, call.operand(1, indices)?);
        indices.check_bounded(along, params.shape()[along])?;
        let (params, indices) = (Local::of(&params), Local::of(&indices));
        call.finish(0, params.taken(along, &indices, &call.sizes(0)?)?)
    }

    /// Looks at these indices below the size of an axis before they choose anything: devices have
    /// no word for what is not there.
    pub(super) fn check_bounded(&self, axis: usize, size: usize) -> Result<(), Error> {
        match Local::of(self).are_bounded(axis, size) {
            // In a program they are looked at before it begins.
            true => Ok(()),
            false => self.check_below(axis, size),
        }
    }

    /// Checks that all elements are indices below the size of an axis.
    pub(crate) fn check_below(&self, axis: usize, size: usize) -> Result<(), Error> {
        self.check_each(self.unpack()?.iter().flatten(), axis, size)
    }

    /// Checks that these of its elements are indices below the size of an axis.
    pub(crate) fn check_each<'a>(
        &self,
        mut elements: impl Iterator<Item = &'a T>,
        axis: usize,
        size: usize,
    ) -> Result<(), Error> {
        let is_outside = |own: &&T| own.to_index().is_none_or(|index| index >= size);
        match elements.find(is_outside) {
            None => Ok(()),
            Some(index) => {
                let index = index.to_f64();
                let outside = Error::IndexOutside { index, axis, size };
                self.context().abort(&outside);
                Err(outside)
            }
        }
    }

    /// A new last axis of this size, 1 at the index that the element states and 0 elsewhere.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn one_hot<R: Scalar>(&self, depth: usize) -> Result<DTensor<R>, Error> {
        let call = Call::of(&Op::OneHot { depth }, self.context(), &[self.placement()])?;
        let indices = Local::of(&call.operand(0, self)?);
        call.finish(0, indices.one_hot::<R>(|_| 0..depth, &call.sizes(0)?)?)
    }
}

/// The strided range that brackets take along each axis of a block, from its sizes and those of the
/// result.
pub(crate) fn strides(indices: &[Index], own: &[usize], sizes: &[usize]) -> Vec<StridedRange> {
    let mut counts = sizes.iter().copied();
    let mut along = Vec::with_capacity(own.len());
    for index in spelled_out(indices, own.len()) {
        let size = own.get(along.len()).copied().unwrap_or_default();
        match index {
            Index::At(at) => along.push(StridedRange {
                first: place(at, size),
                ..StridedRange::all(1)
            }),
            Index::Range { begin, step, .. } => {
                let count = counts.next().unwrap_or_default();
                along.push(StridedRange {
                    first: first(size, begin, step.get()),
                    step,
                    count,
                });
            }
            Index::NewAxis | Index::Ellipsis => {
                counts.next();
            }
        }
    }
    along
}

/// Something for each axis: whole ones in place of the ellipsis, or at the end.
fn spelled_out(indices: &[Index], rank: usize) -> Vec<Index> {
    let uses_none = |index: &&Index| matches!(index, Index::NewAxis | Index::Ellipsis);
    let named = indices.len() - indices.iter().filter(uses_none).count();
    let whole = vec![Index::FULL; rank.saturating_sub(named)];
    match indices.iter().position(|index| *index == Index::Ellipsis) {
        Some(place) => [&indices[..place], &whole, &indices[place + 1..]].concat(),
        None => [indices, &whole].concat(),
    }
}

/// Where steps along an axis of this size begin.
fn first(size: usize, begin: Option<isize>, step: isize) -> usize {
    let end = size.cast_signed();
    let first = match begin {
        Some(begin) if begin < 0 => (begin + end).max(0),
        Some(begin) => begin.min(end - 1),
        None if step < 0 => end - 1,
        None => 0,
    };
    usize::try_from(first).unwrap_or(0)
}
