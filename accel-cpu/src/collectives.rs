//! Collectives among the logical devices of one process: host memory, worked on in blocks.

use std::ops::Range;

use meshwork_accel::{
    BufferShape, DeviceBuffer, Element, Error, NativeCollectives, ReduceOp, Reduction, by_type,
};

use crate::{CpuAccelerator, CpuBuffer};

/// Combines floats as a balanced tree over the places, like [`Reduction::complete`].
impl NativeCollectives for CpuAccelerator {
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        let shape = BufferShape::of(buffers.iter().map(|buffer| &**buffer))?;
        by_type!(shape.element(), T, all_reduce::<T>(op, buffers))
    }

    fn broadcast(&self, root: usize, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
        BufferShape::of(buffers.iter().map(|buffer| &**buffer))?;
        let places = buffers.len();
        let (before, rest) = buffers.split_at_mut(root.min(places));
        let Some((from, after)) = rest.split_first_mut() else {
            return match places {
                0 => Ok(()),
                buffers => Err(Error::RootOutside { root, buffers }),
            };
        };
        for to in before.iter_mut().chain(after) {
            let len = to.len();
            to.bytes_mut(0, len)?.copy_from_slice(from.bytes(0, len)?);
        }
        Ok(())
    }

    fn all_gather(
        &self,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        input.times(inputs.len(), output)?;
        for to in outputs {
            for (place, from) in inputs.iter().enumerate() {
                to.bytes_mut(place * input.len(), input.len())?
                    .copy_from_slice(from.bytes(0, input.len())?);
            }
        }
        Ok(())
    }

    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&CpuBuffer],
        outputs: &mut [&mut CpuBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        output.times(inputs.len(), input)?;
        let element = output.element();
        by_type!(element, T, reduce_scatter::<T>(op, inputs, outputs))
    }
}

fn all_reduce<T: Element>(op: ReduceOp, buffers: &mut [&mut CpuBuffer]) -> Result<(), Error> {
    let len = buffers.first().map_or(0, |first| first.len());
    let mut total = Total::<T>::new(op)?;
    for block in blocks(len) {
        let sources = buffers
            .iter()
            .map(|buffer| buffer.part(block.start, block.len()));
        let total = total.of(&sources.collect::<Result<Vec<_>, _>>()?)?;
        for buffer in buffers.iter_mut() {
            buffer
                .part_mut(block.start, block.len())?
                .copy_from_slice(total);
        }
    }
    Ok(())
}

fn reduce_scatter<T: Element>(
    op: ReduceOp,
    inputs: &[&CpuBuffer],
    outputs: &mut [&mut CpuBuffer],
) -> Result<(), Error> {
    let mut total = Total::<T>::new(op)?;
    for (place, output) in outputs.iter_mut().enumerate() {
        let start = place * output.len();
        for block in blocks(output.len()) {
            let sources = inputs
                .iter()
                .map(|input| input.part(start + block.start, block.len()));
            let total = total.of(&sources.collect::<Result<Vec<_>, _>>()?)?;
            output
                .part_mut(block.start, block.len())?
                .copy_from_slice(total);
        }
    }
    Ok(())
}

/// The results of one block of elements at a time.
struct Total<T: Element> {
    reduction: Reduction<T>,
    memory: Vec<T>,
}

impl<T: Element> Total<T> {
    fn new(op: ReduceOp) -> Result<Self, Error> {
        Ok(Self {
            reduction: Reduction::new(op)?,
            memory: vec![T::default(); BLOCK],
        })
    }

    fn of(&mut self, sources: &[&[T]]) -> Result<&[T], Error> {
        let len = sources.first().map_or(0, |first| first.len());
        let total = &mut self.memory[..len];
        self.reduction.complete(total, sources)?;
        Ok(total)
    }
}

fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..len).step_by(BLOCK);
    starts.map(move |start| start..len.min(start + BLOCK))
}

/// Elements that are worked on at a time: what is written back is still in a cache.
const BLOCK: usize = 8192;
