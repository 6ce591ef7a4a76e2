use burn_core::store::RecordError;
use burn_core::tensor::{DType, TensorReadError};

/// Everything that can go wrong between burn and a strategy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the strategy: the workers, or a call of theirs.
    #[error(transparent)]
    Strategy(#[from] meshwork_strategy::Error),
    /// burn could not return the values of a tensor, such as those on a device that has failed.
    #[error("burn cannot read the values of parameter {name}")]
    Read {
        /// The parameter, or the parameter whose gradient it is.
        name: String,
        /// The error of burn.
        source: TensorReadError,
    },
    /// A parameter or a gradient is not made of `f32`.
    #[error("parameter {name} holds {found:?} values: only F32 parameters can be mirrored")]
    ElementType {
        /// The parameter.
        name: String,
        /// The element type that it holds.
        found: DType,
    },
    /// A module has a parameter that was not there, or was not to be trained, when it was mirrored.
    #[error(
        "parameter {name} is not one of the {mirrored} that are trained: mirror the module again after it was changed"
    )]
    NotMirrored {
        /// The parameter, by its place in the module that was given.
        name: String,
        /// Parameters that are trained.
        mirrored: usize,
    },
    /// burn cannot convert the state of an optimizer.
    #[error("burn cannot convert the state of an optimizer")]
    OptimizerState(#[from] RecordError),
    /// A checkpoint holds no state of an optimizer.
    #[error(
        "the checkpoint of step {step} holds no state of a burn optimizer: save it with save_optimizer"
    )]
    NoOptimizerState {
        /// The step after which it was written.
        step: u64,
    },
}

impl Error {
    /// The status for a process that ends with this error, as `meshwork run` understands it.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        if let Self::Strategy(error) = self {
            return error.exit_status();
        }
        1
    }
}

/// The message and its causes, as `main` and `unwrap` print them.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        meshwork_strategy::fmt_with_causes(self, f)
    }
}
