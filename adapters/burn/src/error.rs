//! `Error`: of parameters and gradients, and of burn's learner.

use burn_core::store::RecordError;
use burn_core::tensor::{DType, TensorReadError};
#[cfg(feature = "train")]
use meshwork_strategy::Rank;

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
    /// A module lacks a parameter that it had when its training began.
    #[error(
        "parameter number {number} of {parameters} is not in the module any more: begin its training again after it was changed"
    )]
    ParameterGone {
        /// Its number, from 0, those that are trained first.
        number: usize,
        /// Parameters that the module had.
        parameters: usize,
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
    /// A GPU, or memory on it, is not what it was to be.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] meshwork_accel_cuda::Error),
    /// A gradient is not on a GPU, as all parameters were when they were to be summed there.
    #[cfg(feature = "cuda")]
    #[error(
        "a gradient is on {found}, and not on a GPU by CUDA: train on the device on which the module was mirrored"
    )]
    NotOnGpu {
        /// The kind of device that it is on.
        found: String,
    },
    /// burn does not say where a tensor lies on its GPU, such as one whose computation has failed.
    #[cfg(feature = "cuda")]
    #[error("burn cannot lend the memory of a gradient on its GPU")]
    Lend(#[source] burn_cubecl::cubecl::server::ServerError),
    /// A data loader could not give a batch.
    #[cfg(feature = "train")]
    #[error("the data loader gives no batch")]
    Dataset(#[source] burn_core::data::dataset::DatasetError),
    /// Outputs have a mean, such as a loss, with a NaN or an infinity. All workers get this error,
    /// with parameters as they were.
    #[cfg(feature = "train")]
    #[error(
        "an output of {} has a mean that is not finite, such as its loss, so that no worker has made the step: look at the batch there and at the learning rate, or go on by without_error_if_nonfinite",
        listed(ranks)
    )]
    NotFinite {
        /// Whose outputs.
        ranks: Vec<Rank>,
    },
    /// The output of a step cannot be read.
    #[cfg(feature = "train")]
    #[error("burn cannot read the output of a step")]
    ReadOutput(#[source] TensorReadError),
    /// A worker has sent an output that is in no form known here.
    #[cfg(feature = "train")]
    #[error("{rank} sent an output in an unknown form: do all workers run the same program?")]
    OutputForm {
        /// The worker.
        rank: Rank,
    },
    /// The output of a worker has other tensors than those of the others.
    #[cfg(feature = "train")]
    #[error("the output of {rank} has {found} tensors, where others have {needed}")]
    OutputFields {
        /// The worker.
        rank: Rank,
        /// Its tensors.
        found: usize,
        /// Those of workers before it.
        needed: usize,
    },
    /// A tensor of an output cannot be put together from those of the workers.
    #[cfg(feature = "train")]
    #[error(
        "the output of {rank} has a tensor of shape {found:?}, which does not fit {others:?} of others: only the first size of rows may differ, so pad sequences to one length on all workers"
    )]
    OutputsDiffer {
        /// The worker.
        rank: Rank,
        /// The shape of its tensor.
        found: Vec<usize>,
        /// That of the others.
        others: Vec<usize>,
    },
    /// A tensor of an output is not what it is read as.
    #[cfg(feature = "train")]
    #[error("an output has a tensor of shape {found:?}, and is read as one of {needed} dimensions")]
    OutputShape {
        /// The shape.
        found: Vec<usize>,
        /// The dimensions that it is read with.
        needed: usize,
    },
    /// More tensors of an output are read than it has.
    #[cfg(feature = "train")]
    #[error("an output has fewer tensors than are read: into_fields and from_fields have to agree")]
    OutputEnded,
    /// The checkpoints of a training cannot be listed, or read.
    #[cfg(feature = "train")]
    #[error("no checkpoint can be read at {}: restore what is there, or begin anew in another folder", path.display())]
    Checkpoints {
        /// Their folder, or the file of the last one.
        path: std::path::PathBuf,
        /// The error of the system, or of burn.
        source: std::io::Error,
    },
    /// This worker has left its job.
    #[cfg(feature = "train")]
    #[error("this worker has left its job, and cannot train any more")]
    Left,
}

#[cfg(feature = "train")]
fn listed(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    names.join(", ")
}

impl Error {
    /// Whether all workers have it behind the same step, and end together.
    #[cfg(feature = "train")]
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self, Self::NotFinite { .. })
    }

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
