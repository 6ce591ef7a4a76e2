//! Arithmetic by the accelerator that computes for a mesh's devices, or else by the host.

use std::borrow::Cow;

use meshwork_accel::{Pairwise, Pointwise, ProductShape};
use meshwork_layout::ops::{Op, Orientation};
use ndarray::{ArrayD, ArrayViewD};

use super::{Call, kernel};
use crate::compute::Begun;
use crate::context::Device;
use crate::exchange::Block;
use crate::{DTensor, Error, Number, Scalar};

impl Call {
    /// The device of each of this client's blocks of a result; none where the host computes.
    pub(super) fn devices<T: Scalar>(&self, number: usize) -> Option<Vec<Device<T>>> {
        let mesh = self.inferred.results()[number].produced().mesh();
        self.context.devices(mesh)
    }

    /// Products of matrices, by their devices.
    #[track_caller]
    pub(super) fn multiplied<T: Number>(
        &self,
        devices: &[Device<T>],
        [left, right]: [&DTensor<T>; 2],
        stored: [Orientation; 2],
    ) -> Result<DTensor<T>, Error> {
        let sizes = self.sizes(0)?;
        let mut begun = Vec::new();
        for (place, (device, sizes)) in devices.iter().zip(&sizes).enumerate() {
            let blocks = [left.unpack()[place].view(), right.unpack()[place].view()];
            begun.push(products(device, kernel::stacks(blocks, stored, sizes))?);
        }
        self.made_of(0, ended(begun, sizes.iter().map(|sizes| &**sizes))?)
    }
}

impl<T: Number> DTensor<T> {
    /// An op of the elements at the same index, by the accelerator's name and the host's function.
    #[track_caller]
    pub(super) fn combined(
        &self,
        op: &Op,
        (pairwise, function): (Pairwise, impl Fn(T, T) -> T),
        other: &Self,
    ) -> Result<Self, Error> {
        let call = Call::of(op, self.context(), &[self.placement(), other.placement()])?;
        let (left, right) = (call.operand(0, self)?, call.operand(1, other)?);
        let Some(devices) = call.devices(0) else {
            return call.result(0, |place, sizes| {
                let blocks = (left.unpack()[place].view(), right.unpack()[place].view());
                Ok(kernel::zip(blocks, sizes, &function))
            });
        };
        let sizes = call.sizes(0)?;
        let mut begun = Vec::new();
        for (place, (device, sizes)) in devices.into_iter().zip(&sizes).enumerate() {
            let blocks = [left.unpack()[place].view(), right.unpack()[place].view()];
            let wide = blocks.each_ref().map(|block| kernel::spread(block, sizes));
            let [left, right] = wide.each_ref().map(in_a_row);
            let one = device
                .backend
                .pairwise(pairwise, device.id, [&*left, &*right]);
            begun.push(vec![one?]);
        }
        call.made_of(0, ended(begun, sizes.iter().map(|sizes| &**sizes))?)
    }

    /// An op of each element, by the accelerator's name and the host's function.
    #[track_caller]
    pub(super) fn alone(
        &self,
        pointwise: Pointwise,
        function: impl Fn(T) -> T,
    ) -> Result<Self, Error> {
        let Some(devices) = self.context().devices::<T>(self.layout().mesh()) else {
            return self.map(function);
        };
        let settled = self.settled()?;
        let mut begun = Vec::new();
        for (device, block) in devices.into_iter().zip(settled.unpack()) {
            let block = block.view();
            let one = device
                .backend
                .pointwise(pointwise, device.id, &in_a_row(&block));
            begun.push(vec![one?]);
        }
        let blocks = ended(begun, settled.unpack().iter().map(|block| block.shape()))?;
        Self::of(self.context(), settled.placement().clone(), blocks)
    }
}

/// Begins the product of each two matrices of two stacks of as many.
fn products<T: Number>(
    device: &Device<T>,
    [left, right]: [ArrayD<T>; 2],
) -> Result<Vec<Begun<T>>, Error> {
    let [rows, inner, columns] = [left.shape()[1], left.shape()[2], right.shape()[2]];
    let shape = ProductShape::new(rows, inner, columns)?;
    let mut begun = Vec::new();
    for (left, right) in left.outer_iter().zip(right.outer_iter()) {
        let matrices = [&*in_a_row(&left), &*in_a_row(&right)];
        let backend = device.backend.clone();
        begun.push(backend.product(shape, device.id, matrices)?);
    }
    Ok(begun)
}

/// Waits for the parts of each block, of which all have as many elements; sizes are the blocks'.
fn ended<'a, T: Scalar>(
    begun: Vec<Vec<Begun<T>>>,
    sizes: impl Iterator<Item = &'a [usize]>,
) -> Result<Vec<Block<T>>, Error> {
    let mut blocks = Vec::new();
    for (parts, sizes) in begun.into_iter().zip(sizes) {
        let mut elements = vec![T::default(); sizes.iter().product()];
        let len = elements.len() / parts.len().max(1);
        for (part, elements) in parts.into_iter().zip(elements.chunks_mut(len.max(1))) {
            part(elements)?;
        }
        blocks.push(kernel::filled(sizes, elements).into_shared());
    }
    Ok(blocks)
}

/// The elements row after row.
fn in_a_row<'a, T: Copy>(block: &'a ArrayViewD<'_, T>) -> Cow<'a, [T]> {
    match block.as_slice() {
        Some(elements) => Cow::Borrowed(elements),
        None => Cow::Owned(block.iter().copied().collect()),
    }
}
