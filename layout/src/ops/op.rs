//! The ops whose layouts can be inferred, with parameters but without numerics. Layout rules are in
//! `ops/rules`; kernels are in the dtensor crate.

use super::{
    Activation, AttentionMask, Convolution, Equation, Index, Labels, Normalization, Orientation,
    Parts, Pool, Real, ReducedAxes, Reducer, Turn,
};
use crate::Layout;

/// An op on tensors, as far as layouts and shapes depend on it.
///
/// Axes count from 0; where they are signed, negative ones count from the end, −1 is the last.
/// Sizes are in elements and those of whole tensors, never of shards.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Op {
    /// Any function of elements at the same index, of one operand or more: add, mul, cast, relu.
    /// Shapes are broadcast: aligned at the last axis, an axis of size 1 fits any.
    Elementwise,
    /// Elements of the second operand where the first holds, of the third elsewhere; broadcasts.
    #[doc(alias = "where")]
    Select,
    /// The second operand, a vector, added to the last axis of the first.
    BiasAdd,
    /// The product of matrices, or of stacks of them: the axes before the last two are broadcast.
    MatMul {
        /// How the matrices of the first operand are stored.
        lhs: Orientation,
        /// How those of the second are.
        rhs: Orientation,
    },
    /// Sums of products along named axes.
    Einsum(Equation),
    /// The elements along some axes reduced to one.
    Reduce {
        /// How.
        reducer: Reducer,
        /// The axes, in any order; none reduces nothing.
        axes: Vec<isize>,
        /// Whether they are removed or kept.
        reduced: ReducedAxes,
    },
    /// The index of the largest or the smallest element along an axis, which goes away.
    #[doc(alias = "argmax")]
    #[doc(alias = "argmin")]
    ArgReduce {
        /// The axis.
        axis: isize,
    },
    /// Each element together with those before it along an axis.
    #[doc(alias = "cumsum")]
    Scan {
        /// The axis.
        axis: isize,
    },
    /// Softmax or its logarithm along an axis.
    #[doc(alias = "log_softmax")]
    Softmax {
        /// The axis of classes.
        axis: isize,
    },
    /// The cross-entropy of a softmax along the last axis with labels. Two results: the loss,
    /// without that axis, and its gradient by the logits.
    #[doc(alias = "softmax_cross_entropy_with_logits")]
    CrossEntropy(Labels),
    /// Axes in another order: axis i of the result is axis `perm[i]` of the operand.
    Transpose {
        /// The order.
        perm: Vec<usize>,
    },
    /// The same elements, row-major, in another shape.
    Reshape {
        /// The new sizes; one may be [`None`] and is then inferred.
        shape: Vec<Option<usize>>,
    },
    /// A new axis of size 1.
    ExpandDims {
        /// Where it is in the result.
        axis: isize,
    },
    /// Without these axes of size 1, or without all of that size if none is given.
    Squeeze {
        /// The axes, in any order.
        axes: Vec<isize>,
    },
    /// Repeated along new leading axes and along axes of size 1.
    BroadcastTo {
        /// The new sizes.
        shape: Vec<usize>,
    },
    /// Each axis repeated as a whole.
    Tile {
        /// How often, one number for each axis.
        multiples: Vec<usize>,
    },
    /// Elements added before and after each axis.
    Pad {
        /// How many before and how many after, a pair for each axis.
        paddings: Vec<(usize, usize)>,
    },
    /// A new last axis, 1 at the index that the element states and 0 elsewhere.
    OneHot {
        /// The size of the new axis.
        depth: usize,
    },
    /// The sizes of the operand's axes, a vector.
    #[doc(alias = "shape")]
    ShapeOf,
    /// Operands concatenated along an axis.
    Concat {
        /// The axis.
        axis: isize,
    },
    /// Operands of one shape stacked along a new axis.
    #[doc(alias = "pack")]
    Stack {
        /// Where the new axis is in the result.
        axis: isize,
    },
    /// Several results: parts of an axis.
    Split {
        /// The axis.
        axis: isize,
        /// Its parts.
        parts: Parts,
    },
    /// One result for each index of an axis, which goes away.
    #[doc(alias = "unpack")]
    Unstack {
        /// The axis.
        axis: isize,
    },
    /// A box cut out of the tensor.
    Slice {
        /// The first index along each axis.
        begin: Vec<usize>,
        /// How many from there on along each axis; [`None`] is all that are left.
        size: Vec<Option<usize>>,
    },
    /// Indices taken along each axis as Python's brackets do; axes that are not named are taken
    /// whole.
    #[doc(alias = "getitem")]
    StridedSlice(Vec<Index>),
    /// The slices of the first operand along an axis at the indices that the second one holds. The
    /// axes of the second take the place of that axis.
    Gather {
        /// The axis of the first operand.
        axis: isize,
    },
    /// The same tensor in another layout; partial elements are reduced.
    Relayout(Box<Layout>),
    /// Sums of products of windows of the first operand with the second, the filter, as
    /// TensorFlow's `Conv2D` has them.
    ///
    /// `[batch, spatial.., channels]` and `[window.., channels / groups, outputs]` give
    /// `[batch, windows.., outputs]`, with any number of spatial axes.
    #[doc(alias = "conv2d")]
    Convolution(Convolution),
    /// The gradient of [`Convolution`](Self::Convolution) by its first operand, from the gradient
    /// by the result and the filter.
    ConvolutionInputGradient {
        /// The convolution.
        of: Convolution,
        /// The sizes of the spatial axes of the first operand.
        spatial: Vec<usize>,
    },
    /// The gradient of [`Convolution`](Self::Convolution) by the filter, from the first operand and
    /// the gradient by the result.
    ConvolutionFilterGradient {
        /// The convolution.
        of: Convolution,
        /// The sizes of a window.
        window: Vec<usize>,
    },
    /// One element of each window of `[batch, spatial.., channels]`, channel by channel.
    #[doc(alias = "max_pool")]
    #[doc(alias = "avg_pool")]
    Pool(Pool),
    /// The gradient of [`Pool`](Self::Pool), from its operand and the gradient by the result.
    PoolGradient(Pool),
    /// Elements scaled by the moments of those along some axes: (x - mean) / √(variance + epsilon),
    /// or x / √(mean square + epsilon). The variance is the mean of the squares of x - mean.
    #[doc(alias = "layer_norm")]
    #[doc(alias = "batch_norm")]
    #[doc(alias = "rms_norm")]
    Normalize(Normalization),
    /// (x - mean) / √(variance + epsilon), of three operands that broadcast.
    Standardize {
        /// What keeps the root from 0.
        epsilon: Real,
    },
    /// The rows of the first operand, a matrix, at the indices that the second holds.
    ///
    /// Unlike [`Gather`](Self::Gather) it works on parts of the rows too, each of which gives what
    /// it has.
    Embedding,
    /// The gradient of [`Embedding`](Self::Embedding) by the table, from the table, of which only
    /// the layout counts, the indices, and the gradient by the result.
    EmbeddingGradient,
    /// softmax(query · keyᵀ / √depth) · value, of stacks of matrices that broadcast.
    ///
    /// `[.., queries, depth]`, `[.., keys, depth]` and `[.., keys, features]` give
    /// `[.., queries, features]`.
    #[doc(alias = "scaled_dot_product_attention")]
    Attention(AttentionMask),
    /// A function of each element, with a known derivative.
    Activation(Activation),
    /// A rotary position embedding: the halves of the last axis, a and b, become
    /// a · cos - b · sin and b · cos + a · sin of the angle position · base^(-2i / depth), where
    /// the position is the index along the axis before and i that in the half.
    #[doc(alias = "rope")]
    Rotary {
        /// The base of the angles; usually 10,000.
        base: Real,
        /// Which way.
        turn: Turn,
    },
}

impl Op {
    /// How many operands it takes; [`None`] for one or more.
    #[must_use]
    pub fn operand_count(&self) -> Option<usize> {
        super::rules::operand_count(self)
    }

    /// The name under which errors speak of it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Elementwise => "elementwise",
            Self::Select => "select",
            Self::BiasAdd => "bias_add",
            Self::MatMul { .. } => "matmul",
            Self::Einsum(_) => "einsum",
            Self::Reduce { .. } => "reduce",
            Self::ArgReduce { .. } => "arg_reduce",
            Self::Scan { .. } => "scan",
            Self::Softmax { .. } => "softmax",
            Self::CrossEntropy(_) => "cross_entropy",
            Self::Transpose { .. } => "transpose",
            Self::Reshape { .. } => "reshape",
            Self::ExpandDims { .. } => "expand_dims",
            Self::Squeeze { .. } => "squeeze",
            Self::BroadcastTo { .. } => "broadcast_to",
            Self::Tile { .. } => "tile",
            Self::Pad { .. } => "pad",
            Self::OneHot { .. } => "one_hot",
            Self::ShapeOf => "shape_of",
            Self::Concat { .. } => "concat",
            Self::Stack { .. } => "stack",
            Self::Split { .. } => "split",
            Self::Unstack { .. } => "unstack",
            Self::Slice { .. } => "slice",
            Self::StridedSlice(_) => "strided_slice",
            Self::Gather { .. } => "gather",
            Self::Relayout(_) => "relayout",
            Self::Convolution(_) => "convolution",
            Self::ConvolutionInputGradient { .. } => "convolution_input_gradient",
            Self::ConvolutionFilterGradient { .. } => "convolution_filter_gradient",
            Self::Pool(_) => "pool",
            Self::PoolGradient(_) => "pool_gradient",
            Self::Normalize(_) => "normalize",
            Self::Standardize { .. } => "standardize",
            Self::Embedding => "embedding",
            Self::EmbeddingGradient => "embedding_gradient",
            Self::Attention(_) => "attention",
            Self::Activation(_) => "activation",
            Self::Rotary { .. } => "rotary",
        }
    }
}
