//! Where the bytes of the ranks of a host are, and who can reach them.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Instant;

use meshwork_accel::Element;
use smallvec::SmallVec;

use super::communicator::{EXIT_LIMIT, ShmCommunicator};
use super::control_block::{ControlBlock, Nonce};
use super::descriptor::{BufferDescriptor, BufferLocation};
use super::flag::Atomic;
use super::registry::{PeerProcess, Registry};
use super::span::Span;
use crate::Rank;
use crate::failure::Failure;

/// How much of the others' memory a rank can reach.
#[derive(Debug)]
pub(super) enum MemoryAccess {
    /// All of it: they are threads of the same process.
    Threads(Arc<Registry>),
    /// What they have registered; the rest is fetched by the kernel, where it does that for all.
    Processes {
        registry: Arc<Registry>,
        peer_processes: Vec<PeerProcess>,
        fetches: bool,
    },
}

/// How an operation's bytes travel, and where they are; all ranks conclude the same from the same
/// notices.
#[derive(Debug)]
pub(super) enum DataPath {
    /// Every rank has put its bytes in its control block's small place.
    Small,
    /// Every rank's bytes can be reached where they are.
    Direct(BufferDescriptors),
    /// Every rank's bytes can be reached or fetched.
    Fetch(BufferDescriptors),
    /// Through slots, piece by piece.
    Slots(BufferDescriptors),
}

pub(super) type BufferDescriptors = SmallVec<[BufferDescriptor; 8]>;
pub(super) type Spans = SmallVec<[Span; 8]>;

impl<A: Atomic> ShmCommunicator<A> {
    /// Whether the kernel lets this rank copy from the memory of all others, tried on their control
    /// blocks, which each has mapped at the address given.
    pub(crate) fn may_fetch(&self, bases: &[u64]) -> bool {
        self.others().all(|other| {
            let mut nonce = Nonce::default();
            let address = usize::try_from(ControlBlock::<A>::nonce_at(bases[other]));
            let copied = address
                .map_err(|_| io::ErrorKind::InvalidData.into())
                .and_then(|address| {
                    let bytes = bytemuck::bytes_of_mut(&mut nonce);
                    self.copy_from_process(other, address, bytes)
                });
            copied.is_ok() && self.control_blocks[other].nonce() == nonce
        })
    }

    /// From now on long private buffers are fetched; all ranks call it, or none.
    pub(crate) fn fetch_long_buffers(&mut self) {
        if let MemoryAccess::Processes { fetches, .. } = &mut self.reach {
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
            MemoryAccess::Processes { peer_processes, .. } => {
                peer_processes[other].copy(address, into)
            }
            MemoryAccess::Threads(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where this rank's bytes are for the others; if [`BufferLocation::Small`], the caller copies
    /// them there before it meets them.
    pub(super) fn place(&self, bytes: Span) -> BufferLocation {
        if bytes.bytes() <= SHORT {
            return BufferLocation::Small;
        }
        let reachable = match &self.reach {
            MemoryAccess::Threads(_) => Some(BufferLocation::Address(bytes.address() as u64)),
            MemoryAccess::Processes { registry, .. } => registry.find(bytes),
        };
        match reachable {
            Some(place) => place,
            None if bytes.bytes() <= self.shape.small() => BufferLocation::Small,
            None => BufferLocation::Private,
        }
    }

    /// The same for elements that others fetch where they cannot reach them, and where there are so
    /// many bytes.
    pub(super) fn place_to_read<T: Element>(
        &self,
        bytes: Span,
        fetched: &RangeInclusive<usize>,
    ) -> BufferLocation {
        // What is fetched is not looked at, so elements must be what any bits are.
        let any_bits = T::bytes_mut(&mut []).is_some();
        let fetches = matches!(self.reach, MemoryAccess::Processes { fetches: true, .. });
        match self.place(bytes) {
            BufferLocation::Private if fetches && any_bits && fetched.contains(&bytes.bytes()) => {
                BufferLocation::Foreign(bytes.address() as u64)
            }
            place => place,
        }
    }

    /// Where all ranks' bytes are, and so how they travel, where not all are in small places.
    pub(super) fn data_path(&self) -> Result<DataPath, Failure> {
        let buffer_descriptor = |place: usize| {
            let buffer_descriptor = self.post(place).buffer_descriptor();
            buffer_descriptor.map_err(|error| Failure::Protocol(Rank::at(place), error))
        };
        let buffer_descriptors = (0..self.len())
            .map(buffer_descriptor)
            .collect::<Result<BufferDescriptors, _>>()?;
        let all = |holds: fn(&BufferLocation) -> bool| {
            buffer_descriptors
                .iter()
                .all(|buffer_descriptor| holds(&buffer_descriptor.place))
        };
        if all(|place| {
            matches!(
                place,
                BufferLocation::Nothing
                    | BufferLocation::Address(_)
                    | BufferLocation::Segment { .. }
            )
        }) {
            Ok(DataPath::Direct(buffer_descriptors))
        } else if all(|place| {
            matches!(
                place,
                BufferLocation::Nothing
                    | BufferLocation::Segment { .. }
                    | BufferLocation::Foreign(_)
            )
        }) {
            Ok(DataPath::Fetch(buffer_descriptors))
        } else {
            Ok(DataPath::Slots(buffer_descriptors))
        }
    }

    /// `bytes` from where the rank at this place says that its bytes begin, if elements may be
    /// there.
    pub(super) fn reach<T>(
        &mut self,
        other: usize,
        place: BufferLocation,
        bytes: usize,
    ) -> Result<Span, Failure> {
        let found = match (place, &mut self.reach) {
            (BufferLocation::Address(address), MemoryAccess::Threads(_)) => {
                usize::try_from(address)
                    .ok()
                    .and_then(|address| Span::at(address, bytes))
                    .ok_or(io::ErrorKind::InvalidData)
            }
            (
                BufferLocation::Segment {
                    index,
                    generation,
                    offset,
                },
                MemoryAccess::Processes { peer_processes, .. },
            ) => peer_processes[other]
                .segment(
                    &self.control_blocks[other].head().segments,
                    index,
                    generation,
                )
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
    pub(super) fn unreachable(&self, other: usize, kind: io::ErrorKind) -> Failure {
        let rank = Rank::at(other);
        if kind == io::ErrorKind::InvalidData {
            // It has said what cannot be.
            return Failure::Unreachable(rank, kind);
        }
        // The memory of a process that is killed is gone a moment before the process is.
        let since = Instant::now();
        while !self.has_closed(other) && !self.has_ended(other) {
            if since.elapsed() > EXIT_LIMIT || matches!(self.reach, MemoryAccess::Threads(_)) {
                return Failure::Unreachable(rank, kind);
            }
            A::pause();
        }
        Failure::Closed(rank)
    }

    /// Whether the process of the rank at this place is gone for certain.
    pub(super) fn has_ended(&self, other: usize) -> bool {
        match &self.reach {
            MemoryAccess::Threads(_) => false,
            MemoryAccess::Processes { peer_processes, .. } => peer_processes[other].has_ended(),
        }
    }
}

/// Bytes below which handing over a copy is faster than meeting twice.
const SHORT: usize = 8 << 10;
