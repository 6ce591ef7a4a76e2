//! The rule of each op.

use super::rule::Rule;
use super::{Op, OpError};

mod contract;
mod convolution;
mod join;
mod network;
mod pointwise;
mod rearrange;
mod reduce;
mod slice;

/// The rule of an op for operands of these shapes, of which there are as many as it takes.
pub(super) fn rule(op: &Op, shapes: &[&[usize]]) -> Result<Rule, OpError> {
    let name = op.name();
    let first = shapes[0];
    match op {
        Op::Elementwise | Op::Select => pointwise::elementwise(name, shapes),
        Op::BiasAdd => pointwise::bias_add(name, first, shapes[1]),
        Op::BroadcastTo { shape } => pointwise::broadcast_to(name, first, shape),
        Op::Tile { multiples } => pointwise::tile(name, first, multiples),
        Op::Pad { paddings } => pointwise::pad(name, first, paddings),
        Op::OneHot { depth } => Ok(pointwise::one_hot(name, first, *depth)),
        Op::ShapeOf => Ok(pointwise::shape_of(name, first)),
        Op::Relayout(_) => Ok(pointwise::identity(name, first)),
        Op::MatMul { lhs, rhs } => contract::matmul(name, [first, shapes[1]], [*lhs, *rhs]),
        Op::Einsum(equation) => contract::einsum(name, shapes, equation),
        Op::Reduce {
            reducer,
            axes,
            reduced,
        } => reduce::reduce(name, first, *reducer, *reduced, axes),
        Op::ArgReduce { axis } => reduce::arg_reduce(name, first, *axis),
        Op::Scan { axis } => reduce::scan(name, first, *axis),
        Op::Softmax { axis } => reduce::softmax(name, first, *axis),
        Op::CrossEntropy(labels) => reduce::cross_entropy(name, [first, shapes[1]], *labels),
        Op::Transpose { perm } => rearrange::transpose(name, first, perm),
        Op::Reshape { shape } => rearrange::reshape(name, first, shape),
        Op::ExpandDims { axis } => rearrange::expand_dims(name, first, *axis),
        Op::Squeeze { axes } => rearrange::squeeze(name, first, axes),
        Op::Concat { axis } => join::concat(name, shapes, *axis),
        Op::Stack { axis } => join::stack(name, shapes, *axis),
        Op::Split { axis, parts } => join::split(name, first, *axis, parts),
        Op::Unstack { axis } => join::unstack(name, first, *axis),
        Op::Slice { begin, size } => slice::slice(name, first, begin, size),
        Op::StridedSlice(indices) => slice::strided_slice(name, first, indices),
        Op::Gather { axis } => slice::gather(name, [first, shapes[1]], *axis),
        Op::Convolution(of) => convolution::convolution(name, [first, shapes[1]], of),
        Op::ConvolutionInputGradient { of, spatial } => {
            convolution::input_gradient(name, [first, shapes[1]], of, spatial)
        }
        Op::ConvolutionFilterGradient { of, window } => {
            convolution::filter_gradient(name, [first, shapes[1]], of, window)
        }
        Op::Pool(pool) => convolution::pool(name, first, pool),
        Op::PoolGradient(of) => convolution::pool_gradient(name, [first, shapes[1]], of),
        Op::Normalize(by) => network::normalize(name, first, by),
        Op::Standardize { epsilon } => network::standardize(name, shapes, *epsilon),
        Op::Embedding => network::embedding(name, [first, shapes[1]]),
        Op::EmbeddingGradient => network::embedding_gradient(name, [first, shapes[1], shapes[2]]),
        Op::Attention(_) => network::attention(name, [first, shapes[1], shapes[2]]),
        Op::Activation(_) => Ok(pointwise::identity(name, first)),
        Op::Rotary { base, .. } => network::rotary(name, first, *base),
    }
}

/// How many operands an op takes; [`None`] for one or more.
pub(super) fn operand_count(op: &Op) -> Option<usize> {
    match op {
        Op::Elementwise | Op::Concat { .. } | Op::Stack { .. } => None,
        Op::Select | Op::Standardize { .. } | Op::EmbeddingGradient | Op::Attention(_) => Some(3),
        Op::BiasAdd
        | Op::MatMul { .. }
        | Op::CrossEntropy(_)
        | Op::Gather { .. }
        | Op::Embedding
        | Op::Convolution(_)
        | Op::ConvolutionInputGradient { .. }
        | Op::ConvolutionFilterGradient { .. }
        | Op::PoolGradient(_) => Some(2),
        Op::Einsum(equation) => Some(equation.operands().len()),
        Op::Reduce { .. }
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
        | Op::Split { .. }
        | Op::Unstack { .. }
        | Op::Slice { .. }
        | Op::StridedSlice(_)
        | Op::Relayout(_)
        | Op::Pool(_)
        | Op::Normalize(_)
        | Op::Activation(_)
        | Op::Rotary { .. } => Some(1),
    }
}

/// The place of an axis that may be counted from the end.
pub(super) fn resolve(op: &'static str, axis: isize, rank: usize) -> Result<usize, OpError> {
    let place = if axis < 0 {
        rank.checked_sub(axis.unsigned_abs())
    } else {
        Some(axis.unsigned_abs())
    };
    place
        .filter(|&place| place < rank)
        .ok_or(OpError::AxisOutside { op, axis, rank })
}

/// The places of axes, none of them twice.
fn resolve_all(op: &'static str, axes: &[isize], rank: usize) -> Result<Vec<usize>, OpError> {
    let mut places = Vec::new();
    for &axis in axes {
        let axis = resolve(op, axis, rank)?;
        if places.contains(&axis) {
            return Err(OpError::RepeatedAxis { op, axis });
        }
        places.push(axis);
    }
    Ok(places)
}

/// One entry for each axis.
fn check_entries<T>(op: &'static str, entries: &[T], expected: usize) -> Result<(), OpError> {
    let found = entries.len();
    if found == expected {
        return Ok(());
    }
    Err(OpError::EntryCount {
        op,
        found,
        expected,
    })
}

/// An operand has this rank.
fn check_rank(
    op: &'static str,
    operand: usize,
    shape: &[usize],
    expected: usize,
) -> Result<(), OpError> {
    let found = shape.len();
    if found == expected {
        return Ok(());
    }
    Err(OpError::RankMismatch {
        op,
        operand,
        found,
        expected,
    })
}

/// An operand has this rank at least.
fn check_rank_of_at_least(
    op: &'static str,
    operand: usize,
    shape: &[usize],
    least: usize,
) -> Result<(), OpError> {
    check_rank(op, operand, shape, shape.len().max(least))
}

/// An axis of an operand has this size.
fn check_size(
    op: &'static str,
    operand: usize,
    axis: usize,
    found: usize,
    expected: usize,
) -> Result<(), OpError> {
    if found == expected {
        return Ok(());
    }
    Err(OpError::SizesDiffer {
        op,
        operand,
        axis,
        found,
        expected,
    })
}

/// An operand has this shape.
fn check_shape(
    op: &'static str,
    operand: usize,
    found: &[usize],
    expected: &[usize],
) -> Result<(), OpError> {
    check_rank(op, operand, found, expected.len())?;
    for (axis, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        check_size(op, operand, axis, found, expected)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
