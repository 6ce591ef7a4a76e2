//! What the search knows: frames, endpoints, sizes and costs.

use smallvec::SmallVec;

use super::frame::Frame;
use super::links::{Link, Links};
use super::state::{State, SubAxisId, SubAxisSet, members};
use crate::{Error, Shape};

/// One relayout to be planned, in terms of sub-axes.
#[derive(Debug)]
pub(super) struct Problem {
    /// The frame of the source, then that of the target unless it is the same.
    pub(super) frames: SmallVec<[Frame; 2]>,
    pub(super) start: State,
    pub(super) goal: State,
    pub(super) tensor: Tensor,
    /// Whether source and target are partial by different reductions.
    pub(super) two_reductions: bool,
    /// For each frame the link of each sub-axis.
    links: SmallVec<[Vec<Link>; 2]>,
    slowest: Link,
    fastest: Link,
    /// The bytes of a block of the goal, and its sizes.
    wanted: u64,
    wanted_shape: Shape,
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

/// The part of its final block that a device has already, in the worst case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Nothing,
    /// As much as two ranges can have in common, of which one contains the other.
    Overlap,
}

/// The cost of one step, compared by time, then number of collectives, then number of steps.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Cost {
    pub(super) fs: u128,
    pub(super) collectives: u32,
    pub(super) steps: u32,
}

impl Problem {
    /// To get from the first of these states to the second.
    pub(super) fn new(
        frames: SmallVec<[Frame; 2]>,
        [start, goal]: [State; 2],
        tensor: Tensor,
        links: &Links,
    ) -> Self {
        let of_frame = |frame: &Frame| {
            let dims = frame
                .sub_axes
                .iter()
                .map(|sub_axis| &frame.mesh.dims()[sub_axis.dim]);
            dims.map(|dim| links.link(dim.name())).collect()
        };
        let of_sub_axes: SmallVec<[Vec<Link>; 2]> = frames.iter().map(of_frame).collect();
        let all = || of_sub_axes.iter().flatten().copied();
        // Where nothing is to be divided, nothing is sent.
        let slowest = all().reduce(Link::slower).unwrap_or_default();
        let fastest = all().reduce(Link::faster).unwrap_or_default();
        let mut problem = Self {
            frames,
            start,
            two_reductions: goal.is_renewed(),
            wanted: 0,
            wanted_shape: Shape::new(),
            goal,
            tensor,
            links: of_sub_axes,
            slowest,
            fastest,
        };
        let (frame, goal) = (problem.goal_frame(), &problem.goal);
        let sizes = problem.tensor.shape.iter().zip(problem.parts(frame, goal));
        problem.wanted_shape = sizes.map(|(size, parts)| size.div_ceil(parts)).collect();
        problem.wanted = problem.block(frame, &problem.goal);
        problem
    }

    pub(super) fn frame(&self, frame: u8) -> &Frame {
        &self.frames[usize::from(frame)]
    }

    pub(super) fn goal_frame(&self) -> u8 {
        u8::from(self.frames.len() > 1)
    }

    pub(super) fn goal_place(&self) -> Place {
        Place {
            frame: self.goal_frame(),
            state: self.goal.clone(),
        }
    }

    pub(super) fn is_goal(&self, place: &Place) -> bool {
        place.frame == self.goal_frame() && place.state == self.goal
    }

    /// Whether sub-axes of a state may be made partial.
    ///
    /// Where neither end is partial this is left out: what would be reduced can be gathered or
    /// exchanged as well, but for blocks of very few elements that are cut unevenly. Terms of two
    /// reductions cannot be told apart, so one has to be done first.
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

    /// The cost of a step over these sub-axes in which each device receives this many bytes.
    pub(super) fn cost(&self, frame: u8, over: SubAxisSet, bytes: u64) -> Cost {
        let links = &self.links[usize::from(frame)];
        let links = members(over).map(|sub_axis| links[usize::from(sub_axis)]);
        let slower = links.reduce(Link::slower);
        slower.map_or_else(Cost::free, |link| Cost::of(link, bytes))
    }

    /// The cost of moving every block to another device.
    pub(super) fn permute_cost(&self, bytes: u64) -> Cost {
        Cost::of(self.slowest, bytes)
    }

    /// Whether there are any bounds but 0. To make terms costs nothing, however little of the block
    /// was there.
    pub(super) fn has_bounds(&self) -> bool {
        self.goal.partial() == 0
    }

    /// A cost that no plan from this place can beat.
    ///
    /// Some device has to receive what it will hold at the end and does not hold now. A tensor
    /// dimension along which the cuts differ after a common beginning leaves a device with nothing
    /// that it will hold; otherwise one of the two ranges contains the other, and the first device
    /// holds the shorter. No step receives more than it costs, so a step never lowers this bound by
    /// more than its own cost, and the search may rely on it (it is *consistent*).
    pub(super) fn bound(&self, place: &Place) -> Cost {
        let Place { frame, state } = place;
        let held = self.held(*frame, state.dims(), state.partial());
        self.bound_of(held, self.parts(*frame, state))
    }

    /// The part of its final block that a device has, in the worst case, when these sub-axes cut
    /// each tensor dimension.
    pub(super) fn held<'a>(
        &self,
        frame: u8,
        dims: impl Iterator<Item = &'a [SubAxisId]>,
        partial: SubAxisSet,
    ) -> Held {
        let apart = |(now, then): (&[SubAxisId], &[SubAxisId])| {
            now.iter().zip(then).any(|(now, then)| now != then)
        };
        let same_frame = frame == self.goal_frame();
        if partial != 0 || (same_frame && dims.zip(self.goal.dims()).any(apart)) {
            return Held::Nothing;
        }
        Held::Overlap
    }

    /// The same, knowing only into how many parts tensor dimensions are cut, and what a device
    /// holds at least.
    pub(super) fn bound_of(&self, held: Held, parts: impl Iterator<Item = usize>) -> Cost {
        if !self.has_bounds() {
            return Cost::default();
        }
        let overlap = || {
            let sizes = self.tensor.shape.iter().zip(parts).zip(&self.wanted_shape);
            let common = sizes.map(|((size, parts), wanted)| size.div_ceil(parts).min(*wanted));
            self.tensor.bytes(common)
        };
        let missing = match held {
            Held::Nothing => self.wanted,
            Held::Overlap => self.wanted - overlap(),
        };
        if missing == 0 {
            return Cost::default();
        }
        Cost::of(self.fastest, missing)
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

    /// The bytes of the largest block, where each tensor dimension is cut into this many parts.
    pub(super) fn block(&self, parts: impl Iterator<Item = usize>) -> u64 {
        let sizes = self.shape.iter().zip(parts);
        self.bytes(sizes.map(|(size, parts)| size.div_ceil(parts)))
    }

    /// The bytes of a block of these sizes.
    fn bytes(&self, sizes: impl Iterator<Item = usize>) -> u64 {
        sizes.fold(self.element_size as u64, |bytes, size| bytes * size as u64)
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

    /// This cost, multiplied.
    pub(super) fn times(self, times: u32) -> Self {
        Self {
            fs: self.fs * u128::from(times),
            collectives: self.collectives * times,
            steps: self.steps * times,
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
