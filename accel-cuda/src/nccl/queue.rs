//! Collectives as NCCL takes them: what it lacks is refused, and a mean is a sum that is divided.

use meshwork_accel::{self as accel, Collective, DeviceBuffer, ReduceOp, Watch};

use super::{Communicator, translate};
use crate::Error;
use crate::buffer::CudaBuffer;
use crate::device::Logical;
use crate::kernels::Kernel;

impl Communicator {
    /// Puts a collective into the device's stream, unless `watch` breaks before NCCL has taken it in.
    pub(super) fn queue(
        &mut self,
        work: Collective<'_, CudaBuffer>,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        self.holds(work.target())?;
        if let Some(source) = work.source() {
            self.holds(source)?;
            work.target().check_element(source.element_type())?;
        }
        match work {
            Collective::AllReduce { op, values } => self.queue_all_reduce(op, values, watch),
            Collective::Reduce { op, values, root } => self.queue_reduce(op, (values, root), watch),
            Collective::Broadcast { values, root } => self.queue_broadcast(values, root, watch),
            Collective::AllGather { input, output } => self.queue_all_gather(input, output, watch),
            Collective::ReduceScatter { op, input, output } => {
                self.queue_reduce_scatter(op, (input, output), watch)
            }
        }
    }

    fn queue_all_reduce(
        &mut self,
        op: ReduceOp,
        values: &CudaBuffer,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let (kind, red_op) = translate(op, values.element_type())?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.put("all-reduce", watch, |comm| {
            comm.all_reduce(part, kind, red_op)
        })?;
        self.divide(op, values)
    }

    fn queue_reduce(
        &mut self,
        op: ReduceOp,
        (values, root): (&CudaBuffer, usize),
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let how = translate(op, values.element_type())?;
        let to = self.peer(root)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.put("reduce", watch, |comm| comm.reduce(part, how, to))?;
        match root == self.rank() {
            true => self.divide(op, values),
            false => Ok(()),
        }
    }

    fn queue_broadcast(
        &mut self,
        values: &CudaBuffer,
        root: usize,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let root = self.peer(root)?;
        let Some(part) = values.part(0, values.len()) else {
            return Ok(());
        };
        self.put("broadcast", watch, |comm| comm.broadcast(part, root))
    }

    fn queue_all_gather(
        &mut self,
        input: &CudaBuffer,
        output: &CudaBuffer,
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        times(input.len(), self.world(), output.len())?;
        let parts = (input.part(0, input.len()), output.part(0, output.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.put("all-gather", watch, |comm| comm.all_gather(from, to))
    }

    fn queue_reduce_scatter(
        &mut self,
        op: ReduceOp,
        (input, output): (&CudaBuffer, &CudaBuffer),
        watch: &mut Watch<'_>,
    ) -> Result<(), Error> {
        let (kind, red_op) = translate(op, output.element_type())?;
        times(output.len(), self.world(), input.len())?;
        let parts = (input.part(0, input.len()), output.part(0, output.len()));
        let (Some(from), Some(to)) = parts else {
            return Ok(());
        };
        self.put("reduce-scatter", watch, |comm| {
            comm.reduce_scatter(from, to, kind, red_op)
        })?;
        self.divide(op, output)
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
        let Logical { module, stream, .. } = &*logical;
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
