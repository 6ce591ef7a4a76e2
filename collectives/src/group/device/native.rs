//! Several devices of each rank, which reduce among themselves by links of their own.

use meshwork_accel::{
    self as accel, DeviceBuffer, DeviceCollective, NativeCollectives, ReduceOp, by_type,
};

use super::DeviceGroup;
use crate::OperationError;
use crate::contract::Kind;
use crate::group::collect::length;
use crate::operation::OperationSpec;

impl<A: NativeCollectives> DeviceGroup<'_, A> {
    /// Replaces every buffer, one of each device of every rank, by the reduction of all of them.
    ///
    /// The devices of a rank reduce among themselves first, as they can without host memory; then
    /// the first of them takes part for all, and shares the result with the others. A mean of
    /// integers is that of all buffers, of whose sum what is left of the division is dropped once;
    /// a sum of all that wraps is not the mean.
    ///
    /// # Shapes
    /// All buffers have the same length, on every rank, and every rank has as many, at least one,
    /// on devices of their own; the first is on that of the communicator, if there is one.
    ///
    /// # Errors
    /// Those of [`all_reduce`](Self::all_reduce); [`OperationError::Length`] without a buffer; and
    /// [`OperationError::Unsupported`] for buffers that differ or share a device.
    #[track_caller]
    pub fn all_reduce_each(
        &mut self,
        buffers: &mut [&mut A::Buffer],
        op: ReduceOp,
    ) -> Result<(), OperationError> {
        let element = alike(buffers, op)?.element_type();
        let elements = buffers.iter().map(|buffer| buffer.len()).sum();
        let spec = OperationSpec::new(Kind::AllReduce, elements).with_op(op);
        self.group
            .agree(element, spec.with_lengths(&[buffers.len()]))?;
        // Each division of integers drops what is left, so a rank's sum is divided at the end only.
        let divides_late = op == ReduceOp::Mean && !element.is_float();
        let first = if divides_late { ReduceOp::Sum } else { op };
        let native = self.accelerator.all_reduce(first, buffers);
        native.map_err(|error| self.group.device_failed(error))?;
        if let Some(values) = buffers.first_mut() {
            self.carry_out(DeviceCollective::AllReduce { op, values })?;
        }
        let native = match divides_late {
            true => self.divide(buffers),
            false => self.accelerator.broadcast(0, buffers),
        };
        native.map_err(|error| self.group.device_failed(error))
    }

    /// Replaces every buffer by the first, divided by how many there are: by the mean of that and
    /// zeros. With the sum s of w ranks of d devices each, s / w and that / d towards zero is
    /// s / (w d) towards zero.
    fn divide(&self, buffers: &mut [&mut A::Buffer]) -> Result<(), accel::Error> {
        let accelerator = self.accelerator;
        for buffer in buffers.iter_mut().skip(1) {
            let (element, all) = (buffer.element_type(), 0..buffer.len());
            by_type!(element, T, accelerator.fill(buffer, all, T::default()))?;
        }
        accelerator.all_reduce(ReduceOp::Mean, buffers)
    }
}

/// The first of some buffers that one collective can take.
fn alike<'a, B: DeviceBuffer>(
    buffers: &'a [&mut B],
    op: ReduceOp,
) -> Result<&'a B, OperationError> {
    length("all_reduce", "list of buffers", buffers.len().min(1), 1)?;
    let (first, others) = (&*buffers[0], &buffers[1..]);
    let element = first.element_type();
    if !op.supports(element) {
        return Err(accel::Error::UnsupportedOp { op, element }.into());
    }
    for (place, other) in others.iter().enumerate() {
        first.check_element(other.element_type())?;
        length(
            "all_reduce",
            "buffer of another device",
            other.len(),
            first.len(),
        )?;
        let device = other.device();
        if buffers[..=place]
            .iter()
            .any(|buffer| buffer.device() == device)
        {
            return Err(accel::Error::DeviceRepeated { device }.into());
        }
    }
    Ok(first)
}
