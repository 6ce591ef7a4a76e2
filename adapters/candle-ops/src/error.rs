//! Why an operation is refused, by the shapes that do not go together.

/// Why an operation was refused; within a [`candle_core::Error`], as `Wrapped`.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sizes of a convolution do not go together.
    #[error(
        "conv2d of images {images:?} by a weight {weight:?} with padding {padding}, stride {stride}, dilation {dilation} and {groups} groups: {problem}"
    )]
    Convolution {
        /// The shape of the images.
        images: Vec<usize>,
        /// The shape of the weight.
        weight: Vec<usize>,
        /// Zeros on each side.
        padding: usize,
        /// From one window to the next.
        stride: usize,
        /// From one element of the kernel to the next.
        dilation: usize,
        /// Groups of channels.
        groups: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// A layer's inputs have another size than its weight.
    #[error("inputs {inputs:?} do not fit a weight {weight:?}: their last sizes must be equal")]
    Inputs {
        /// The shape of the inputs.
        inputs: Vec<usize>,
        /// The shape of the weight.
        weight: Vec<usize>,
    },
    /// A bias is not one number for each output.
    #[error("a bias {bias:?} does not fit {outputs} outputs: give one number for each")]
    Bias {
        /// The shape of the bias.
        bias: Vec<usize>,
        /// Outputs or channels of the layer.
        outputs: usize,
    },
    /// Weight and bias of a layer norm are not one number for each column of its inputs.
    #[error(
        "a layer norm of weight {weight:?} and bias {bias:?} does not fit inputs {inputs:?}: give one number of each for each column"
    )]
    Norm {
        /// The shape of the inputs.
        inputs: Vec<usize>,
        /// The shape of the weight.
        weight: Vec<usize>,
        /// The shape of the bias.
        bias: Vec<usize>,
    },
    /// Columns cannot be queries, keys and values of so many heads.
    #[error(
        "{columns} columns are no queries, keys and values of {heads} heads: give a multiple of three times the heads, of which there is at least one"
    )]
    Heads {
        /// Columns of the projection.
        columns: usize,
        /// Heads of attention.
        heads: usize,
    },
    /// Images are smaller than the windows they are pooled by.
    #[error(
        "images {images:?} cannot be pooled by windows of {rows}x{columns}: choose from 1x1 up to their size"
    )]
    Pool {
        /// The shape of the images.
        images: Vec<usize>,
        /// Rows of a window.
        rows: usize,
        /// Columns of a window.
        columns: usize,
    },
    /// There is not one label for each row of scores.
    #[error(
        "labels {labels:?} do not fit scores {scores:?}: give one label for each row, and one row at least"
    )]
    Labels {
        /// The shape of the labels.
        labels: Vec<usize>,
        /// The shape of the scores.
        scores: Vec<usize>,
    },
    /// A label names a class that has no score.
    #[error("label {label} of sample {sample} has no score: there are {classes} classes, from 0")]
    Label {
        /// The label.
        label: u32,
        /// Whose label.
        sample: usize,
        /// How many classes there are.
        classes: usize,
    },
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        Self::wrap(error)
    }
}
