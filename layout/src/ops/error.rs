//! `ops::Error`: why no layout can be inferred for an op, or no gradient. Errors of layouts
//! themselves are `crate::Error`.

use crate::{Shape, ShardingSpec};

/// Errors of ops: why one cannot be applied to operands of these shapes and layouts.
///
/// The caller is at fault in every case. Operands are counted from 0, and so are axes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// A layout cannot be made.
    #[error(transparent)]
    Layout(#[from] crate::Error),
    /// Too many operands or too few.
    #[error("{op} takes {expected} operands, not {found}")]
    OperandCount {
        /// The op.
        op: &'static str,
        /// How many operands it was given.
        found: usize,
        /// How many it takes.
        expected: usize,
    },
    /// An op of any number of operands has none.
    #[error("{op} has no operand: give one at least")]
    NoOperands {
        /// The op.
        op: &'static str,
    },
    /// Operands are on different meshes.
    #[error(
        "operand {operand} of {op} lies on another mesh than operand 0: lay both out on the same"
    )]
    MeshesDiffer {
        /// The op.
        op: &'static str,
        /// The first operand on another mesh.
        operand: usize,
    },
    /// An operand has fewer or more axes than the op can use.
    #[error("operand {operand} of {op} has rank {found}, but {expected} is needed")]
    RankMismatch {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: usize,
        /// How many axes it has.
        found: usize,
        /// How many it needs, or needs at least.
        expected: usize,
    },
    /// There is no such axis.
    #[error("{op} has no axis {axis}: with rank {rank} axes run from 0, or from -{rank} to -1")]
    AxisOutside {
        /// The op.
        op: &'static str,
        /// The axis, negative if counted from the end.
        axis: isize,
        /// How many axes there are.
        rank: usize,
    },
    /// An axis is given twice.
    #[error("{op} is given axis {axis} twice: give each axis once")]
    RepeatedAxis {
        /// The op.
        op: &'static str,
        /// The axis.
        axis: usize,
    },
    /// A list does not have one entry for each axis.
    #[error("{op} is given {found} numbers for {expected} axes: give one for each")]
    EntryCount {
        /// The op.
        op: &'static str,
        /// How many entries there are.
        found: usize,
        /// How many axes there are.
        expected: usize,
    },
    /// Axes that belong together differ in size.
    #[error(
        "{op} takes axis {axis} of operand {operand}, of size {found}, together with an axis of \
         size {expected}: their sizes must be equal"
    )]
    SizesDiffer {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: usize,
        /// Its axis.
        axis: usize,
        /// The size of that axis.
        found: usize,
        /// The size that it has to have.
        expected: usize,
    },
    /// A result has more elements than memory has places for, of 8 bytes each.
    #[error("the result of {op} has more elements than can be counted")]
    TooLarge {
        /// The op.
        op: &'static str,
    },
    /// The new shape holds more or fewer elements.
    #[error("{from:?} has not as many elements as {to:?}, so it cannot be reshaped to it")]
    ReshapeSize {
        /// The shape of the operand.
        from: Shape,
        /// The shape asked for; [`None`] is left to be found.
        to: Vec<Option<usize>>,
    },
    /// An axis to be removed does not have size 1.
    #[error("axis {axis} has the size {size} and cannot be squeezed away: it would have to be 1")]
    SqueezeSize {
        /// The axis.
        axis: usize,
        /// Its size.
        size: usize,
    },
    /// Parts do not make up the axis.
    #[error("axis {axis} of size {size} cannot be split into {parts:?}")]
    SplitSizes {
        /// The axis.
        axis: usize,
        /// Its size.
        size: usize,
        /// The parts.
        parts: super::Parts,
    },
    /// Indices past the end of an axis.
    #[error("{op} reaches index {index} of axis {axis}, whose size is {size}")]
    IndexOutside {
        /// The op.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// The index, negative if counted from the end.
        index: isize,
        /// The size of the axis.
        size: usize,
    },
    /// There are two ellipses between the brackets.
    #[error("a slice has two ellipses: one at most can stand for the rest of the axes")]
    TwoEllipses,
    /// An einsum has an ellipsis, which TensorFlow does not lay out either.
    #[error("the einsum {equation:?} has an ellipsis: write a label for each axis")]
    EinsumEllipsis {
        /// The equation.
        equation: String,
    },
    /// An einsum has a label that is no letter.
    #[error("the einsum {equation:?} has the label {label:?}: use letters")]
    EinsumLabel {
        /// The equation.
        equation: String,
        /// The label.
        label: char,
    },
    /// An einsum has a label in its result that no operand has, or twice.
    #[error(
        "the einsum {equation:?} has the label {label} in its result: it must be in an operand, and \
         once in the result"
    )]
    EinsumResult {
        /// The equation.
        equation: String,
        /// The label.
        label: char,
    },
    /// Mesh dimensions that cut the same axis of two operands differ, and the op does not choose.
    #[error(
        "{op} takes axis {first_axis} of operand {first}, cut by {first_spec}, together with axis \
         {second_axis} of operand {second}, cut by {second_spec}: relayout one like the other"
    )]
    SpecsDiffer {
        /// The op.
        op: &'static str,
        /// An operand.
        first: usize,
        /// Its axis.
        first_axis: usize,
        /// How that is cut.
        first_spec: ShardingSpec,
        /// Another operand, or the same.
        second: usize,
        /// Its axis.
        second_axis: usize,
        /// How that is cut.
        second_spec: ShardingSpec,
    },
    /// The axis must not be cut.
    #[error("{op} cannot work along axis {axis}, which is cut by {spec}: unshard it first")]
    AxisCut {
        /// The op.
        op: &'static str,
        /// The axis of operand 0.
        axis: usize,
        /// How it is cut.
        spec: ShardingSpec,
    },
    /// Steps do not fall on the same indices of every shard.
    #[error(
        "{op} takes indices {step} apart of axis {axis}, of size {size} and cut by {spec}, but its \
         shards are not whole steps: unshard it first, or write the bounds"
    )]
    StepAcrossShards {
        /// The op.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// Its size.
        size: usize,
        /// How far apart the indices are.
        step: usize,
        /// How the axis is cut.
        spec: ShardingSpec,
    },
    /// A stride, a dilation or a window of nothing.
    #[error("{op} has the {parameter} 0 along axis {axis}: it must be 1 at least")]
    ZeroWindow {
        /// The op.
        op: &'static str,
        /// What is 0.
        parameter: &'static str,
        /// The axis of operand 0.
        axis: usize,
    },
    /// A window is larger than what it moves along.
    #[error(
        "the window of {op} reaches over {window} indices of axis {axis}, which has {size} with its \
         padding: take a smaller window, or pad"
    )]
    WindowTooLarge {
        /// The op.
        op: &'static str,
        /// The axis of operand 0.
        axis: usize,
        /// From its first to its last index, how many a window reaches over.
        window: usize,
        /// The size of the axis and its padding.
        size: usize,
    },
    /// A window of a pooling has nothing but padding in it.
    #[error(
        "window {window} of {op} along axis {axis} lies on padding only: pad by less than a window"
    )]
    WindowOfPadding {
        /// The op.
        op: &'static str,
        /// The axis of operand 0.
        axis: usize,
        /// The number of the window.
        window: usize,
    },
    /// Channels cannot be parted into groups.
    #[error("{op} cannot part {channels} channels into {groups} equal groups")]
    UnequalGroups {
        /// The op.
        op: &'static str,
        /// How many channels there are.
        channels: usize,
        /// How many groups.
        groups: usize,
    },
    /// A parameter has to be positive and finite.
    #[error("{op} has the {parameter} {value}: it must be positive and finite")]
    NotPositive {
        /// The op.
        op: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        value: super::Real,
    },
    /// An axis cannot be halved.
    #[error("{op} turns pairs of elements, but axis {axis} has {size}: an even size is needed")]
    OddSize {
        /// The op.
        op: &'static str,
        /// The axis.
        axis: usize,
        /// Its size.
        size: usize,
    },
    /// The gradient by the result has not the shape of the result.
    #[error(
        "the gradient by the result of {op} has the shape {found:?}, but the result {expected:?}"
    )]
    UpstreamShape {
        /// The op.
        op: &'static str,
        /// The shape of the gradient.
        found: Shape,
        /// The shape of the result.
        expected: Shape,
    },
    /// There is no gradient rule for this op.
    #[error("the layout of the gradient of {op} is not known: apply the ops that it is made of")]
    NoGradient {
        /// The op.
        op: &'static str,
    },
}

impl OpError {
    /// Whether shapes fit the op, and only the layouts of the operands do not: relayouts of them
    /// help.
    #[must_use]
    pub fn is_of_layouts(&self) -> bool {
        matches!(
            self,
            Self::SpecsDiffer { .. } | Self::AxisCut { .. } | Self::StepAcrossShards { .. }
        )
    }
}
