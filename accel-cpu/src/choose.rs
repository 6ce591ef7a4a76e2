//! Elements chosen by their places, by the values of others, or as those of another type.

use std::ops::Range;

use meshwork_accel::{
    Accelerator, DeviceBuffer, Element, ElementType, Error, StridedSlice, by_type, convert_slice,
    count,
};
use ndarray::{ArrayView, IxDyn, Slice};

use crate::{CpuAccelerator, CpuBuffer};

impl CpuAccelerator {
    pub(crate) fn stepped(&self, from: &CpuBuffer, by: &StridedSlice) -> Result<CpuBuffer, Error> {
        let mut into = self.allocate(from.device(), from.element_type(), by.len())?;
        by_type!(from.element_type(), T, step::<T>(from, by, &mut into))?;
        Ok(into)
    }

    pub(crate) fn taken(
        &self,
        from: &CpuBuffer,
        [outer, len, inner]: [usize; 3],
        indices: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        let indices = whole_numbers(indices)?;
        let chosen = count(&[outer, indices.len(), inner])?;
        let mut into = self.allocate(from.device(), from.element_type(), chosen)?;
        // An axis may be longer than memory where another one has no element.
        if chosen == 0 {
            return Ok(into);
        }
        let size = from.element_type().size();
        let (row, source) = (inner * size, from.bytes(0, from.len())?);
        let target = into.bytes_mut(0, chosen)?;
        let places = (0..outer).flat_map(|block| indices.iter().map(move |index| (block, index)));
        for (row_into, (block, index)) in target.chunks_exact_mut(row).zip(places) {
            // New buffers are zero.
            let inside = usize::try_from(*index).ok().filter(|index| *index < len);
            if let Some(index) = inside {
                let start = (block * len + index) * row;
                row_into.copy_from_slice(&source[start..start + row]);
            }
        }
        Ok(into)
    }

    pub(crate) fn one_hot_rows(
        &self,
        indices: &CpuBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<CpuBuffer, Error> {
        let (start, end) = (classes.start, classes.end);
        if end < start {
            return Err(Error::ReversedRange { start, end });
        }
        let device = indices.device();
        let indices = whole_numbers(indices)?;
        let len = count(&[indices.len(), classes.len()])?;
        let mut into = self.allocate(device, element, len)?;
        by_type!(element, T, one_hot::<T>(&indices, classes, &mut into))?;
        Ok(into)
    }

    pub(crate) fn converted(&self, from: &CpuBuffer, to: ElementType) -> Result<CpuBuffer, Error> {
        let mut into = self.allocate(from.device(), to, from.len())?;
        by_type!(from.element_type(), T, convert::<T>(from, &mut into))?;
        Ok(into)
    }

    /// Of buffers that fit.
    pub(crate) fn selected(
        &self,
        condition: &CpuBuffer,
        yes: &CpuBuffer,
        no: &CpuBuffer,
    ) -> Result<CpuBuffer, Error> {
        let holds = self.converted(condition, ElementType::Bool)?;
        let element = yes.element_type();
        let mut into = self.allocate(yes.device(), element, yes.len())?;
        by_type!(element, T, select::<T>(holds.all()?, yes, no, &mut into))?;
        Ok(into)
    }
}

/// Indices that no axis is long enough for stay such.
fn whole_numbers(indices: &CpuBuffer) -> Result<Vec<i64>, Error> {
    indices.check_whole_numbers()?;
    let element = indices.element_type();
    let mut whole = vec![0_i64; indices.len()];
    by_type!(element, T, convert_slice(indices.all::<T>()?, &mut whole))?;
    Ok(whole)
}

fn step<T: Element>(
    from: &CpuBuffer,
    by: &StridedSlice,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    // Where no element is chosen, the whole may have none, and an axis longer than memory.
    let Some(bounds) = by.bounds() else {
        return Ok(());
    };
    let whole = ArrayView::from_shape(IxDyn(by.whole()), from.all::<T>()?)
        .expect("the caller has compared the lengths");
    let chosen = whole.slice_each_axis(|axis| {
        let place = axis.axis.index();
        let ((low, high), step) = (bounds[place], by.along()[place].step.get());
        Slice::new(low.cast_signed(), Some(high.cast_signed() + 1), step)
    });
    for (into, from) in into.all_mut()?.iter_mut().zip(chosen) {
        *into = *from;
    }
    Ok(())
}

fn one_hot<T: Element>(
    indices: &[i64],
    classes: Range<usize>,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let Range { start, end } = classes;
    let mut one = [T::default()];
    convert_slice(&[true], &mut one)?;
    let into = into.all_mut::<T>()?;
    for (row, index) in indices.iter().enumerate() {
        let class = usize::try_from(*index).ok();
        if let Some(class) = class.filter(|class| (start..end).contains(class)) {
            into[row * (end - start) + class - start] = one[0];
        }
    }
    Ok(())
}

fn convert<T: Element>(from: &CpuBuffer, into: &mut CpuBuffer) -> Result<(), Error> {
    let (from, to) = (from.all::<T>()?, into.element_type());
    by_type!(to, U, convert_slice(from, into.all_mut::<U>()?))
}

fn select<T: Element>(
    holds: &[bool],
    yes: &CpuBuffer,
    no: &CpuBuffer,
    into: &mut CpuBuffer,
) -> Result<(), Error> {
    let (yes, no) = (yes.all::<T>()?, no.all::<T>()?);
    let chosen = holds.iter().zip(yes.iter().zip(no));
    for (into, (holds, (yes, no))) in into.all_mut()?.iter_mut().zip(chosen) {
        *into = if *holds { *yes } else { *no };
    }
    Ok(())
}
