//! Ops that work on each index by itself, and those that repeat elements.

use super::super::OpError;
use super::super::rule::{Axis, Clashes, Disagreement, Kind, Rule, along};
use super::{check_entries, check_rank, check_rank_of_at_least, check_size};

pub(super) fn elementwise(op: &'static str, shapes: &[&[usize]]) -> Result<Rule, OpError> {
    let shape = broadcast(op, shapes)?;
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len());
    for operand in shapes {
        rule.operand(aligned(operand, &shape, &factors));
    }
    rule.result(shape, factors.into_iter().map(along));
    Ok(rule)
}

/// The shape to which all of these are broadcast.
pub(super) fn broadcast(op: &'static str, shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut target = vec![1; rank];
    for (operand, shape) in shapes.iter().enumerate() {
        let aligned = target[rank - shape.len()..].iter_mut();
        for (axis, (target, &size)) in aligned.zip(*shape).enumerate() {
            if *target == 1 {
                *target = size;
            } else if size != 1 {
                check_size(op, operand, axis, size, *target)?;
            }
        }
    }
    Ok(target)
}

/// The axes of an operand that is broadcast to a shape with these factors. An axis that is repeated
/// has no factor.
pub(super) fn aligned(operand: &[usize], shape: &[usize], factors: &[usize]) -> Vec<Axis> {
    let missing = shape.len() - operand.len();
    let axes = operand
        .iter()
        .zip(&shape[missing..])
        .zip(&factors[missing..]);
    axes.map(|((from, to), &factor)| along(factor).filter(|_| from == to))
        .collect()
}

pub(super) fn identity(op: &'static str, shape: &[usize]) -> Rule {
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len());
    rule.operand(factors.iter().copied().map(along));
    rule.result(shape.iter().copied(), factors.into_iter().map(along));
    rule
}

/// Unlike an addition, this keeps the first operand as it is cut: the bias can but cut the last
/// axis if nothing does.
pub(super) fn bias_add(op: &'static str, value: &[usize], bias: &[usize]) -> Result<Rule, OpError> {
    check_rank_of_at_least(op, 0, value, 1)?;
    check_rank(op, 1, bias, 1)?;
    let last = value.len() - 1;
    check_size(op, 1, 0, bias[0], value[last])?;
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    let factors: Vec<usize> = (0..value.len())
        .map(|axis| rule.ranked_factor(Kind::Apart, Disagreement::First, last - axis))
        .collect();
    rule.operand(factors.iter().copied().map(along));
    rule.operand([along(factors[last])]);
    rule.result(value.iter().copied(), factors.into_iter().map(along));
    Ok(rule)
}

pub(super) fn broadcast_to(
    op: &'static str,
    from: &[usize],
    to: &[usize],
) -> Result<Rule, OpError> {
    check_rank(op, 0, from, from.len().min(to.len()))?;
    let missing = to.len() - from.len();
    for (axis, (&size, &target)) in from.iter().zip(&to[missing..]).enumerate() {
        if size != 1 {
            check_size(op, 0, axis, size, target)?;
        }
    }
    let mut rule = Rule::new(op);
    let factors = rule.apart(to.len());
    let axes = aligned(from, to, &factors);
    rule.operand(axes.iter().copied());
    let new = std::iter::repeat_n(None, missing);
    rule.result(to.iter().copied(), new.chain(axes));
    Ok(rule)
}

pub(super) fn tile(
    op: &'static str,
    shape: &[usize],
    multiples: &[usize],
) -> Result<Rule, OpError> {
    check_entries(op, multiples, shape.len())?;
    let sizes = shape.iter().zip(multiples);
    let sizes = sizes.map(|(size, multiple)| size.checked_mul(*multiple));
    grown(op, shape, sizes.collect())
}

pub(super) fn pad(
    op: &'static str,
    shape: &[usize],
    paddings: &[(usize, usize)],
) -> Result<Rule, OpError> {
    check_entries(op, paddings, shape.len())?;
    let sizes = shape.iter().zip(paddings);
    let sizes = sizes.map(|(size, (before, after))| size.checked_add(*before)?.checked_add(*after));
    grown(op, shape, sizes.collect())
}

/// Axes of other sizes than before, which must not be cut, beside those that stay.
fn grown(op: &'static str, from: &[usize], to: Option<Vec<usize>>) -> Result<Rule, OpError> {
    let to = to.ok_or(OpError::TooLarge { op })?;
    let mut rule = Rule::new(op);
    let sizes = from.iter().zip(&to);
    let kind = |(from, to)| if from == to { Kind::Apart } else { Kind::Uncut };
    let axes: Vec<Axis> = sizes.map(|sizes| along(rule.factor(kind(sizes)))).collect();
    rule.operand(axes.iter().copied());
    rule.result(to, axes);
    Ok(rule)
}

pub(super) fn one_hot(op: &'static str, shape: &[usize], depth: usize) -> Rule {
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len());
    rule.operand(factors.iter().copied().map(along));
    let sizes = shape.iter().copied().chain([depth]);
    rule.result(sizes, factors.into_iter().map(along).chain([None]));
    rule
}

/// Every rank knows the shape, whatever the layout of the operand.
pub(super) fn shape_of(op: &'static str, shape: &[usize]) -> Rule {
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len());
    rule.operand(factors.into_iter().map(along));
    rule.result([shape.len()], [None]);
    rule
}
