//! Elements put in other places, and made one along an axis, as compiled programs.

use std::ops::Range;

use meshwork_accel::{
    Accelerator, Arrange, Arrangement, DeviceBuffer, DeviceId, ElementType, Error, Fold, ReduceOp,
    Region, StridedSlice, count,
};

use super::{PjrtAccelerator, PjrtBuffer};
use crate::Buffer;
use crate::stablehlo::{Kernel, MOST_AXES, Vector};

impl Arrange for PjrtAccelerator {
    fn cut(&self, from: &PjrtBuffer, part: &Region) -> Result<PjrtBuffer, Error> {
        from.check_len(part.whole_len())?;
        few(part.whole().len())?;
        self.made(from, part.len(), |element| {
            Kernel::Cut(part.clone(), element)
        })
    }

    fn paste(&self, from: &PjrtBuffer, into: &mut PjrtBuffer, part: &Region) -> Result<(), Error> {
        into.check_device(from.device())?;
        into.check_element(from.element_type())?;
        from.check_len(part.len())?;
        into.check_len(part.whole_len())?;
        few(part.whole().len())?;
        let (Some(by), Some(whole)) = (from.memory(), into.memory()) else {
            return Ok(());
        };
        let kernel = Kernel::Paste(part.clone(), into.element_type());
        let pasted = self.run(into.device(), kernel, &[whole, by], into.kept())?;
        into.set(pasted);
        Ok(())
    }

    fn arrange(&self, from: &PjrtBuffer, to: &Arrangement) -> Result<PjrtBuffer, Error> {
        from.check_len(to.from_len())?;
        few(to.to().len())?;
        self.made(from, to.len(), |element| {
            Kernel::Arrange(to.clone(), element)
        })
    }

    fn step(&self, from: &PjrtBuffer, by: &StridedSlice) -> Result<PjrtBuffer, Error> {
        from.check_len(by.whole_len())?;
        few(by.whole().len())?;
        self.made(from, by.len(), |element| Kernel::Step(by.clone(), element))
    }

    fn take(
        &self,
        from: &PjrtBuffer,
        sizes: [usize; 3],
        indices: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        from.check_device(indices.device())?;
        from.check_len(count(&sizes)?)?;
        indices.check_whole_numbers()?;
        let [outer, _, inner] = sizes;
        let len = count(&[outer, indices.len(), inner])?;
        let (device, element) = (from.device(), from.element_type());
        if from.is_empty() {
            return self.allocate(device, element, len);
        }
        let kernel = Kernel::Take(sizes, element, indices.vector());
        self.computed(device, Vector { element, len }, kernel, &[from, indices])
    }

    fn one_hot(
        &self,
        indices: &PjrtBuffer,
        classes: Range<usize>,
        element: ElementType,
    ) -> Result<PjrtBuffer, Error> {
        let (start, end) = (classes.start, classes.end);
        if end < start {
            return Err(Error::ReversedRange { start, end });
        }
        indices.check_whole_numbers()?;
        let len = count(&[indices.len(), classes.len()])?;
        let kernel = Kernel::OneHot(indices.vector(), classes, element);
        self.computed(
            indices.device(),
            Vector { element, len },
            kernel,
            &[indices],
        )
    }
}

/// 16-bit floats are folded in `f32`, and rounded once.
impl Fold for PjrtAccelerator {
    fn fold(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        self.check_fold(op, sizes, from)?;
        let [outer, _, inner] = sizes;
        self.made(from, outer * inner, |element| {
            Kernel::Fold(op, sizes, element)
        })
    }

    fn scan(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        self.check_scan(op, sizes, from)?;
        self.made(from, from.len(), |element| Kernel::Scan(op, sizes, element))
    }

    fn arg_reduce(
        &self,
        op: ReduceOp,
        sizes: [usize; 3],
        from: &PjrtBuffer,
    ) -> Result<PjrtBuffer, Error> {
        self.check_arg_reduce(op, sizes, from)?;
        let [outer, _, inner] = sizes;
        let indices = Vector {
            element: ElementType::I64,
            len: outer * inner,
        };
        let kernel = Kernel::ArgReduce(op, sizes, from.element_type());
        self.computed(from.device(), indices, kernel, &[from])
    }
}

impl PjrtAccelerator {
    /// A new buffer of this many elements of one type, by a program of another one.
    fn made(
        &self,
        from: &PjrtBuffer,
        len: usize,
        kernel: impl FnOnce(ElementType) -> Kernel,
    ) -> Result<PjrtBuffer, Error> {
        let element = from.element_type();
        let vector = Vector { element, len };
        self.computed(from.device(), vector, kernel(element), &[from])
    }

    /// A new buffer of these elements on a device, by a program of others on it. There are none
    /// where one of the others has none.
    pub(super) fn computed(
        &self,
        device: DeviceId,
        vector: Vector,
        kernel: Kernel,
        of: &[&PjrtBuffer],
    ) -> Result<PjrtBuffer, Error> {
        let mut made = self.empty(device, vector);
        let memories = of
            .iter()
            .map(|buffer| buffer.memory().map(|memory| &**memory));
        let memories: Option<Vec<&Buffer>> = memories.collect();
        if let Some(memories) = memories.filter(|_| vector.len > 0) {
            made.set(self.run(device, kernel, &memories, &[])?);
        }
        Ok(made)
    }
}

fn few(axes: usize) -> Result<(), Error> {
    let most = MOST_AXES;
    match axes <= most {
        true => Ok(()),
        false => Err(Error::TooManyAxes { axes, most }),
    }
}
