//! Accelerators that compute for tensors: blocks are carried to a device, and the result back.

use std::any::Any;
use std::sync::Arc;

use meshwork_accel::{
    DeviceId, Element, Elementwise, Error, Matmul, Pairwise, Pointwise, ProductShape, bf16, f16,
};

/// What a device does with values of one type, none of which are its own.
pub(crate) trait Compute<T>: Send + Sync {
    /// Begins an op of each of `values`.
    fn pointwise(
        self: Arc<Self>,
        op: Pointwise,
        device: DeviceId,
        values: &[T],
    ) -> Result<Begun<T>, Error>;

    /// Begins an op of the elements at one place, of which both have as many.
    fn pairwise(
        self: Arc<Self>,
        op: Pairwise,
        device: DeviceId,
        values: [&[T]; 2],
    ) -> Result<Begun<T>, Error>;

    /// Begins the product of two matrices, row after row.
    fn product(
        self: Arc<Self>,
        shape: ProductShape,
        device: DeviceId,
        matrices: [&[T]; 2],
    ) -> Result<Begun<T>, Error>;
}

/// A result that a device may not have yet: waits for it, and fills as many elements.
pub(crate) type Begun<T> = Box<dyn FnOnce(&mut [T]) -> Result<(), Error>>;

impl<A: Elementwise + Matmul + 'static, T: Element> Compute<T> for A {
    fn pointwise(
        self: Arc<Self>,
        op: Pointwise,
        device: DeviceId,
        values: &[T],
    ) -> Result<Begun<T>, Error> {
        let mut values = carried(&*self, device, values)?;
        Elementwise::pointwise(&*self, op, &mut values)?;
        Ok(begun(self, values))
    }

    fn pairwise(
        self: Arc<Self>,
        op: Pairwise,
        device: DeviceId,
        [left, right]: [&[T]; 2],
    ) -> Result<Begun<T>, Error> {
        let mut into = carried(&*self, device, left)?;
        let by = carried(&*self, device, right)?;
        Elementwise::pairwise(&*self, op, &mut into, &by)?;
        Ok(begun(self, into))
    }

    fn product(
        self: Arc<Self>,
        shape: ProductShape,
        device: DeviceId,
        [left, right]: [&[T]; 2],
    ) -> Result<Begun<T>, Error> {
        let left = carried(&*self, device, left)?;
        let right = carried(&*self, device, right)?;
        let mut into = self.allocate(device, T::TYPE, shape.product())?;
        self.matmul(shape, &left, &right, &mut into)?;
        Ok(begun(self, into))
    }
}

fn carried<A: Elementwise, T: Element>(
    accelerator: &A,
    device: DeviceId,
    values: &[T],
) -> Result<A::Buffer, Error> {
    let mut buffer = accelerator.allocate(device, T::TYPE, values.len())?;
    accelerator.upload(values, &mut buffer, 0)?;
    Ok(buffer)
}

fn begun<A: Elementwise + 'static, T: Element>(accelerator: Arc<A>, result: A::Buffer) -> Begun<T>
where
    A::Buffer: 'static,
{
    Box::new(move |values| accelerator.download(&result, 0, values))
}

/// An accelerator of whatever kind, by the types of elements that tensors compute with on it.
pub(crate) struct Backend {
    /// Each an `Arc<dyn Compute<T>>` of the same accelerator.
    of_types: [Box<dyn Any + Send + Sync>; 4],
}

impl Backend {
    pub(crate) fn new<A: Elementwise + Matmul + 'static>(accelerator: &Arc<A>) -> Self {
        Self {
            of_types: [
                of_type::<A, f16>(accelerator),
                of_type::<A, bf16>(accelerator),
                of_type::<A, f32>(accelerator),
                of_type::<A, f64>(accelerator),
            ],
        }
    }

    /// The accelerator for elements `T`; none where they are no floats.
    pub(crate) fn of<T: Element>(&self) -> Option<Arc<dyn Compute<T>>> {
        let known = self.of_types.iter();
        let mut known = known.filter_map(|any| any.downcast_ref::<Arc<dyn Compute<T>>>());
        known.next().cloned()
    }
}

fn of_type<A: Elementwise + Matmul + 'static, T: Element>(
    accelerator: &Arc<A>,
) -> Box<dyn Any + Send + Sync> {
    let shared: Arc<dyn Compute<T>> = accelerator.clone();
    Box::new(shared)
}
