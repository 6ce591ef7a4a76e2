//! The patterns that schedules are put together from, each played forward or backward.

mod exchange;
pub(crate) mod halving;
pub(crate) mod hierarchy;
mod ring;
mod star;
pub(crate) mod tree;

use crate::hosts::Hosts;
use crate::{OnReceive, Round};
use halving::Cut;
use hierarchy::Owner;
use tree::Tree;

/// Where a schedule is played: whose part, among whom, over how many blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) world: usize,
    pub(super) rank: usize,
    pub(super) blocks: usize,
    pub(super) hosts: &'a Hosts,
}

/// One pattern, and which way it is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Phase {
    pub(super) pattern: Pattern,
    pub(super) way: Way,
}

/// Which way a pattern is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// As it is described: from those who have to those who lack.
    Out,
    /// Backwards, each block to where it came from.
    Back,
    /// Backwards, and what meets is reduced.
    Reduce,
}

/// Who sends what to whom. A broadcast takes all that one rank has to all others, a scatter to each
/// its own, and an all-gather what each has to all; who passes what on is the first half of the
/// name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pattern {
    StarBroadcast(usize),
    StarScatter(usize),
    StarAllGather,
    StarShare,
    ChainBroadcast(usize),
    ChainScatter(usize),
    RingAllGather,
    TreeBroadcast(Tree),
    TreeScatter(Tree),
    PairBroadcast,
    PairScatter,
    Doubling(Cut),
    HostDeal(usize),
    HostBroadcast(usize),
    HostScatter(usize),
    HostAllGather(Owner),
    AllAtOnce,
    OneByOne,
    ByBits,
    HostAllToAll,
    Barrier,
    Permute {
        to: Option<usize>,
        from: Option<usize>,
    },
}

impl Phase {
    pub(super) fn out(pattern: Pattern) -> Self {
        let way = Way::Out;
        Self { pattern, way }
    }

    /// The same transfers in reverse order. What was handed out comes back as it is, what was
    /// copied to many is reduced from many.
    pub(super) fn backwards(self) -> Self {
        let way = match (self.way, self.pattern.hands_out()) {
            (Way::Out, true) => Way::Back,
            (Way::Out, false) => Way::Reduce,
            (Way::Back | Way::Reduce, _) => Way::Out,
        };
        Self { way, ..self }
    }

    pub(super) fn rounds(&self, world: usize) -> usize {
        self.pattern.rounds(world)
    }

    pub(super) fn round(&self, place: &Place<'_>, index: usize) -> Round {
        let then = match self.way {
            Way::Out => return self.pattern.round(place, index),
            Way::Back => OnReceive::Replace,
            Way::Reduce => OnReceive::Reduce,
        };
        let last = self.rounds(place.world) - 1;
        self.pattern.round(place, last - index).backwards(then)
    }
}

impl Pattern {
    /// Whether each block goes to one rank, rather than to many.
    fn hands_out(self) -> bool {
        matches!(
            self,
            Self::StarScatter(_)
                | Self::ChainScatter(_)
                | Self::TreeScatter(_)
                | Self::PairScatter
                | Self::HostDeal(_)
                | Self::HostScatter(_)
        )
    }

    fn rounds(self, world: usize) -> usize {
        match self {
            _ if world == 1 => 0,
            Self::StarBroadcast(_)
            | Self::StarScatter(_)
            | Self::StarAllGather
            | Self::StarShare
            | Self::HostDeal(_)
            | Self::AllAtOnce
            | Self::Permute { .. } => 1,
            Self::ChainBroadcast(_) => ring::broadcast_rounds(world),
            Self::ChainScatter(_) | Self::RingAllGather | Self::OneByOne => ring::rounds(world),
            Self::TreeBroadcast(tree) | Self::TreeScatter(tree) => tree.depth(world),
            Self::ByBits | Self::Barrier => exchange::doublings(world),
            Self::PairBroadcast | Self::PairScatter => halving::pair_rounds(world),
            Self::Doubling(_) => halving::rounds(world),
            Self::HostBroadcast(_) => hierarchy::BROADCAST_ROUNDS,
            Self::HostScatter(_) => hierarchy::SCATTER_ROUNDS,
            Self::HostAllGather(_) => hierarchy::ALL_GATHER_ROUNDS,
            Self::HostAllToAll => hierarchy::ALL_TO_ALL_ROUNDS,
        }
    }

    fn round(self, place: &Place<'_>, index: usize) -> Round {
        match self {
            Self::StarBroadcast(root) => star::broadcast(place, root),
            Self::StarScatter(root) => star::scatter(place, root),
            Self::StarAllGather => star::all_gather(place),
            Self::StarShare => star::share(place),
            Self::ChainBroadcast(root) => ring::broadcast(place, root, index),
            Self::ChainScatter(root) => ring::scatter(place, root, index),
            Self::RingAllGather => ring::all_gather(place, index),
            Self::TreeBroadcast(tree) => tree::broadcast(place, tree, index),
            Self::TreeScatter(tree) => tree::scatter(place, tree, index),
            Self::PairBroadcast => halving::pair_broadcast(place),
            Self::PairScatter => halving::pair_scatter(place),
            Self::Doubling(cut) => halving::all_gather(place, cut, index),
            Self::HostDeal(root) => hierarchy::deal(place, root),
            Self::HostBroadcast(root) => hierarchy::broadcast(place, root, index),
            Self::HostScatter(root) => hierarchy::scatter(place, root, index),
            Self::HostAllGather(owner) => hierarchy::all_gather(place, owner, index),
            Self::AllAtOnce => exchange::all_at_once(place),
            Self::OneByOne => exchange::one_by_one(place, index),
            Self::ByBits => exchange::by_bits(place, index),
            Self::HostAllToAll => hierarchy::all_to_all(place, index),
            Self::Barrier => exchange::barrier(place, index),
            Self::Permute { to, from } => exchange::permute(place, to, from),
        }
    }
}
