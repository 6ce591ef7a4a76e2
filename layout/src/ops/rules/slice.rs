//! Parts of a tensor.

use std::num::NonZeroIsize;

use super::super::rule::{Axis, Clashes, Disagreement, Kind, Rule, along, coarsely};
use super::super::{Index, OpError};
use super::{check_entries, check_rank_of_at_least, resolve};

/// Axes that are taken whole stay cut.
pub(super) fn slice(
    op: &'static str,
    shape: &[usize],
    begin: &[usize],
    size: &[Option<usize>],
) -> Result<Rule, OpError> {
    check_entries(op, begin, shape.len())?;
    check_entries(op, size, shape.len())?;
    let mut rule = Rule::new(op);
    let mut sizes = Vec::new();
    let mut axes = Vec::new();
    for (axis, &whole) in shape.iter().enumerate() {
        let taken = box_size(begin[axis], size[axis], whole).map_err(|index| {
            let index = isize::try_from(index).unwrap_or(isize::MAX);
            let size = whole;
            OpError::IndexOutside {
                op,
                axis,
                index,
                size,
            }
        })?;
        sizes.push(taken);
        axes.push(along(rule.factor(Kind::Apart)).filter(|_| taken == whole));
    }
    rule.operand(axes.iter().copied());
    rule.result(sizes, axes);
    Ok(rule)
}

/// How many indices a box takes of an axis, or the last one it reaches if that is outside.
fn box_size(begin: usize, size: Option<usize>, whole: usize) -> Result<usize, usize> {
    let left = whole.checked_sub(begin).ok_or(begin)?;
    match size {
        Some(size) if size > left => Err(begin.saturating_add(size) - 1),
        Some(size) => Ok(size),
        None => Ok(left),
    }
}

/// Axes that are named are cut as they were where they are taken whole, those that are not are cut
/// as the operand's axis at their place in the result is. TensorFlow mistakes the one for the
/// other, which shows if an axis goes away before them: of `[x, y]`, `t[0]` is `[x]` and `t[0, :]`
/// is `[y]`. Where it reads past the last axis that way, they stay cut as they were.
pub(super) fn strided_slice(
    op: &'static str,
    shape: &[usize],
    indices: &[Index],
) -> Result<Rule, OpError> {
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    let mut operand: Vec<Axis> = Vec::new();
    let mut result: Vec<(usize, Axis)> = Vec::new();
    let mut unnamed: Vec<Unnamed> = Vec::new();
    for index in spelled_out(op, shape, indices)? {
        let axis = operand.len();
        match index {
            Some(Index::At(at)) => {
                check_index(op, axis, at, shape[axis])?;
                operand.push(None);
            }
            Some(Index::Range { begin, end, step }) => {
                let size = shape[axis];
                let taken = Taken::of(size, begin, end, step).ok_or(OpError::TooLarge { op })?;
                let kind = taken.kind(size, begin, end);
                let factor = kind.map(|kind| rule.ranked_factor(kind, Disagreement::First, 1));
                operand.push(factor.and_then(along));
                let after = factor.and_then(|factor| coarsely(factor, taken.grain()));
                result.push((taken.count, after));
            }
            Some(Index::NewAxis | Index::Ellipsis) => result.push((1, None)),
            None => {
                let factor = rule.factor(Kind::Apart);
                unnamed.push(Unnamed {
                    axis,
                    place: result.len(),
                    factor,
                });
                operand.push(along(factor));
                result.push((shape[axis], along(factor)));
            }
        }
    }
    if unnamed.iter().all(|unnamed| unnamed.place < shape.len()) {
        rule.claims = Some(claims_by_place(&operand, &unnamed));
    }
    rule.operand(operand);
    let (sizes, axes): (Vec<usize>, Vec<Axis>) = result.into_iter().unzip();
    rule.result(sizes, axes);
    Ok(rule)
}

/// An axis without an index expression between the brackets.
struct Unnamed {
    /// The axis of the operand.
    axis: usize,
    /// The axis of the result.
    place: usize,
    factor: usize,
}

fn claims_by_place(operand: &[Axis], unnamed: &[Unnamed]) -> Vec<(usize, usize)> {
    let is_named = |axis: &usize| unnamed.iter().all(|unnamed| unnamed.axis != *axis);
    let named = (0..operand.len()).filter(is_named);
    let named = named.filter_map(|axis| Some((axis, operand[axis]?.factor)));
    let unnamed = unnamed
        .iter()
        .map(|unnamed| (unnamed.place, unnamed.factor));
    named.chain(unnamed).collect()
}

/// One place for each axis: none where whole axes stand for the ellipsis, or for what is missing at
/// the end.
fn spelled_out(
    op: &'static str,
    shape: &[usize],
    indices: &[Index],
) -> Result<Vec<Option<Index>>, OpError> {
    let names_an_axis = |index: &&Index| matches!(index, Index::At(_) | Index::Range { .. });
    let named = indices.iter().filter(names_an_axis).count();
    check_rank_of_at_least(op, 0, shape, named)?;
    let ellipses: Vec<usize> = (0..indices.len())
        .filter(|&place| indices[place] == Index::Ellipsis)
        .collect();
    let (before, after) = match ellipses[..] {
        [] => (indices, [].as_slice()),
        [place] => (&indices[..place], &indices[place + 1..]),
        _ => return Err(OpError::TwoEllipses),
    };
    let whole = std::iter::repeat_n(None, shape.len() - named);
    let before = before.iter().copied().map(Some);
    let after = after.iter().copied().map(Some);
    Ok(before.chain(whole).chain(after).collect())
}

fn check_index(op: &'static str, axis: usize, index: isize, size: usize) -> Result<(), OpError> {
    match resolve(op, index, size) {
        Ok(_) => Ok(()),
        Err(_) => Err(OpError::IndexOutside {
            op,
            axis,
            index,
            size,
        }),
    }
}

/// The indices that a range takes of an axis.
struct Taken {
    first: usize,
    step: NonZeroIsize,
    count: usize,
}

impl Taken {
    /// The indices that Python takes; `None` if the axis is too long to count down to them.
    fn of(
        size: usize,
        begin: Option<isize>,
        end: Option<isize>,
        step: NonZeroIsize,
    ) -> Option<Self> {
        let size = isize::try_from(size).ok()?;
        let (low, high) = if step.is_positive() {
            (0, size)
        } else {
            (-1, size - 1)
        };
        let bound = |bound: isize| {
            let from_front = if bound < 0 {
                bound.saturating_add(size)
            } else {
                bound
            };
            from_front.clamp(low, high)
        };
        let (begin, end) = if step.is_positive() {
            (begin.map_or(low, bound), end.map_or(high, bound))
        } else {
            (begin.map_or(high, bound), end.map_or(low, bound))
        };
        let distance = if step.is_positive() {
            end - begin
        } else {
            begin - end
        };
        let count = match usize::try_from(distance) {
            Ok(distance) => distance.div_ceil(step.unsigned_abs().get()),
            Err(_) => 0,
        };
        Some(Self {
            first: usize::try_from(begin).unwrap_or(0),
            step,
            count,
        })
    }

    /// The factor of the axis, if it has one. TensorFlow keeps an axis cut whatever the steps if no
    /// bound is written; where that would not do, what it gives is wrong or refused.
    fn kind(&self, size: usize, begin: Option<isize>, end: Option<isize>) -> Option<Kind> {
        let unbounded = begin.is_none() && end.is_none();
        // What is counted from the end of the whole axis means something else in a shard of it.
        let from_front = [begin, end].into_iter().flatten().all(|bound| bound >= 0);
        match self.step.get() {
            1 if self.count == size => Some(Kind::Apart),
            step if unbounded && step < 0 => Some(Kind::Recut),
            _ if unbounded => Some(Kind::Stepped),
            step if step > 0 && from_front && self.passes_through(size) => Some(Kind::Apart),
            _ => None,
        }
    }

    /// Whether some index is taken, and no further one could be before the first or after the last.
    fn passes_through(&self, size: usize) -> bool {
        let step = self.step.unsigned_abs().get();
        // An index that is taken lies inside the axis.
        self.count > 0 && self.first < step && size - self.first <= self.count.saturating_mul(step)
    }

    /// How many indices before stand for one after.
    fn grain(&self) -> usize {
        usize::try_from(self.step.get()).unwrap_or(1)
    }
}

/// Cuts of the first operand come before those of the indices. The axis that is looked up is needed
/// whole.
pub(super) fn gather(
    op: &'static str,
    [params, indices]: [&[usize]; 2],
    axis: isize,
) -> Result<Rule, OpError> {
    let axis = resolve(op, axis, params.len())?;
    let mut rule = Rule::new(op);
    rule.clashes = Clashes::Won;
    let mut axes_of = |count: usize, precedence: usize| -> Vec<Axis> {
        (0..count)
            .map(|_| along(rule.ranked_factor(Kind::Apart, Disagreement::First, precedence)))
            .collect()
    };
    let mut sliced = axes_of(params.len(), 1);
    let looked_up = axes_of(indices.len(), 0);
    sliced[axis] = None;
    rule.operand(sliced.iter().copied());
    rule.operand(looked_up.iter().copied());
    let shape = [&params[..axis], indices, &params[axis + 1..]].concat();
    let axes = [&sliced[..axis], &looked_up, &sliced[axis + 1..]].concat();
    rule.result(shape, axes);
    Ok(rule)
}
