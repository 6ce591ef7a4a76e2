//! What an op makes of layouts: how its operands must lie, what ranks do, and how the results lie.
//!
//! [`infer`] takes shapes and layouts of operands and answers with those of the results, the
//! layouts that operands have to be brought into first, and the all-reduces that are needed. It
//! does not know element types or data.
//!
//! ```text
//!   matmul, mesh x=2, y=4:      [x, y] · [y, unsharded]  →  [x, unsharded]
//!
//!   axis        operand 0    operand 1    result
//!   rows        x                         x
//!   summed      y            y            partial over y, finished by an all-reduce
//!   columns                  whole        whole
//! ```
//!
//! ```
//! use meshwork_core::Mesh;
//! use meshwork_layout::ops::{Op, Orientation, TensorLayout, infer};
//! use meshwork_layout::{Layout, UNSHARDED};
//!
//! let mesh = Mesh::new([("x", 2), ("y", 4)])?;
//! let left = TensorLayout::new([64, 32], Layout::from_names(["x", "y"], &mesh)?)?;
//! let right = TensorLayout::new([32, 16], Layout::from_names(["y", UNSHARDED], &mesh)?)?;
//! let plain = Orientation::Plain;
//! let product = infer(&Op::MatMul { lhs: plain, rhs: plain }, &[left, right])?;
//! assert_eq!(product.results()[0].layout(), &Layout::from_names(["x", UNSHARDED], &mesh)?);
//! assert!(product.collectives().all(|collective| collective.dims()[0].as_str() == "y"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Choices
//!
//! Layouts of results are those that TensorFlow infers; it looks at names of mesh dimensions, so
//! one of size 1 counts. Where a mesh dimension is asked for twice, it is
//!
//! - taken from both: two axes of an element-wise op, a concatenation, or a stack of matrices that
//!   different operands cut by it, and rows and columns of a product;
//! - taken from the sum of a product, and given to its rows or columns; taken from a stack of
//!   matrices, and given to anything else;
//! - given to the first operand of a gather or a bias, and to the batch of a cross-entropy.
//!
//! Where different mesh dimensions cut one axis, the first operand has its way; sums of products
//! refuse, and a stack leaves the axis whole. Two oddities are TensorFlow's: a stack looks at the
//! first axis of its operands only, and an axis that a slice does not name is cut as the one at its
//! place in the result was, so that `t[0]` and `t[0, :]` may lie differently.
//!
//! Where TensorFlow computes wrong values, the layout is the same and the values are right:
//! every axis that has to be whole is, in [`Inferred::operands`].
//!
//! Windows that move along spatial axes, and axes whose pairs are turned, are gathered where they
//! are cut, and the result is cut as they were; an embedding leaves its table cut, by rows too.
//!
//! Map of the module: `op`, `params`, `network` and `windows` (what there is), `equation`,
//! `placement`, `inferred` (the answer), `gradient`; and behind them `rules` (which axes of each op
//! belong together, by `rule`), `conflicts` (which mesh dimensions cut them), `engine` (the layouts
//! that follow), `error`.

use std::borrow::Borrow;

use crate::Layout;

mod conflicts;
mod engine;
mod equation;
mod error;
mod gradient;
mod inferred;
#[cfg(any(test, feature = "testing"))]
pub mod naive;
mod network;
mod op;
mod params;
mod rule;
mod rules;
mod tensor_layout;
mod windows;

pub use equation::Equation;
pub use error::OpError;
pub use gradient::{Gradient, GradientInput, GradientStep, gradients};
pub use inferred::{Inferred, Outcome, PartialAllReduce};
pub use network::{
    Activation, AttentionMask, Convolution, Moments, Normalization, Pool, Pooling, Real, Turn,
};
pub use op::Op;
pub use params::{Index, Labels, Orientation, Parts, ReducedAxes, Reducer};
pub use tensor_layout::TensorLayout;
pub use windows::{Padding, WindowAxis, Windows};

/// Infers how an op is carried out on operands with these layouts, and the layouts of its results.
///
/// Operands may be partial; they are to be finished first.
///
/// ```
/// use meshwork_core::Mesh;
/// use meshwork_layout::ops::{Op, TensorLayout, infer};
/// use meshwork_layout::{Layout, UNSHARDED};
///
/// let mesh = Mesh::new([("x", 2), ("y", 4)])?;
/// let activations = TensorLayout::new([8, 16], Layout::from_names(["x", "y"], &mesh)?)?;
/// let bias = TensorLayout::new([16], Layout::replicated(&mesh, 1))?;
/// let sum = infer(&Op::BiasAdd, &[activations.clone(), bias])?;
/// assert_eq!(sum.operands()[1], Layout::from_names(["y"], &mesh)?);
/// assert_eq!(sum.results()[0].placement(), &activations);
/// assert_eq!(sum.collectives().count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`OpError::OperandCount`], [`OpError::NoOperands`], [`OpError::MeshesDiffer`]; those of the op
/// for shapes that do not fit it; [`OpError::TooLarge`]; [`OpError::SpecsDiffer`],
/// [`OpError::AxisCut`] and [`OpError::StepAcrossShards`] for layouts that TensorFlow refuses as
/// well.
pub fn infer(op: &Op, operands: &[impl Borrow<TensorLayout>]) -> Result<Inferred, OpError> {
    let operands: Vec<&TensorLayout> = operands.iter().map(Borrow::borrow).collect();
    check_operands(op, &operands)?;
    let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
    let rule = rules::rule(op, &shapes)?;
    rule.check_counts()?;
    if let Op::Relayout(to) = op {
        let moved = TensorLayout::new(shapes[0].iter().copied(), Layout::clone(to))?;
        return engine::apply(&rule, &[&moved]);
    }
    engine::apply(&rule, &operands)
}

fn check_operands(op: &Op, operands: &[&TensorLayout]) -> Result<(), OpError> {
    let (name, found) = (op.name(), operands.len());
    if let Some(expected) = rules::operand_count(op)
        && found != expected
    {
        return Err(OpError::OperandCount {
            op: name,
            found,
            expected,
        });
    }
    let Some((first, rest)) = operands.split_first() else {
        return Err(OpError::NoOperands { op: name });
    };
    let mesh = first.layout().mesh();
    match rest.iter().position(|other| other.layout().mesh() != mesh) {
        Some(operand) => Err(OpError::MeshesDiffer {
            op: name,
            operand: operand + 1,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
