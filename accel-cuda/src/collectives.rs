//! Collectives among the devices of this process, by kernels that read all buffers at once.

use meshwork_accel::{
    BufferShape, DeviceBuffer, DeviceId, ElementType, Error, NativeCollectives, ReduceOp,
};

use crate::accelerator::CudaAccelerator;
use crate::buffer::CudaBuffer;
use crate::device::LogicalDevice;
use crate::kernels::Kernel;
use crate::sys::memory::{Memory, Part};

/// Combines floats as a balanced tree over the places, like
/// [`Reduction::complete`](meshwork_accel::Reduction::complete), so results have the bits of the
/// host's.
///
/// Devices of one GPU read and write each other's buffers; what is on another GPU is copied over
/// first, into memory that is not counted against limits.
impl NativeCollectives for CudaAccelerator {
    fn all_reduce(&self, op: ReduceOp, buffers: &mut [&mut CudaBuffer]) -> Result<(), Error> {
        let shape = BufferShape::of(buffers.iter().map(|buffer| &**buffer))?;
        let Some(first) = buffers.first() else {
            return Ok(());
        };
        let fold = Fold::new(op, shape.element(), first.logical())?;
        let parts = buffers
            .iter()
            .filter_map(|buffer| buffer.part(0, shape.len()));
        let parts: Vec<_> = parts.collect();
        fold.run(&parts, &parts)
    }

    fn broadcast(&self, root: usize, buffers: &mut [&mut CudaBuffer]) -> Result<(), Error> {
        let shape = BufferShape::of(buffers.iter().map(|buffer| &**buffer))?;
        let places = buffers.len();
        let Some(from) = buffers.get(root) else {
            return match places {
                0 => Ok(()),
                buffers => Err(Error::RootOutside { root, buffers }),
            };
        };
        let others = buffers
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != root);
        for (_, to) in others {
            copy(
                from.part(0, shape.len()),
                to.part(0, shape.len()),
                to.device(),
            )?;
        }
        Ok(())
    }

    fn all_gather(
        &self,
        inputs: &[&CudaBuffer],
        outputs: &mut [&mut CudaBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        input.times(inputs.len(), output)?;
        for to in outputs {
            for (place, from) in inputs.iter().enumerate() {
                let block = to.part(place * input.len(), input.len());
                copy(from.part(0, input.len()), block, to.device())?;
            }
        }
        Ok(())
    }

    fn reduce_scatter(
        &self,
        op: ReduceOp,
        inputs: &[&CudaBuffer],
        outputs: &mut [&mut CudaBuffer],
    ) -> Result<(), Error> {
        let (input, output) = BufferShape::of_pairs(inputs, outputs)?;
        output.times(inputs.len(), input)?;
        for (place, to) in outputs.iter().enumerate() {
            let fold = Fold::new(op, output.element(), to.logical())?;
            let start = place * output.len();
            let blocks = inputs
                .iter()
                .filter_map(|input| input.part(start, output.len()));
            let sources: Vec<_> = blocks.collect();
            let target: Vec<_> = to.part(0, output.len()).into_iter().collect();
            fold.run(&target, &sources)?;
        }
        Ok(())
    }
}

/// One reduction of many parts, on one device.
struct Fold<'a> {
    home: &'a LogicalDevice,
    element: ElementType,
    kernel: Kernel,
}

impl<'a> Fold<'a> {
    fn new(op: ReduceOp, element: ElementType, home: &'a LogicalDevice) -> Result<Self, Error> {
        let kernel = Kernel::fold(op, element).ok_or(Error::UnsupportedOp { op, element })?;
        Ok(Self {
            home,
            element,
            kernel,
        })
    }

    /// Sets all targets, which are as long as the sources, to the op of all sources. Parts of no
    /// elements are not given.
    fn run(&self, targets: &[Part<'_>], sources: &[Part<'_>]) -> Result<(), Error> {
        if targets.is_empty() || sources.is_empty() {
            return Ok(());
        }
        let copies = self.copies_of(sources)?;
        for (source, copy) in sources.iter().zip(&copies) {
            if let Some(copy) = copy {
                self.done(copy.whole().copy_from(*source))?;
            }
        }
        let results = self.copies_of(targets)?;
        let done = self.fold(&nearby(targets, &results), &nearby(sources, &copies));
        for (target, result) in targets.iter().zip(&results) {
            if let (Some(result), Ok(())) = (result, &done) {
                self.done(target.copy_from(result.whole()))?;
            }
        }
        done
    }

    /// Memory on this device for each part that is on another GPU.
    fn copies_of(&self, parts: &[Part<'_>]) -> Result<Vec<Option<Memory>>, Error> {
        let here = self.home.stream.gpu();
        let copy = |part: &Part<'_>| match part.stream().gpu().is(here) {
            true => Ok(None),
            false => self.home.scratch(self.element, part.bytes()).map(Some),
        };
        parts.iter().map(copy).collect()
    }

    /// All parts are on this GPU; their streams are waited for before, and wait afterwards.
    fn fold(&self, targets: &[Part<'_>], sources: &[Part<'_>]) -> Result<(), Error> {
        let stream = &self.home.stream;
        let all = || sources.iter().chain(targets);
        for part in all() {
            self.done(stream.follow(part.stream()))?;
        }
        let module = &self.home.module;
        let done = self.done(module.fold(self.kernel, targets, sources, stream));
        // Even after a failure: what was launched may still run.
        for part in all() {
            self.done(part.stream().follow(stream))?;
        }
        done
    }

    fn done(&self, result: Result<(), crate::error::Failure>) -> Result<(), Error> {
        result.map_err(|failure| failure.on(self.home.id))
    }
}

/// The copies where there are any, else the parts themselves.
fn nearby<'a>(parts: &[Part<'a>], copies: &'a [Option<Memory>]) -> Vec<Part<'a>> {
    let both = parts.iter().zip(copies);
    both.map(|(part, copy)| copy.as_ref().map_or(*part, Memory::whole))
        .collect()
}

fn copy(from: Option<Part<'_>>, to: Option<Part<'_>>, device: DeviceId) -> Result<(), Error> {
    let (Some(from), Some(to)) = (from, to) else {
        return Ok(());
    };
    to.copy_from(from).map_err(|failure| failure.on(device))
}
