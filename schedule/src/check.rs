//! A checker that plays a schedule of all ranks and says whether the collective is done.

mod replay;
mod symbols;
mod violation;

use meshwork_accel::{ElementType, ReduceOp};

use super::Round;
use crate::Rank;
use replay::Replay;

pub use violation::Violation;

/// What a collective must have done when its last round is over.
///
/// Blocks are numbered as in the table of the [module](super); reductions hold each rank's
/// contribution exactly once.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Goal {
    /// Every rank holds the same reduction, in every block.
    AllReduce,
    /// This rank holds the reduction, in every block.
    Reduce(Rank),
    /// Every rank holds this rank's initial blocks; the others begin with nothing.
    Broadcast(Rank),
    /// Each rank holds the reduction of its block.
    ReduceScatter,
    /// Every rank holds each rank's block; each begins with its own only.
    AllGather,
    /// This rank holds each rank's block; each begins with its own only.
    Gather(Rank),
    /// Each rank holds its block of this rank's; the others begin with nothing.
    Scatter(Rank),
    /// Each rank holds the blocks that are for it; each begins with those that are its own.
    AllToAll,
    /// The rank that each rank sends to, if any, holds its block; each begins with its own only.
    Permute(Vec<Option<Rank>>),
    /// Every rank has heard from every other, directly or not.
    Barrier,
}

impl Goal {
    /// Nothing is wrong with blocks and ranks that are not there, so all must be.
    fn fits(&self, world: usize, blocks: usize) -> Result<(), Violation> {
        let expected = match self {
            Self::AllReduce | Self::Reduce(_) | Self::Broadcast(_) => blocks.max(world.min(1)),
            Self::ReduceScatter
            | Self::AllGather
            | Self::Gather(_)
            | Self::Scatter(_)
            | Self::Permute(_) => world,
            Self::AllToAll => world.saturating_mul(world),
            Self::Barrier => blocks,
        };
        if expected != blocks {
            return Err(Violation::BlockCount {
                blocks,
                expected,
                world,
            });
        }
        if let Self::Permute(targets) = self
            && targets.len() != world
        {
            let targets = targets.len();
            return Err(Violation::TargetCount { targets, world });
        }
        match self.named().find(|rank| rank.index() >= world) {
            Some(rank) => Err(Violation::RankOutside { rank, world }),
            None => Ok(()),
        }
    }

    /// Its root, or its targets.
    fn named(&self) -> impl Iterator<Item = Rank> + '_ {
        let (root, targets): (_, &[Option<Rank>]) = match self {
            Self::Reduce(root)
            | Self::Broadcast(root)
            | Self::Gather(root)
            | Self::Scatter(root) => (Some(*root), &[]),
            Self::Permute(targets) => (None, targets),
            Self::AllReduce
            | Self::ReduceScatter
            | Self::AllGather
            | Self::AllToAll
            | Self::Barrier => (None, &[]),
        };
        root.into_iter().chain(targets.iter().copied().flatten())
    }
}

/// In which order results were reduced, as far as a [`check`] could see. Later ones imply earlier.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Order {
    /// Some order, the same on all ranks.
    Any,
    /// The [balanced tree](meshwork_accel::balanced_split) over the ranks, in several steps: 16-bit
    /// floats may be rounded in between.
    Balanced,
    /// The balanced tree over the ranks in one step, rounded once.
    BalancedAtOnce,
}

impl Order {
    /// Whether results in this order depend on the contributions alone: not on the algorithm, on
    /// where ranks are, nor on how the buffer is cut.
    ///
    /// ```
    /// use meshwork_schedule::Order;
    /// use meshwork_accel::{ElementType, ReduceOp};
    ///
    /// assert!(Order::Any.reproduces(ReduceOp::Max, ElementType::Bf16));
    /// assert!(Order::Balanced.reproduces(ReduceOp::Sum, ElementType::F32));
    /// assert!(!Order::Balanced.reproduces(ReduceOp::Sum, ElementType::Bf16));
    /// ```
    #[must_use]
    pub fn reproduces(self, op: ReduceOp, element: ElementType) -> bool {
        let rounded_between = matches!(element, ElementType::F16 | ElementType::Bf16);
        match self {
            _ if !op.depends_on_order(element) => true,
            Self::Any => false,
            Self::Balanced => !rounded_between,
            Self::BalancedAtOnce => true,
        }
    }

    /// Whether a result that elements can hold is there, even where a partial one is beyond them:
    /// the sum behind a mean of `f16`, of which 65,504 is the largest.
    ///
    /// ```
    /// use meshwork_schedule::Order;
    /// use meshwork_accel::{ElementType, ReduceOp};
    ///
    /// assert!(Order::BalancedAtOnce.keeps_means(ReduceOp::Mean, ElementType::F16));
    /// assert!(!Order::Any.keeps_means(ReduceOp::Mean, ElementType::F16));
    /// assert!(Order::Any.keeps_means(ReduceOp::Mean, ElementType::Bf16));
    /// ```
    #[must_use]
    pub fn keeps_means(self, op: ReduceOp, element: ElementType) -> bool {
        (op, element) != (ReduceOp::Mean, ElementType::F16) || self == Self::BalancedAtOnce
    }
}

/// Replays a schedule over symbols and proves that it reaches `goal`.
///
/// `plan` holds each rank's rounds over a buffer of `blocks` blocks, as many as the goal has. All
/// ranks move in lock step: if each receive has its send in the same round, then no rank that walks
/// its own rounds in order can be stuck. Every block carries the *expression* that computes it, so
/// equal expressions on all ranks mean equal bits. How long blocks are plays no part in it.
///
/// Returns the order that all results of the goal were reduced in.
///
/// # Errors
/// The first [`Violation`] found.
///
/// ```
/// use meshwork_schedule::Rank;
/// use meshwork_schedule::{Algorithm, Goal, Order, Schedule, check};
///
/// let plan: Vec<Vec<_>> = Rank::all(5)
///     .map(|rank| Schedule::all_reduce(Algorithm::Ring, 5, rank).rounds().collect())
///     .collect();
/// assert_eq!(check(&plan, 5, &Goal::AllReduce), Ok(Order::Any));
/// assert!(check(&plan[..4], 5, &Goal::AllReduce).is_err());
/// ```
pub fn check(plan: &[Vec<Round>], blocks: usize, goal: &Goal) -> Result<Order, Violation> {
    goal.fits(plan.len(), blocks)?;
    let rounds = plan.first().map_or(0, Vec::len);
    for (rank, own) in plan.iter().enumerate() {
        if own.len() != rounds {
            return Err(Violation::RoundCount {
                rank: super::rank_at(rank),
                rounds: own.len(),
                expected: rounds,
            });
        }
    }
    let mut replay = Replay::new(plan, blocks, goal);
    for round in 0..rounds {
        replay.transfers_match(round)?;
        replay.step(round)?;
    }
    replay.reached(goal)
}
