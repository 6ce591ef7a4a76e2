use meshwork_core::MeshRank;

/// How a plan, or the shards it is carried out on, is wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Broken {
    /// There is not one shard for each rank.
    #[error("{found} shards for {expected} ranks: give one for each rank")]
    ShardCount {
        /// How many shards were given.
        found: usize,
        /// How many ranks the mesh has.
        expected: usize,
    },
    /// A shard has not as many elements as its rank holds.
    #[error("the shard of {rank} has {found} elements, but it holds {expected}")]
    ShardLength {
        /// The rank.
        rank: MeshRank,
        /// How many elements were given.
        found: usize,
        /// How many the layout says.
        expected: usize,
    },
    /// A rank ends a step without an element that no rank of its group could give it.
    #[error("in step {step} nobody has what {rank} needs at {index:?}")]
    Missing {
        /// The step, counted from 0.
        step: usize,
        /// The rank.
        rank: MeshRank,
        /// Which part, in boundaries of all blocks.
        index: Vec<usize>,
    },
    /// A rank receives more than the plan says.
    #[error("in step {step} {rank} receives {received} elements, but the plan says {planned}")]
    Received {
        /// The step, counted from 0.
        step: usize,
        /// The rank.
        rank: MeshRank,
        /// How many elements it receives.
        received: usize,
        /// How many it should receive at most.
        planned: usize,
    },
    /// A step, or the start or end of the plan, is not what the one before it leads to.
    #[error("step {step} does not begin with what is there for {rank}")]
    Disconnected {
        /// The step, counted from 0; the number of steps for the end.
        step: usize,
        /// The rank.
        rank: MeshRank,
    },
    /// A rank ends with other values than it should.
    #[error("{rank} ends with a wrong value at {index:?}")]
    Wrong {
        /// The rank.
        rank: MeshRank,
        /// Which part, in boundaries of all blocks.
        index: Vec<usize>,
    },
}
