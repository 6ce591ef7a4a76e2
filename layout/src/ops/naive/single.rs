//! Ops on whole tensors, or on shards that are not split along the axes that the op works along.

use super::super::{Index, Labels, Op, Orientation, Parts, Reducer};
use super::{Tensor, network, place};
use crate::PartialReduction;

/// The results, whose shapes are known.
pub(super) fn apply(
    op: &Op,
    function: &dyn Fn(&[f64]) -> f64,
    operands: &[Tensor],
    shapes: &[&[usize]],
) -> Vec<Tensor> {
    let starts: Vec<Vec<usize>> = operands
        .iter()
        .map(|operand| vec![0; operand.shape.len()])
        .collect();
    let network = shapes.first();
    if let Some(result) = network.and_then(|shape| network::apply(op, operands, &starts, shape)) {
        return vec![result];
    }
    let several = |element: &dyn Fn(usize, &[usize]) -> f64| -> Vec<Tensor> {
        let results = shapes.iter().enumerate();
        results
            .map(|(number, shape)| Tensor::from_fn(shape, |index| element(number, index)))
            .collect()
    };
    let first = &operands[0];
    match op {
        Op::Split { axis, parts } => {
            let axis = place(*axis, first.shape.len());
            let starts = part_starts(first.shape[axis], parts);
            several(&|number, index| {
                let mut from = index.to_vec();
                from[axis] += starts[number];
                first.at(&from)
            })
        }
        Op::Unstack { axis } => {
            let axis = place(*axis, first.shape.len());
            several(&|number, index| first.at(&inserted(index, axis, number)))
        }
        Op::CrossEntropy(labels) => cross_entropy(first, &operands[1], *labels),
        _ => {
            let shape = shapes[0];
            vec![Tensor::from_fn(shape, |index| {
                element(op, function, operands, shape, index)
            })]
        }
    }
}

/// One element of the only result.
fn element(
    op: &Op,
    function: &dyn Fn(&[f64]) -> f64,
    operands: &[Tensor],
    shape: &[usize],
    index: &[usize],
) -> f64 {
    let first = &operands[0];
    let rank = first.shape.len();
    match op {
        Op::Elementwise => {
            let values: Vec<f64> = operands
                .iter()
                .map(|operand| broadcast(operand, index))
                .collect();
            function(&values)
        }
        Op::Select => {
            let chosen = if broadcast(first, index) == 0.0 { 2 } else { 1 };
            broadcast(&operands[chosen], index)
        }
        Op::BiasAdd => first.at(index) + operands[1].at(&index[rank - 1..]),
        Op::MatMul { lhs, rhs } => matmul_element(operands, [*lhs, *rhs], index),
        Op::Einsum(equation) => {
            let labels: Vec<&[char]> = equation.operands().collect();
            einsum_element(operands, &labels, equation.result(), index)
        }
        Op::Reduce { reducer, axes, .. } => reduced_element(first, *reducer, axes, index),
        Op::ArgReduce { axis } => largest(first, place(*axis, rank), index),
        Op::Scan { axis } => {
            let axis = place(*axis, rank);
            let before = (0..=index[axis]).map(|i| first.at(&replaced(index, axis, i)));
            before.sum()
        }
        Op::Softmax { axis } => {
            let axis = place(*axis, rank);
            let of = |i| first.at(&replaced(index, axis, i)).exp();
            of(index[axis]) / (0..first.shape[axis]).map(of).sum::<f64>()
        }
        Op::OneHot { .. } => {
            let (class, index) = (index[rank], &index[..rank]);
            f64::from(first.at(index) == number(class))
        }
        Op::ShapeOf => number(first.shape[index[0]]),
        Op::Concat { axis } => concat_element(operands, place(*axis, rank), index),
        Op::Stack { axis } => {
            let axis = place(*axis, rank + 1);
            operands[index[axis]].at(&removed(index, axis))
        }
        Op::Gather { axis } => gather_element(operands, place(*axis, rank), index),
        _ => moved(op, first, shape, index),
    }
}

/// An element of an op that only moves them.
fn moved(op: &Op, from: &Tensor, shape: &[usize], index: &[usize]) -> f64 {
    let sizes = || from.shape.iter();
    let index: Vec<usize> = match op {
        Op::Transpose { perm } => {
            let place = |axis| perm.iter().position(|&from| from == axis);
            let axes = (0..shape.len()).filter_map(place);
            axes.map(|axis| index[axis]).collect()
        }
        Op::Tile { .. } => index
            .iter()
            .zip(sizes())
            .map(|(i, size)| i % size)
            .collect(),
        Op::Slice { begin, .. } => index
            .iter()
            .zip(begin)
            .map(|(i, begin)| i + begin)
            .collect(),
        Op::StridedSlice(indices) => taken(indices, from, index),
        Op::BroadcastTo { .. } => return broadcast(from, index),
        Op::Pad { paddings } => {
            let inside = |((i, (before, _)), size): ((&usize, &(usize, usize)), &usize)| {
                i.checked_sub(*before).filter(|i| i < size)
            };
            let places = index.iter().zip(paddings).zip(sizes()).map(inside);
            let Some(index) = places.collect::<Option<Vec<_>>>() else {
                return 0.0;
            };
            index
        }
        // Reshape, expand, squeeze and relayout keep the order of elements.
        _ => return from.values[shape.iter().zip(index).fold(0, |n, (size, i)| n * size + i)],
    };
    from.at(&index)
}

pub(super) fn broadcast(operand: &Tensor, index: &[usize]) -> f64 {
    let aligned = &index[index.len() - operand.shape.len()..];
    let place = aligned.iter().zip(&operand.shape);
    let place = place.map(|(i, size)| if *size == 1 { 0 } else { *i });
    operand.at(&place.collect::<Vec<_>>())
}

fn matmul_element(operands: &[Tensor], stored: [Orientation; 2], index: &[usize]) -> f64 {
    let (stack, at) = index.split_at(index.len() - 2);
    let value = |operand: usize, row: usize, column: usize| {
        let matrix = match stored[operand] {
            Orientation::Plain => [row, column],
            Orientation::Transposed => [column, row],
        };
        let tensor = &operands[operand];
        let stacked = &tensor.shape[..tensor.shape.len() - 2];
        let aligned = stack[stack.len() - stacked.len()..].iter().zip(stacked);
        let stack = aligned.map(|(i, size)| if *size == 1 { 0 } else { *i });
        tensor.at(&stack.chain(matrix).collect::<Vec<_>>())
    };
    let sizes = &operands[0].shape;
    let summed = match stored[0] {
        Orientation::Plain => sizes[sizes.len() - 1],
        Orientation::Transposed => sizes[sizes.len() - 2],
    };
    (0..summed)
        .map(|k| value(0, at[0], k) * value(1, k, at[1]))
        .sum()
}

fn einsum_element(
    operands: &[Tensor],
    labels: &[&[char]],
    result: &[char],
    index: &[usize],
) -> f64 {
    let known = result.iter().copied().zip(index.iter().copied()).collect();
    sum_of_products(operands, labels, known)
}

/// Fixes one label after the other, in every way, until all are known.
fn sum_of_products(operands: &[Tensor], labels: &[&[char]], known: Vec<(char, usize)>) -> f64 {
    let value_of = |label: char| known.iter().find(|(name, _)| *name == label);
    for (operand, names) in operands.iter().zip(labels) {
        for (&label, &size) in names.iter().zip(&operand.shape) {
            if value_of(label).is_none() {
                let with = |value| [known.as_slice(), &[(label, value)]].concat();
                return (0..size)
                    .map(|value| sum_of_products(operands, labels, with(value)))
                    .sum();
            }
        }
    }
    let factor = |(operand, names): (&Tensor, &&[char])| {
        let index = names.iter().filter_map(|&label| value_of(label));
        operand.at(&index.map(|(_, value)| *value).collect::<Vec<_>>())
    };
    operands.iter().zip(labels).map(factor).product()
}

fn reduced_element(operand: &Tensor, reducer: Reducer, axes: &[isize], index: &[usize]) -> f64 {
    let rank = operand.shape.len();
    let gone: Vec<usize> = axes.iter().map(|&axis| place(axis, rank)).collect();
    // With reduced axes kept, the index has a 0 for each of them, without them nothing.
    let mut rest = index.iter();
    let mut low = vec![0; rank];
    for (axis, low) in low.iter_mut().enumerate() {
        if !gone.contains(&axis) || index.len() == rank {
            *low = rest.next().copied().unwrap_or(0);
        }
    }
    let ranges: Vec<_> = (0..rank)
        .map(|axis| {
            let size = if gone.contains(&axis) {
                operand.shape[axis]
            } else {
                1
            };
            low[axis]..low[axis] + size
        })
        .collect();
    let values = operand.part(&ranges).values;
    let total = values
        .iter()
        .copied()
        .fold(neutral(reducer.reduction()), |a, b| {
            combined(reducer.reduction(), a, b)
        });
    match reducer {
        Reducer::Mean => total / number(values.len()),
        _ => total,
    }
}

/// The neutral element of a reduction.
fn neutral(reduction: PartialReduction) -> f64 {
    match reduction {
        PartialReduction::Sum => 0.0,
        PartialReduction::Product => 1.0,
        PartialReduction::Min => f64::INFINITY,
        PartialReduction::Max => f64::NEG_INFINITY,
    }
}

pub(super) fn combined(reduction: PartialReduction, a: f64, b: f64) -> f64 {
    match reduction {
        PartialReduction::Sum => a + b,
        PartialReduction::Product => a * b,
        // NaN stays, where `f64::min` drops it.
        PartialReduction::Min if b < a || b.is_nan() => b,
        PartialReduction::Max if b > a || b.is_nan() => b,
        PartialReduction::Min | PartialReduction::Max => a,
    }
}

/// The first index of the largest element along an axis.
fn largest(operand: &Tensor, axis: usize, index: &[usize]) -> f64 {
    let of = |i: usize| operand.at(&inserted(index, axis, i));
    let better = |best: usize, i: usize| if of(i) > of(best) { i } else { best };
    number((0..operand.shape[axis]).reduce(better).unwrap_or(0))
}

fn concat_element(operands: &[Tensor], axis: usize, index: &[usize]) -> f64 {
    let mut at = index[axis];
    for operand in operands {
        if at < operand.shape[axis] {
            return operand.at(&replaced(index, axis, at));
        }
        at -= operand.shape[axis];
    }
    f64::NAN
}

fn gather_element(operands: &[Tensor], axis: usize, index: &[usize]) -> f64 {
    let looked_up = operands[1].shape.len();
    let chosen = operands[1].at(&index[axis..axis + looked_up]);
    // An index in a tensor: a whole number, not negative.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small index"
    )]
    let chosen = chosen as usize;
    operands[0].at(&[&index[..axis], &[chosen], &index[axis + looked_up..]].concat())
}

/// The index of the operand from which a strided slice takes an element.
fn taken(indices: &[Index], from: &Tensor, index: &[usize]) -> Vec<usize> {
    let rank = from.shape.len();
    let makes_none = |index: &&Index| matches!(index, Index::NewAxis | Index::Ellipsis);
    let named = indices.len() - indices.iter().filter(makes_none).count();
    let whole = vec![Index::FULL; rank - named];
    let ellipsis = indices.iter().position(|index| *index == Index::Ellipsis);
    let (before, after) = match ellipsis {
        Some(place) => (&indices[..place], &indices[place + 1..]),
        None => (indices, [].as_slice()),
    };
    let mut result = index.iter();
    let mut at = Vec::new();
    for index in [before, &whole, after].concat() {
        match index {
            Index::At(i) => at.push(place(i, from.shape[at.len()])),
            Index::Range { begin, step, .. } => {
                let size = from.shape[at.len()].cast_signed();
                let start = match begin {
                    Some(begin) if begin < 0 => (begin + size).max(0),
                    Some(begin) => begin.min(size - 1),
                    None if step.get() < 0 => size - 1,
                    None => 0,
                };
                let steps = result.next().map_or(0, |steps| steps.cast_signed());
                at.push((start + steps * step.get()).unsigned_abs());
            }
            Index::NewAxis | Index::Ellipsis => _ = result.next(),
        }
    }
    at
}

fn part_starts(size: usize, parts: &Parts) -> Vec<usize> {
    let sizes = match parts {
        Parts::Equal(count) => vec![size / count; *count],
        Parts::Sizes(sizes) => sizes.clone(),
    };
    (0..sizes.len())
        .map(|part| sizes[..part].iter().sum())
        .collect()
}

/// The loss and its gradient by the logits.
fn cross_entropy(logits: &Tensor, labels: &Tensor, form: Labels) -> Vec<Tensor> {
    let classes = logits.shape.len() - 1;
    let row = |index: &[usize]| -> Vec<f64> {
        let of = |class| {
            logits
                .at(&inserted(&index[..classes], classes, class))
                .exp()
        };
        (0..logits.shape[classes]).map(of).collect()
    };
    let label = |index: &[usize], class: usize| match form {
        Labels::Dense => labels.at(&inserted(&index[..classes], classes, class)),
        Labels::Sparse => f64::from(labels.at(&index[..classes]) == number(class)),
    };
    let loss = Tensor::from_fn(&logits.shape[..classes], |index| {
        let row = row(index);
        let total: f64 = row.iter().sum();
        // What has no probability costs nothing, even where its logarithm is no number.
        let terms = row.iter().enumerate();
        let terms = terms.filter(|(class, _)| label(index, *class) != 0.0);
        -terms
            .map(|(class, exp)| label(index, class) * (exp / total).ln())
            .sum::<f64>()
    });
    let gradient = Tensor::from_fn(&logits.shape, |index| {
        let row = row(index);
        // What no class has costs nothing, and moves nothing.
        let has_label = (0..row.len()).any(|class| label(index, class) != 0.0);
        if form == Labels::Sparse && !has_label {
            return 0.0;
        }
        row[index[classes]] / row.iter().sum::<f64>() - label(index, index[classes])
    });
    vec![loss, gradient]
}

fn inserted(index: &[usize], axis: usize, value: usize) -> Vec<usize> {
    [&index[..axis], &[value], &index[axis..]].concat()
}

fn removed(index: &[usize], axis: usize) -> Vec<usize> {
    [&index[..axis], &index[axis + 1..]].concat()
}

fn replaced(index: &[usize], axis: usize, value: usize) -> Vec<usize> {
    [&index[..axis], &[value], &index[axis + 1..]].concat()
}

/// A count as an element. Counts of what is held in memory are far below 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "far below 2⁵³")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}
