//! Elements put in other places, and made one along an axis.

use std::cmp::Ordering;
use std::ops::Range;

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, DeviceBuffer, Element, ElementType, Error, Fold, ReduceOp,
    Reduction, Region, StridedSlice, by_type, count,
};
use ndarray::{ArrayView, ArrayViewMut, Axis, IxDyn, Slice};

use crate::{CpuAccelerator, CpuBuffer};

/// How many elements along an axis are [folded](Fold::fold) one after the other; results of blocks
/// are combined in halves. Among more, small ones would change nothing in a large sum.
///
/// Public so that what folds on the host by itself, as `meshwork-dtensor` does, has the same
/// digits.
pub const FOLD_BLOCK: usize = 4096;

impl Arrange for CpuAccelerator {
    fn cut(&self, from: &CpuBuffer, part: &Region) -> Result<CpuBuffer, Error> {
        from.check_len(part.whole_len())?;
        let mut into = self.allocate(from.device(), from.element_type(), part.len())?;
        by_type!(from.element_type(), T, cut::<T>(from, part, &mut into))?;
        Ok(into)
    }

    fn paste(&self, from: &CpuBuffer, into: &mut CpuBuffer, part: &Region) -> Result<(), Error> {
        into.check_device(from.device())?;
        into.check_element(from.element_type())?;
        from.check_len(part.len())?;
        into.check_len(part.whole_len())?;
        by_type!(from.element_type(), T, paste::<T>(from, into, part))
    }

    fn arrange(&self, from: &CpuBuffer, to: &Arrangement) -> Result<CpuBuffer, Error> {
        from.check_len(to.from_len())?;
        let mut into = self.allocate(from.device(), from.element_type(), to.len())?;
        by_type!(from.element_type(), T, arrange::<T>(from, to, &mut into))?;
        Ok(into)
    }

    fn step(&self, from: &CpuBuffer, by: &StridedSlice) -> Result<CpuBuffer, Error> {
        from.check_len(by.whole_len())?;
        self.stepped(from, by)
    }

    fn take(
        &self,
        from: &CpuBuffer,
        sizes: [usize; 3],
        indices: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        from.check_device(indices.device())?;
        from.check_len(count(&sizes)?)?;
        self.taken(from, sizes, indices)
    }

    fn one_hot(
        &self,
        indices: &CpuBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<CpuBuffer, Error> {
        self.one_hot_rows(indices, classes, element)
    }
}

/// One element after the other, in their order; of an axis that is longer than [`FOLD_BLOCK`], in
/// blocks, whose results are combined in halves. Sums and products of 16-bit floats are made in
/// `f32`, and each result is rounded once.
impl Fold for CpuAccelerator {
    fn fold(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        self.check_fold(op, sizes, from)?;
        let ([outer, _, inner], element) = (sizes, from.element_type());
        if is_made_wider(op, element) {
            return self.made_wider(from, |wide| self.fold(op, sizes, wide));
        }
        let mut into = self.allocate(from.device(), element, outer * inner)?;
        by_type!(element, T, fold::<T>(op, sizes, from, &mut into))?;
        Ok(into)
    }

    fn scan(&self, op: ReduceOp, sizes: [usize; 3], from: &CpuBuffer) -> Result<CpuBuffer, Error> {
        self.check_scan(op, sizes, from)?;
        let element = from.element_type();
        if is_made_wider(op, element) {
            return self.made_wider(from, |wide| self.scan(op, sizes, wide));
        }
        let mut into = self.duplicate(from)?;
        by_type!(element, T, scan::<T>(op, sizes, &mut into))?;
        Ok(into)
    }

    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        self.check_arg_reduce(op, sizes, from)?;
        let ([outer, _, inner], element) = (sizes, from.element_type());
        let wanted = match op == ReduceOp::Min {
            true => Ordering::Less,
            false => Ordering::Greater,
        };
        let mut into = self.allocate(from.device(), ElementType::I64, outer * inner)?;
        by_type!(element, T, first_of::<T>(wanted, sizes, from, &mut into))?;
        Ok(into)
    }
}

impl CpuAccelerator {
    /// What is made of the elements as `f32`, rounded.
    fn made_wider(
        &self,
        from: &CpuBuffer,
        make: impl FnOnce(&CpuBuffer) -> Result<CpuBuffer, Error>,
    ) -> Result<CpuBuffer, Error> {
        let wide = self.converted(from, ElementType::F32)?;
        self.converted(&make(&wide)?, from.element_type())
    }
}

fn is_made_wider(op: ReduceOp, element: ElementType) -> bool {
    matches!(op, ReduceOp::Sum | ReduceOp::Product)
        && matches!(element, ElementType::F16 | ElementType::Bf16)
}

fn cut<T: Element>(from: &CpuBuffer, part: &Region, into: &mut CpuBuffer) -> Result<(), Error> {
    if let Ok(whole) = ArrayView::from_shape(IxDyn(part.whole()), from.all::<T>()?) {
        let cut = whole.slice_each_axis(|axis| along(part, axis.axis));
        fill(into.all_mut()?, cut);
    }
    Ok(())
}

fn paste<T: Element>(from: &CpuBuffer, into: &mut CpuBuffer, part: &Region) -> Result<(), Error> {
    let from = from.all::<T>()?;
    let whole = ArrayViewMut::from_shape(IxDyn(part.whole()), into.all_mut::<T>()?);
    if let Ok(mut whole) = whole {
        let mut cut = whole.slice_each_axis_mut(|axis| along(part, axis.axis));
        for (into, from) in cut.iter_mut().zip(from) {
            *into = *from;
        }
    }
    Ok(())
}

fn arrange<T: Element>(
    from: &CpuBuffer,
    to: &Arrangement,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    // An axis may be longer than memory where another one has no element.
    if to.is_empty() {
        return Ok(());
    }
    let view = ArrayView::from_shape(IxDyn(to.from()), from.all::<T>()?)
        .expect("the caller has compared the lengths");
    // The axes in the order of their places, and an axis of size 1 wherever none goes.
    let mut order: Vec<usize> = (0..to.from().len()).collect();
    order.sort_by_key(|axis| to.places()[*axis]);
    let mut view = view.permuted_axes(order);
    for place in (0..to.to().len()).filter(|place| !to.places().contains(place)) {
        view.insert_axis_inplace(Axis(place));
    }
    if let Some(wide) = view.broadcast(IxDyn(to.to())) {
        fill(into.all_mut()?, wide);
    }
    Ok(())
}

fn fold<T: Element>(
    op: ReduceOp,
    [outer, len, inner]: [usize; 3],
    from: &CpuBuffer,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let reduction = Reduction::<T>::new(op)?;
    let (from, into) = (from.all::<T>()?, into.all_mut::<T>()?);
    for block in 0..outer {
        let into = &mut into[block * inner..(block + 1) * inner];
        fold_rows(&reduction, &from[block * len * inner..], len, into)?;
    }
    Ok(())
}

/// The first `len` rows, each as long as what they are made one into.
fn fold_rows<T: Element>(
    reduction: &Reduction<T>,
    rows: &[T],
    len: usize,
    into: &mut [T],
) -> Result<(), Error> {
    let inner = into.len();
    let blocks = len.div_ceil(FOLD_BLOCK);
    if blocks <= 1 {
        into.copy_from_slice(&rows[..inner]);
        for at in 1..len {
            reduction.reduce(into, &rows[at * inner..(at + 1) * inner])?;
        }
        return Ok(());
    }
    let half = blocks / 2 * FOLD_BLOCK;
    let right = &rows[half * inner..];
    fold_rows(reduction, rows, half, into)?;
    let mut other = right[..inner].to_vec();
    fold_rows(reduction, right, len - half, &mut other)?;
    reduction.reduce(into, &other)
}

fn scan<T: Element>(
    op: ReduceOp,
    [_, len, inner]: [usize; 3],
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let reduction = Reduction::<T>::new(op)?;
    let into = into.all_mut::<T>()?;
    for block in into.chunks_exact_mut(len.saturating_mul(inner).max(1)) {
        for at in 1..len {
            let (before, rest) = block.split_at_mut(at * inner);
            reduction.reduce(&mut rest[..inner], &before[(at - 1) * inner..])?;
        }
    }
    Ok(())
}

fn first_of<T: Element>(
    wanted: Ordering,
    [_, len, inner]: [usize; 3],
    from: &CpuBuffer,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let from = from.all::<T>()?;
    for (at, into) in into.all_mut::<i64>()?.iter_mut().enumerate() {
        let first = &from[at / inner * len * inner + at % inner..];
        let mut best = (0, &first[0]);
        for (index, element) in (0..).zip(first.iter().step_by(inner).take(len)) {
            if element.partial_cmp(best.1) == Some(wanted) {
                best = (index, element);
            }
        }
        *into = best.0;
    }
    Ok(())
}

fn along(part: &Region, axis: Axis) -> Slice {
    Slice::from(part.part()[axis.index()].clone())
}

fn fill<T: Copy>(into: &mut [T], from: ArrayView<'_, T, IxDyn>) {
    for (into, from) in into.iter_mut().zip(from) {
        *into = *from;
    }
}

#[cfg(test)]
mod tests {
    use meshwork_accel::DeviceId;

    use super::*;

    #[test]
    fn a_long_sum_does_not_stand_still_at_a_large_element() {
        let cpu = CpuAccelerator::new();
        let (two, three) = (16_781_312.0_f32, 16_785_408.0);
        for (blocks, inner, expected) in [(2, 1, two), (3, 1, three), (2, 3, two)] {
            let len = blocks * FOLD_BLOCK;
            let mut values = vec![0.0_f32; len * inner];
            values[..inner].fill(16_777_216.0);
            values[FOLD_BLOCK * inner..].fill(1.0);
            let (device, element) = (DeviceId::new(0), ElementType::F32);
            let mut from = cpu.allocate(device, element, values.len()).unwrap();
            cpu.upload(&values, &mut from, 0).unwrap();
            let made = cpu.fold(ReduceOp::Sum, [1, len, inner], &from).unwrap();
            let mut sums = vec![0.0_f32; inner];
            cpu.download(&made, 0, &mut sums).unwrap();
            assert_eq!(sums, vec![expected; inner], "{blocks} blocks");
        }
    }
}
