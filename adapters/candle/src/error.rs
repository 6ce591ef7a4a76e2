//! `Error`: of variables and gradients, of units, and of batch normalisation.

use candle_core::DType;
use meshwork_strategy::Rank;

/// Everything that can go wrong between candle and a strategy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the strategy: the workers, or a call of theirs.
    #[error(transparent)]
    Strategy(#[from] meshwork_strategy::Error),
    /// candle refused an operation on a tensor.
    #[error("candle: {}", FirstLine(.0))]
    Candle(#[from] candle_core::Error),
    /// A variable is not made of `f32`.
    #[error(
        "variable {name} holds {found:?} values: only F32 variables can be trained on several workers"
    )]
    ElementType {
        /// The variable.
        name: String,
        /// The element type that it holds.
        found: DType,
    },
    /// A variable that was to be used where it is, is not in host memory.
    #[error(
        "variable {name} is not in host memory, where sharded training writes it: make the model on Device::Cpu"
    )]
    NotInHostMemory {
        /// The variable.
        name: String,
    },
    /// A loss depends on a variable past the tensor that would catch its gradient.
    #[error("the loss depends on variable {name} itself: build the model from hooked()")]
    NotHooked {
        /// The variable.
        name: String,
    },
    /// A loss depends on a tensor of a variable that an earlier backward pass was to use.
    #[error(
        "the loss depends on variable {name} as it was before an earlier backward pass: call hooked() and build the model anew for each backward pass"
    )]
    HookIsOld {
        /// The variable.
        name: String,
    },
    /// Gradients cannot have the norm that is asked for.
    #[error("gradients cannot be limited to a norm of {most}: give a number above 0")]
    MaxNorm {
        /// The norm.
        most: f64,
    },
    /// Losses have a NaN or an infinity. All workers get this error, with variables as they were.
    #[error(
        "the loss of {} is not finite, so that no worker has made the step: look at the batch there and at the learning rate, or go on by without_error_if_nonfinite",
        listed(ranks)
    )]
    NotFinite {
        /// Whose losses.
        ranks: Vec<Rank>,
    },
    /// The sums of gradients have a NaN or an infinity. All workers get this error.
    #[error(
        "gradients of norm {norm} cannot be limited to one of {most}: look in the loss for a division by 0, a root of 0 or numbers that are too large"
    )]
    NormNotFinite {
        /// The norm of all of them together.
        norm: f64,
        /// What it was to be.
        most: f64,
    },
    /// A GPU, or memory on it, is not what it was to be.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] meshwork_accel_cuda::Error),
    /// A tensor is not on the GPU on which the model is to be trained.
    #[cfg(feature = "cuda")]
    #[error(
        "variable {name} is on {found:?}, and not with all others on a GPU by CUDA: make the whole model on one Device::new_cuda"
    )]
    NotOnGpu {
        /// The variable.
        name: String,
        /// Where it is.
        found: candle_core::DeviceLocation,
    },
    /// A unit asks for one parameter in two ways.
    #[error(
        "unit {unit} asks for {name} as {first:?} and as {second:?}: give different parameters different names"
    )]
    UnitShapes {
        /// The unit.
        unit: String,
        /// The parameter.
        name: String,
        /// The shape that it asks for first.
        first: Vec<usize>,
        /// The other shape.
        second: Vec<usize>,
    },
    /// A batch normalisation is made again with another size.
    #[error(
        "batch normalisation {name} is of {features} features and was made with {found}: give each layer a prefix of its own"
    )]
    NormFeatures {
        /// Its prefix.
        name: String,
        /// The size asked for.
        features: usize,
        /// The size that it has.
        found: usize,
    },
    /// The input of a batch normalisation has another shape than its layer.
    #[error(
        "batch normalisation {name} of {features} features has an input of shape {found:?}: its second size is that of features"
    )]
    NormShape {
        /// The layer's prefix.
        name: String,
        /// Its size.
        features: usize,
        /// The shape of the input.
        found: Vec<usize>,
    },
    /// A batch has no variance.
    #[error(
        "batch normalisation {name} is trained on less than 2 values a feature, which have no variance: take larger batches"
    )]
    NormOfOne {
        /// The layer's prefix.
        name: String,
    },
    /// A layer was made behind the call that synchronizes all.
    #[error(
        "batch normalisation {name} is newer than the synchronisation of the others: call BatchNorms::synchronize when all layers are made"
    )]
    NormIsLate {
        /// The layer's prefix.
        name: String,
    },
}

/// As a candle model returns it.
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        Self::wrap(error)
    }
}

/// candle appends a backtrace to its messages; an error of one line has none.
struct FirstLine<'a>(&'a candle_core::Error);

impl std::fmt::Display for FirstLine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_string().lines().next().unwrap_or("unknown error"))
    }
}

fn listed(ranks: &[Rank]) -> String {
    let names: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    names.join(", ")
}

impl Error {
    /// Whether all workers have it behind the same step, and can end together, or go on.
    pub(crate) fn is_of_all(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::NormNotFinite { .. })
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
