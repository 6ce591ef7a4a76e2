//! All-reduce and reduce among the ranks of a host.
//!
//! ```text
//!   small:   all copy in | meet | each folds everything
//!            all copy in | meet, and the top of the tree folds | all copy out      (many ranks)
//!   direct:  meet | each folds its part of all buffers, into all buffers | part
//!   slots:   for each piece:  copy in the others' parts | fold the own part | copy out
//! ```
//!
//! Every element is folded once, by one rank, in the order of the ranks: the bits depend on nothing
//! but the contributions.

#![expect(
    unsafe_code,
    reason = "the buffers of other ranks are reached by address; flags order who touches them"
)]

use std::ops::Range;

use meshwork_accel::{Element, Reduction};

use super::access::{BufferDescriptors, DataPath, Spans};
use super::communicator::ShmCommunicator;
use super::descriptor::BufferLocation;
use super::fetch;
use super::flag::Atomic;
use super::gather::TOP;
use super::kernel::{blend, fold_into};
use super::span::Span;
use super::wait::Waiter;
use crate::failure::Failure;
use crate::operation::Request;

/// Who gets the result of a reduction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Receiver {
    /// Every rank.
    All,
    /// The rank at this place among the ranks of the host.
    One(usize),
}

/// A reduction, and who gets the result.
#[derive(Debug)]
pub(crate) struct ReducePlan<T: Element> {
    reduction: Reduction<T>,
    receiver: Receiver,
}

impl<T: Element> ReducePlan<T> {
    pub(super) fn new(reduction: Reduction<T>, receiver: Receiver) -> Self {
        Self {
            reduction,
            receiver,
        }
    }
}

impl Receiver {
    fn is(self, place: usize) -> bool {
        match self {
            Self::All => true,
            Self::One(root) => root == place,
        }
    }
}

impl<A: Atomic> ShmCommunicator<A> {
    /// The receiver's buffer becomes the reduction of all buffers, which have one length; the
    /// others' stay as they are.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        buffer: &mut [T],
        plan: &ReducePlan<T>,
    ) -> Result<(), Failure> {
        let len = buffer.len();
        // Once others are told where the buffer is, they write to it: until all have parted, this
        // rank too goes by the span alone, as any use of the slice would claim all of it.
        let whole = Span::of_mut(buffer);
        let place = match plan.receiver {
            Receiver::All => self.place_to_read::<T>(whole, &fetch::REDUCED),
            Receiver::One(_) => self.place(whole),
        };
        if place == BufferLocation::Small {
            let small = self.control_blocks[self.me].small(self.sequence.wrapping_add(1));
            let small = small.part(0..whole.bytes());
            let small = small.expect("`place` has compared the length");
            // SAFETY: all have read what was here two operations ago; see `Head`.
            unsafe { small.write() }.copy_from_slice(buffer);
        }
        let first = 0..len.min(self.piece_elements::<T>());
        let pieces = len.div_ceil(self.piece_elements::<T>());
        let told = self.post_call(request, place, pieces as u64);
        if matches!(place, BufferLocation::Segment { .. }) && plan.receiver.is(self.me) {
            self.exposed = Some(whole);
        }
        if place == BufferLocation::Private {
            // Whatever the others say, it goes through slots: the first one is filled meanwhile.
            self.copy_in(waiter, self.ticks, &buffer[first])?;
        }
        let fold = || self.fold_for_all(whole.bytes(), plan);
        match &self.await_peers(waiter, &told, fold)? {
            DataPath::Small => {
                self.prefetch_next_small(size_of_val(buffer));
                self.reduce_small(buffer, plan);
                Ok(())
            }
            DataPath::Direct(buffer_descriptors) => {
                self.reduce_direct(waiter, buffer_descriptors, whole, plan)
            }
            DataPath::Fetch(buffer_descriptors) => {
                self.reduce_by_fetching(waiter, buffer_descriptors, buffer, plan.reduction)
            }
            DataPath::Slots(_) => {
                let filled = usize::from(place == BufferLocation::Private);
                self.reduce_by_slots(waiter, filled, buffer, plan)
            }
        }
    }

    fn reduce_small<T: Element>(&mut self, buffer: &mut [T], plan: &ReducePlan<T>) {
        if !plan.receiver.is(self.me) {
            return;
        }
        let bytes = size_of_val(buffer);
        if self.shape.gathers() && plan.receiver == Receiver::All {
            // SAFETY: the top has folded before any rank was told that all have come, and writes
            // there again two operations later, when all have read it.
            return buffer.copy_from_slice(unsafe { self.small(TOP, bytes).read() });
        }
        if self.len() == 2 {
            // SAFETY: as below.
            let theirs = unsafe { self.small(1 - self.me, bytes).read() };
            return fold_into(plan.reduction, buffer, theirs);
        }
        let sources = self.all_small(bytes);
        let own = [Span::of_mut(buffer)];
        // SAFETY: every rank has posted, so what they have copied in is complete, and they write
        // there again two operations later, when all have read it; the buffer is the caller's.
        unsafe { blend(plan.reduction, &sources, &own) };
    }

    /// What the top does for all: where each would fold, the bytes that are read grow with the
    /// square of the ranks.
    fn fold_for_all<T: Element>(&self, bytes: usize, plan: &ReducePlan<T>) {
        if plan.receiver != Receiver::All {
            return;
        }
        let sources = self.all_small(bytes);
        // SAFETY: every rank has posted, so what they have copied in is complete; the others touch
        // none of it before they are told that all have come.
        unsafe { blend(plan.reduction, &sources, &[sources[TOP]]) };
    }

    fn all_small(&self, bytes: usize) -> Spans {
        (0..self.len())
            .map(|place| self.small(place, bytes))
            .collect()
    }

    /// Where a rank hands over so many bytes in this operation.
    fn small(&self, place: usize, bytes: usize) -> Span {
        let small = self.control_blocks[place].small(self.sequence);
        let small = small.part(0..bytes);
        small.expect("`place` has compared the length")
    }

    fn reduce_direct<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        buffer_descriptors: &BufferDescriptors,
        whole: Span,
        plan: &ReducePlan<T>,
    ) -> Result<(), Failure> {
        let bytes = whole.bytes();
        let mut buffers: Spans = Spans::new();
        for (place, buffer_descriptor) in buffer_descriptors.iter().enumerate() {
            buffers.push(if place == self.me {
                whole
            } else {
                self.reach::<T>(place, buffer_descriptor.place, bytes)?
            });
        }
        let own = part_of::<T>(bytes / size_of::<T>(), self.len(), self.me);
        let own = own.start * size_of::<T>()..own.end * size_of::<T>();
        let part = |span: &Span| span.part(own.clone()).expect("all buffers are as long");
        let sources: Spans = buffers.iter().map(part).collect();
        let receives = |(place, _): &(usize, &Span)| plan.receiver.is(*place);
        let targets = sources.iter().enumerate().filter(receives);
        let targets: Spans = targets.map(|(_, span)| *span).collect();
        self.with_peer_memory(waiter, |_| {
            // SAFETY: every rank has posted and waits in `part`, so nobody but the owner of this
            // part, which is this rank, touches these ranges of the buffers; a rank that fails
            // meanwhile waits in `close`, or keeps other memory at these addresses.
            unsafe { blend(plan.reduction, &sources, &targets) };
            Ok(())
        })
    }

    /// Each piece goes through three stages, and three pieces are under way at a time. So many
    /// slots are `filled` already.
    fn reduce_by_slots<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        filled: usize,
        buffer: &mut [T],
        plan: &ReducePlan<T>,
    ) -> Result<(), Failure> {
        let piece = self.piece_elements::<T>();
        let len = buffer.len();
        let pieces = len.div_ceil(piece);
        let range = |index: usize| index * piece..((index + 1) * piece).min(len);
        for step in 0..pieces + 2 {
            if (filled..pieces).contains(&step) {
                self.copy_in(waiter, self.tick(step), &buffer[range(step)])?;
            }
            if let Some(index) = step.checked_sub(1).filter(|index| *index < pieces) {
                let tick = self.tick(index);
                self.fold_own_part(waiter, tick, &mut buffer[range(index)], plan)?;
            }
            if let Some(index) = step.checked_sub(2) {
                let tick = self.tick(index);
                self.copy_out(waiter, tick, &mut buffer[range(index)], plan)?;
            }
        }
        self.ticks = self.tick(pieces);
        Ok(())
    }

    /// Puts the parts that others fold into this rank's slot.
    fn copy_in<T: Element>(
        &self,
        waiter: &Waiter<'_>,
        tick: u32,
        piece: &[T],
    ) -> Result<(), Failure> {
        self.await_free_slot(waiter, tick)?;
        for other in self.others() {
            let part = part_of::<T>(piece.len(), self.len(), other);
            let slot = self.in_slot::<T>(self.me, tick, &part);
            // SAFETY: all ranks are done with what was in the slot.
            unsafe { slot.write() }.copy_from_slice(&piece[part]);
        }
        self.own().published.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// Folds this rank's part of all slots, into its slot and its buffer.
    fn fold_own_part<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        tick: u32,
        piece: &mut [T],
        plan: &ReducePlan<T>,
    ) -> Result<(), Failure> {
        let part = part_of::<T>(piece.len(), self.len(), self.me);
        let mut sources = Spans::new();
        for place in 0..self.len() {
            sources.push(if place == self.me {
                Span::of_mut(&mut piece[part.clone()])
            } else {
                let published = &self.control_blocks[place].head().published.0;
                self.wait(waiter, published, tick.wrapping_add(1), place)?;
                self.in_slot::<T>(place, tick, &part)
            });
        }
        let mut targets = Spans::new();
        if plan.receiver != Receiver::One(self.me) {
            targets.push(self.in_slot::<T>(self.me, tick, &part));
        }
        if plan.receiver.is(self.me) {
            targets.push(sources[self.me]);
        }
        // SAFETY: the others have published this piece, and this part of it is read by this rank
        // alone; in the own slot the part is free, because nothing was published in it.
        unsafe { blend(plan.reduction, &sources, &targets) };
        self.own().combined.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// Takes the parts that others have folded.
    fn copy_out<T: Element>(
        &self,
        waiter: &Waiter<'_>,
        tick: u32,
        piece: &mut [T],
        plan: &ReducePlan<T>,
    ) -> Result<(), Failure> {
        for other in self.others() {
            let combined = &self.control_blocks[other].head().combined.0;
            self.wait(waiter, combined, tick.wrapping_add(1), other)?;
            if plan.receiver.is(self.me) {
                let part = part_of::<T>(piece.len(), self.len(), other);
                let slot = self.in_slot::<T>(other, tick, &part);
                // SAFETY: the owner has folded the part and leaves it until all have consumed it.
                piece[part].copy_from_slice(unsafe { slot.read() });
            }
        }
        self.own().consumed.0.set(tick.wrapping_add(1));
        Ok(())
    }

    fn in_slot<T: Element>(&self, place: usize, tick: u32, part: &Range<usize>) -> Span {
        let bytes = part.start * size_of::<T>()..part.end * size_of::<T>();
        let slot = self.control_blocks[place].slot(tick).part(bytes);
        slot.expect("a piece is no longer than a slot")
    }

    fn piece_elements<T: Element>(&self) -> usize {
        self.shape.slot() / size_of::<T>()
    }
}

/// The part of a buffer that the rank at `place` folds: whole cache lines, so that two ranks never
/// write to one.
pub(super) fn part_of<T>(len: usize, ranks: usize, place: usize) -> Range<usize> {
    let line = 64 / size_of::<T>();
    let part = len.div_ceil(ranks).next_multiple_of(line);
    (place * part).min(len)..((place + 1) * part).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_cover_the_buffer() {
        for len in (0..200).chain([1000, 4097]) {
            for ranks in 1..=9 {
                let mut end = 0;
                for place in 0..ranks {
                    let part = part_of::<f32>(len, ranks, place);
                    assert_eq!(part.start, end);
                    end = part.end;
                }
                assert_eq!(end, len);
            }
        }
    }
}
