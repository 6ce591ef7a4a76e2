//! What backends do with buffers whose type only they know.

use std::any::Any;
use std::sync::Arc;

use meshwork_accel::{
    Accelerator, DeviceBuffer, DeviceId, Element, ElementTask, ElementType, Elementwise, Error,
    Matmul, Pairwise, Pointwise, ProductShape,
};

/// A buffer of an accelerator.
pub(super) type Raw = Box<dyn Any + Send + Sync>;

/// What comes of buffers; none where they are not of this kind of accelerator.
pub(super) type Answer = Option<Result<Raw, Error>>;

/// What every accelerator does.
pub(super) trait Memory: Send + Sync {
    /// A new buffer of these elements, of which there are whole ones.
    fn upload(&self, device: DeviceId, element: ElementType, bytes: &[u8]) -> Result<Raw, Error>;

    /// All elements of a buffer, as a `Vec` of them.
    fn download(&self, from: &Raw) -> Result<Box<dyn Any>, Error>;
}

/// What makes new buffers of the elements of others, which stay as they are.
pub(super) trait Arithmetic: Send + Sync {
    fn pointwise(&self, op: Pointwise, of: &Raw) -> Answer;

    fn pairwise(&self, op: Pairwise, of: [&Raw; 2]) -> Answer;

    fn product(&self, shape: ProductShape, of: [&Raw; 2]) -> Answer;
}

/// An accelerator that knows its buffers again.
pub(super) struct Typed<A>(pub(super) Arc<A>);

impl<A: Accelerator<Buffer: Sync> + 'static> Memory for Typed<A> {
    fn upload(&self, device: DeviceId, element: ElementType, bytes: &[u8]) -> Result<Raw, Error> {
        let accelerator = &*self.0;
        element.run(Upload {
            accelerator,
            device,
            bytes,
        })
    }

    fn download(&self, from: &Raw) -> Result<Box<dyn Any>, Error> {
        let Some(from) = from.downcast_ref::<A::Buffer>() else {
            return Ok(Box::new(()));
        };
        let accelerator = &*self.0;
        from.element_type().run(Download { accelerator, from })
    }
}

impl<A: Elementwise<Buffer: Sync> + Matmul + 'static> Arithmetic for Typed<A> {
    fn pointwise(&self, op: Pointwise, of: &Raw) -> Answer {
        let of = of.downcast_ref::<A::Buffer>()?;
        Some(self.changed(of, |values| self.0.pointwise(op, values)))
    }

    fn pairwise(&self, op: Pairwise, [left, right]: [&Raw; 2]) -> Answer {
        let left = left.downcast_ref::<A::Buffer>()?;
        let right = right.downcast_ref::<A::Buffer>()?;
        Some(self.changed(left, |into| self.0.pairwise(op, into, right)))
    }

    fn product(&self, shape: ProductShape, [left, right]: [&Raw; 2]) -> Answer {
        let left = left.downcast_ref::<A::Buffer>()?;
        let right = right.downcast_ref::<A::Buffer>()?;
        let made = self
            .0
            .allocate(left.device(), left.element_type(), shape.product());
        Some(made.and_then(|mut into| {
            self.0.matmul(shape, left, right, &mut into)?;
            Ok(Box::new(into) as Raw)
        }))
    }
}

impl<A: Accelerator<Buffer: Sync> + 'static> Typed<A> {
    /// A changed duplicate.
    fn changed(
        &self,
        of: &A::Buffer,
        change: impl FnOnce(&mut A::Buffer) -> Result<(), Error>,
    ) -> Result<Raw, Error> {
        let mut made = self.0.duplicate(of)?;
        change(&mut made)?;
        Ok(Box::new(made))
    }
}

struct Upload<'a, A> {
    accelerator: &'a A,
    device: DeviceId,
    bytes: &'a [u8],
}

impl<A: Accelerator<Buffer: Sync> + 'static> ElementTask for Upload<'_, A> {
    type Output = Result<Raw, Error>;

    fn run<T: Element>(self) -> Result<Raw, Error> {
        // They were elements of this very type before.
        let elements: &[T] = bytemuck::checked::cast_slice(self.bytes);
        let accelerator = self.accelerator;
        let mut made = accelerator.allocate(self.device, T::TYPE, elements.len())?;
        accelerator.upload(elements, &mut made, 0)?;
        Ok(Box::new(made))
    }
}

struct Download<'a, A: Accelerator> {
    accelerator: &'a A,
    from: &'a A::Buffer,
}

impl<A: Accelerator> ElementTask for Download<'_, A> {
    type Output = Result<Box<dyn Any>, Error>;

    fn run<T: Element>(self) -> Result<Box<dyn Any>, Error> {
        let mut elements = vec![T::default(); self.from.len()];
        self.accelerator.download(self.from, 0, &mut elements)?;
        Ok(Box::new(elements))
    }
}
