//! Operations in which ranks take what others hand over: broadcast, all-gather, gather, scatter,
//! all-to-all, permute, and reduce-scatter.
//!
//! Each rank offers its input in blocks that others may take, and takes blocks from others; see
//! [`SendBlocks`] and [`ReceiveBlock`]. Through slots, a piece holds the next part of every block,
//! so that all takers are busy all the time.

#![expect(
    unsafe_code,
    reason = "the buffers of other ranks are reached by address; flags order who touches them"
)]

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use super::ShmCommunicator;
use super::access::{BufferDescriptors, DataPath, Spans};
use super::descriptor::BufferLocation;
use super::flag::Atomic;
use super::kernel::blend;
use super::span::{FoldSpans, Span};
use super::wait::Waiter;
use super::{fetch, streaming_copy};
use crate::failure::Failure;
use crate::operation::{OnArrival, ReceiveBlock, Request, SendBlocks, Transfer};

impl<A: Atomic> ShmCommunicator<A> {
    /// Offers, meets, and takes.
    pub(crate) fn exchange<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        transfer: Transfer<'_, T>,
    ) -> Result<(), Failure> {
        let outgoing_blocks = &transfer.outgoing_blocks;
        let place = self.make_reachable(outgoing_blocks);
        let parity = self.sequence.wrapping_add(1) as usize % 2;
        for (other, count) in outgoing_blocks.counts.into_iter().flatten().enumerate() {
            let shown = &self.own_peer_channel(other).counts[parity];
            shown.store(*count as u64, Ordering::Relaxed);
        }
        let told = self.post_call(request, place, self.pieces(outgoing_blocks) as u64);
        if place == BufferLocation::Private {
            // Whatever the others say, it goes through slots: the first one is filled meanwhile.
            self.publish(waiter, 0, outgoing_blocks)?;
        }
        let data_path = self.await_peers(waiter, &told, || ())?;
        let mut receives: SmallVec<[ReceiveBlock; 8]> = transfer.receives.iter().cloned().collect();
        if outgoing_blocks.counts.is_some() {
            self.find_starts(&mut receives)?;
        }
        let transfer = Transfer {
            receives: &receives,
            ..transfer
        };
        match &data_path {
            DataPath::Small => {
                self.prefetch_next_small(size_of_val(transfer.outgoing_blocks.input));
                let sources = self.small_sources::<T>(&receives)?;
                self.finish(transfer, &sources);
                Ok(())
            }
            DataPath::Direct(buffer_descriptors) => {
                let sources = self.sources::<T>(&receives, buffer_descriptors)?;
                self.with_peer_memory(waiter, |communicator| {
                    communicator.finish(transfer, &sources);
                    Ok(())
                })
            }
            DataPath::Fetch(buffer_descriptors) => {
                self.exchange_by_fetching(waiter, buffer_descriptors, transfer)
            }
            DataPath::Slots(buffer_descriptors) => {
                self.exchange_by_slots(waiter, buffer_descriptors, transfer)
            }
        }
    }

    /// Says where others find what is offered, and copies it there if it is short.
    fn make_reachable<T: Element>(&self, outgoing_blocks: &SendBlocks<'_, T>) -> BufferLocation {
        if outgoing_blocks.blocks.is_empty() {
            return BufferLocation::Nothing;
        }
        let place = self.place_to_read::<T>(Span::of(outgoing_blocks.input), &fetch::TAKEN);
        if place == BufferLocation::Small {
            let small = self.control_blocks[self.me].small(self.sequence.wrapping_add(1));
            let small = small.part(0..size_of_val(outgoing_blocks.input));
            let small = small.expect("`place` has compared the length");
            // SAFETY: all have read what was here two operations ago; see `Head`.
            unsafe { small.write() }.copy_from_slice(outgoing_blocks.input);
        }
        place
    }

    /// Where the blocks for this rank are in the small places of the others.
    fn small_sources<T>(&self, receives: &[ReceiveBlock]) -> Result<Spans, Failure> {
        let source = |take: &ReceiveBlock| {
            let there = self.bytes_there::<T>(take.from, take.start, take.into.len())?;
            let small = self.control_blocks[take.from]
                .small(self.sequence)
                .part(there);
            small.ok_or_else(|| self.unreachable(take.from, ErrorKind::InvalidData))
        };
        receives.iter().map(source).collect()
    }

    /// Where the blocks for this rank are in the memory of the others.
    fn sources<T>(
        &mut self,
        receives: &[ReceiveBlock],
        buffer_descriptors: &BufferDescriptors,
    ) -> Result<Spans, Failure> {
        let mut source = |take: &ReceiveBlock| {
            self.mapped::<T>(
                buffer_descriptors[take.from].place,
                take.from,
                take.start,
                take.into.len(),
            )
        };
        receives.iter().map(&mut source).collect()
    }

    /// Finds where the blocks for this rank begin, from the counts that the others show.
    fn find_starts(&self, receives: &mut [ReceiveBlock]) -> Result<(), Failure> {
        let parity = self.sequence as usize % 2;
        for take in receives {
            let control_block = &self.control_blocks[take.from];
            let count =
                |to: usize| control_block.peer_channel(to).counts[parity].load(Ordering::Relaxed);
            let (offered, expected) = (count(self.me), take.into.len() as u64);
            if offered != expected {
                return Err(self.uneven(take.from, offered, expected));
            }
            let before = (0..self.me).map(count).fold(0, u64::saturating_add);
            take.start = usize::try_from(before).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    /// Copies or folds what is all there.
    fn finish<T: Element>(&mut self, transfer: Transfer<'_, T>, sources: &[Span]) {
        let Transfer {
            outgoing_blocks,
            receives,
            output,
            then,
        } = transfer;
        match then {
            OnArrival::Copy => {
                for (take, source) in receives.iter().zip(sources) {
                    // SAFETY: the owner has posted, and leaves its bytes until this rank has parted
                    // or, in the small place, met it again.
                    streaming_copy::copy(&mut output[take.into.clone()], unsafe { source.read() });
                }
            }
            OnArrival::Fold(reduction) => {
                let own = own_block(&outgoing_blocks, self.me);
                let spans = FoldSpans {
                    own: Span::of(own),
                    into: Span::of_mut(output),
                };
                self.fold(reduction, receives, sources, spans);
            }
        }
    }

    /// Folds one range of all ranks in their order, this rank's `own` among them.
    fn fold<T: Element>(
        &mut self,
        reduction: Reduction<T>,
        receives: &[ReceiveBlock],
        sources: &[Span],
        spans: FoldSpans,
    ) {
        let mut ordered: Spans = SmallVec::from_elem(spans.own, self.len());
        for (take, source) in receives.iter().zip(sources) {
            ordered[take.from] = *source;
        }
        // SAFETY: the owners leave their bytes until this rank has taken them, and the output is
        // the caller's.
        unsafe { blend(reduction, &ordered, &[spans.into]) };
    }

    fn exchange_by_slots<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        buffer_descriptors: &BufferDescriptors,
        mut transfer: Transfer<'_, T>,
    ) -> Result<(), Failure> {
        let all = self.all_pieces(buffer_descriptors)?;
        let room = self.room::<T>(transfer.outgoing_blocks.parts);
        for take in transfer.receives {
            let (offered, expected) = (buffer_descriptors[take.from].pieces, take.into.len());
            if offered < expected.div_ceil(room) as u64 {
                let offered = offered.saturating_mul(room as u64);
                return Err(self.uneven(take.from, offered, expected as u64));
            }
        }
        let filled = usize::from(buffer_descriptors[self.me].place == BufferLocation::Private);
        let own = self.pieces(&transfer.outgoing_blocks);
        let taken = transfer.receives.iter().map(|take| take.into.len()).max();
        let taken = taken.unwrap_or(0).div_ceil(room);
        // Others may have more for each other. They need this rank for none of that, so it passes
        // over it.
        for step in 0..=own.max(taken) {
            if (filled..own).contains(&step) {
                self.publish(waiter, step, &transfer.outgoing_blocks)?;
            }
            if let Some(index) = step.checked_sub(1) {
                self.collect(waiter, index, &mut transfer)?;
            }
        }
        self.ticks = self.tick(all);
        let own = self.own();
        own.published.0.set(self.ticks);
        own.combined.0.set(self.ticks);
        own.consumed.0.set(self.ticks);
        Ok(())
    }

    /// Slots that all ranks go through.
    fn all_pieces(&self, buffer_descriptors: &BufferDescriptors) -> Result<usize, Failure> {
        let mut all = 0;
        for (place, buffer_descriptor) in buffer_descriptors.iter().enumerate() {
            let pieces = usize::try_from(buffer_descriptor.pieces).ok();
            let pieces = pieces.filter(|pieces| *pieces <= MOST_PIECES);
            let pieces = pieces.ok_or_else(|| self.unreachable(place, ErrorKind::InvalidData))?;
            all = all.max(pieces);
        }
        Ok(all)
    }

    /// Puts the next part of each block into this rank's slot.
    fn publish<T: Element>(
        &self,
        waiter: &Waiter<'_>,
        index: usize,
        outgoing_blocks: &SendBlocks<'_, T>,
    ) -> Result<(), Failure> {
        let (tick, room) = (self.tick(index), self.room::<T>(outgoing_blocks.parts));
        self.await_free_slot(waiter, tick)?;
        for (number, block) in outgoing_blocks.blocks.iter().enumerate() {
            let taken_by_me = outgoing_blocks.parts > 1 && number == self.me;
            let part = part(block, index, room);
            if part.is_empty() || taken_by_me {
                continue;
            }
            let slot = self.control_blocks[self.me].slot(tick);
            let there = bytes_of::<T>(number * room, part.len());
            let slot = there.and_then(|there| slot.part(there));
            let slot = slot.expect("the blocks share a slot");
            // SAFETY: all ranks are done with what was in the slot.
            unsafe { slot.write() }.copy_from_slice(&outgoing_blocks.input[part]);
        }
        self.own().published.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// Takes the part with this number of each block that is for this rank.
    fn collect<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        index: usize,
        transfer: &mut Transfer<'_, T>,
    ) -> Result<(), Failure> {
        let (tick, room) = (
            self.tick(index),
            self.room::<T>(transfer.outgoing_blocks.parts),
        );
        let mut sources = Spans::new();
        for take in transfer.receives {
            let into = part(&take.into, index, room);
            if into.is_empty() {
                continue;
            }
            let published = &self.control_blocks[take.from].head().published.0;
            self.wait(waiter, published, tick.wrapping_add(1), take.from)?;
            let slot = self.control_blocks[take.from].slot(tick);
            let there = bytes_of::<T>(take.block * room, into.len());
            let slot = there.and_then(|there| slot.part(there));
            let slot = slot.expect("the blocks share a slot");
            match transfer.then {
                // SAFETY: the owner has published the slot and leaves it until all consumed it.
                OnArrival::Copy => transfer.output[into].copy_from_slice(unsafe { slot.read() }),
                OnArrival::Fold(_) => sources.push(slot),
            }
        }
        if let OnArrival::Fold(reduction) = transfer.then {
            let own = own_block(&transfer.outgoing_blocks, self.me);
            let range = part(&(0..own.len()), index, room);
            if !range.is_empty() {
                let own = Span::of(&own[range.clone()]);
                let into = Span::of_mut(&mut transfer.output[range]);
                self.fold(
                    reduction,
                    transfer.receives,
                    &sources,
                    FoldSpans { own, into },
                );
            }
        }
        self.own().consumed.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// The root's buffer becomes everybody's.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        request: &Request,
        waiter: &Waiter<'_>,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), Failure> {
        let whole = 0..buffer.len();
        if root == self.me {
            let transfer = Transfer {
                outgoing_blocks: SendBlocks::whole(buffer, std::slice::from_ref(&whole)),
                receives: &[],
                output: &mut [],
                then: OnArrival::Copy,
            };
            return self.exchange(request, waiter, transfer);
        }
        let take = ReceiveBlock {
            from: root,
            block: 0,
            start: 0,
            into: whole,
        };
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::nothing(1),
            receives: &[take],
            output: buffer,
            then: OnArrival::Copy,
        };
        self.exchange(request, waiter, transfer)
    }

    /// Slots that the longest block of an offer takes.
    fn pieces<T: Element>(&self, outgoing_blocks: &SendBlocks<'_, T>) -> usize {
        let room = self.room::<T>(outgoing_blocks.parts);
        let longest = outgoing_blocks.blocks.iter().map(Range::len).max();
        longest.unwrap_or(0).div_ceil(room)
    }

    /// Elements of each block that fit in a slot with `blocks` blocks.
    fn room<T>(&self, blocks: usize) -> usize {
        self.shape.room(blocks) / size_of::<T>()
    }
}

/// More slots than the bytes of any machine take; flags tell numbers from before and after apart
/// that are so far from each other.
const MOST_PIECES: usize = 1 << 30;

pub(super) fn own_block<'a, T>(outgoing_blocks: &SendBlocks<'a, T>, me: usize) -> &'a [T] {
    &outgoing_blocks.input[outgoing_blocks.blocks[me].clone()]
}

/// The part with this number of a block that is cut in parts of `room` elements.
fn part(block: &Range<usize>, index: usize, room: usize) -> Range<usize> {
    let start = index.saturating_mul(room).saturating_add(block.start);
    let start = start.min(block.end);
    start..start.saturating_add(room).min(block.end)
}

/// Where these elements are in bytes; `None` where no memory is that long, as another rank's false
/// counts can ask for.
pub(super) fn bytes_of<T>(start: usize, elements: usize) -> Option<Range<usize>> {
    let end = start.checked_add(elements)?.checked_mul(size_of::<T>())?;
    Some(end - elements * size_of::<T>()..end)
}
