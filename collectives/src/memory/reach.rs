//! Where the bytes of the ranks of a host are, and who can reach them.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use meshwork_accel::Element;
use smallvec::SmallVec;

use super::board::{Board, Nonce};
use super::domain::{Domain, Halt, LAST_TOUCH};
use super::flag::Atomic;
use super::post::{Notice, Place};
use super::registry::{Neighbour, Registry};
use super::span::Span;

/// How much of the others' memory a rank can reach.
#[derive(Debug)]
pub(super) enum Reach {
    /// All of it: they are threads of the same process.
    Threads(Arc<Registry>),
    /// What they have registered; the rest is fetched by the kernel, where it does that for all.
    Processes {
        registry: Arc<Registry>,
        neighbours: Vec<Neighbour>,
        fetches: bool,
    },
}

/// How an operation's bytes travel, and where they are; all ranks conclude the same from the same
/// notices.
#[derive(Debug)]
pub(super) enum Way {
    /// Every rank has put its bytes in its board's small place.
    Small,
    /// Every rank's bytes can be reached where they are.
    Direct(Notices),
    /// Every rank's bytes can be reached or fetched.
    Fetch(Notices),
    /// Through slots, piece by piece.
    Slots(Notices),
}

pub(super) type Notices = SmallVec<[Notice; 8]>;
pub(super) type Spans = SmallVec<[Span; 8]>;

impl<A: Atomic> Domain<A> {
    /// Whether the kernel lets this rank copy from the memory of all others, tried on their boards,
    /// which each has mapped at the address given.
    pub(crate) fn may_fetch(&self, bases: &[u64]) -> bool {
        self.others().all(|other| {
            let mut nonce = Nonce::default();
            let address = usize::try_from(Board::<A>::nonce_at(bases[other]));
            let copied = address
                .map_err(|_| io::ErrorKind::InvalidData.into())
                .and_then(|address| {
                    let bytes = bytemuck::bytes_of_mut(&mut nonce);
                    self.copy_from_process(other, address, bytes)
                });
            copied.is_ok() && self.boards[other].nonce() == nonce
        })
    }

    /// From now on long private buffers are fetched; all ranks call it, or none.
    pub(crate) fn fetch_long_buffers(&mut self) {
        if let Reach::Processes { fetches, .. } = &mut self.reach {
            *fetches = true;
        }
    }

    /// Lets the kernel copy bytes out of the memory of the process with this place.
    pub(super) fn copy_from_process(
        &self,
        other: usize,
        address: usize,
        into: &mut [u8],
    ) -> io::Result<()> {
        match &self.reach {
            Reach::Processes { neighbours, .. } => neighbours[other].copy(address, into),
            Reach::Threads(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where this rank's bytes are for the others; if [`Place::Small`], the caller copies them
    /// there before it meets them.
    pub(super) fn place(&self, bytes: Span) -> Place {
        if bytes.bytes() <= SHORT {
            return Place::Small;
        }
        let reachable = match &self.reach {
            Reach::Threads(_) => Some(Place::Address(bytes.address() as u64)),
            Reach::Processes { registry, .. } => registry.find(bytes),
        };
        match reachable {
            Some(place) => place,
            None if bytes.bytes() <= self.shape.small() => Place::Small,
            None => Place::Private,
        }
    }

    /// The same for elements that others fetch where they cannot reach them, and where there are so many bytes.
    pub(super) fn place_to_read<T: Element>(
        &self,
        bytes: Span,
        fetched: &RangeInclusive<usize>,
    ) -> Place {
        // What is fetched is not looked at, so elements must be what any bits are.
        let any_bits = T::bytes_mut(&mut []).is_some();
        let fetches = matches!(self.reach, Reach::Processes { fetches: true, .. });
        match self.place(bytes) {
            Place::Private if fetches && any_bits && fetched.contains(&bytes.bytes()) => {
                Place::Foreign(bytes.address() as u64)
            }
            place => place,
        }
    }

    /// Where all ranks' bytes are, and so how they travel, where not all are in small places.
    pub(super) fn way(&self) -> Result<Way, Halt> {
        let notice = |place: usize| {
            let notice = self.post(place).notice();
            notice.map_err(|error| Halt::Malformed(self.ranks[place], error))
        };
        let notices = (0..self.len())
            .map(notice)
            .collect::<Result<Notices, _>>()?;
        let all = |holds: fn(&Place) -> bool| notices.iter().all(|notice| holds(&notice.place));
        if all(|place| {
            matches!(
                place,
                Place::Nothing | Place::Address(_) | Place::Segment { .. }
            )
        }) {
            Ok(Way::Direct(notices))
        } else if all(|place| {
            matches!(
                place,
                Place::Nothing | Place::Segment { .. } | Place::Foreign(_)
            )
        }) {
            Ok(Way::Fetch(notices))
        } else {
            Ok(Way::Slots(notices))
        }
    }

    /// `bytes` from where the rank at this place says that its bytes begin, if elements may be there.
    pub(super) fn reach<T>(
        &mut self,
        other: usize,
        place: Place,
        bytes: usize,
    ) -> Result<Span, Halt> {
        let found = match (place, &mut self.reach) {
            (Place::Address(address), Reach::Threads(_)) => usize::try_from(address)
                .ok()
                .and_then(|address| Span::at(address, bytes))
                .ok_or(io::ErrorKind::InvalidData),
            (
                Place::Segment {
                    index,
                    generation,
                    offset,
                },
                Reach::Processes { neighbours, .. },
            ) => neighbours[other]
                .segment(&self.boards[other].head().segments, index, generation)
                .map_err(|error| error.kind())
                .and_then(|segment| {
                    let start = usize::try_from(offset).ok();
                    start
                        .and_then(|start| segment.part(start..start.checked_add(bytes)?))
                        .ok_or(io::ErrorKind::InvalidData)
                }),
            _ => Err(io::ErrorKind::InvalidData),
        };
        found
            .and_then(|span| span.aligned::<T>().ok_or(io::ErrorKind::InvalidData))
            .map_err(|kind| self.unreachable(other, kind))
    }

    /// What it means that bytes of the rank at this place are not where it said.
    pub(super) fn unreachable(&self, other: usize, kind: io::ErrorKind) -> Halt {
        let rank = self.ranks[other];
        if kind == io::ErrorKind::InvalidData {
            // It has said what cannot be.
            return Halt::Unreachable(rank, kind);
        }
        // The memory of a process that is killed is gone a moment before the process is.
        let since = Instant::now();
        while !self.has_closed(other) && !self.has_ended(other) {
            if since.elapsed() > LAST_TOUCH || matches!(self.reach, Reach::Threads(_)) {
                return Halt::Unreachable(rank, kind);
            }
            A::pause();
        }
        Halt::Closed(rank)
    }

    /// Whether the process of the rank at this place is gone for certain.
    pub(super) fn has_ended(&self, other: usize) -> bool {
        match &self.reach {
            Reach::Threads(_) => false,
            Reach::Processes { neighbours, .. } => neighbours[other].has_ended(),
        }
    }
}

/// Bytes below which handing over a copy is faster than meeting twice.
const SHORT: usize = 8 << 10;
