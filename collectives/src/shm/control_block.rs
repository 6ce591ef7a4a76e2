//! What one rank shows the others of its host: where it is, and the bytes it hands over.
//!
//! ```text
//!  | head: posts, flags, call sites, counts, segments | small 0 | small 1 | slot 0 | slot 1 | …
//! ```
//!
//! Everything in the head is written by its rank alone, except who sleeps on a flag.

#![expect(
    unsafe_code,
    reason = "the head of a board lies in memory that other ranks have mapped too"
)]

use std::marker::PhantomData;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::flag::Flag;
use super::mapping::Mapping;
use super::span::Span;
use crate::contract::SITE_LIMIT;

/// Words of a post beside its flag; the first seven share the flag's cache line.
pub(super) const DESCRIPTOR_WORDS: usize = 9;
/// Segments of registered memory that a rank can have at a time.
pub(super) const SEGMENTS: usize = 64;
/// Bytes of a slot for messages to one rank.
pub(super) const MESSAGE_SLOT: usize = 64 << 10;
/// Bytes that cores hand each other at a time.
const CACHE_LINE: usize = 64;
/// Words of a call site: its length, then its bytes.
pub(super) const SITE_WORDS: usize = 1 + SITE_LIMIT / 8;

/// What a rank says of its next operation; complete once its flag has the operation's number.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct DescriptorCell<A = AtomicU32> {
    pub(super) flag: Flag<A>,
    pub(super) words: [AtomicU64; DESCRIPTOR_WORDS],
}

/// A flag with no neighbour on its cache line, nor on the one that is fetched with it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct PaddedFlag<A = AtomicU32>(pub(super) Flag<A>);

/// A piece of registered memory, by words: generation, descriptor, bytes.
pub(super) type SegmentEntry = [AtomicU64; 3];

/// Posts, sites and counts are there twice: a rank that is one operation ahead writes the others.
/// It cannot be two ahead, because every operation waits for the posts of all ranks.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(super) struct Head<A = AtomicU32> {
    pub(super) descriptors: [DescriptorCell<A>; 2],
    /// Slots that hold a piece of this rank's input.
    pub(super) published: PaddedFlag<A>,
    /// Slots in which this rank has reduced its part.
    pub(super) combined: PaddedFlag<A>,
    /// Slots of the others that this rank needs no longer.
    pub(super) consumed: PaddedFlag<A>,
    /// Direct operations that this rank has finished: it touches the memory of others no longer.
    pub(super) done: PaddedFlag<A>,
    /// The operation that this rank has come to the meeting of, and the direct one that it has come
    /// to the end of, with all below it in a tree of the ranks.
    pub(super) gathered: [PaddedFlag<A>; 2],
    /// The operation, if this rank and all below it in the tree do the same in it and have handed
    /// over all that there is to read.
    pub(super) agreed: PaddedFlag<A>,
    /// The direct operation in which this rank touches the memory of others, or did last.
    pub(super) inside: PaddedFlag<A>,
    /// Not 0 once this rank has failed, and takes its memory back.
    pub(super) closed: PaddedFlag<A>,
    /// Tells this control block from all others, on whatever machine.
    nonce: [AtomicU64; 2],
    pub(super) sites: [[AtomicU64; SITE_WORDS]; 2],
    pub(super) segments: [SegmentEntry; SEGMENTS],
}

/// What a rank says to one other rank.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct PeerChannel<A = AtomicU32> {
    /// The message that this rank sends to the other.
    pub(super) messages: DescriptorCell<A>,
    /// Slots that hold a piece of it.
    pub(super) published: PaddedFlag<A>,
    /// Slots of the other's messages that this rank needs no longer.
    pub(super) taken: PaddedFlag<A>,
    /// Where the message is sent.
    pub(super) site: [AtomicU64; SITE_WORDS],
    /// Elements for the other in an operation with uneven blocks.
    pub(super) counts: [AtomicU64; 2],
}

/// The sizes of a control block behind its head, in bytes; the same on all ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    ranks: usize,
    small: usize,
    slot: usize,
    depth: u32,
    /// The most ranks of which each looks at all others when they meet.
    flat: u32,
}

impl Shape {
    /// For `local` ranks on one host: together the slots in use should fit in the caches, and in
    /// each slot a cache line for each rank.
    pub(crate) fn for_ranks(local: usize) -> Self {
        let slot: usize = if local <= 4 { 256 << 10 } else { 128 << 10 };
        Self {
            ranks: local,
            small: 32 << 10,
            slot: slot.max(local.saturating_mul(CACHE_LINE)),
            depth: 4,
            flat: 16,
        }
    }

    /// The same, with ranks that gather along a tree.
    #[cfg(test)]
    pub(super) fn gathering(self) -> Self {
        Self { flat: 1, ..self }
    }

    /// Whether ranks that meet gather along a tree. Who looks at each of many others may have to
    /// sleep for each of them.
    pub(super) fn gathers(self) -> bool {
        self.ranks > self.flat as usize
    }

    pub(crate) fn ranks(self) -> usize {
        self.ranks
    }

    /// With slots that little goes through, for tests of every interleaving.
    #[cfg(test)]
    pub(super) fn with_short_slots(local: usize) -> Self {
        Self {
            small: 8 << 10,
            slot: 4 << 10,
            ..Self::for_ranks(local)
        }
    }

    /// Bytes of a message that is handed over in one go.
    pub(super) fn small(self) -> usize {
        self.small
    }

    /// Bytes of one slot.
    pub(super) fn slot(self) -> usize {
        self.slot
    }

    /// Bytes of a slot for each of so many blocks, at most one for each rank: whole cache lines.
    pub(super) fn room(self, blocks: usize) -> usize {
        self.slot / blocks.max(1) / CACHE_LINE * CACHE_LINE
    }

    /// How many slots there are.
    pub(super) fn depth(self) -> usize {
        self.depth as usize
    }

    /// Bytes of a whole control block: places for small messages, slots for collectives, slots for
    /// messages.
    pub(crate) fn bytes(self) -> usize {
        self.bytes_with::<AtomicU32>()
    }

    /// The same with flags of this kind.
    pub(super) fn bytes_with<A>(self) -> usize {
        self.start::<A>() + 2 * self.small + self.depth() * (self.slot + MESSAGE_SLOT)
    }

    /// Bytes before the first place for messages.
    fn start<A>(self) -> usize {
        size_of::<Head<A>>() + self.ranks.next_multiple_of(8) * size_of::<PeerChannel<A>>()
    }
}

/// Two random words by which a control block is known.
pub(crate) type Nonce = [u64; 2];

/// One rank's control block, its own or another's.
#[derive(Debug)]
pub(crate) struct ControlBlock<A = AtomicU32> {
    memory: Arc<Mapping>,
    shape: Shape,
    flags: PhantomData<A>,
}

impl ControlBlock {
    /// A control block in zeroed memory, `None` where it does not fit.
    pub(crate) fn new(memory: Arc<Mapping>, shape: Shape) -> Option<Self> {
        let aligned = memory.start().cast::<Head>().is_aligned();
        (aligned && memory.bytes() >= shape.bytes()).then_some(Self::on(memory, shape))
    }

    /// Writes down by what others know that they read this control block, and not another of the
    /// same name.
    pub(crate) fn sign(&self, nonce: Nonce) {
        for (word, random) in self.head().nonce.iter().zip(nonce) {
            word.store(random, Ordering::Relaxed);
        }
    }
}

impl<A> Clone for ControlBlock<A> {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory.clone(),
            ..*self
        }
    }
}

impl<A> ControlBlock<A> {
    /// A control block in memory that holds one of this shape.
    fn on(memory: Arc<Mapping>, shape: Shape) -> Self {
        Self {
            memory,
            shape,
            flags: PhantomData,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(crate) fn nonce(&self) -> Nonce {
        let words = &self.head().nonce;
        [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed))
    }

    /// Where this process has mapped it.
    pub(crate) fn base(&self) -> u64 {
        Span::of_mapping(&self.memory).address() as u64
    }

    /// Where its nonce is, in the process that has mapped it at this address.
    pub(super) fn nonce_at(base: u64) -> u64 {
        base.saturating_add(offset_of!(Head<A>, nonce) as u64)
    }

    pub(super) fn head(&self) -> &Head<A> {
        // SAFETY: `new` has checked size and alignment, the mapping lives as long as `self`, any
        // bytes are atomic numbers, and nothing makes an exclusive reference to the head.
        unsafe { self.memory.start().cast::<Head<A>>().as_ref() }
    }

    /// What this rank says to the one with this place among the ranks of the host.
    pub(super) fn peer_channel(&self, other: usize) -> &PeerChannel<A> {
        assert!(other < self.shape.ranks, "the place of a rank of this host");
        let offset = size_of::<Head<A>>() + other * size_of::<PeerChannel<A>>();
        // SAFETY: the shape has a peer channel for each rank behind the head.
        let peer_channel = unsafe { self.memory.start().add(offset).cast::<PeerChannel<A>>() };
        // SAFETY: as for the head, whose size is a multiple of a peer channel's alignment.
        unsafe { peer_channel.as_ref() }
    }

    /// The place for a small message of an operation with this number.
    pub(super) fn small(&self, sequence: u32) -> Span {
        let index = sequence as usize % 2;
        self.behind_head(index * self.shape.small, self.shape.small)
    }

    /// The slot that takes the piece with this number.
    pub(super) fn slot(&self, tick: u32) -> Span {
        let index = tick as usize % self.shape.depth();
        self.behind_head(
            2 * self.shape.small + index * self.shape.slot,
            self.shape.slot,
        )
    }

    /// The slot that takes the piece of mail with this number.
    pub(super) fn message_slot(&self, tick: u32) -> Span {
        let Shape { small, slot, .. } = self.shape;
        let index = tick as usize % self.shape.depth();
        self.behind_head(
            2 * small + self.shape.depth() * slot + index * MESSAGE_SLOT,
            MESSAGE_SLOT,
        )
    }

    fn behind_head(&self, start: usize, bytes: usize) -> Span {
        let start = self.shape.start::<A>() + start;
        Span::of_mapping(&self.memory)
            .part(start..start + bytes)
            .expect("`new` has checked that the whole shape fits")
    }
}

#[cfg(test)]
mod checked {
    use super::*;

    impl<A: Default> ControlBlock<A> {
        /// A control block with flags that zeroed memory is no valid value of.
        pub(in crate::shm) fn with_new_flags(shape: Shape) -> Self {
            let memory = Mapping::heap(shape.bytes_with::<A>()).unwrap();
            let start = memory.start();
            // SAFETY: the memory has room for a head, and begins on a page.
            unsafe { start.cast::<Head<A>>().write(head()) };
            for place in 0..shape.ranks {
                let offset = size_of::<Head<A>>() + place * size_of::<PeerChannel<A>>();
                // SAFETY: the shape has a peer channel for each rank behind the head.
                let peer_channel = unsafe { start.add(offset).cast::<PeerChannel<A>>() };
                // SAFETY: as above; the size of a head is a multiple of a peer channel's alignment.
                unsafe { peer_channel.write(self::peer_channel()) };
            }
            Self::on(Arc::new(memory), shape)
        }
    }

    fn head<A: Default>() -> Head<A> {
        Head {
            descriptors: [post(), post()],
            published: line(),
            combined: line(),
            consumed: line(),
            done: line(),
            gathered: [line(), line()],
            agreed: line(),
            inside: line(),
            closed: line(),
            nonce: Default::default(),
            sites: [site(), site()],
            segments: [const { [const { AtomicU64::new(0) }; 3] }; SEGMENTS],
        }
    }

    fn peer_channel<A: Default>() -> PeerChannel<A> {
        PeerChannel {
            messages: post(),
            published: line(),
            taken: line(),
            site: site(),
            counts: Default::default(),
        }
    }

    fn post<A: Default>() -> DescriptorCell<A> {
        DescriptorCell {
            flag: Flag::default(),
            words: Default::default(),
        }
    }

    fn site() -> [AtomicU64; SITE_WORDS] {
        [const { AtomicU64::new(0) }; SITE_WORDS]
    }

    fn line<A: Default>() -> PaddedFlag<A> {
        PaddedFlag(Flag::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::WORLD_LIMIT;

    #[test]
    fn a_block_for_each_rank_has_room_in_a_slot_however_many_there_are() {
        for ranks in 1..=WORLD_LIMIT as usize {
            let shape = Shape::for_ranks(ranks);
            let room = shape.room(ranks);
            assert!(
                room > 0 && ranks * room <= shape.slot(),
                "{ranks} ranks, {room} bytes"
            );
        }
    }
}
