//! Collectives as compiled programs, over the links that the devices have of their own.

use std::sync::Arc;

use meshwork_accel::{
    BufferShape, DeviceBuffer, DeviceId, ElementType, Error, NativeCollectives, ReduceOp,
};

use super::{PjrtAccelerator, PjrtBuffer, failed};
use crate::Buffer;
use crate::stablehlo::{Collective, Kernel, Vector, divided_in};

impl NativeCollectives for PjrtAccelerator {
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut PjrtBuffer]) -> Result<(), Error> {
        let inputs: Vec<&PjrtBuffer> = buffers.iter().map(|buffer| &**buffer).collect();
        let shape = BufferShape::of(inputs.iter().copied())?;
        supported(op, &inputs)?;
        let Some(vector) = vector(shape) else {
            return Ok(());
        };
        let results = self.together(Collective::AllReduce(op, vector), &inputs)?;
        store(self.finish(op, results, buffers)?, buffers);
        Ok(())
    }

    fn broadcast(&self, root: usize, buffers: &mut [&mut PjrtBuffer]) -> Result<(), Error> {
        let inputs: Vec<&PjrtBuffer> = buffers.iter().map(|buffer| &**buffer).collect();
        BufferShape::of(inputs.iter().copied())?;
        let Some(source) = inputs.get(root) else {
            return match inputs.len() {
                0 => Ok(()),
                buffers => Err(Error::RootOutside { root, buffers }),
            };
        };
        let Some(memory) = source.memory().cloned() else {
            return Ok(());
        };
        // XLA has no such collective on every device; a copy between devices takes the same links.
        let others = buffers
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| *place != root);
        for (_, buffer) in others {
            let device = buffer.device();
            let copied = memory
                .copy_to(device.index())
                .map_err(|error| failed(device, error))?;
            self.begun(device, &copied)?;
            buffer.set(Arc::new(copied));
        }
        Ok(())
    }

    fn all_gather(
        &self,
        inputs: &[&PjrtBuffer],
        outputs: &mut [&mut PjrtBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        input.times(inputs.len(), output)?;
        let Some(vector) = vector(input) else {
            return Ok(());
        };
        let results = self.together(Collective::AllGather(vector), inputs)?;
        store(results, outputs);
        Ok(())
    }

    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&PjrtBuffer],
        outputs: &mut [&mut PjrtBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        output.times(inputs.len(), input)?;
        supported(op, inputs)?;
        let Some(vector) = vector(input) else {
            return Ok(());
        };
        let results = self.together(Collective::ReduceScatter(op, vector), inputs)?;
        store(self.finish(op, results, outputs)?, outputs);
        Ok(())
    }
}

impl PjrtAccelerator {
    /// Makes means of sums, one for each of the outputs, to which as many devices have contributed.
    fn finish(
        &self,
        op: ReduceOp,
        sums: Vec<Arc<Buffer>>,
        outputs: &[&mut PjrtBuffer],
    ) -> Result<Vec<Arc<Buffer>>, Error> {
        if op != ReduceOp::Mean {
            return Ok(sums);
        }
        let contributions = sums.len();
        let both = sums.iter().zip(outputs);
        let means = both.map(|(sum, output)| {
            let (device, element) = (output.device(), output.element_type());
            let by = self.divisor(device, divided_in(element), contributions)?;
            self.run(device, Kernel::Divide(output.vector()), &[sum, &by], &[])
        });
        means.collect()
    }

    /// A number of contributions as a scalar of a type that elements are divided in.
    fn divisor(
        &self,
        device: DeviceId,
        element: ElementType,
        number: usize,
    ) -> Result<Buffer, Error> {
        let number = u32::try_from(number).expect("no client has more devices");
        match element {
            ElementType::F32 => self.scalar(device, number as f32),
            ElementType::F64 => self.scalar(device, f64::from(number)),
            ElementType::U64 => self.scalar(device, u64::from(number)),
            _ => self.scalar(device, i64::from(number)),
        }
    }

    /// Runs a collective over the devices of `inputs`, which are all alike and not empty.
    fn together(
        &self,
        collective: Collective,
        inputs: &[&PjrtBuffer],
    ) -> Result<Vec<Arc<Buffer>>, Error> {
        let first = inputs
            .first()
            .map_or(DeviceId::new(0), |input| input.device());
        let failed = |error| failed(first, error);
        for input in inputs {
            self.known(input.device())?;
        }
        let devices = inputs.iter().map(|input| input.device().index()).collect();
        let program = self
            .kernels
            .of_devices(collective, devices)
            .map_err(failed)?;
        let memories: Vec<&Buffer> = inputs
            .iter()
            .filter_map(|input| input.memory().map(|memory| &**memory))
            .collect();
        let arguments: Vec<&[&Buffer]> = memories.iter().map(std::slice::from_ref).collect();
        // One list of kept places holds for all devices.
        let kept = inputs
            .iter()
            .map(|input| input.kept())
            .find(|kept| !kept.is_empty());
        let run = program
            .execute_keeping(&arguments, kept.unwrap_or_default())
            .map_err(failed)?;
        let (outputs, done) = run.into_parts();
        for (event, input) in done.into_iter().zip(inputs) {
            self.known(input.device())?.add(event).map_err(failed)?;
        }
        Ok(outputs.into_iter().flatten().map(Arc::new).collect())
    }

    /// Notes that a buffer is not there yet.
    pub(super) fn begun(&self, device: DeviceId, buffer: &Buffer) -> Result<(), Error> {
        let failed = |error| failed(device, error);
        let ready = buffer.ready().map_err(failed)?;
        self.known(device)?.add(ready).map_err(failed)
    }
}

fn store(results: Vec<Arc<Buffer>>, outputs: &mut [&mut PjrtBuffer]) {
    for (output, result) in outputs.iter_mut().zip(results) {
        output.set(result);
    }
}

/// Of no buffers, nothing is refused.
fn supported(op: ReduceOp, buffers: &[&PjrtBuffer]) -> Result<(), Error> {
    let element = buffers.first().map(|first| first.element_type());
    match element.filter(|element| !op.supports(*element)) {
        Some(element) => Err(Error::UnsupportedOp { op, element }),
        None => Ok(()),
    }
}

/// Buffers of a shape as programs have them; `None` where there are no elements.
fn vector(shape: BufferShape) -> Option<Vector> {
    let (element, len) = (shape.element(), shape.len());
    (!shape.is_empty()).then_some(Vector { element, len })
}
