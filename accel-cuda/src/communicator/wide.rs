//! Means of `f16`, whose sum may be beyond what such a number can be: summed and divided as `f32`,
//! and rounded once.

use std::sync::Arc;

use meshwork_accel::{CancelCheck, DeviceBuffer, DeviceCollective, ElementType, ReduceOp};

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
    /// Puts a mean into the device's stream, as one of `f32`.
    pub(super) fn queue_wide(
        &mut self,
        work: DeviceCollective<'_, CudaBuffer>,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        // What is freed waits for the stream, which only this does with an end.
        if !self.wide.is_empty() {
            self.finish(cancel_check)?;
        }
        match work {
            DeviceCollective::AllReduce { op, values } => {
                let sums = self.widened(values)?;
                self.queue_all_reduce(op, &sums, cancel_check)?;
                self.narrow(&sums, values)
            }
            DeviceCollective::Reduce { op, values, root } => {
                let sums = self.widened(values)?;
                self.queue_reduce(op, &sums, root, cancel_check)?;
                match root == self.rank() {
                    true => self.narrow(&sums, values),
                    false => Ok(()),
                }
            }
            DeviceCollective::ReduceScatter { op, input, output } => {
                let (terms, sums) = (self.widened(input)?, self.widened(output)?);
                self.queue_reduce_scatter(op, &terms, &sums, cancel_check)?;
                self.narrow(&sums, output)
            }
            DeviceCollective::Broadcast { values, root } => {
                self.queue_broadcast(values, root, cancel_check)
            }
            DeviceCollective::AllGather { input, output } => {
                self.queue_all_gather(input, output, cancel_check)
            }
        }
    }

    /// The elements as `f32`, kept until all operations so far are done: after a failure they may
    /// still be worked on until the communicator is aborted. Without them this rank would be an
    /// operation behind the others, so a device that has no memory for them is a failure too.
    fn widened(&mut self, values: &CudaBuffer) -> Result<Arc<CudaBuffer>, Error> {
        let wide = self.guarded(|_| Ok(Arc::new(values.converted(ElementType::F32)?)))?;
        self.wide.push(wide.clone());
        Ok(wide)
    }

    fn narrow(&mut self, from: &CudaBuffer, into: &CudaBuffer) -> Result<(), Error> {
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
