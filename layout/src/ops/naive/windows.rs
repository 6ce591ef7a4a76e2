//! Convolutions and pooling as sums over all pairs of an index and a window that has it.

use super::super::{Convolution, Op, Padding, Pool, Pooling, Windows};
use super::single::{combined, number};
use super::{Tensor, index_of};
use crate::PartialReduction;

/// The result of an op, if its windows move.
pub(super) fn apply(op: &Op, operands: &[Tensor], shape: &[usize]) -> Option<Tensor> {
    let first = &operands[0];
    Some(match op {
        Op::Convolution(of) => {
            let shapes = [first.shape(), operands[1].shape(), shape];
            products(of, shapes, [Some(first), Some(&operands[1]), None])
        }
        Op::ConvolutionInputGradient { of, .. } => {
            let shapes = [shape, operands[1].shape(), first.shape()];
            products(of, shapes, [None, Some(&operands[1]), Some(first)])
        }
        Op::ConvolutionFilterGradient { of, .. } => {
            let shapes = [first.shape(), shape, operands[1].shape()];
            products(of, shapes, [Some(first), None, Some(&operands[1])])
        }
        Op::Pool(of) => Tensor::from_fn(shape, |index| {
            let values = window_of(of, first, shape, index).into_iter();
            let values: Vec<f64> = values.map(|at| first.at(&at)).collect();
            match of.pooling {
                Pooling::Max => {
                    let larger = |a, b| combined(PartialReduction::Max, a, b);
                    values.into_iter().fold(f64::NEG_INFINITY, larger)
                }
                Pooling::Mean => values.iter().sum::<f64>() / number(values.len()),
            }
        }),
        Op::PoolGradient(of) => pool_gradient(of, first, &operands[1]),
        _ => return None,
    })
}

/// A convolution is the sum, for each element of the output, of the products of an element of the
/// input and one of the filter, and so are its gradients: of the three, the one that is not given
/// is the sum of the products of the others.
fn products(of: &Convolution, shapes: [&[usize]; 3], given: [Option<&Tensor>; 3]) -> Tensor {
    let [input, filter, output] = shapes;
    let axes = of.windows.axes();
    let (each, outputs) = (filter[axes], filter[axes + 1]);
    // Of groups that are cut, these are here.
    let groups = input[axes + 1].checked_div(each).unwrap_or(1);
    let mut sums: Vec<f64> = Vec::new();
    let missing = given.iter().position(Option::is_none).unwrap_or(0);
    sums.resize(shapes[missing].iter().product(), 0.0);
    for out in 0..output.iter().product() {
        let out = index_of(out, output);
        for tap in 0..filter[..=axes].iter().product() {
            let tap = index_of(tap, &filter[..=axes]);
            let Some(spatial) =
                index_under(&of.windows, [input, filter, output], &out[1..=axes], &tap)
            else {
                continue;
            };
            let group = out[axes + 1] / (outputs / groups);
            let channel = group * each + tap[axes];
            let at = [
                [vec![out[0]], spatial, vec![channel]].concat(),
                [&tap[..], &out[axes + 1..]].concat(),
                out.clone(),
            ];
            let factors = given.iter().zip(&at);
            let factors = factors.filter_map(|(tensor, at)| tensor.map(|tensor| tensor.at(at)));
            let sum = shapes[missing].iter().zip(&at[missing]);
            sums[sum.fold(0, |place, (size, i)| place * size + i)] += factors.product::<f64>();
        }
    }
    Tensor::new(shapes[missing].to_vec(), sums)
}

/// The spatial index on which a place of a window falls, unless that is padding.
fn index_under(
    windows: &Windows,
    [input, window, output]: [&[usize]; 3],
    at: &[usize],
    tap: &[usize],
) -> Option<Vec<usize>> {
    let (strides, dilations, padding) = windows.parts();
    let index = |axis: usize| {
        let size = input[axis + 1];
        let before = match padding {
            Padding::Valid => 0,
            Padding::Explicit(pairs) => pairs[axis].0,
            Padding::Same => {
                let reach = (window[axis] - 1) * dilations[axis] + 1;
                let end = (output[axis + 1] - 1) * strides[axis] + reach;
                (end.max(size) - size) / 2
            }
        };
        let index = (at[axis] * strides[axis] + tap[axis] * dilations[axis]).checked_sub(before)?;
        (index < size).then_some(index)
    };
    (0..at.len()).map(index).collect()
}

/// The indices of the elements of a window, in order.
fn window_of(of: &Pool, input: &Tensor, output: &[usize], index: &[usize]) -> Vec<Vec<usize>> {
    let channels = index.len() - 1;
    let taps = (0..of.window.iter().product()).map(|tap| index_of(tap, &of.window));
    let shapes = [input.shape(), &of.window, output];
    let spatial =
        taps.filter_map(|tap| index_under(&of.windows, shapes, &index[1..channels], &tap));
    spatial
        .map(|spatial| [vec![index[0]], spatial, vec![index[channels]]].concat())
        .collect()
}

fn pool_gradient(of: &Pool, input: &Tensor, upstream: &Tensor) -> Tensor {
    let mut terms: Vec<(Vec<usize>, f64)> = Vec::new();
    for window in 0..upstream.values().len() {
        let index = index_of(window, upstream.shape());
        let window = window_of(of, input, upstream.shape(), &index);
        let slope = upstream.at(&index);
        match of.pooling {
            Pooling::Mean => {
                let share = slope / number(window.len());
                terms.extend(window.into_iter().map(|at| (at, share)));
            }
            Pooling::Max => {
                let first = window.into_iter().reduce(|best, at| {
                    if input.at(&at) > input.at(&best) {
                        at
                    } else {
                        best
                    }
                });
                terms.extend(first.map(|at| (at, slope)));
            }
        }
    }
    Tensor::from_fn(input.shape(), |index| {
        let own = terms.iter().filter(|(at, _)| at == index);
        own.map(|(_, slope)| slope).sum()
    })
}
