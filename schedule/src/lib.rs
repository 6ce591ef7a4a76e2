//! Collective algorithms as data: who sends which blocks to whom in which round.
//!
//! This crate does not know buffers, sockets or the time.
//!
//! A [`Schedule`] is one rank's view of one algorithm for one [`Collective`]. Its rounds are
//! computed, not stored, so a schedule is a few words whatever the world. The same data is executed
//! by a group, costed, and proved by [`check()`].
//!
//! ```text
//!  ring all-reduce of 3 ranks, blocks a b c        tree all-reduce of 4 ranks
//!
//!  round 0   0 <-c- 1 <-a- 2 <-b- 0   add        round 0   1 --> 0   3 --> 2   add
//!  round 1   0 <-b- 1 <-c- 2 <-a- 0   add        round 1   2 --> 0             add
//!  round 2   0 -a-> 1 -b-> 2 -c-> 0   take       round 2   0 --> 2             take
//!  round 3   0 -c-> 1 -a-> 2 -b-> 0   take       round 3   0 --> 1   2 --> 3   take
//! ```
//!
//! Each collective is a few patterns in a row. What comes together is what spreads, backwards: the
//! first half of both pictures is the second half, read from below. So a pattern is written once,
//! forwards, and reduce-scatter, gather and reduce are all-gather, scatter and broadcast.
//!
//! | blocks of | are |
//! |---|---|
//! | all-reduce, reduce, broadcast | equal parts of the buffer, as many as [`Schedule::blocks`] says |
//! | reduce-scatter, all-gather, gather, scatter, permute | one per rank, of any length |
//! | all-to-all | one per pair of ranks, of any length: `from * world + to` |
//!
//! # When not to use it
//!
//! To send anything: `meshwork-collectives` carries schedules out and chooses among them.
//!
//! # Examples
//!
//! ```
//! use meshwork_schedule::{Algorithm, Goal, Order, Rank, Schedule, check};
//!
//! let rounds = |rank| Schedule::all_reduce(Algorithm::Ring, 3, Rank::new(rank)).rounds();
//! let first = rounds(0).next().expect("a ring of three has four rounds");
//! assert_eq!(first.sends()[0].to, Rank::new(2));
//!
//! let plan: Vec<Vec<_>> = (0..3).map(|rank| rounds(rank).collect()).collect();
//! assert_eq!(check(&plan, 3, &Goal::AllReduce)?, Order::Any);
//! # Ok::<(), meshwork_schedule::Violation>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Schedule::new`], [`Schedule::all_reduce`] | a rank's part of a collective |
//! | [`Schedule::rounds`] | what it sends and receives, round by round |
//! | [`Schedule::peers`] | whom it needs a connection to |
//! | [`Schedule::along`] | a ring in any order |
//! | [`check()`] | the proof that schedules of all ranks do what they should |
//!
//! # Errors
//!
//! There are none: a rank and a root are below the world, and who asks has checked it. [`check()`]
//! returns the first [`Violation`].
//!
//! # Costs
//!
//! A schedule is a few words, and a round is computed when it is asked for. [`check()`] carries all
//! ranks out on symbols, which takes time and memory for the square of the ranks and more. No
//! threads, no I/O.
//!
//! # Map of the crate
//!
//! `algorithm` (by name, and in which order each adds), `plan` (which patterns a collective is),
//! `pattern` (who meets whom), `ring` (rings in any order), `blocks` (how a buffer is cut), `round`
//! (one step of one rank), `hosts` (which ranks share one), `rank`, `check` (the proof).

#![forbid(unsafe_code)]

mod algorithm;
mod blocks;
mod check;
mod hosts;
mod pattern;
mod plan;
mod rank;
mod ring;
mod round;

pub use algorithm::Algorithm;
pub use blocks::{Blocks, chunk};
pub use check::{Goal, Order, Violation, check};
pub use hosts::Hosts;
pub use pattern::tree::KNOMIAL_RADIX;
pub use rank::Rank;
pub use ring::RingOrder;
pub use round::{OnReceive, Receive, Round, Send};

use std::collections::BTreeSet;

use smallvec::smallvec;

use pattern::{Pattern, Phase, Place};
use plan::{Phases, plan};

/// What all ranks of a group do together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' buffers.
    AllReduce,
    /// One rank ends with the reduction of all ranks' buffers; the others' are used up.
    Reduce {
        /// Who gets it.
        root: Rank,
    },
    /// Every rank ends with the root's buffer.
    Broadcast {
        /// Whose buffer.
        root: Rank,
    },
    /// Each rank ends with the reduction of its block of all ranks' buffers; others are used up.
    ReduceScatter,
    /// Every rank ends with each rank's block.
    AllGather,
    /// One rank ends with each rank's block; on the way others may hold some too.
    Gather {
        /// Who gets them.
        root: Rank,
    },
    /// Each rank ends with its block of the root's buffer; on the way it may hold others too.
    Scatter {
        /// Whose buffer.
        root: Rank,
    },
    /// Each rank ends with the block that every other has for it; on the way it may hold others
    /// too.
    AllToAll,
    /// Nobody ends before all have begun. Nothing is moved.
    Barrier,
}

/// One rank's part in one collective: a sequence of [`Round`]s over a buffer cut in blocks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Schedule {
    phases: Phases,
    blocks: usize,
    rank: usize,
    hosts: Hosts,
    at_once: bool,
    /// Where ranks do not stand in their order: `rank` is a place then.
    ring: Option<RingOrder>,
}

impl Schedule {
    /// The part of `rank` in a collective among all ranks of `hosts`. Where ranks are matters to
    /// [`Algorithm::Hierarchical`] only.
    ///
    /// `rank` and a root must be below the world; the group checks it before it asks.
    #[must_use]
    pub fn new(collective: Collective, algorithm: Algorithm, hosts: &Hosts, rank: Rank) -> Self {
        let (phases, blocks) = plan(collective, algorithm, hosts.world());
        Self {
            phases,
            blocks,
            rank: rank.index(),
            hosts: hosts.clone(),
            at_once: algorithm.order(collective, hosts) == Order::BalancedAtOnce,
            ring: None,
        }
    }

    /// The part of `rank` in a collective by [`Algorithm::Ring`], along a ring in any order.
    ///
    /// ```
    /// use meshwork_schedule::{Collective, Rank, RingOrder, Schedule};
    ///
    /// let ring = RingOrder::new([0, 2, 1, 3].map(Rank::new)).expect("each rank once");
    /// let schedule = Schedule::along(Collective::AllReduce, &ring, Rank::new(2));
    /// // From rank 0, and to rank 1.
    /// assert!(schedule.peers().into_iter().eq([0, 1].map(Rank::new)));
    /// ```
    #[must_use]
    pub fn along(collective: Collective, ring: &RingOrder, rank: Rank) -> Self {
        let world = u32::try_from(ring.world()).expect("ranks are below 2^32");
        let (collective, place) = (ring.among_places(collective), ring.place(rank));
        Self {
            ring: Some(ring.clone()),
            ..Self::new(collective, Algorithm::Ring, &Hosts::apart(world), place)
        }
    }

    /// [`Collective::AllReduce`] among ranks that share no host.
    #[must_use]
    pub fn all_reduce(algorithm: Algorithm, world: u32, rank: Rank) -> Self {
        Self::new(Collective::AllReduce, algorithm, &Hosts::apart(world), rank)
    }

    /// [`Collective::Broadcast`] among ranks that share no host.
    #[must_use]
    pub fn broadcast(algorithm: Algorithm, world: u32, rank: Rank, root: Rank) -> Self {
        let collective = Collective::Broadcast { root };
        Self::new(collective, algorithm, &Hosts::apart(world), rank)
    }

    /// `rank` sends its own block to one rank and receives that of another: each side may be
    /// nobody.
    ///
    /// For a permutation of the ranks, and for a send that meets its receive. A rank that is its
    /// own target moves nothing.
    #[must_use]
    pub fn permute(world: u32, rank: Rank, to: Option<Rank>, from: Option<Rank>) -> Self {
        let pattern = Pattern::Permute {
            to: to.map(Rank::index),
            from: from.map(Rank::index),
        };
        Self {
            phases: smallvec![Phase::out(pattern)],
            blocks: world as usize,
            rank: rank.index(),
            hosts: Hosts::apart(world),
            at_once: true,
            ring: None,
        }
    }

    /// Whether each rank that combines contributions has those of all ranks.
    #[must_use]
    pub fn combines_at_once(&self) -> bool {
        self.at_once
    }

    /// Into how many blocks the buffer is cut: equal ones for all-reduce, reduce and broadcast.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The rounds in order. All ranks of one collective have equally many.
    pub fn rounds(&self) -> impl ExactSizeIterator<Item = Round> + use<> {
        let schedule = self.clone();
        (0..self.len()).map(move |index| schedule.round(index))
    }

    /// Every rank that this one sends to or receives from.
    ///
    /// ```
    /// use meshwork_schedule::{Algorithm, Rank, Schedule};
    ///
    /// let tree = |rank| Schedule::all_reduce(Algorithm::Tree, 64, Rank::new(rank)).peers();
    /// assert!(tree(0).into_iter().eq([1, 2, 4, 8, 16, 32].map(Rank::new)));
    /// assert!(tree(63).into_iter().eq([Rank::new(62)]));
    /// ```
    #[must_use]
    pub fn peers(&self) -> BTreeSet<Rank> {
        let mut peers = BTreeSet::new();
        for round in self.rounds() {
            peers.extend(round.sends().iter().map(|send| send.to));
            peers.extend(round.receives().iter().map(|receive| receive.from));
        }
        peers
    }

    fn len(&self) -> usize {
        let world = self.hosts.world();
        self.phases.iter().map(|phase| phase.rounds(world)).sum()
    }

    fn round(&self, mut index: usize) -> Round {
        let place = Place {
            world: self.hosts.world(),
            rank: self.rank,
            blocks: self.blocks,
            hosts: &self.hosts,
        };
        for phase in &self.phases {
            let rounds = phase.rounds(place.world);
            if index < rounds {
                let round = phase.round(&place, index);
                return match &self.ring {
                    // One transfer each way has no order.
                    Some(ring) => ring.among_ranks(round, self.blocks),
                    None => round.in_order(place.world, place.rank),
                };
            }
            index -= rounds;
        }
        Round::default()
    }
}

/// The rank with this place in a world that fits `u32`, as every world does.
fn rank_at(index: usize) -> Rank {
    Rank::new(u32::try_from(index).expect("a place in a world of at most u32::MAX ranks"))
}

#[cfg(test)]
mod tests;
