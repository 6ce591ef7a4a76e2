//! Bytes in memory that other processes have shown to nobody: the kernel copies them out of it.
//!
//! ```text
//!   all-reduce:  fetch a chunk of the others' part | fold it | …   then   fetch what others have folded
//! ```
//!
//! Whoever fetches writes to its own memory only, so a rank that has failed need not wait for those
//! who may still read from it; what they read then is not used, since they look whether it has
//! closed before they go on.

#![expect(
    unsafe_code,
    reason = "mapped and fetched sources are folded together, and flags order who touches them"
)]

use std::ops::{Range, RangeInclusive};

use meshwork_accel::{Element, Reduction};

use super::access::{BufferDescriptors, Spans};
use super::communicator::ShmCommunicator;
use super::descriptor::BufferLocation;
use super::flag::Atomic;
use super::kernel::blend;
use super::mapping::PAGE;
use super::reduce::part_of;
use super::span::{FoldSpans, Span};
use super::streaming_copy;
use super::transfer::{bytes_of, own_block};
use super::wait::Waiter;
use crate::failure::Failure;
use crate::operation::{OnArrival, ReceiveBlock, Transfer};

/// How many bytes a rank lets others fetch.
///
/// For fewer than the first of these, copying them twice is faster than looking up their pages.
/// [`REDUCED`] ends where both halves of an all-reduce would come from memory, as nothing of a
/// buffer is left in a cache; slots are.
pub(super) const TAKEN: RangeInclusive<usize> = 128 << 10..=usize::MAX;
pub(super) const REDUCED: RangeInclusive<usize> = 2 << 20..=32 << 20;
/// Bytes that are fetched at a time: what is folded next is still in the core's cache.
const CHUNK: usize = 256 << 10;
/// Room for what is fetched from all others at a time: with many ranks the chunks are shorter.
const SCRATCH: usize = 4 << 20;

impl<A: Atomic> ShmCommunicator<A> {
    /// Folds the own part of all buffers, and fetches what others have folded.
    pub(super) fn reduce_by_fetching<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        buffer_descriptors: &BufferDescriptors,
        buffer: &mut [T],
        reduction: Reduction<T>,
    ) -> Result<(), Failure> {
        let own = part_of::<T>(buffer.len(), self.len(), self.me);
        let folded = self.tick(1);
        self.with_peer_memory(waiter, |communicator| {
            for chunk in chunks::<T>(own, chunk_bytes(communicator.len())) {
                let others: Vec<ReceiveBlock> = communicator
                    .others()
                    .map(|from| take(from, &chunk))
                    .collect();
                let own = Span::of_mut(&mut buffer[chunk]);
                communicator.fold_sources(
                    buffer_descriptors,
                    &others,
                    FoldSpans::in_place(own),
                    reduction,
                )?;
            }
            communicator.own().combined.0.set(folded);
            // Not chunk by chunk while others still fold: each would wait for the other all the
            // time.
            for other in communicator.others() {
                let combined = &communicator.control_blocks[other].head().combined.0;
                communicator.wait(waiter, combined, folded, other)?;
                let part = part_of::<T>(buffer.len(), communicator.len(), other);
                let (start, into) = (part.start, &mut buffer[part]);
                communicator.fetch(other, buffer_descriptors[other].place, start, into)?;
            }
            communicator.skip_slots(folded);
            Ok(())
        })
    }

    /// Takes blocks from where they are.
    pub(super) fn exchange_by_fetching<T: Element>(
        &mut self,
        waiter: &Waiter<'_>,
        buffer_descriptors: &BufferDescriptors,
        transfer: Transfer<'_, T>,
    ) -> Result<(), Failure> {
        self.with_peer_memory(waiter, |communicator| match transfer.then {
            OnArrival::Copy => transfer.receives.iter().try_for_each(|take| {
                let into = &mut transfer.output[take.into.clone()];
                communicator.fetch(
                    take.from,
                    buffer_descriptors[take.from].place,
                    take.start,
                    into,
                )
            }),
            OnArrival::Fold(reduction) => {
                communicator.fold_fetched(buffer_descriptors, transfer, reduction)
            }
        })
    }

    /// Folds the blocks for this rank, a chunk at a time.
    fn fold_fetched<T: Element>(
        &mut self,
        buffer_descriptors: &BufferDescriptors,
        transfer: Transfer<'_, T>,
        reduction: Reduction<T>,
    ) -> Result<(), Failure> {
        let own = own_block(&transfer.outgoing_blocks, self.me);
        for chunk in chunks::<T>(0..transfer.output.len(), chunk_bytes(self.len())) {
            let part = |take: &ReceiveBlock| ReceiveBlock {
                start: take.start.saturating_add(chunk.start),
                into: chunk.clone(),
                ..take.clone()
            };
            let receives: Vec<ReceiveBlock> = transfer.receives.iter().map(part).collect();
            let own = Span::of(&own[chunk.clone()]);
            let into = Span::of_mut(&mut transfer.output[chunk]);
            self.fold_sources(
                buffer_descriptors,
                &receives,
                FoldSpans { own, into },
                reduction,
            )?;
        }
        Ok(())
    }

    /// Folds one chunk of all ranks in their order; what cannot be reached is fetched before.
    fn fold_sources<T: Element>(
        &mut self,
        buffer_descriptors: &BufferDescriptors,
        receives: &[ReceiveBlock],
        spans: FoldSpans,
        reduction: Reduction<T>,
    ) -> Result<(), Failure> {
        let mut scratch = std::mem::take(&mut self.scratch);
        // Words, because elements are at most as long and need no stricter alignment.
        let room = chunk_bytes(self.len()) / size_of::<u64>();
        scratch.resize((self.len() - 1) * room, 0);
        let mut rooms = scratch.chunks_exact_mut(room);
        let mut sources = Spans::from_elem(spans.own, self.len());
        for take in receives {
            let room = rooms.next().expect("a room for each other rank");
            sources[take.from] =
                self.source::<T>(buffer_descriptors[take.from].place, take, room)?;
        }
        // SAFETY: the owners of what is mapped leave their bytes until this rank has parted, or
        // wait for it in `close`; what was fetched and the rest is this rank's.
        unsafe { blend(reduction, &sources, &[spans.into]) };
        self.scratch = scratch;
        Ok(())
    }

    /// A block of another rank: where it is if that can be reached, else fetched into this room.
    fn source<T: Element>(
        &mut self,
        place: BufferLocation,
        take: &ReceiveBlock,
        room: &mut [u64],
    ) -> Result<Span, Failure> {
        if !matches!(place, BufferLocation::Foreign(_)) {
            return self.mapped::<T>(place, take.from, take.start, take.into.len());
        }
        let room: &mut [u8] = bytemuck::cast_slice_mut(room);
        let room = &mut room[..take.into.len() * size_of::<T>()];
        let there = self.bytes_there::<T>(take.from, take.start, take.into.len())?;
        self.fetch_bytes(take.from, place, there.start, room)?;
        Ok(Span::of_mut(room))
    }

    /// Copies a block of another rank's bytes, from wherever they are.
    fn fetch<T: Element>(
        &mut self,
        from: usize,
        place: BufferLocation,
        start: usize,
        into: &mut [T],
    ) -> Result<(), Failure> {
        if matches!(place, BufferLocation::Foreign(_))
            && let Some(bytes) = T::bytes_mut(into)
        {
            let there = self.bytes_there::<T>(from, start, bytes.len() / size_of::<T>())?;
            return self.fetch_bytes(from, place, there.start, bytes);
        }
        let source = self.mapped::<T>(place, from, start, into.len())?;
        // SAFETY: the owner has posted, and leaves its bytes until this rank has parted.
        streaming_copy::copy(into, unsafe { source.read() });
        Ok(())
    }

    /// Where a block of another rank is mapped.
    pub(super) fn mapped<T>(
        &mut self,
        place: BufferLocation,
        from: usize,
        start: usize,
        len: usize,
    ) -> Result<Span, Failure> {
        let there = self.bytes_there::<T>(from, start, len)?;
        let whole = self.reach::<T>(from, place, there.end)?;
        Ok(whole
            .part(there)
            .expect("a part of what was just made as long"))
    }

    /// Lets the kernel copy bytes of the rank at this place, which begin `start` behind `place`.
    fn fetch_bytes(
        &self,
        from: usize,
        place: BufferLocation,
        start: usize,
        into: &mut [u8],
    ) -> Result<(), Failure> {
        let address = match place {
            BufferLocation::Foreign(address) => usize::try_from(address).ok(),
            _ => None,
        };
        let address = address.and_then(|address| address.checked_add(start));
        let fetched = match address {
            Some(address) => self.copy_from_process(from, address, into),
            None => Err(std::io::ErrorKind::InvalidData.into()),
        };
        fetched.map_err(|error| self.unreachable(from, error.kind()))
    }

    /// Where elements of the rank at this place are, in bytes from the beginning of its own.
    pub(super) fn bytes_there<T>(
        &self,
        from: usize,
        start: usize,
        elements: usize,
    ) -> Result<Range<usize>, Failure> {
        bytes_of::<T>(start, elements)
            .ok_or_else(|| self.unreachable(from, std::io::ErrorKind::InvalidData))
    }

    /// Passes over the slots up to this tick, which nobody has filled.
    fn skip_slots(&mut self, tick: u32) {
        self.ticks = tick;
        self.own().published.0.set(tick);
        self.own().consumed.0.set(tick);
    }
}

fn take(from: usize, chunk: &Range<usize>) -> ReceiveBlock {
    ReceiveBlock {
        from,
        block: 0,
        start: chunk.start,
        into: chunk.clone(),
    }
}

/// Bytes that are fetched from each other rank at a time: whole pages.
fn chunk_bytes(ranks: usize) -> usize {
    let each = SCRATCH / ranks.saturating_sub(1).max(1);
    (each / PAGE * PAGE).clamp(PAGE, CHUNK)
}

/// The elements, cut in chunks of at most so many bytes.
fn chunks<T>(range: Range<usize>, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let length = bytes / size_of::<T>();
    let starts = range.clone().step_by(length);
    starts.map(move |start| start..(start + length).min(range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_and_cover_the_range() {
        for range in [0..0, 5..6, 0..CHUNK, 7..3 * CHUNK + 1] {
            let mut end = range.start;
            for chunk in chunks::<u16>(range.clone(), CHUNK) {
                assert_eq!(chunk.start, end);
                assert!(!chunk.is_empty() && chunk.len() * size_of::<u16>() <= CHUNK);
                end = chunk.end;
            }
            assert_eq!(end, range.end);
        }
    }

    #[test]
    fn what_is_fetched_takes_no_more_memory_with_more_ranks() {
        for ranks in 1..=1025 {
            let bytes = chunk_bytes(ranks);
            assert_eq!(bytes % PAGE, 0);
            assert!((ranks - 1) * bytes <= SCRATCH, "{ranks}");
            assert_eq!(bytes == CHUNK, ranks <= 17, "{ranks}");
        }
    }
}
