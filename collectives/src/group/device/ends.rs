//! Where portions come from and go to on this rank.

use std::ops::Range;

use meshwork_accel::{Accelerator, Element, Error};

use super::slot::Slot;

/// Both ends of a pipeline.
pub(super) trait Ends<S, E> {
    /// Fetches a portion.
    fn load(&mut self, slot: &mut S, portion: Range<usize>) -> Result<(), E>;

    /// Puts it where it belongs.
    fn store(&mut self, slot: &mut S, portion: Range<usize>) -> Result<(), E>;
}

/// One buffer, of which portions are fetched, replaced, or both.
pub(super) struct InPlace<'a, A: Accelerator> {
    pub(super) accelerator: &'a A,
    pub(super) buffer: &'a mut A::Buffer,
    pub(super) gives: bool,
    pub(super) gets: bool,
}

impl<A: Accelerator, T: Element> Ends<Slot<T>, Error> for InPlace<'_, A> {
    fn load(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        if !self.gives {
            return Ok(());
        }
        let given = slot.given(portion.len());
        self.accelerator.download(self.buffer, portion.start, given)
    }

    fn store(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        if !self.gets {
            return Ok(());
        }
        let got = slot.given(portion.len());
        self.accelerator.upload(got, self.buffer, portion.start)
    }
}

/// A block of this rank on one side, a block of every rank on the other.
pub(super) struct Blocks<'a, A: Accelerator> {
    pub(super) accelerator: &'a A,
    pub(super) input: &'a A::Buffer,
    pub(super) output: &'a mut A::Buffer,
    /// Elements of a block.
    pub(super) len: usize,
    pub(super) world: usize,
}

/// Portions of this rank's block become portions of every block.
pub(super) struct Gathered<'a, A: Accelerator>(pub(super) Blocks<'a, A>);

impl<A: Accelerator, T: Element> Ends<Slot<T>, Error> for Gathered<'_, A> {
    fn load(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        let Blocks {
            accelerator, input, ..
        } = &self.0;
        accelerator.download(input, portion.start, slot.given(portion.len()))
    }

    fn store(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        let blocks = &mut self.0;
        let (len, start) = (portion.len(), portion.start);
        let got = slot.got(len * blocks.world);
        for place in 0..blocks.world {
            let from = &got[place * len..(place + 1) * len];
            let at = place * blocks.len + start;
            blocks.accelerator.upload(from, blocks.output, at)?;
        }
        Ok(())
    }
}

/// Portions of every block become portions of this rank's block.
pub(super) struct Scattered<'a, A: Accelerator>(pub(super) Blocks<'a, A>);

impl<A: Accelerator, T: Element> Ends<Slot<T>, Error> for Scattered<'_, A> {
    fn load(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        let blocks = &self.0;
        let (len, start) = (portion.len(), portion.start);
        let given = slot.given(len * blocks.world);
        for place in 0..blocks.world {
            let into = &mut given[place * len..(place + 1) * len];
            let at = place * blocks.len + start;
            blocks.accelerator.download(blocks.input, at, into)?;
        }
        Ok(())
    }

    fn store(&mut self, slot: &mut Slot<T>, portion: Range<usize>) -> Result<(), Error> {
        let blocks = &mut self.0;
        let from = slot.got(portion.len());
        blocks
            .accelerator
            .upload(from, blocks.output, portion.start)
    }
}
