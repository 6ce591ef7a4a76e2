use meshwork_collectives::Rank;

/// What a worker has and the chief has otherwise, though it has to be the same on all.
///
/// All workers get this error, or hear of it from the first that does. In an elastic job it is that
/// of the worker that differs, and the others go on without it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DifferenceError {
    /// The text given to [`agree`](crate::MultiWorkerMirroredStrategy::agree), of which there is
    /// the first line that differs; of a long one, what is around the difference.
    #[error(
        "{rank} has {mine}, and the chief {chiefs}: start all workers with the same settings and data"
    )]
    Settings {
        /// The first worker that differs.
        rank: Rank,
        /// Its text.
        mine: String,
        /// That of the chief.
        chiefs: String,
    },
    /// The files of an [`Input`](crate::Input), their order, or how they are shared.
    #[error(
        "{rank} does not share its {files} input files as rank 0 does its {chiefs}: give all workers the same files in the same order, sorted where they come from read_dir, and the same policy"
    )]
    Inputs {
        /// The first worker that differs.
        rank: Rank,
        /// Files that it shares with others: none where each worker has an input of its own.
        files: u64,
        /// Those of the chief.
        chiefs: u64,
    },
    /// The number of replicas.
    #[error(
        "{rank} has {replicas} replicas, but rank 0 has {chiefs}: give every worker the same number"
    )]
    Replicas {
        /// The first worker that differs.
        rank: Rank,
        /// Its replicas.
        replicas: u64,
        /// Those of rank 0.
        chiefs: u64,
    },
    /// The way of sharding a model.
    #[error(
        "the {what} of a sharded model is not the same on {rank} as on rank 0: give every worker the same"
    )]
    Sharding {
        /// The first worker that differs.
        rank: Rank,
        /// What differs.
        what: &'static str,
    },
}

impl DifferenceError {
    /// The worker that differs from the chief.
    pub(super) fn rank(&self) -> Rank {
        match self {
            Self::Settings { rank, .. }
            | Self::Inputs { rank, .. }
            | Self::Replicas { rank, .. }
            | Self::Sharding { rank, .. } => *rank,
        }
    }
}
