//! `StateError`: what can be wrong with the state that workers give others, or have.

use meshwork_collectives::Rank;

/// Why a worker did not take over, could not give, or does not have the state of a training.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A worker sent a chunk that is not what it had stated, and ends; the others go on without it.
    #[error(
        "chunk {chunk} of the {chunks} of the state came from {giver} with another hash than it has: check that machine's memory"
    )]
    Chunk {
        /// The worker that sent it.
        giver: Rank,
        /// The chunk, from 0.
        chunk: u64,
        /// Chunks of the state.
        chunks: usize,
    },
    /// A worker sent another list of hashes than it had offered, and ends.
    #[error(
        "{giver} listed other hashes of its state than it had offered: check that machine's memory"
    )]
    Manifest {
        /// The worker.
        giver: Rank,
    },
    /// A worker lends other arrays than the one whose state it takes over.
    #[error(
        "{rank} lends {lent} bytes for a state of {total} bytes from {giver}, which do not go together: lend the same arrays on all workers"
    )]
    Lent {
        /// This worker.
        rank: Rank,
        /// What it lends.
        lent: usize,
        /// The first worker that gives the state.
        giver: Rank,
        /// Bytes of the state.
        total: usize,
    },
    /// All who had the state were lost while it was written over this worker's arrays.
    #[error(
        "no worker has the whole state any more, and {rank} had begun to take it over: start again from a checkpoint"
    )]
    HalfTaken {
        /// This worker.
        rank: Rank,
    },
    /// A sharded model was used before it had values. Nothing has changed.
    #[error("the model has no values: load a checkpoint, or initialize it")]
    NoValues,
    /// A sharded model of which parts were lost was used before it had other values. Nothing has
    /// changed.
    #[error(
        "parts {parts:?} of the model were lost with all workers that had them: load a checkpoint, or initialize it"
    )]
    PartsLost {
        /// By the places of their workers.
        parts: Vec<usize>,
    },
}
