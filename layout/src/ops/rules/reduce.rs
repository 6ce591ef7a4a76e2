//! Ops that reduce along axes, or need all of one to compute each element.

use super::super::rule::{Axis, Clashes, Disagreement, Kind, Rule, along};
use super::super::{Labels, OpError, ReducedAxes, Reducer};
use super::{check_rank_of_at_least, check_shape, resolve, resolve_all};
use crate::PartialReduction;

pub(super) fn reduce(
    op: &'static str,
    shape: &[usize],
    reducer: Reducer,
    reduced: ReducedAxes,
    axes: &[isize],
) -> Result<Rule, OpError> {
    let gone = resolve_all(op, axes, shape.len())?;
    let mut rule = Rule::new(op);
    let mut operand = Vec::new();
    let mut result = Vec::new();
    for (axis, &size) in shape.iter().enumerate() {
        if !gone.contains(&axis) {
            let factor = rule.factor(Kind::Apart);
            operand.push(along(factor));
            result.push((size, along(factor)));
            continue;
        }
        operand.push(along(rule.factor(Kind::Reduced(reducer.reduction()))));
        if reduced == ReducedAxes::Kept {
            result.push((1, None));
        }
    }
    rule.operand(operand);
    let (sizes, axes): (Vec<usize>, Vec<Axis>) = result.into_iter().unzip();
    rule.result(sizes, axes);
    Ok(rule)
}

/// Indices of an axis in parts are no indices of the axis, so it is needed whole.
pub(super) fn arg_reduce(op: &'static str, shape: &[usize], axis: isize) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, shape.len())?;
    let (mut rule, axes) = whole_along(op, shape, axis);
    let kept = |place: &usize| *place != axis;
    let places: Vec<usize> = (0..shape.len()).filter(kept).collect();
    // There is no first of no elements.
    let (index, size) = (0, shape[axis]);
    if size == 0 && places.iter().all(|&place| shape[place] > 0) {
        return Err(OpError::IndexOutside {
            op,
            axis,
            index,
            size,
        });
    }
    rule.result(
        places.iter().map(|&place| shape[place]),
        places.iter().map(|&place| axes[place]),
    );
    Ok(rule)
}

pub(super) fn scan(op: &'static str, shape: &[usize], axis: isize) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, shape.len())?;
    let (mut rule, axes) = whole_along(op, shape, axis);
    rule.result(shape.iter().copied(), axes);
    Ok(rule)
}

/// A rule with an operand of which one axis is needed whole, and the axes of that operand.
pub(super) fn whole_along(op: &'static str, shape: &[usize], whole: usize) -> (Rule, Vec<Axis>) {
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len()).into_iter();
    let axes: Vec<Axis> = factors
        .map(|factor| along(factor).filter(|_| factor != whole))
        .collect();
    rule.operand(axes.iter().copied());
    (rule, axes)
}

/// The largest element keeps exponentials from overflowing, their sum makes them add up to 1.
pub(super) fn softmax(op: &'static str, shape: &[usize], axis: isize) -> Result<Rule, OpError> {
    let classes = resolve(op, axis, shape.len())?;
    let mut rule = Rule::new(op);
    let axes = rule.axes(shape.len(), &[classes], Kind::Joint);
    rule.within = &[PartialReduction::Max, PartialReduction::Sum];
    rule.operand(axes.iter().copied());
    rule.result(shape.iter().copied(), axes);
    Ok(rule)
}

/// The axes of the batch come before that of the classes, and the logits before the labels. The
/// third of `within` is that of the loss.
pub(super) fn cross_entropy(
    op: &'static str,
    [logits, labels]: [&[usize]; 2],
    form: Labels,
) -> Result<Rule, OpError> {
    check_rank_of_at_least(op, 0, logits, 1)?;
    let classes = logits.len() - 1;
    let labelled = match form {
        Labels::Dense => logits,
        Labels::Sparse => &logits[..classes],
    };
    check_shape(op, 1, labels, labelled)?;
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    rule.within = match form {
        Labels::Dense => &[
            PartialReduction::Max,
            PartialReduction::Sum,
            PartialReduction::Sum,
        ],
        // Whether a class has the label, too.
        Labels::Sparse => &[
            PartialReduction::Max,
            PartialReduction::Sum,
            PartialReduction::Sum,
            PartialReduction::Sum,
        ],
    };
    let kind = |axis: usize| {
        if axis == classes {
            Kind::Joint
        } else {
            Kind::Apart
        }
    };
    let axes: Vec<Axis> = (0..logits.len())
        .map(|axis| along(rule.ranked_factor(kind(axis), Disagreement::First, classes - axis)))
        .collect();
    rule.operand(axes.iter().copied());
    rule.operand(axes[..labels.len()].iter().copied());
    rule.result(
        logits[..classes].iter().copied(),
        axes[..classes].iter().copied(),
    );
    rule.result(logits.iter().copied(), axes);
    Ok(rule)
}
