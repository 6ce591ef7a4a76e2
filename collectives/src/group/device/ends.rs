//! Where chunks come from and go to on this rank.

use std::marker::PhantomData;
use std::ops::Range;

use meshwork_accel::{Accelerator, Element, Error};

use super::slot::{Slot, SlotRange};

/// Both ends of a pipeline.
pub(super) trait Ends<S, E> {
    /// Fetches a chunk, or begins to.
    fn load(&mut self, slot: &mut S, chunk: Range<usize>) -> Result<(), E>;

    /// Puts it where it belongs, or begins to.
    fn store(&mut self, slot: &mut S, chunk: Range<usize>) -> Result<(), E>;
}

/// One buffer, of which chunks are fetched, replaced, or both.
pub(super) struct InPlace<'a, A: Accelerator, T> {
    pub(super) accelerator: &'a A,
    pub(super) buffer: &'a mut A::Buffer,
    pub(super) gives: bool,
    pub(super) gets: bool,
    pub(super) elements: PhantomData<T>,
}

impl<A: Accelerator, T: Element> Ends<Slot<A::Buffer>, Error> for InPlace<'_, A, T> {
    fn load(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        if !self.gives {
            return Ok(());
        }
        let into = SlotRange::given(0..chunk.len());
        slot.load::<T>(self.accelerator, self.buffer, chunk.start, &into)
    }

    fn store(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        if !self.gets {
            return Ok(());
        }
        let from = SlotRange::given(0..chunk.len());
        slot.store::<T>(self.accelerator, &from, self.buffer, chunk.start)
    }
}

/// A block of this rank on one side, a block of every rank on the other.
pub(super) struct Blocks<'a, A: Accelerator, T> {
    pub(super) accelerator: &'a A,
    pub(super) input: &'a A::Buffer,
    pub(super) output: &'a mut A::Buffer,
    /// Elements of a block.
    pub(super) len: usize,
    pub(super) world: usize,
    pub(super) elements: PhantomData<T>,
}

/// Chunks of this rank's block become chunks of every block.
pub(super) struct Gathered<'a, A: Accelerator, T>(pub(super) Blocks<'a, A, T>);

impl<A: Accelerator, T: Element> Ends<Slot<A::Buffer>, Error> for Gathered<'_, A, T> {
    fn load(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        let blocks = &self.0;
        let into = SlotRange::given(0..chunk.len());
        slot.load::<T>(blocks.accelerator, blocks.input, chunk.start, &into)
    }

    fn store(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        let blocks = &mut self.0;
        let (len, start) = (chunk.len(), chunk.start);
        for place in 0..blocks.world {
            let from = SlotRange::got(place * len..(place + 1) * len);
            let at = place * blocks.len + start;
            slot.store::<T>(blocks.accelerator, &from, blocks.output, at)?;
        }
        Ok(())
    }
}

/// Chunks of every block become chunks of this rank's block.
pub(super) struct Scattered<'a, A: Accelerator, T>(pub(super) Blocks<'a, A, T>);

impl<A: Accelerator, T: Element> Ends<Slot<A::Buffer>, Error> for Scattered<'_, A, T> {
    fn load(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        let blocks = &self.0;
        let (len, start) = (chunk.len(), chunk.start);
        for place in 0..blocks.world {
            let into = SlotRange::given(place * len..(place + 1) * len);
            let at = place * blocks.len + start;
            slot.load::<T>(blocks.accelerator, blocks.input, at, &into)?;
        }
        Ok(())
    }

    fn store(&mut self, slot: &mut Slot<A::Buffer>, chunk: Range<usize>) -> Result<(), Error> {
        let blocks = &mut self.0;
        let from = SlotRange::got(0..chunk.len());
        slot.store::<T>(blocks.accelerator, &from, blocks.output, chunk.start)
    }
}
