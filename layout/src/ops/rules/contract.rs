//! Sums of products.

use super::super::rule::{Axis, Disagreement, Kind, Rule, along};
use super::super::{Equation, OpError, Orientation};
use super::pointwise::{aligned, broadcast};
use super::{check_rank, check_rank_of_at_least, check_size};
use crate::PartialReduction;

/// Rows and columns come first, then the sum, then the stack: a mesh dimension that one operand
/// uses for rows or columns and the other for the sum is taken from the sum; one that is used for
/// the stack and for anything else is taken from the stack.
pub(super) fn matmul(
    op: &'static str,
    shapes: [&[usize]; 2],
    orientations: [Orientation; 2],
) -> Result<Rule, OpError> {
    let mut split = [([].as_slice(), 0, 0); 2];
    for operand in 0..2 {
        check_rank_of_at_least(op, operand, shapes[operand], 2)?;
        let (stack, matrix) = shapes[operand].split_at(shapes[operand].len() - 2);
        split[operand] = match orientations[operand] {
            Orientation::Plain => (stack, matrix[0], matrix[1]),
            Orientation::Transposed => (stack, matrix[1], matrix[0]),
        };
    }
    let [(left, rows, summed), (right, summed_too, columns)] = split;
    let summed_axis = match orientations[1] {
        Orientation::Plain => right.len(),
        Orientation::Transposed => right.len() + 1,
    };
    check_size(op, 1, summed_axis, summed_too, summed)?;
    let stack = broadcast(op, &[left, right])?;

    let mut rule = Rule::new(op);
    let stacked = rule.apart(stack.len());
    let sum = rule.ranked_factor(
        Kind::Reduced(PartialReduction::Sum),
        Disagreement::Refused,
        1,
    );
    let row = rule.ranked_factor(Kind::Apart, Disagreement::First, 2);
    let column = rule.ranked_factor(Kind::Apart, Disagreement::First, 2);
    rule.operand(
        aligned(left, &stack, &stacked)
            .into_iter()
            .chain(oriented(orientations[0], [row, sum])),
    );
    rule.operand(
        aligned(right, &stack, &stacked)
            .into_iter()
            .chain(oriented(orientations[1], [sum, column])),
    );
    let axes = stacked.into_iter().chain([row, column]).map(along);
    rule.result(stack.into_iter().chain([rows, columns]), axes);
    Ok(rule)
}

fn oriented(orientation: Orientation, [row, column]: [usize; 2]) -> [Axis; 2] {
    match orientation {
        Orientation::Plain => [along(row), along(column)],
        Orientation::Transposed => [along(column), along(row)],
    }
}

/// Axes of the result come first, then those that are summed, each before the next. A label that
/// one operand has twice stands for a diagonal, which is not made of parts.
pub(super) fn einsum(
    op: &'static str,
    shapes: &[&[usize]],
    equation: &Equation,
) -> Result<Rule, OpError> {
    let mut labels: Vec<(char, usize)> = Vec::new();
    let mut rule = Rule::new(op);
    let all = equation.operands().map(<[char]>::len).sum();
    for (operand, (names, shape)) in equation.operands().zip(shapes).enumerate() {
        check_rank(op, operand, shape, names.len())?;
        let mut axes = Vec::new();
        for (axis, (&label, &size)) in names.iter().zip(*shape).enumerate() {
            let known = labels.iter().position(|(known, _)| *known == label);
            axes.push(along(known.unwrap_or(labels.len())));
            if let Some(known) = known {
                check_size(op, operand, axis, size, labels[known].1)?;
                continue;
            }
            let precedence = if equation.result().contains(&label) {
                all
            } else {
                all - labels.len() - 1
            };
            labels.push((label, size));
            let kind = label_kind(equation, label);
            rule.ranked_factor(kind, Disagreement::Refused, precedence);
        }
        rule.operand(axes);
    }
    let place = |label: &char| labels.iter().position(|(known, _)| known == label);
    let places: Vec<usize> = equation.result().iter().filter_map(place).collect();
    let sizes: Vec<usize> = places.iter().map(|&place| labels[place].1).collect();
    rule.result(sizes, places.into_iter().map(along));
    Ok(rule)
}

fn label_kind(equation: &Equation, label: char) -> Kind {
    let twice = |names: &[char]| names.iter().filter(|&&name| name == label).count() > 1;
    let diagonal = equation.operands().any(twice);
    match (equation.result().contains(&label), diagonal) {
        (true, false) => Kind::Apart,
        (true, true) => Kind::Recut,
        (false, false) => Kind::Reduced(PartialReduction::Sum),
        (false, true) => Kind::Whole,
    }
}
