//! What programs ask of an error: who is gone, whose fault it is, whether to try again.

use meshwork_checkpoint::Error as CheckpointError;
use meshwork_collectives::Rank;

use super::{Error, LowCommunicationError, StateError};

impl Error {
    /// Whether a worker is gone, or did not come; see [`Training`](crate::Training) for how the
    /// others go on.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Group(error) if error.is_loss())
    }

    /// The one rank that something is wrong with, if there is one and it is known.
    #[must_use]
    pub fn rank_at_fault(&self) -> Option<Rank> {
        match self {
            Self::Group(error) => error.rank_at_fault(),
            Self::Difference(error) => Some(error.rank()),
            Self::VariablesDiffer { rank, .. } => Some(*rank),
            Self::LowCommunication(
                LowCommunicationError::NotFinite { rank }
                | LowCommunicationError::Differs { rank, .. }
                | LowCommunicationError::Behind { rank, .. },
            ) => Some(*rank),
            Self::State(StateError::Chunk { giver, .. } | StateError::Manifest { giver }) => {
                Some(*giver)
            }
            Self::State(StateError::Lent { rank, .. } | StateError::HalfTaken { rank, .. }) => {
                Some(*rank)
            }
            Self::ReplicasDiverged { ranks } => match ranks.as_slice() {
                [one] => Some(*one),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the same program may succeed if it is started again, with nothing else changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Group(error) => error.is_retryable(),
            Self::Cluster(error) => error.is_transient(),
            error => matches!(
                error,
                Self::NoThread { .. }
                    | Self::NoWriter { .. }
                    | Self::State(StateError::HalfTaken { .. })
                    | Self::Checkpoint(CheckpointError::Concurrent { .. })
                    | Self::LowCommunication(
                        LowCommunicationError::Behind { .. } | LowCommunicationError::NotStarted
                    )
            ),
        }
    }

    /// The status for a process that ends with this error, as `meshwork run` understands it: see
    /// [`exit_status`](meshwork_collectives::Error::exit_status). What is
    /// [retryable](Self::is_retryable) is never 78, so that an elastic run goes on.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        if let Self::Group(error) = self {
            return error.exit_status();
        }
        let is_of_config = matches!(
            self,
            Self::Cluster(_) | Self::WithoutEtcd { .. } | Self::WithoutStatus
        );
        match is_of_config && !self.is_retryable() {
            true => meshwork_collectives::Error::EXIT_CONFIG,
            false => 1,
        }
    }
}
