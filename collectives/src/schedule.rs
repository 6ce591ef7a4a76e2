//! Collective algorithms as data: who sends which chunk to whom in which round.
//!
//! A [`Schedule`] is one rank's view of one algorithm. Its rounds are computed, not stored, so a
//! schedule is a few words whatever the world. The same data is executed by a group and proved by
//! [`check()`]; nothing here knows a buffer, a socket or the time.
//!
//! ```text
//!  ring all-reduce of 3 ranks, chunks a b c        tree all-reduce of 4 ranks
//!
//!  round 0   0 --a--> 1 --b--> 2 --c--> 0   add      round 0   1 --> 0   3 --> 2   add
//!  round 1   0 --c--> 1 --a--> 2 --b--> 0   add      round 1   2 --> 0             add
//!  round 2   0 --b--> 1 --c--> 2 --a--> 0   take     round 2   0 --> 2             take
//!  round 3   0 --a--> 1 --b--> 2 --c--> 0   take     round 3   0 --> 1   2 --> 3   take
//! ```
//!
//! The ring moves the fewest bytes, 2(n−1)/n of the buffer per rank in 2(n−1) rounds (Patarasuk
//! and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009); the
//! binomial tree needs the fewest rounds, 2⌈log₂ n⌉, and moves the whole buffer in each.

mod check;
mod ring;
mod tree;

use std::fmt::{self, Display};
use std::ops::Range;

pub use check::{Goal, Violation, check};

use crate::Rank;

/// How a collective is carried out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Algorithm {
    /// Every rank sends to its successor and receives from its predecessor: most bandwidth.
    Ring = 1,
    /// A binomial tree: fewest rounds.
    Tree = 2,
}

impl Algorithm {
    /// Every algorithm, in the order of its wire code.
    pub const ALL: [Self; 2] = [Self::Ring, Self::Tree];

    /// The code that stands for this algorithm on the wire; inverse of [`Algorithm::from_code`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The algorithm with this wire code; inverse of [`Algorithm::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.code() == code)
    }
}

impl Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
        })
    }
}

/// One rank's part in one collective: a sequence of [`Round`]s over a buffer cut in chunks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Schedule {
    shape: Shape,
    world: usize,
    rank: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    RingAllReduce,
    TreeAllReduce,
    RingBroadcast { root: usize },
    TreeBroadcast { root: usize },
}

impl Schedule {
    /// Every rank ends with the reduction of all ranks' buffers.
    ///
    /// `rank` must be below `world`; the group checks it before it asks.
    #[must_use]
    pub fn all_reduce(algorithm: Algorithm, world: u32, rank: Rank) -> Self {
        let shape = match algorithm {
            Algorithm::Ring => Shape::RingAllReduce,
            Algorithm::Tree => Shape::TreeAllReduce,
        };
        Self {
            shape,
            world: world as usize,
            rank: rank.index(),
        }
    }

    /// Every rank ends with `root`'s buffer.
    ///
    /// `rank` and `root` must be below `world`; the group checks it before it asks.
    #[must_use]
    pub fn broadcast(algorithm: Algorithm, world: u32, rank: Rank, root: Rank) -> Self {
        let root = root.index();
        let shape = match algorithm {
            Algorithm::Ring => Shape::RingBroadcast { root },
            Algorithm::Tree => Shape::TreeBroadcast { root },
        };
        Self {
            shape,
            world: world as usize,
            rank: rank.index(),
        }
    }

    /// Into how many chunks the buffer is cut; see [`chunk`].
    #[must_use]
    pub fn chunks(&self) -> usize {
        match self.shape {
            Shape::RingAllReduce | Shape::RingBroadcast { .. } => self.world,
            Shape::TreeAllReduce | Shape::TreeBroadcast { .. } => 1,
        }
    }

    /// The rounds in order. All ranks of one collective have equally many.
    pub fn rounds(&self) -> impl ExactSizeIterator<Item = Round> + use<> {
        let schedule = *self;
        (0..self.len()).map(move |round| schedule.round(round))
    }

    fn len(&self) -> usize {
        match self.shape {
            Shape::RingAllReduce => ring::all_reduce_rounds(self.world),
            Shape::RingBroadcast { .. } => ring::broadcast_rounds(self.world),
            Shape::TreeAllReduce => 2 * tree::depth(self.world),
            Shape::TreeBroadcast { .. } => tree::depth(self.world),
        }
    }

    fn round(&self, round: usize) -> Round {
        match self.shape {
            Shape::RingAllReduce => ring::all_reduce(self.world, self.rank, round),
            Shape::RingBroadcast { root } => ring::broadcast(self.world, self.rank, root, round),
            Shape::TreeAllReduce => tree::all_reduce(self.world, self.rank, round),
            Shape::TreeBroadcast { root } => tree::broadcast(self.world, self.rank, root, round),
        }
    }
}

/// What one rank does in one round. Sending and receiving happen at once, on different chunks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Round {
    /// The chunk to send, if any.
    pub send: Option<Send>,
    /// The chunk to receive, if any.
    pub receive: Option<Receive>,
}

/// One chunk on its way out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Send {
    /// Who gets it.
    pub to: Rank,
    /// Which chunk of the buffer.
    pub chunk: usize,
}

/// One chunk on its way in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Receive {
    /// Who sends it.
    pub from: Rank,
    /// Which chunk of the buffer.
    pub chunk: usize,
    /// What becomes of it.
    pub then: OnReceive,
}

/// What becomes of a chunk that was received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnReceive {
    /// The local chunk becomes `op(local, received)`.
    Reduce,
    /// The local chunk becomes the received one.
    Replace,
}

/// The elements of chunk `index` when `len` elements are cut into `chunks` contiguous chunks.
///
/// Lengths differ by at most one, the longer chunks first; chunks are empty when `len < chunks`.
/// Together they cover `0..len` exactly once.
///
/// ```
/// use meshwork_collectives::schedule::chunk;
/// assert_eq!((0..4).map(|i| chunk(5, 4, i)).collect::<Vec<_>>(), [0..2, 2..3, 3..4, 4..5]);
/// ```
#[must_use]
pub fn chunk(len: usize, chunks: usize, index: usize) -> Range<usize> {
    let (base, longer) = (len / chunks, len % chunks);
    let start = |index: usize| index * base + index.min(longer);
    start(index)..start(index + 1)
}

/// The rank with this place in a world that fits `u32`, as every world does.
fn rank_at(index: usize) -> Rank {
    Rank::new(u32::try_from(index).expect("a place in a world of at most u32::MAX ranks"))
}

#[cfg(test)]
mod tests;
