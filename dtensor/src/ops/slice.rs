//! Parts of a tensor, by their indices.

use meshwork_layout::ops::{Index, Op};
use ndarray::{ArrayD, ArrayViewD, Axis, Slice};

use super::{Call, kernel, place};
use crate::{DTensor, Error, Scalar};

impl<T: Scalar> DTensor<T> {
    /// A box: from these indices on, so many along each axis; [`None`] is all that are left.
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
        self.by_block(&Op::StridedSlice(indices.to_vec()), |block, sizes| {
            stepped(&block, indices, sizes)
        })
    }

    /// The slices along an axis at the indices that the other tensor holds, whose axes take the
    /// place of that one.
    ///
    /// # Errors
    /// [`Error::Op`] for an axis that is not there, [`Error::IndexOutside`] (which ends the company
    /// of all clients), [`Error::OtherContext`], and those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn gather<I: Scalar>(&self, indices: &DTensor<I>, axis: isize) -> Result<Self, Error> {
        let along = place(axis, self.rank());
        let placements = [self.placement(), indices.placement()];
        let call = Call::of(&Op::Gather { axis }, self.context(), &placements)?;
        let (params, indices) = (call.operand(0, self)?, call.operand(1, indices)?);
        let size = self.shape()[along];
        call.result(0, |place, sizes| {
            let chosen = indices.unpack()?[place].iter().map(|index| {
                let inside = index.to_index().filter(|index| *index < size);
                inside.ok_or(Error::IndexOutside {
                    index: index.to_f64(),
                    axis: along,
                    size,
                })
            });
            let chosen = chosen.collect::<Result<Vec<_>, _>>();
            let chosen = chosen.inspect_err(|error| self.context().abort(error))?;
            let taken = params.unpack()?[place].select(Axis(along), &chosen);
            Ok(kernel::reshaped(&taken.view(), sizes))
        })
    }

    /// A new last axis of this size, 1 at the index that the element states and 0 elsewhere.
    ///
    /// # Errors
    /// Those of [`relayout`](Self::relayout).
    #[track_caller]
    pub fn one_hot<R: Scalar>(&self, depth: usize) -> Result<DTensor<R>, Error> {
        self.by_block(&Op::OneHot { depth }, |block, sizes| {
            let rows = block.iter().flat_map(|element| {
                let right = element.to_index();
                (0..depth).map(move |class| right == Some(class))
            });
            kernel::filled(
                sizes,
                rows.map(|is_right| R::from_f64(f64::from(u8::from(is_right)))),
            )
        })
    }
}

/// What brackets take of a block, of which the sizes are known.
fn stepped<T: Scalar>(block: &ArrayViewD<'_, T>, indices: &[Index], sizes: &[usize]) -> ArrayD<T> {
    let mut part = block.view();
    let mut counts = sizes.iter().copied();
    // Axes of the part so far, and how many of the operand's they stand for.
    let (mut axis, mut used) = (0, 0);
    for index in spelled_out(indices, block.ndim()) {
        match index {
            Index::At(at) => {
                let at = place(at, block.shape()[used]);
                part.index_axis_inplace(Axis(axis), at);
                used += 1;
            }
            Index::Range { begin, step, .. } => {
                let count = counts.next().unwrap_or_default();
                let taken = taken(block.shape()[used], (begin, step.get()), count);
                part.slice_axis_inplace(Axis(axis), taken);
                axis += 1;
                used += 1;
            }
            Index::NewAxis | Index::Ellipsis => {
                part.insert_axis_inplace(Axis(axis));
                counts.next();
                axis += 1;
            }
        }
    }
    part.to_owned()
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

/// So many indices of an axis of this size, in steps from the first.
fn taken(size: usize, (begin, step): (Option<isize>, isize), count: usize) -> Slice {
    let end = size.cast_signed();
    let last = count.saturating_sub(1).cast_signed() * step;
    let first = match begin {
        Some(begin) if begin < 0 => (begin + end).max(0),
        Some(begin) => begin.min(end - 1),
        None if step < 0 => end - 1,
        None => 0,
    };
    if count == 0 {
        return Slice::new(0, Some(0), 1);
    }
    // A negative step begins at the end of the range.
    let (low, high) = (first.min(first + last), first.max(first + last));
    Slice::new(low, Some(high + 1), step)
}
