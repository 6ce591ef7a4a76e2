//! What an op does, as data.

use std::sync::Arc;

use meshwork_accel::{ElementType, Pairwise, Pointwise};
use meshwork_layout::ops::{Labels, Op, Real, Reducer, TensorLayout};

use super::Scan;

/// What an op does with its operands: enough to differentiate it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Primitive {
    /// Nothing: a value that is given.
    Given,
    /// An op of which parameters say everything: all but those below.
    Op(Op),
    /// A function of each element.
    Pointwise(Pointwise),
    /// A function of the elements of two tensors at the same index.
    Pairwise(Pairwise),
    /// A function of each element and a number, which is the second.
    ByNumber(Pairwise, Real),
    /// The logarithm of the softmax.
    LogSoftmax {
        /// The axis of classes.
        axis: isize,
    },
    /// The index of the smallest element.
    ArgMin {
        /// The axis, which goes away.
        axis: isize,
    },
    /// The gradient of [`Op::Embedding`] by a table that lies so, of indices and of the gradient by
    /// the rows at them: of the table only this counts, so that it is no operand.
    RowsAdded(Box<TensorLayout>),
    /// Elements of another type.
    Cast(ElementType),
    /// A loop.
    Scan(Arc<Scan>),
    /// A function of the program, of which nothing is known but who took it.
    Closure(&'static str),
}

impl Primitive {
    /// The name under which errors speak of it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Given => "watch",
            Self::Op(op) => op.name(),
            Self::Pointwise(Pointwise::Negate) => "neg",
            Self::Pointwise(Pointwise::Relu) => "relu",
            Self::Pointwise(Pointwise::Exp) => "exp",
            Self::Pointwise(Pointwise::Ln) => "ln",
            Self::Pairwise(Pairwise::Add) => "add",
            Self::Pairwise(Pairwise::Subtract) => "sub",
            Self::Pairwise(Pairwise::Multiply) => "mul",
            Self::Pairwise(Pairwise::Divide) => "div",
            Self::ByNumber(Pairwise::Add | Pairwise::Subtract, _) => "add_scalar",
            Self::ByNumber(Pairwise::Multiply | Pairwise::Divide, _) => "scale",
            Self::LogSoftmax { .. } => "log_softmax",
            Self::ArgMin { .. } => "argmin",
            Self::RowsAdded(_) => "embedding_gradient",
            Self::Cast(_) => "cast",
            Self::Scan(_) => "scan",
            Self::Closure(name) => name,
        }
    }

    /// Whether its gradient depends on the elements of this operand, and not on its shape alone.
    pub(crate) fn needs_operand(&self, operand: usize) -> bool {
        match self {
            Self::Op(op) => op_needs_operand(op, operand),
            // What is carried is kept by results.
            Self::Scan(scan) => operand >= scan.carried,
            Self::Pairwise(Pairwise::Multiply) | Self::Pointwise(Pointwise::Ln) => true,
            Self::Pairwise(Pairwise::Divide) => operand == 1,
            Self::RowsAdded(_) => operand == 0,
            Self::Pairwise(Pairwise::Add | Pairwise::Subtract)
            | Self::Pointwise(Pointwise::Negate | Pointwise::Relu | Pointwise::Exp)
            | Self::Given
            | Self::ByNumber(..)
            | Self::LogSoftmax { .. }
            | Self::ArgMin { .. }
            | Self::Cast(_)
            | Self::Closure(_) => false,
        }
    }

    /// Whether its gradient depends on the elements of this result.
    pub(crate) fn needs_result(&self, result: usize) -> bool {
        match self {
            Self::Pointwise(Pointwise::Relu | Pointwise::Exp)
            | Self::Pairwise(Pairwise::Divide)
            | Self::LogSoftmax { .. }
            | Self::Op(Op::Softmax { .. }) => true,
            Self::Op(Op::CrossEntropy(_)) => result == 1,
            Self::Scan(scan) => result >= scan.carried + scan.made,
            Self::Op(Op::Reduce { reducer, .. }) => {
                matches!(reducer, Reducer::Min | Reducer::Max)
            }
            Self::Op(_)
            | Self::Pointwise(Pointwise::Negate | Pointwise::Ln)
            | Self::Pairwise(Pairwise::Add | Pairwise::Subtract | Pairwise::Multiply)
            | Self::Given
            | Self::ByNumber(..)
            | Self::ArgMin { .. }
            | Self::RowsAdded(_)
            | Self::Cast(_)
            | Self::Closure(_) => false,
        }
    }
}

/// An op that is not named here is taken to need all.
fn op_needs_operand(op: &Op, operand: usize) -> bool {
    match op {
        Op::Gather { .. } | Op::Embedding | Op::CrossEntropy(Labels::Sparse) => operand == 1,
        Op::Select => operand == 0,
        Op::Reduce { reducer, .. } => matches!(reducer, Reducer::Min | Reducer::Max),
        Op::BiasAdd
        | Op::ArgReduce { .. }
        | Op::Scan { .. }
        | Op::Softmax { .. }
        | Op::Transpose { .. }
        | Op::Reshape { .. }
        | Op::ExpandDims { .. }
        | Op::Squeeze { .. }
        | Op::BroadcastTo { .. }
        | Op::Tile { .. }
        | Op::Pad { .. }
        | Op::OneHot { .. }
        | Op::ShapeOf
        | Op::Concat { .. }
        | Op::Stack { .. }
        | Op::Split { .. }
        | Op::Unstack { .. }
        | Op::Slice { .. }
        | Op::StridedSlice(_)
        | Op::Relayout(_) => false,
        _ => true,
    }
}
