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

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::flag::Flag;
use super::mapping::Mapping;
use super::span::Span;
use crate::contract::SITE_LIMIT;

/// Words of a post beside its flag; the first seven share the flag's cache line.
pub(super) const POST_WORDS: usize = 9;
/// Segments of registered memory that a rank can have at a time.
pub(super) const SEGMENTS: usize = 64;
/// Bytes of a slot for messages to one rank.
pub(super) const MAIL_SLOT: usize = 64 << 10;
/// Words of a call site: its length, then its bytes.
pub(super) const SITE_WORDS: usize = 1 + SITE_LIMIT / 8;

/// What a rank says of its next operation; complete once its flag has the operation's number.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Post {
    pub(super) flag: Flag,
    pub(super) words: [AtomicU64; POST_WORDS],
}

/// A flag with no neighbour on its cache line, nor on the one that is fetched with it.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Line(pub(super) Flag);

/// A piece of registered memory, by words: generation, descriptor, bytes.
pub(super) type SegmentEntry = [AtomicU64; 3];

/// Posts, sites and counts are there twice: a rank that is one operation ahead writes the others.
/// It cannot be two ahead, because every operation waits for the posts of all ranks.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(super) struct Head {
    pub(super) posts: [Post; 2],
    /// Slots that hold a piece of this rank's input.
    pub(super) published: Line,
    /// Slots in which this rank has reduced its part.
    pub(super) combined: Line,
    /// Slots of the others that this rank needs no longer.
    pub(super) consumed: Line,
    /// Operations that this rank has finished with the memory of others.
    pub(super) done: Line,
    /// The operation in which this rank touches the memory of others, or has last.
    pub(super) inside: Line,
    /// Not 0 once this rank has failed, and takes its memory back.
    pub(super) closed: Line,
    /// The process that made the board.
    owner: AtomicU64,
    pub(super) sites: [[AtomicU64; SITE_WORDS]; 2],
    pub(super) segments: [SegmentEntry; SEGMENTS],
}

/// What a rank says to one other rank.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Desk {
    /// The message that this rank sends to the other.
    pub(super) mail: Post,
    /// Slots that hold a piece of it.
    pub(super) mailed: Line,
    /// Slots of the other's messages that this rank needs no longer.
    pub(super) taken: Line,
    /// Where the message is sent.
    pub(super) site: [AtomicU64; SITE_WORDS],
    /// Elements for the other in an operation with uneven blocks.
    pub(super) counts: [AtomicU64; 2],
}

/// The sizes of a board behind its head, in bytes; the same on all ranks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shape {
    ranks: usize,
    small: usize,
    slot: usize,
    depth: usize,
}

impl Shape {
    /// For `local` ranks on one host: together the slots in use should fit in the caches.
    pub(crate) fn for_ranks(local: usize) -> Self {
        Self {
            ranks: local,
            small: 32 << 10,
            slot: if local <= 4 { 256 << 10 } else { 128 << 10 },
            depth: 4,
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

    /// How many slots there are.
    pub(super) fn depth(self) -> usize {
        self.depth
    }

    /// Bytes of a whole board: places for small messages, slots for collectives, slots for mail.
    pub(crate) fn bytes(self) -> usize {
        self.start() + 2 * self.small + self.depth * (self.slot + MAIL_SLOT)
    }

    /// Bytes before the first place for messages.
    fn start(self) -> usize {
        size_of::<Head>() + self.ranks.next_multiple_of(8) * size_of::<Desk>()
    }
}

impl Head {
    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }
}

/// One rank's board, its own or another's.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    memory: Arc<Mapping>,
    shape: Shape,
}

impl Board {
    /// A board in zeroed memory, `None` where it does not fit.
    pub(crate) fn new(memory: Arc<Mapping>, shape: Shape) -> Option<Self> {
        let aligned = memory.start().cast::<Head>().is_aligned();
        (aligned && memory.bytes() >= shape.bytes()).then_some(Self { memory, shape })
    }

    /// Says that this process has made it, where others see that they read the right memory.
    pub(crate) fn sign(&self) {
        let process = std::process::id().into();
        self.head().owner.store(process, Ordering::Relaxed);
    }

    /// Where this process has mapped it.
    pub(crate) fn base(&self) -> u64 {
        Span::of_mapping(&self.memory).address() as u64
    }

    /// Where its owner is said, in the process that has mapped it at this address.
    pub(super) fn owner_at(base: u64) -> u64 {
        base.saturating_add(offset_of!(Head, owner) as u64)
    }

    pub(super) fn head(&self) -> &Head {
        // SAFETY: `new` has checked size and alignment, the mapping lives as long as `self`, any
        // bytes are atomic numbers, and nothing makes an exclusive reference to the head.
        unsafe { self.memory.start().cast::<Head>().as_ref() }
    }

    /// What this rank says to the one with this place among the ranks of the host.
    pub(super) fn desk(&self, other: usize) -> &Desk {
        assert!(other < self.shape.ranks, "the place of a rank of this host");
        let offset = size_of::<Head>() + other * size_of::<Desk>();
        // SAFETY: the shape has a desk for each rank behind the head.
        let desk = unsafe { self.memory.start().add(offset).cast::<Desk>() };
        // SAFETY: as for the head, whose size is a multiple of a desk's alignment.
        unsafe { desk.as_ref() }
    }

    /// The place for a small message of an operation with this number.
    pub(super) fn small(&self, sequence: u32) -> Span {
        let index = sequence as usize % 2;
        self.behind_head(index * self.shape.small, self.shape.small)
    }

    /// The slot that takes the piece with this number.
    pub(super) fn slot(&self, tick: u32) -> Span {
        let index = tick as usize % self.shape.depth;
        self.behind_head(
            2 * self.shape.small + index * self.shape.slot,
            self.shape.slot,
        )
    }

    /// The slot that takes the piece of mail with this number.
    pub(super) fn mail_slot(&self, tick: u32) -> Span {
        let Shape {
            small, slot, depth, ..
        } = self.shape;
        let index = tick as usize % depth;
        self.behind_head(2 * small + depth * slot + index * MAIL_SLOT, MAIL_SLOT)
    }

    fn behind_head(&self, start: usize, bytes: usize) -> Span {
        let start = self.shape.start() + start;
        Span::of_mapping(&self.memory)
            .part(start..start + bytes)
            .expect("`new` has checked that the whole shape fits")
    }
}
