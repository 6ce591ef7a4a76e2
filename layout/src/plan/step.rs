//! One step of a plan: which collective, over which groups of ranks, from which placement to which,
//! and its cost. Steps are chosen in `search` and carried out by the dtensor crate.

use std::fmt::{self, Display};
use std::time::Duration;

use meshwork_core::MeshRank;

use super::mesh_placement::{DimPart, MeshPlacement};
use crate::Error;

/// The collective of one step of a plan.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[doc(alias = "Collective")]
pub enum StepKind {
    /// Each device keeps a part of its block; nothing is sent.
    #[doc(alias = "all_slice")]
    Slice,
    /// Each device of a group receives the blocks of all others.
    AllGather,
    /// Each device of a group receives a part of the block of each other, so that another dimension
    /// of the tensor is cut.
    AllToAll,
    /// Each block moves as a whole, to another device.
    #[doc(alias = "collective_permute")]
    Permute,
    /// The devices of a group reduce their blocks, and each receives a part of the outcome.
    ReduceScatter,
    /// The devices of a group reduce their blocks, and each receives the outcome.
    AllReduce,
    /// Each device takes its block for a term of one to be reduced, and what it lacks, or others
    /// hold as well, for one that changes nothing; nothing is sent.
    MakePartial,
}

impl StepKind {
    /// Whether devices send anything. Only such steps have a latency and are counted.
    #[must_use]
    pub fn communicates(self) -> bool {
        !matches!(self, Self::Slice | Self::MakePartial)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Slice => "slice",
            Self::AllGather => "all-gather",
            Self::AllToAll => "all-to-all",
            Self::Permute => "permute",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
            Self::MakePartial => "make partial",
        }
    }
}

impl Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One step of a [`Plan`](crate::Plan).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanStep {
    pub(super) kind: StepKind,
    pub(super) over: Vec<DimPart>,
    pub(super) before: MeshPlacement,
    pub(super) after: MeshPlacement,
    pub(super) bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) time: Duration,
}

impl PlanStep {
    /// The collective.
    #[must_use]
    pub fn kind(&self) -> StepKind {
        self.kind
    }

    /// The mesh dimensions, or parts of them, that the step is over, major to minor.
    ///
    /// Devices that differ along nothing else are a group and exchange among themselves; for a
    /// [`Permute`](StepKind::Permute) these are the dimensions whose role changes. For steps that
    /// do not communicate, they are those that begin to cut or to be partial.
    #[must_use]
    pub fn over(&self) -> &[DimPart] {
        &self.over
    }

    /// The ranks of the mesh before the step that differ from this one along [`over`](Self::over)
    /// only, this one among them, in the order of their coordinates there, row-major.
    ///
    /// # Errors
    /// [`Error::Mesh`] for a rank outside the mesh.
    pub fn group_of(
        &self,
        rank: MeshRank,
    ) -> Result<impl ExactSizeIterator<Item = MeshRank>, Error> {
        self.before.mesh().coords(rank)?;
        let first = self.over.iter().fold(rank.index(), |first, part| {
            first - part.coord(rank) * part.stride()
        });
        let count: usize = self.over.iter().map(DimPart::size).product();
        Ok((0..count).map(move |place| {
            let along = |(place, rank): (usize, usize), part: &DimPart| {
                (
                    place / part.size(),
                    rank + place % part.size() * part.stride(),
                )
            };
            MeshRank::new(self.over.iter().rev().fold((place, first), along).1)
        }))
    }

    /// Whether the devices of a group held the same before a
    /// [`MakePartial`](StepKind::MakePartial), so that only the first of them may keep it for its
    /// term.
    #[must_use]
    pub fn had_copies(&self) -> bool {
        let cuts = |placement: &MeshPlacement| -> usize {
            placement.axes().flatten().map(DimPart::size).product()
        };
        cuts(&self.before) == cuts(&self.after)
    }

    /// The placement of the tensor before the step.
    #[must_use]
    pub fn before(&self) -> &MeshPlacement {
        &self.before
    }

    /// The placement of the tensor after the step.
    #[must_use]
    pub fn after(&self) -> &MeshPlacement {
        &self.after
    }

    /// The bytes that each device receives; where shards are uneven, the bytes of the largest.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The peak memory of a device during the step, in bytes: its block before and its block after.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    /// The predicted duration of the step, by the [`Links`](crate::Links) of the plan.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }
}
