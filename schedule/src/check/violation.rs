//! What the checker finds wrong with a schedule.

use std::ops::Range;

use crate::Rank;

/// Why a schedule is wrong. Rounds and blocks are counted from 0.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The goal has another number of blocks among so many ranks.
    #[error("{blocks} blocks were given, but the goal has {expected} among {world} ranks")]
    BlockCount {
        /// Blocks that were given.
        blocks: usize,
        /// Blocks that the goal has; of a buffer in equal parts, the fewest.
        expected: usize,
        /// Ranks that have rounds.
        world: usize,
    },
    /// The goal names a root or a target that has no rounds.
    #[error("the goal names {rank}, but there are rounds of {world} ranks, numbered from 0")]
    RankOutside {
        /// Who is named.
        rank: Rank,
        /// Ranks that have rounds.
        world: usize,
    },
    /// A permutation has one target, or none, for each rank.
    #[error(
        "the permutation has places for {targets} targets, but there are rounds of {world} ranks"
    )]
    TargetCount {
        /// Places that were given.
        targets: usize,
        /// Ranks that have rounds.
        world: usize,
    },
    /// Ranks disagree on how many rounds there are.
    #[error("{rank} has {rounds} rounds, rank 0 has {expected}")]
    RoundCount {
        /// The rank that differs from rank 0.
        rank: Rank,
        /// Its rounds.
        rounds: usize,
        /// Rank 0's rounds.
        expected: usize,
    },
    /// Blocks are sent that the receiver does not expect in this round, from this rank, in this
    /// place among its transfers.
    #[error("round {round}: {rank} sends blocks {blocks:?} to {to}, which does not expect them")]
    UnmatchedSend {
        /// The round.
        round: usize,
        /// The sender.
        rank: Rank,
        /// The receiver.
        to: Rank,
        /// The blocks.
        blocks: Range<usize>,
    },
    /// A rank waits for blocks that nobody sends in this round: it would wait for ever.
    #[error(
        "round {round}: {rank} waits for blocks {blocks:?} of {from}, which does not send them"
    )]
    UnmatchedReceive {
        /// The round.
        round: usize,
        /// The receiver.
        rank: Rank,
        /// The supposed sender.
        from: Rank,
        /// The blocks.
        blocks: Range<usize>,
    },
    /// Transfers do not go from near to far, so ranks that take them one by one could wait in a
    /// circle.
    #[error("round {round}: {rank} lists a transfer with {peer} after one that reaches farther")]
    OutOfOrder {
        /// The round.
        round: usize,
        /// The rank.
        rank: Rank,
        /// The other side of the transfer.
        peer: Rank,
    },
    /// A rank sends what it does not hold.
    #[error("round {round}: {rank} sends block {block} to {to} but does not hold it")]
    NotHeld {
        /// The round.
        round: usize,
        /// The sender.
        rank: Rank,
        /// The receiver.
        to: Rank,
        /// The block.
        block: usize,
    },
    /// A block is replaced while it is sent, or replaced and received once more: which value counts
    /// is a race.
    #[error("round {round}: {rank} replaces block {block} while it uses it in another transfer")]
    BlockInUse {
        /// The round.
        round: usize,
        /// The rank.
        rank: Rank,
        /// The block.
        block: usize,
    },
    /// A contribution would enter a reduction twice, or there is nothing to reduce with.
    #[error(
        "round {round}: {rank} reduces block {block} with a value that shares a contribution with it, or without one of its own"
    )]
    Doubled {
        /// The round.
        round: usize,
        /// The rank that reduces.
        rank: Rank,
        /// The block.
        block: usize,
    },
    /// A rank ends with something else than the goal.
    #[error("{rank} ends with another value in block {block} than the operation gives")]
    WrongResult {
        /// The rank.
        rank: Rank,
        /// The block.
        block: usize,
    },
    /// A rank ends without having heard of another.
    #[error("{rank} passes without having heard from {from}")]
    NotHeard {
        /// The rank.
        rank: Rank,
        /// Whom it has not heard from.
        from: Rank,
    },
}
