//! Normalisation, embeddings, attention and activations.

use super::super::rule::{Clashes, Disagreement, Kind, Rule, along};
use super::super::{Moments, Normalization, OpError, Real};
use super::pointwise::{aligned, broadcast, elementwise};
use super::{check_rank, check_rank_of_at_least, check_shape, check_size, resolve_all};
use crate::PartialReduction;

/// The mean comes before the variance, for which it is needed.
pub(super) fn normalize(
    op: &'static str,
    shape: &[usize],
    by: &Normalization,
) -> Result<Rule, OpError> {
    by.epsilon.check_positive(op, "epsilon")?;
    let gone = resolve_all(op, &by.axes, shape.len())?;
    let mut rule = Rule::new(op);
    let axes = rule.axes(shape.len(), &gone, Kind::Joint);
    rule.within = match by.moments {
        Moments::MeanAndVariance => &[PartialReduction::Sum, PartialReduction::Sum],
        Moments::MeanSquare => &[PartialReduction::Sum],
    };
    rule.operand(axes.iter().copied());
    rule.result(shape.iter().copied(), axes);
    Ok(rule)
}

pub(super) fn standardize(
    op: &'static str,
    shapes: &[&[usize]],
    epsilon: Real,
) -> Result<Rule, OpError> {
    epsilon.check_positive(op, "epsilon")?;
    elementwise(op, shapes)
}

/// Each part of the rows gives what it has, and zeros for other indices. A mesh dimension that
/// would cut the indices and the rows cuts the indices: the rows are gathered.
pub(super) fn embedding(
    op: &'static str,
    [table, indices]: [&[usize]; 2],
) -> Result<Rule, OpError> {
    check_rank(op, 0, table, 2)?;
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    let sum = Kind::Reduced(PartialReduction::Sum);
    let rows = rule.ranked_factor(sum, Disagreement::First, 0);
    let features = rule.ranked_factor(Kind::Apart, Disagreement::First, 1);
    let looked_up: Vec<usize> = (0..indices.len())
        .map(|_| rule.ranked_factor(Kind::Apart, Disagreement::First, 2))
        .collect();
    rule.operand([along(rows), along(features)]);
    rule.operand(looked_up.iter().copied().map(along));
    let axes = looked_up.iter().copied().chain([features]).map(along);
    rule.result(indices.iter().copied().chain([table[1]]), axes);
    Ok(rule)
}

/// The gradient lies as the table does: a mesh dimension that would cut the indices and the table
/// cuts the table.
pub(super) fn embedding_gradient(
    op: &'static str,
    [table, indices, upstream]: [&[usize]; 3],
) -> Result<Rule, OpError> {
    check_rank(op, 0, table, 2)?;
    check_shape(op, 2, upstream, &[indices, &table[1..]].concat())?;
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    let rows = rule.ranked_factor(Kind::Apart, Disagreement::First, 1);
    let features = rule.ranked_factor(Kind::Apart, Disagreement::First, 1);
    let sum = Kind::Reduced(PartialReduction::Sum);
    let looked_up: Vec<usize> = (0..indices.len())
        .map(|_| rule.ranked_factor(sum, Disagreement::First, 0))
        .collect();
    rule.operand([along(rows), along(features)]);
    rule.operand(looked_up.iter().copied().map(along));
    rule.operand(looked_up.into_iter().chain([features]).map(along));
    rule.result(table.iter().copied(), [along(rows), along(features)]);
    Ok(rule)
}

/// Stacks, queries and features are worked on part by part; keys and depth are gathered.
pub(super) fn attention(
    op: &'static str,
    [query, key, value]: [&[usize]; 3],
) -> Result<Rule, OpError> {
    for (operand, shape) in [query, key, value].into_iter().enumerate() {
        check_rank_of_at_least(op, operand, shape, 2)?;
    }
    let [(left, query), (middle, key), (right, value)] =
        [query, key, value].map(|shape| shape.split_at(shape.len() - 2));
    check_size(op, 1, middle.len() + 1, key[1], query[1])?;
    check_size(op, 2, right.len(), value[0], key[0])?;
    let stack = broadcast(op, &[left, middle, right])?;
    let mut rule = Rule::new(op);
    let mut apart = |rank| rule.ranked_factor(Kind::Apart, Disagreement::First, rank);
    let stacked: Vec<usize> = stack.iter().map(|_| apart(2)).collect();
    let (queries, features) = (apart(1), apart(0));
    rule.clashes = Clashes::Won;
    let stack_of = |shape: &[usize]| aligned(shape, &stack, &stacked);
    rule.operand([stack_of(left), vec![along(queries), None]].concat());
    rule.operand([stack_of(middle), vec![None, None]].concat());
    rule.operand([stack_of(right), vec![None, along(features)]].concat());
    let axes = stacked.into_iter().chain([queries, features]).map(along);
    rule.result(stack.iter().copied().chain([query[0], value[1]]), axes);
    Ok(rule)
}

/// The axis of positions is worked on part by part; that of pairs is gathered, and cut again.
pub(super) fn rotary(op: &'static str, shape: &[usize], base: Real) -> Result<Rule, OpError> {
    base.check_positive(op, "base")?;
    check_rank_of_at_least(op, 0, shape, 2)?;
    let last = shape.len() - 1;
    if !shape[last].is_multiple_of(2) {
        let (axis, size) = (last, shape[last]);
        return Err(OpError::OddSize { op, axis, size });
    }
    let mut rule = Rule::new(op);
    let axes = rule.axes(shape.len(), &[last], Kind::Recut);
    rule.operand(axes.iter().copied());
    rule.result(shape.iter().copied(), axes);
    Ok(rule)
}
