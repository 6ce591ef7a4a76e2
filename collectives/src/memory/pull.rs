//! Operations in which ranks take what others hand over: broadcast, all-gather, gather, scatter,
//! all-to-all, permute, and reduce-scatter.
//!
//! Each rank offers its input in blocks that others may take, and takes blocks from others; see
//! [`Offer`] and [`Take`]. Through slots, a piece holds the next part of every block, so that all
//! takers are busy all the time.

#![expect(
    unsafe_code,
    reason = "the buffers of other ranks are reached by address; flags order who touches them"
)]

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;

use meshwork_accel::{Element, Reduction};
use smallvec::SmallVec;

use super::domain::{Domain, Halt, Task};
use super::flag::Atomic;
use super::kernel::blend;
use super::post::Place;
use super::reach::{Notices, Spans, Way};
use super::span::Span;
use super::wait::Patience;
use super::{far, fetch};

/// What a rank hands over: its input, cut in blocks.
pub(crate) struct Offer<'a, T> {
    pub(crate) input: &'a [T],
    /// The elements of each block; none where others take nothing from this rank.
    pub(crate) blocks: &'a [Range<usize>],
    /// How many blocks a rank that offers any has: one for all, or one for each rank.
    pub(crate) parts: usize,
    /// The only rank that takes any, where there is one.
    pub(crate) taker: Option<usize>,
    /// Elements for each rank, shown to all where they differ from pair to pair.
    pub(crate) counts: Option<&'a [usize]>,
}

impl<'a, T> Offer<'a, T> {
    /// One block for whoever takes it.
    pub(crate) fn whole(input: &'a [T], block: &'a [Range<usize>]) -> Self {
        Self {
            input,
            blocks: block,
            parts: 1,
            taker: None,
            counts: None,
        }
    }

    /// A block for each rank.
    pub(crate) fn each(input: &'a [T], blocks: &'a [Range<usize>]) -> Self {
        Self {
            input,
            blocks,
            parts: blocks.len(),
            taker: None,
            counts: None,
        }
    }

    /// Only this rank takes any.
    pub(crate) fn only_for(mut self, taker: usize) -> Self {
        self.taker = Some(taker);
        self
    }

    /// What the rank at this place takes, if any.
    pub(crate) fn block_for(&self, place: usize) -> Option<&'a [T]> {
        let index = if self.parts == 1 { 0 } else { place };
        let takes = self.taker.is_none_or(|taker| taker == place);
        let block = self.blocks.get(index).filter(|_| takes)?;
        Some(&self.input[block.clone()])
    }

    /// No block, where others offer this many.
    pub(crate) fn nothing(parts: usize) -> Self {
        Self {
            input: &[],
            blocks: &[],
            parts,
            taker: None,
            counts: None,
        }
    }
}

/// One block of another rank's input, and where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    /// Whose, by place.
    pub(crate) from: usize,
    /// Which of its blocks.
    pub(crate) block: usize,
    /// Where the block begins in its input, in elements; found out when the input has counts.
    pub(crate) start: usize,
    /// Where it goes in the output; as long as the block.
    pub(crate) into: Range<usize>,
}

/// What a rank gives and takes in one operation.
pub(crate) struct Errand<'a, T> {
    pub(crate) offer: Offer<'a, T>,
    pub(crate) takes: &'a [Take],
    pub(crate) output: &'a mut [T],
    pub(crate) then: Then<T>,
}

/// What becomes of the blocks that are taken.
#[derive(Debug)]
pub(crate) enum Then<T> {
    /// Each is copied to its place.
    Copy,
    /// All go to one place, which becomes their reduction; each rank takes one block of each.
    Fold(Reduction<T>),
}

impl<A: Atomic> Domain<A> {
    /// Offers, meets, and takes.
    pub(crate) fn pull<T: Element>(
        &mut self,
        task: &Task<'_>,
        errand: Errand<'_, T>,
    ) -> Result<(), Halt> {
        let offer = &errand.offer;
        let place = self.make_reachable(offer);
        let parity = self.sequence.wrapping_add(1) as usize % 2;
        for (other, count) in offer.counts.into_iter().flatten().enumerate() {
            let shown = &self.own_desk(other).counts[parity];
            shown.store(*count as u64, Ordering::Relaxed);
        }
        let told = self.tell(task, place, self.pieces(offer) as u64);
        if place == Place::Private {
            // Whatever the others say, it goes through slots: the first one is filled meanwhile.
            self.publish(&task.patience, 0, offer)?;
        }
        let way = self.hear(task, &told)?;
        let mut takes: SmallVec<[Take; 8]> = errand.takes.iter().cloned().collect();
        if offer.counts.is_some() {
            self.find_starts(&mut takes)?;
        }
        let errand = Errand {
            takes: &takes,
            ..errand
        };
        match &way {
            Way::Small => {
                let sources = self.small_sources::<T>(&takes)?;
                self.finish(errand, &sources);
                Ok(())
            }
            Way::Direct(notices) => {
                let sources = self.sources::<T>(&takes, notices)?;
                self.touch_others(&task.patience, |domain| {
                    domain.finish(errand, &sources);
                    Ok(())
                })
            }
            Way::Fetch(notices) => self.pull_by_fetching(&task.patience, notices, errand),
            Way::Slots(notices) => self.pull_by_slots(&task.patience, notices, errand),
        }
    }

    /// Says where others find what is offered, and copies it there if it is short.
    fn make_reachable<T: Element>(&self, offer: &Offer<'_, T>) -> Place {
        if offer.blocks.is_empty() {
            return Place::Nothing;
        }
        let place = self.place_to_read::<T>(Span::of(offer.input), &fetch::TAKEN);
        if place == Place::Small {
            let small = self.boards[self.me].small(self.sequence.wrapping_add(1));
            let small = small.part(0..size_of_val(offer.input));
            let small = small.expect("`place` has compared the length");
            // SAFETY: all have read what was here two operations ago; see `Head`.
            unsafe { small.write() }.copy_from_slice(offer.input);
        }
        place
    }

    /// Where the blocks for this rank are in the small places of the others.
    fn small_sources<T>(&self, takes: &[Take]) -> Result<Spans, Halt> {
        let source = |take: &Take| {
            let there = self.bytes_there::<T>(take.from, take.start, take.into.len())?;
            let small = self.boards[take.from].small(self.sequence).part(there);
            small.ok_or_else(|| self.unreachable(take.from, ErrorKind::InvalidData))
        };
        takes.iter().map(source).collect()
    }

    /// Where the blocks for this rank are in the memory of the others.
    fn sources<T>(&mut self, takes: &[Take], notices: &Notices) -> Result<Spans, Halt> {
        let mut source = |take: &Take| {
            self.mapped::<T>(
                notices[take.from].place,
                take.from,
                take.start,
                take.into.len(),
            )
        };
        takes.iter().map(&mut source).collect()
    }

    /// Finds where the blocks for this rank begin, from the counts that the others show.
    fn find_starts(&self, takes: &mut [Take]) -> Result<(), Halt> {
        let parity = self.sequence as usize % 2;
        for take in takes {
            let board = &self.boards[take.from];
            let count = |to: usize| board.desk(to).counts[parity].load(Ordering::Relaxed);
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
    fn finish<T: Element>(&mut self, errand: Errand<'_, T>, sources: &[Span]) {
        let Errand {
            offer,
            takes,
            output,
            then,
        } = errand;
        match then {
            Then::Copy => {
                for (take, source) in takes.iter().zip(sources) {
                    // SAFETY: the owner has posted, and leaves its bytes until this rank has parted
                    // or, in the small place, met it again.
                    far::copy(&mut output[take.into.clone()], unsafe { source.read() });
                }
            }
            Then::Fold(reduction) => {
                let own = own_block(&offer, self.me);
                let spans = (Span::of(own), Span::of_mut(output));
                self.fold(reduction, takes, sources, spans);
            }
        }
    }

    /// Folds one range of all ranks in their order, this rank's `own` among them.
    fn fold<T: Element>(
        &mut self,
        reduction: Reduction<T>,
        takes: &[Take],
        sources: &[Span],
        (own, into): (Span, Span),
    ) {
        let mut ordered: Spans = SmallVec::from_elem(own, self.len());
        for (take, source) in takes.iter().zip(sources) {
            ordered[take.from] = *source;
        }
        // SAFETY: the owners leave their bytes until this rank has taken them, and the output is
        // the caller's.
        unsafe { blend(reduction, &ordered, &[into]) };
    }

    fn pull_by_slots<T: Element>(
        &mut self,
        patience: &Patience<'_>,
        notices: &Notices,
        mut errand: Errand<'_, T>,
    ) -> Result<(), Halt> {
        let all = self.all_pieces(notices)?;
        let room = self.room::<T>(errand.offer.parts);
        for take in errand.takes {
            let (offered, expected) = (notices[take.from].pieces, take.into.len());
            if offered < expected.div_ceil(room) as u64 {
                let offered = offered.saturating_mul(room as u64);
                return Err(self.uneven(take.from, offered, expected as u64));
            }
        }
        let filled = usize::from(notices[self.me].place == Place::Private);
        let own = self.pieces(&errand.offer);
        let taken = errand.takes.iter().map(|take| take.into.len()).max();
        let taken = taken.unwrap_or(0).div_ceil(room);
        // Others may have more for each other. They need this rank for none of that, so it passes over it.
        for step in 0..=own.max(taken) {
            if (filled..own).contains(&step) {
                self.publish(patience, step, &errand.offer)?;
            }
            if let Some(index) = step.checked_sub(1) {
                self.collect(patience, index, &mut errand)?;
            }
        }
        self.ticks = self.tick(all);
        let own = self.own();
        own.published.0.set(self.ticks);
        own.combined.0.set(self.ticks);
        Ok(())
    }

    /// Slots that all ranks go through.
    fn all_pieces(&self, notices: &Notices) -> Result<usize, Halt> {
        let mut all = 0;
        for (place, notice) in notices.iter().enumerate() {
            let pieces = usize::try_from(notice.pieces).ok();
            let pieces = pieces.filter(|pieces| *pieces <= MOST_PIECES);
            let pieces = pieces.ok_or_else(|| self.unreachable(place, ErrorKind::InvalidData))?;
            all = all.max(pieces);
        }
        Ok(all)
    }

    /// Puts the next part of each block into this rank's slot.
    fn publish<T: Element>(
        &self,
        patience: &Patience<'_>,
        index: usize,
        offer: &Offer<'_, T>,
    ) -> Result<(), Halt> {
        let (tick, room) = (self.tick(index), self.room::<T>(offer.parts));
        self.await_free_slot(patience, tick)?;
        for (number, block) in offer.blocks.iter().enumerate() {
            let taken_by_me = offer.parts > 1 && number == self.me;
            let part = part(block, index, room);
            if part.is_empty() || taken_by_me {
                continue;
            }
            let slot = self.boards[self.me].slot(tick);
            let there = bytes_of::<T>(number * room, part.len());
            let slot = there.and_then(|there| slot.part(there));
            let slot = slot.expect("the blocks share a slot");
            // SAFETY: all ranks are done with what was in the slot.
            unsafe { slot.write() }.copy_from_slice(&offer.input[part]);
        }
        self.own().published.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// Takes the part with this number of each block that is for this rank.
    fn collect<T: Element>(
        &mut self,
        patience: &Patience<'_>,
        index: usize,
        errand: &mut Errand<'_, T>,
    ) -> Result<(), Halt> {
        let (tick, room) = (self.tick(index), self.room::<T>(errand.offer.parts));
        let mut sources = Spans::new();
        for take in errand.takes {
            let into = part(&take.into, index, room);
            if into.is_empty() {
                continue;
            }
            let published = &self.boards[take.from].head().published.0;
            self.wait(patience, published, tick.wrapping_add(1), take.from)?;
            let slot = self.boards[take.from].slot(tick);
            let there = bytes_of::<T>(take.block * room, into.len());
            let slot = there.and_then(|there| slot.part(there));
            let slot = slot.expect("the blocks share a slot");
            match errand.then {
                // SAFETY: the owner has published the slot and leaves it until all consumed it.
                Then::Copy => errand.output[into].copy_from_slice(unsafe { slot.read() }),
                Then::Fold(_) => sources.push(slot),
            }
        }
        if let Then::Fold(reduction) = errand.then {
            let own = own_block(&errand.offer, self.me);
            let range = part(&(0..own.len()), index, room);
            if !range.is_empty() {
                let own = Span::of(&own[range.clone()]);
                let into = Span::of_mut(&mut errand.output[range]);
                self.fold(reduction, errand.takes, &sources, (own, into));
            }
        }
        self.own().consumed.0.set(tick.wrapping_add(1));
        Ok(())
    }

    /// The root's buffer becomes everybody's.
    pub(crate) fn broadcast<T: Element>(
        &mut self,
        task: &Task<'_>,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), Halt> {
        let whole = 0..buffer.len();
        if root == self.me {
            let errand = Errand {
                offer: Offer::whole(buffer, std::slice::from_ref(&whole)),
                takes: &[],
                output: &mut [],
                then: Then::Copy,
            };
            return self.pull(task, errand);
        }
        let take = Take {
            from: root,
            block: 0,
            start: 0,
            into: whole,
        };
        let errand = Errand {
            offer: Offer::nothing(1),
            takes: &[take],
            output: buffer,
            then: Then::Copy,
        };
        self.pull(task, errand)
    }

    /// Slots that the longest block of an offer takes.
    fn pieces<T: Element>(&self, offer: &Offer<'_, T>) -> usize {
        let room = self.room::<T>(offer.parts);
        let longest = offer.blocks.iter().map(Range::len).max();
        longest.unwrap_or(0).div_ceil(room)
    }

    /// Elements of each block that fit in a slot with `blocks` blocks: whole cache lines of them.
    fn room<T>(&self, blocks: usize) -> usize {
        let bytes = self.shape.slot() / blocks.max(1) / 64 * 64;
        bytes.max(64) / size_of::<T>()
    }
}

/// More slots than the bytes of any machine take; flags tell numbers from before and after apart that
/// are so far from each other.
const MOST_PIECES: usize = 1 << 30;

pub(super) fn own_block<'a, T>(offer: &Offer<'a, T>, me: usize) -> &'a [T] {
    &offer.input[offer.blocks[me].clone()]
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
