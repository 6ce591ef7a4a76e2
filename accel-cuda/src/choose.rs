//! Elements chosen by the values of others, as those of another type, scanned, and the extremes of
//! lines found.

use std::ops::Range;

use meshwork_accel::{
    DeviceBuffer, Element, ElementTask, ElementType, Error, ReduceOp, convert_slice, count,
};

use crate::buffer::CudaBuffer;
use crate::error::Failure;
use crate::kernels::{Along, Width};
use crate::sys::module::{Lines, One};

impl CudaBuffer {
    /// The same elements as those of another type.
    pub(crate) fn converted(&self, to: ElementType) -> Result<Self, Error> {
        let (logical, from) = (self.logical(), self.element_type());
        let into = Self::unwritten(logical, to, self.len())?;
        if let (Some(source), Some(target)) = (self.whole(), into.whole()) {
            let done = match from == to {
                true => target.copy_from(source),
                false => logical.module.convert([from, to], source, target),
            };
            done.map_err(|failure| failure.on(logical.id))?;
        }
        Ok(into.written())
    }

    /// Those along the middle one of three axes at indices that fit, of a buffer that has as many.
    pub(crate) fn taken(&self, sizes: [usize; 3], indices: &Self) -> Result<Self, Error> {
        let [outer, _, inner] = sizes;
        let (logical, element) = (self.logical(), self.element_type());
        let chosen = count(&[outer, indices.len(), inner])?;
        let into = Self::unwritten(logical, element, chosen)?;
        let indices = indices.whole_numbers()?;
        let failed = |failure: Failure| failure.on(logical.id);
        let (Some(indices), Some(target)) = (indices.whole(), into.whole()) else {
            return Ok(into);
        };
        let done = match self.whole() {
            Some(source) => {
                let (width, parts) = (Width::of(element), [source, indices]);
                logical.module.take(width, sizes, parts, target)
            }
            // An axis without elements has no index.
            None => target.zero(),
        };
        done.map(|()| into.written()).map_err(failed)
    }

    /// A row for each index.
    pub(crate) fn one_hot_rows(
        &self,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<Self, Error> {
        let (start, end) = (classes.start, classes.end);
        if end < start {
            return Err(Error::ReversedRange { start, end });
        }
        let indices = self.whole_numbers()?;
        let logical = self.logical();
        let into = Self::unwritten(logical, element, count(&[self.len(), classes.len()])?)?;
        if let (Some(source), Some(target)) = (indices.whole(), into.whole()) {
            let one = One {
                width: Width::of(element),
                bits: element.run(BitsOfOne)?,
                first: start,
            };
            let done = logical.module.one_hot(one, source, target);
            done.map_err(|failure| failure.on(logical.id))?;
        }
        Ok(into.written())
    }

    /// Those of `yes` where these are not 0, else those of `no`; all are alike.
    pub(crate) fn selected(&self, yes: &Self, no: &Self) -> Result<Self, Error> {
        let (logical, element) = (yes.logical(), yes.element_type());
        let into = Self::unwritten(logical, element, yes.len())?;
        let holds = self.converted(ElementType::Bool)?;
        let (Some(holds), Some(yes), Some(no), Some(target)) =
            (holds.whole(), yes.whole(), no.whole(), into.whole())
        else {
            return Ok(into);
        };
        let width = Width::of(element);
        let done = logical.module.select(width, holds, [yes, no], target);
        done.map(|()| into.written())
            .map_err(|failure| failure.on(logical.id))
    }

    /// The op of each and all before it along the middle one of three axes.
    pub(crate) fn scanned(&self, op: ReduceOp, sizes: [usize; 3]) -> Result<Self, Error> {
        let (logical, element) = (self.logical(), self.element_type());
        let into = Self::unwritten(logical, element, self.len())?;
        if let (Some(source), Some(target)) = (self.whole(), into.whole()) {
            let module = &logical.module;
            let done = module.scan(op, element, sizes, [source, target]);
            done.map_err(|failure| failure.on(logical.id))?;
        }
        Ok(into.written())
    }

    /// The indices of extremes along the middle one of three axes, which has elements.
    pub(crate) fn arg_reduced(&self, op: ReduceOp, sizes: [usize; 3]) -> Result<Self, Error> {
        let [outer, len, inner] = sizes;
        let (logical, element) = (self.logical(), self.element_type());
        let into = Self::unwritten(logical, ElementType::I64, outer * inner)?;
        let (Some(elements), Some(target)) = (self.whole(), into.whole()) else {
            return Ok(into);
        };
        let module = &logical.module;
        let along = Along::new(op, element, sizes, module.multiprocessors());
        let (first, failed) = (along.first(), |failure: Failure| failure.on(logical.id));
        let lines = Lines {
            elements,
            len: len as u64,
            candidates: None,
        };
        let Some(second) = along.second() else {
            let done = module.arg(first, lines, target);
            return done.map(|()| into.written()).map_err(failed);
        };
        let parts = usize::try_from(first.count).unwrap_or(usize::MAX);
        let parts = parts.saturating_mul(ElementType::I64.size());
        let parts = logical.scratch(ElementType::I64, parts)?;
        let done = module.arg(first, lines, parts.whole());
        let lines = Lines {
            candidates: Some(parts.whole()),
            ..lines
        };
        let done = done.and_then(|()| module.arg(second, lines, target));
        done.map(|()| into.written()).map_err(failed)
    }

    /// Indices that no axis is long enough for stay such.
    fn whole_numbers(&self) -> Result<Self, Error> {
        self.check_whole_numbers()?;
        self.converted(ElementType::I64)
    }
}

/// The bytes of 1, the lowest first.
struct BitsOfOne;

impl ElementTask for BitsOfOne {
    type Output = Result<u64, Error>;

    fn run<T: Element>(self) -> Result<u64, Error> {
        let mut one = [T::default()];
        convert_slice(&[true], &mut one)?;
        Ok(bits_of(one[0]))
    }
}

/// The bytes of an element as those of a number, the lowest first.
pub(crate) fn bits_of<T: Element>(value: T) -> u64 {
    let mut bits = [0; 8];
    bits[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
    u64::from_le_bytes(bits)
}
