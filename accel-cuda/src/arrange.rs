//! Elements put in other places, and made one along an axis.

use std::ops::Range;

use meshwork_accel::{
    Arrange, Arrangement, DeviceBuffer, ElementType, Error, Fold, ReduceOp, Region, StridedSlice,
    count,
};

use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::error::Failure;
use crate::kernels::{Along, Axes, Width};

/// Axes that are contiguous on both sides count as one, and more than 16 after that are refused by
/// [`Error::TooManyAxes`]. Rows move 16 bytes at a time where they are aligned so on both sides.
impl Arrange for CudaAccelerator {
    fn cut(&self, from: &CudaBuffer, part: &Region) -> Result<CudaBuffer, Error> {
        from.check_len(part.whole_len())?;
        let into = CudaBuffer::unwritten(from.logical(), from.element_type(), part.len())?;
        if !into.is_empty() {
            place(Axes::cut(part)?, from, &into)?;
        }
        Ok(into.written())
    }

    fn paste(&self, from: &CudaBuffer, into: &mut CudaBuffer, part: &Region) -> Result<(), Error> {
        into.check_alike(from)?;
        from.check_len(part.len())?;
        into.check_len(part.whole_len())?;
        match from.is_empty() {
            true => Ok(()),
            false => place(Axes::paste(part)?, from, into),
        }
    }

    fn arrange(&self, from: &CudaBuffer, to: &Arrangement) -> Result<CudaBuffer, Error> {
        from.check_len(to.from_len())?;
        let into = CudaBuffer::unwritten(from.logical(), from.element_type(), to.len())?;
        if !into.is_empty() {
            place(Axes::arrange(to)?, from, &into)?;
        }
        Ok(into.written())
    }

    fn step(&self, from: &CudaBuffer, by: &StridedSlice) -> Result<CudaBuffer, Error> {
        from.check_len(by.whole_len())?;
        let into = CudaBuffer::unwritten(from.logical(), from.element_type(), by.len())?;
        if !into.is_empty() {
            place(Axes::step(by)?, from, &into)?;
        }
        Ok(into.written())
    }

    fn take(
        &self,
        from: &CudaBuffer,
        sizes: [usize; 3],
        indices: &CudaBuffer,
    ) -> Result<CudaBuffer, Error> {
        from.check_beside(indices)?;
        from.check_len(count(&sizes)?)?;
        from.taken(sizes, indices)
    }

    fn one_hot(
        &self,
        indices: &CudaBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<CudaBuffer, Error> {
        indices.one_hot_rows(classes, element)
    }
}

/// In `f32` and rounded once, where elements are shorter floats; in the same order each time on one
/// GPU.
impl Fold for CudaAccelerator {
    fn fold(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CudaBuffer,
    ) -> Result<CudaBuffer, Error> {
        self.check_fold(op, sizes, from)?;
        let [outer, _, inner] = sizes;
        let (logical, element) = (from.logical(), from.element_type());
        let into = CudaBuffer::unwritten(logical, element, outer * inner)?;
        let (Some(source), Some(target)) = (from.whole(), into.whole()) else {
            return Ok(into);
        };
        let module = &logical.module;
        let along = Along::new(op, element, sizes, module.multiprocessors());
        let (first, failed) = (along.first(), |failure: Failure| failure.on(logical.id));
        let Some(second) = along.second() else {
            let done = module.along(first, source, target);
            return done.map(|()| into.written()).map_err(failed);
        };
        let wide = first.result;
        let parts = usize::try_from(first.count).unwrap_or(usize::MAX);
        let parts = logical.scratch(wide, parts.saturating_mul(wide.size()))?;
        let done = module.along(first, source, parts.whole());
        let done = done.and_then(|()| module.along(second, parts.whole(), target));
        done.map(|()| into.written()).map_err(failed)
    }

    fn scan(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CudaBuffer,
    ) -> Result<CudaBuffer, Error> {
        self.check_scan(op, sizes, from)?;
        from.scanned(op, sizes)
    }

    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &CudaBuffer,
    ) -> Result<CudaBuffer, Error> {
        self.check_arg_reduce(op, sizes, from)?;
        from.arg_reduced(op, sizes)
    }
}

/// Copies elements from places of one buffer to places of another, of which there are some.
fn place(axes: Axes, from: &CudaBuffer, into: &CudaBuffer) -> Result<(), Error> {
    let aligned = from.alignment().min(into.alignment());
    let (axes, width) = axes.widened(Width::of(from.element_type()), aligned);
    let reach = axes.reach().map(|elements| elements * width.bytes());
    let first = axes.first().map(|elements| elements * width.bytes());
    let (Some(source), Some(target)) = (
        from.bytes(first[0], reach[0]),
        into.bytes(first[1], reach[1]),
    ) else {
        return Ok(());
    };
    let placed = match axes.is_one_piece() {
        true => target.copy_from(source),
        false => into.logical().module.place(&axes, width, source, target),
    };
    placed.map_err(|failure| failure.on(into.device()))
}
