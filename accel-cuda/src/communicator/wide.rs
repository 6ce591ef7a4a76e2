//! Means of `f16`, whose sum may be beyond what such a number can be: summed and divided as `f32`,
//! and rounded once.

use std::sync::Arc;

use meshwork_accel::{DeviceBuffer, DeviceCollective, ElementType, ReduceOp};

use super::Communicator;
use crate::Error;
use crate::buffer::CudaBuffer;
use crate::error::Failure;

/// The type of the elements that NCCL is given for such elements.
pub(super) fn given(op: ReduceOp, element: ElementType) -> ElementType {
    match (op, element) {
        (ReduceOp::Mean, ElementType::F16) => ElementType::F32,
        (_, same) => same,
    }
}

/// Whether a collective is to be carried out in another type.
pub(super) fn is_wide<B: DeviceBuffer>(work: &DeviceCollective<'_, B>) -> bool {
    let element = work.target().element_type();
    work.op().is_some_and(|op| given(op, element) != element)
}

impl Communicator {
    /// The elements as those of another type, where the op needs that, kept until all operations
    /// so far are done: after a failure they may still be worked on until the communicator is
    /// aborted. Without them this rank would be an operation behind the others, so a device that
    /// has no memory for them is a failure too.
    pub(super) fn widened(
        &mut self,
        op: ReduceOp,
        values: &CudaBuffer,
    ) -> Result<Option<Arc<CudaBuffer>>, Error> {
        let element = given(op, values.element_type());
        if element == values.element_type() {
            return Ok(None);
        }
        let wide = self.guarded(|_| Ok(Arc::new(values.converted(element)?)))?;
        self.wide.push(wide.clone());
        Ok(Some(wide))
    }

    /// Puts what was made of widened elements where it belongs, if they were widened.
    pub(super) fn narrow(
        &mut self,
        from: Option<&CudaBuffer>,
        into: &CudaBuffer,
    ) -> Result<(), Error> {
        let Some(from) = from else {
            return Ok(());
        };
        let types = [from.element_type(), into.element_type()];
        let (Some(source), Some(target)) = (from.whole(), into.whole()) else {
            return Ok(());
        };
        let logical = self.logical.clone();
        let narrowed = |failure: Failure| failure.on(logical.id);
        self.guarded(|_| {
            let done = logical.module.convert(types, source, target);
            Ok(done.map_err(narrowed)?)
        })
    }
}
