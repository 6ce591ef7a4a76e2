//! Several tensors made one, and one made several.

use super::super::rule::{Axis, Disagreement, Kind, Rule, along};
use super::super::{OpError, Parts};
use super::reduce::whole_along;
use super::{check_rank, check_shape, check_size, resolve};

/// The axis of the join takes part in the choice of cuts, and is whole in the end.
pub(super) fn concat(op: &'static str, shapes: &[&[usize]], axis: isize) -> Result<Rule, OpError> {
    let first = shapes[0];
    let joined = resolve(op, axis, first.len())?;
    let mut total: usize = 0;
    for (operand, shape) in shapes.iter().enumerate() {
        check_rank(op, operand, shape, first.len())?;
        for (axis, (&size, &expected)) in shape.iter().zip(first).enumerate() {
            if axis != joined {
                check_size(op, operand, axis, size, expected)?;
            }
        }
        let longer = total.checked_add(shape[joined]);
        total = longer.ok_or(OpError::TooLarge { op })?;
    }
    let mut rule = Rule::new(op);
    let axes = rule.axes(first.len(), &[joined], Kind::Whole);
    for _ in shapes {
        rule.operand(axes.iter().copied());
    }
    let size = |axis: usize| if axis == joined { total } else { first[axis] };
    rule.result((0..first.len()).map(size), axes);
    Ok(rule)
}

/// TensorFlow looks at the first axis of the operands only, and leaves the others whole.
pub(super) fn stack(op: &'static str, shapes: &[&[usize]], axis: isize) -> Result<Rule, OpError> {
    let first = shapes[0];
    let new = resolve(op, axis, first.len() + 1)?;
    for (operand, shape) in shapes.iter().enumerate() {
        check_shape(op, operand, shape, first)?;
    }
    let mut rule = Rule::new(op);
    let leading = rule.ranked_factor(Kind::Apart, Disagreement::Neither, 0);
    let mut axes: Vec<Axis> = vec![None; first.len()];
    if let Some(axis) = axes.first_mut() {
        *axis = along(leading);
    }
    for _ in shapes {
        rule.operand(axes.iter().copied());
    }
    let mut shape = first.to_vec();
    shape.insert(new, shapes.len());
    axes.insert(new, None);
    rule.result(shape, axes);
    Ok(rule)
}

pub(super) fn split(
    op: &'static str,
    shape: &[usize],
    axis: isize,
    parts: &Parts,
) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, shape.len())?;
    let size = shape[axis];
    let sizes = part_sizes(shape, axis, parts).ok_or_else(|| OpError::SplitSizes {
        axis,
        size,
        parts: parts.clone(),
    })?;
    let mut rule = Rule::new(op);
    let axes = rule.axes(shape.len(), &[axis], Kind::Uncut);
    rule.operand(axes.iter().copied());
    for size in sizes {
        let mut shape = shape.to_vec();
        shape[axis] = size;
        rule.result(shape, axes.iter().copied());
    }
    Ok(rule)
}

/// How many parts of no elements there may be. A tensor with elements has at least as many of them
/// as an axis has parts.
const MOST_EMPTY_PARTS: usize = 1 << 16;

fn part_sizes(shape: &[usize], axis: usize, parts: &Parts) -> Option<Vec<usize>> {
    let size = shape[axis];
    match parts {
        Parts::Equal(count) => {
            let each = size.checked_div(*count)?;
            let is_few = !shape.contains(&0) || *count <= MOST_EMPTY_PARTS;
            (each * count == size && is_few).then(|| vec![each; *count])
        }
        Parts::Sizes(sizes) => {
            let total = sizes
                .iter()
                .try_fold(0_usize, |sum, size| sum.checked_add(*size))?;
            (total == size).then(|| sizes.clone())
        }
    }
}

pub(super) fn unstack(op: &'static str, shape: &[usize], axis: isize) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, shape.len())?;
    let (mut rule, mut axes) = whole_along(op, shape, axis);
    axes.remove(axis);
    let mut each = shape.to_vec();
    each.remove(axis);
    if shape.contains(&0) && shape[axis] > MOST_EMPTY_PARTS {
        return Err(OpError::SplitSizes {
            axis,
            size: shape[axis],
            parts: Parts::Equal(shape[axis]),
        });
    }
    for _ in 0..shape[axis] {
        rule.result(each.iter().copied(), axes.iter().copied());
    }
    Ok(rule)
}
