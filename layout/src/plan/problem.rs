//! What the search knows: frames, endpoints, sizes and costs.

use smallvec::SmallVec;

use super::frame::Frame;
use super::links::{Link, Links};
use super::state::{AtomId, AtomSet, State, members};
use crate::{Error, Shape};

/// One relayout to be planned, in terms of atoms.
#[derive(Debug)]
pub(super) struct Problem {
    /// The frame of the source, then that of the target unless it is the same.
    pub(super) frames: SmallVec<[Frame; 2]>,
    pub(super) start: State,
    pub(super) goal: State,
    pub(super) tensor: Tensor,
    pub(super) links: Links,
    /// Whether source and target are partial by different reductions.
    pub(super) two_reductions: bool,
}

/// The sizes that a plan is made for; their product times the size of the mesh fits into 64 bits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tensor {
    pub(super) shape: Shape,
    pub(super) element_size: usize,
}

/// A state and the frame it is written in.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Place {
    pub(super) frame: u8,
    pub(super) state: State,
}

/// What a device has, in the worst case, of the block that it will hold at the end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Nothing,
    /// As much as two ranges can have in common, of which one contains the other.
    Overlap,
}

/// What one step costs: a time, then the number of collectives, then of all steps.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Cost {
    pub(super) fs: u128,
    pub(super) collectives: u32,
    pub(super) steps: u32,
}

impl Problem {
    pub(super) fn frame(&self, frame: u8) -> &Frame {
        &self.frames[usize::from(frame)]
    }

    pub(super) fn goal_frame(&self) -> u8 {
        u8::from(self.frames.len() > 1)
    }

    pub(super) fn is_goal(&self, place: &Place) -> bool {
        place.frame == self.goal_frame() && place.state == self.goal
    }

    /// Whether atoms of a state may be made partial.
    ///
    /// Where neither end is partial this never pays: what would be reduced could as well be gathered
    /// or exchanged. Terms of two reductions cannot be told apart, so one has to be done first.
    pub(super) fn may_make_partial(&self, state: &State) -> bool {
        let pays = self.start.partial() != 0 || self.goal.partial() != 0;
        let mixes = self.two_reductions && state.partial() != 0 && !state.is_renewed();
        pays && !mixes
    }

    /// The bytes of the largest block.
    pub(super) fn block(&self, frame: u8, state: &State) -> u64 {
        self.tensor.block(self.parts(frame, state))
    }

    /// Into how many parts each tensor dimension is cut.
    pub(super) fn parts(&self, frame: u8, state: &State) -> impl Iterator<Item = usize> {
        let frame = self.frame(frame);
        state.dims().map(|cuts| frame.count(cuts.iter().copied()))
    }

    /// What a step costs that is over these atoms and in which each device receives this many bytes.
    pub(super) fn cost(&self, frame: u8, over: AtomSet, bytes: u64) -> Cost {
        let frame = self.frame(frame);
        let links = members(over).map(|atom| self.link(frame, atom));
        links
            .reduce(Link::slower)
            .map_or_else(Cost::free, |link| Cost::of(link, bytes))
    }

    fn link(&self, frame: &Frame, atom: AtomId) -> Link {
        let dim = frame.atoms[usize::from(atom)].dim;
        self.links.link(frame.mesh.dims()[dim].name())
    }

    /// What it costs to move every block to another device.
    pub(super) fn permute_cost(&self, frame: u8, bytes: u64) -> Cost {
        Cost::of(self.links.slowest(&self.frame(frame).mesh), bytes)
    }

    /// A time that no plan from this place can beat.
    ///
    /// Some device has to receive what it will hold at the end and does not hold now. A tensor
    /// dimension along which the cuts differ after a common beginning leaves a device with nothing
    /// that it will hold; otherwise one of the two ranges contains the other, and the first device
    /// holds the shorter. No step receives more than it costs, so a step never lowers this bound by
    /// more than its own cost, and the search may rely on it (it is *consistent*).
    pub(super) fn bound(&self, place: &Place) -> u128 {
        if self.goal.partial() != 0 {
            return 0;
        }
        let same_frame = place.frame == self.goal_frame();
        let apart = |(now, then): (&[AtomId], &[AtomId])| {
            let differs = now.iter().zip(then).any(|(now, then)| now != then);
            differs && same_frame
        };
        let mut both = place.state.dims().zip(self.goal.dims());
        let held = match place.state.partial() != 0 || both.any(apart) {
            true => Held::Nothing,
            false => Held::Overlap,
        };
        self.bound_of(held, self.parts(place.frame, &place.state))
    }

    /// The same, knowing only into how many parts tensor dimensions are cut, and what a device holds
    /// at least.
    pub(super) fn bound_of(&self, held: Held, parts: impl Iterator<Item = usize>) -> u128 {
        if self.goal.partial() != 0 {
            return 0;
        }
        let goal_parts = self.parts(self.goal_frame(), &self.goal);
        let (wanted, overlap) = self.tensor.block_and_overlap(goal_parts, parts);
        let missing = match held {
            Held::Nothing => wanted,
            Held::Overlap => wanted - overlap,
        };
        if missing == 0 {
            return 0;
        }
        let link = self.links.fastest(&self.frames[0].mesh);
        let link = self.frames.iter().fold(link, |link, frame| {
            link.faster(self.links.fastest(&frame.mesh))
        });
        link.latency_fs() + link.transfer_fs(missing)
    }
}

impl Tensor {
    pub(super) fn new(shape: &[usize], element_size: usize, ranks: usize) -> Result<Self, Error> {
        // What an all-reduce moves stays below twice what all ranks hold together.
        let factors = shape
            .iter()
            .map(|&size| size.max(1))
            .chain([element_size, ranks, 2]);
        let counted = factors
            .map(|factor| factor as u64)
            .try_fold(1, u64::checked_mul);
        counted.ok_or_else(|| Error::TensorTooLarge {
            shape: shape.to_vec(),
            element_size,
            ranks,
        })?;
        Ok(Self {
            shape: Shape::from_slice(shape),
            element_size,
        })
    }

    /// The bytes of the largest block, where each tensor dimension is cut into so many parts.
    pub(super) fn block(&self, parts: impl Iterator<Item = usize>) -> u64 {
        let lengths = self
            .shape
            .iter()
            .zip(parts)
            .map(|(size, parts)| size.div_ceil(parts));
        lengths.fold(self.element_size as u64, |bytes, length| {
            bytes * length as u64
        })
    }

    /// The bytes of the largest block, and of the largest block that is cut as much as either.
    fn block_and_overlap(
        &self,
        parts: impl Iterator<Item = usize>,
        others: impl Iterator<Item = usize>,
    ) -> (u64, u64) {
        let both = self.shape.iter().zip(parts.zip(others));
        both.fold(
            (self.element_size as u64, self.element_size as u64),
            |(block, overlap), (size, (parts, others))| {
                let length = size.div_ceil(parts) as u64;
                (
                    block * length,
                    overlap * length.min(size.div_ceil(others) as u64),
                )
            },
        )
    }
}

impl Cost {
    pub(super) fn free() -> Self {
        Self {
            fs: 0,
            collectives: 0,
            steps: 1,
        }
    }

    fn of(link: Link, bytes: u64) -> Self {
        Self {
            fs: link.latency_fs() + link.transfer_fs(bytes),
            collectives: 1,
            steps: 1,
        }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self {
            fs: self.fs + other.fs,
            collectives: self.collectives + other.collectives,
            steps: self.steps + other.steps,
        }
    }
}
