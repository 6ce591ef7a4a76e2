//! Collectives as NCCL takes them: what it lacks is refused, and a mean is a sum that is divided.

use meshwork_accel::{self as accel, CancelCheck, DeviceBuffer, DeviceCollective, ReduceOp};

use super::Communicator;
use super::wide::is_wide;
use crate::Error;
use crate::buffer::CudaBuffer;
use crate::device::LogicalDevice;
use crate::kernels::Kernel;
use crate::nccl::translate;

impl Communicator {
    /// Puts a collective into the device's stream, unless `cancel_check` breaks before NCCL has
    /// taken it in.
    pub(super) fn queue(
        &mut self,
        work: DeviceCollective<'_, CudaBuffer>,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        self.holds(work.target())?;
        if let Some(source) = work.source() {
            self.holds(source)?;
            work.target().check_element(source.element_type())?;
        }
        // What is freed waits for the stream, which only this does with an end.
        if is_wide(&work) && !self.wide.is_empty() {
            self.finish(cancel_check)?;
        }
        match work {
            DeviceCollective::AllReduce { op, values } => {
                self.queue_all_reduce(op, values, cancel_check)
            }
            DeviceCollective::Reduce { op, values, root } => {
                self.queue_reduce(op, values, root, cancel_check)
            }
            DeviceCollective::Broadcast { values, root } => {
                self.queue_broadcast(values, root, cancel_check)
            }
            DeviceCollective::AllGather { input, output } => {
                self.queue_all_gather(input, output, cancel_check)
            }
            DeviceCollective::ReduceScatter { op, input, output } => {
                self.queue_reduce_scatter(op, input, output, cancel_check)
            }
        }
    }

    fn queue_all_reduce(
        &mut self,
        op: ReduceOp,
        values: &CudaBuffer,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        let wide = self.widened(op, values)?;
        let sums = wide.as_deref().unwrap_or(values);
        let (kind, red_op) = translate(op, sums.element_type())?;
        let Some(part) = sums.part(0, sums.len()) else {
            return Ok(());
        };
        self.put("all-reduce", &[sums], cancel_check, |comm| {
            comm.all_reduce(part, kind, red_op)
        })?;
        self.divide(op, sums)?;
        self.narrow(wide.as_deref(), values)
    }

    fn queue_reduce(
        &mut self,
        op: ReduceOp,
        values: &CudaBuffer,
        root: usize,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        let wide = self.widened(op, values)?;
        let sums = wide.as_deref().unwrap_or(values);
        let (kind, red_op) = translate(op, sums.element_type())?;
        let to = self.peer(root)?;
        let Some(part) = sums.part(0, sums.len()) else {
            return Ok(());
        };
        self.put("reduce", &[sums], cancel_check, |comm| {
            comm.reduce(part, kind, red_op, to)
        })?;
        if root != self.rank() {
            return Ok(());
        }
        self.divide(op, sums)?;
        self.narrow(wide.as_deref(), values)
    }

    fn queue_broadcast(
        &mut self,
        values: &CudaBuffer,
        root: usize,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        let root = self.peer(root)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.put("broadcast", &[values], cancel_check, |comm| {
            comm.broadcast(part, root)
        })
    }

    fn queue_all_gather(
        &mut self,
        input: &CudaBuffer,
        output: &CudaBuffer,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        times(input.len(), self.world(), output.len())?;
        let parts = (input.part(0, input.len()), output.part(0, output.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.put("all-gather", &[input, output], cancel_check, |comm| {
            comm.all_gather(from, to)
        })
    }

    fn queue_reduce_scatter(
        &mut self,
        op: ReduceOp,
        input: &CudaBuffer,
        output: &CudaBuffer,
        cancel_check: &mut CancelCheck<'_>,
    ) -> Result<(), Error> {
        let (wide_input, wide) = (self.widened(op, input)?, self.widened(op, output)?);
        let terms = wide_input.as_deref().unwrap_or(input);
        let sums = wide.as_deref().unwrap_or(output);
        let (kind, red_op) = translate(op, sums.element_type())?;
        times(sums.len(), self.world(), terms.len())?;
        let parts = (terms.part(0, terms.len()), sums.part(0, sums.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.put("reduce-scatter", &[terms, sums], cancel_check, |comm| {
            comm.reduce_scatter(from, to, kind, red_op)
        })?;
        self.divide(op, sums)?;
        self.narrow(wide.as_deref(), output)
    }

    /// Makes a mean of a sum.
    fn divide(&mut self, op: ReduceOp, values: &CudaBuffer) -> Result<(), Error> {
        let whole = values.part(0, values.len());
        let (ReduceOp::Mean, Some(part)) = (op, whole) else {
            return Ok(());
        };
        let by = u32::try_from(self.world()).expect("NCCL counts ranks in 31 bits");
        let kernel = Kernel::Divide(values.element_type());
        let logical = self.logical.clone();
        let LogicalDevice { module, stream, .. } = &*logical;
        self.guarded(|_| Ok(module.divide(kernel, part, by, stream)?))
    }
}

/// Refuses a whole that is not `each` element of every one of `world` ranks.
fn times(each: usize, world: usize, whole: usize) -> Result<(), Error> {
    let (left, right) = (whole, each.saturating_mul(world));
    if left == right {
        return Ok(());
    }
    Err(accel::Error::LengthMismatch { left, right }.into())
}
