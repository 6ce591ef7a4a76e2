//! The same elements under other indices.

use super::super::OpError;
use super::super::rule::{Axis, Kind, Rule, along, coarsely};
use super::{check_entries, resolve, resolve_all};
use crate::Shape;

pub(super) fn transpose(
    op: &'static str,
    shape: &[usize],
    perm: &[usize],
) -> Result<Rule, OpError> {
    check_entries(op, perm, shape.len())?;
    let signed = |&axis: &usize| isize::try_from(axis).map_err(|_| OpError::TooLarge { op });
    let perm = perm.iter().map(signed).collect::<Result<Vec<_>, _>>()?;
    let perm = resolve_all(op, &perm, shape.len())?;
    let mut rule = Rule::new(op);
    let factors = rule.apart(shape.len());
    rule.operand(factors.into_iter().map(along));
    let sizes: Vec<usize> = perm.iter().map(|&axis| shape[axis]).collect();
    rule.result(sizes, perm.into_iter().map(along));
    Ok(rule)
}

pub(super) fn expand_dims(op: &'static str, shape: &[usize], axis: isize) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, shape.len() + 1)?;
    let mut rule = Rule::new(op);
    let mut axes: Vec<Axis> = rule.apart(shape.len()).into_iter().map(along).collect();
    rule.operand(axes.iter().copied());
    let mut shape = shape.to_vec();
    shape.insert(axis, 1);
    axes.insert(axis, None);
    rule.result(shape, axes);
    Ok(rule)
}

pub(super) fn squeeze(op: &'static str, shape: &[usize], axes: &[isize]) -> Result<Rule, OpError> {
    let mut gone = resolve_all(op, axes, shape.len())?;
    if gone.is_empty() {
        gone = (0..shape.len()).filter(|&axis| shape[axis] == 1).collect();
    }
    if let Some(&axis) = gone.iter().find(|&&axis| shape[axis] != 1) {
        let size = shape[axis];
        return Err(OpError::SqueezeSize { axis, size });
    }
    // Of an axis of size 1 that is cut, all ranks but one hold nothing.
    let mut rule = Rule::new(op);
    let stays = |axis: &usize| !gone.contains(axis);
    let factors = rule.apart(shape.len());
    let whole = factors
        .iter()
        .map(|&axis| along(axis).filter(|_| stays(&axis)));
    rule.operand(whole);
    let kept: Vec<usize> = factors.into_iter().filter(stays).collect();
    let sizes: Vec<usize> = kept.iter().map(|&axis| shape[axis]).collect();
    rule.result(sizes, kept.into_iter().map(along));
    Ok(rule)
}

/// Shapes are taken apart into the shortest runs of axes that hold equally many elements. In each
/// run the first axes share a factor, whose indices are elements of the run; the others have none,
/// as a cut along them is none of the run's.
pub(super) fn reshape(
    op: &'static str,
    from: &[usize],
    asked: &[Option<usize>],
) -> Result<Rule, OpError> {
    let mismatch = || OpError::ReshapeSize {
        from: Shape::from(from),
        to: asked.to_vec(),
    };
    let to = completed(op, from, asked)?.ok_or_else(mismatch)?;
    let mut rule = Rule::new(op);
    let mut before: Vec<Axis> = vec![None; from.len()];
    let mut after: Vec<Axis> = vec![None; to.len()];
    for run in runs(from, &to) {
        let factor = rule.factor(Kind::Apart);
        before[run.from] = coarsely(factor, run.elements / from[run.from]);
        after[run.to] = coarsely(factor, run.elements / to[run.to]);
    }
    rule.operand(before);
    rule.result(to, after);
    Ok(rule)
}

/// The new shape, with the size that was left out; none if it does not hold the same elements.
fn completed(
    op: &'static str,
    from: &[usize],
    asked: &[Option<usize>],
) -> Result<Option<Vec<usize>>, OpError> {
    let too_large = || OpError::TooLarge { op };
    let elements = product(from.iter().copied()).ok_or_else(too_large)?;
    let known = product(asked.iter().copied().flatten()).ok_or_else(too_large)?;
    let left = match asked.iter().filter(|size| size.is_none()).count() {
        0 => (known == elements).then_some(1),
        1 => elements
            .checked_div(known)
            .filter(|left| left * known == elements),
        _ => None,
    };
    Ok(left.map(|left| asked.iter().map(|size| size.unwrap_or(left)).collect()))
}

fn product(mut sizes: impl Iterator<Item = usize>) -> Option<usize> {
    sizes.try_fold(1, usize::checked_mul)
}

/// Runs of axes that hold the same elements before and after.
struct Run {
    /// The first axis before.
    from: usize,
    /// The first axis after.
    to: usize,
    elements: usize,
}

/// The runs of two shapes of equally many elements. Axes of size 1 begin none. Without elements
/// there is nothing to keep cut, and no run.
fn runs(from: &[usize], to: &[usize]) -> Vec<Run> {
    let mut runs = Vec::new();
    if from.contains(&0) {
        return runs;
    }
    let longer = |sizes: &[usize], at: usize| (at..sizes.len()).find(|&at| sizes[at] != 1);
    let (mut before, mut after) = (0, 0);
    while let Some((first, second)) = longer(from, before).zip(longer(to, after)) {
        (before, after) = (first + 1, second + 1);
        let (mut left, mut right) = (from[first], to[second]);
        // Both products reach that of all sizes at the latest, so the axes do not run out.
        while left != right {
            if left < right {
                left *= from[before];
                before += 1;
            } else {
                right *= to[after];
                after += 1;
            }
        }
        runs.push(Run {
            from: first,
            to: second,
            elements: left,
        });
    }
    runs
}
