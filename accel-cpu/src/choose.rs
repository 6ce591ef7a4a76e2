//! Elements chosen by their places, by the values of others, or as those of another type.

use std::ops::Range;

use meshwork_accel::{
    Accelerator, DeviceBuffer, Element, ElementTask, ElementType, Error, StridedSlice,
    convert_slice, count,
};
use ndarray::{ArrayView, IxDyn, Slice};

use crate::{CpuAccelerator, CpuBuffer};

impl CpuAccelerator {
    pub(crate) fn stepped(&self, from: &CpuBuffer, by: &StridedSlice) -> Result<CpuBuffer, Error> {
        let mut into = self.allocate(from.device(), from.element_type(), by.len())?;
        from.element_type().run(Step {
            from,
            by,
            into: &mut into,
        })?;
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
        element.run(OneHot {
            indices: &indices,
            classes,
            into: &mut into,
        })?;
        Ok(into)
    }

    pub(crate) fn converted(&self, from: &CpuBuffer, to: ElementType) -> Result<CpuBuffer, Error> {
        let mut into = self.allocate(from.device(), to, from.len())?;
        from.element_type().run(ConvertFrom {
            from,
            into: &mut into,
        })?;
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
        let mut into = self.allocate(yes.device(), yes.element_type(), yes.len())?;
        yes.element_type().run(Select {
            holds: holds.all()?,
            ends: [yes, no],
            into: &mut into,
        })?;
        Ok(into)
    }
}

/// Indices that no axis is long enough for stay such.
fn whole_numbers(indices: &CpuBuffer) -> Result<Vec<i64>, Error> {
    let element = indices.element_type();
    if element.is_float() || element == ElementType::Bool {
        return Err(Error::UnsupportedElement { element });
    }
    let mut whole = vec![0; indices.len()];
    element.run(Widen {
        from: indices,
        into: &mut whole,
    })?;
    Ok(whole)
}

struct Step<'a> {
    from: &'a CpuBuffer,
    by: &'a StridedSlice,
    into: &'a mut CpuBuffer,
}

impl ElementTask for Step<'_> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        // Where no element is chosen, the whole may have none, and an axis longer than memory.
        let Some(bounds) = self.by.bounds() else {
            return Ok(());
        };
        let whole = ArrayView::from_shape(IxDyn(self.by.whole()), self.from.all::<T>()?)
            .expect("the caller has compared the lengths");
        let chosen = whole.slice_each_axis(|axis| {
            let place = axis.axis.index();
            let ((low, high), step) = (bounds[place], self.by.along()[place].step.get());
            Slice::new(low.cast_signed(), Some(high.cast_signed() + 1), step)
        });
        for (into, from) in self.into.all_mut()?.iter_mut().zip(chosen) {
            *into = *from;
        }
        Ok(())
    }
}

struct OneHot<'a> {
    indices: &'a [i64],
    classes: Range<usize>,
    into: &'a mut CpuBuffer,
}

impl ElementTask for OneHot<'_> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        let Range { start, end } = self.classes;
        let mut one = [T::default()];
        convert_slice(&[true], &mut one)?;
        let into = self.into.all_mut::<T>()?;
        for (row, index) in self.indices.iter().enumerate() {
            let class = usize::try_from(*index).ok();
            if let Some(class) = class.filter(|class| (start..end).contains(class)) {
                into[row * (end - start) + class - start] = one[0];
            }
        }
        Ok(())
    }
}

struct Widen<'a> {
    from: &'a CpuBuffer,
    into: &'a mut [i64],
}

impl ElementTask for Widen<'_> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        convert_slice(self.from.all::<T>()?, self.into)
    }
}

struct ConvertFrom<'a> {
    from: &'a CpuBuffer,
    into: &'a mut CpuBuffer,
}

impl ElementTask for ConvertFrom<'_> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        let from = self.from.all::<T>()?;
        let into = self.into;
        into.element_type().run(ConvertTo { from, into })
    }
}

struct ConvertTo<'a, T> {
    from: &'a [T],
    into: &'a mut CpuBuffer,
}

impl<T: Element> ElementTask for ConvertTo<'_, T> {
    type Output = Result<(), Error>;

    fn run<U: Element>(self) -> Result<(), Error> {
        convert_slice(self.from, self.into.all_mut::<U>()?)
    }
}

struct Select<'a> {
    holds: &'a [bool],
    ends: [&'a CpuBuffer; 2],
    into: &'a mut CpuBuffer,
}

impl ElementTask for Select<'_> {
    type Output = Result<(), Error>;

    fn run<T: Element>(self) -> Result<(), Error> {
        let (yes, no) = (self.ends[0].all::<T>()?, self.ends[1].all::<T>()?);
        let chosen = self.holds.iter().zip(yes.iter().zip(no));
        for (into, (holds, (yes, no))) in self.into.all_mut()?.iter_mut().zip(chosen) {
            *into = if *holds { *yes } else { *no };
        }
        Ok(())
    }
}
