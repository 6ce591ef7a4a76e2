//! Ops of neural networks, element by element from their definitions.

use super::super::{Activation, AttentionMask, Moments, Normalization, Op, Turn};
use super::single::{broadcast, number};
use super::{Tensor, index_of, place, windows};

/// The result of an op, if it is one of these; `starts` are the indices of the whole operands at
/// which these ones begin.
pub(super) fn apply(
    op: &Op,
    operands: &[Tensor],
    starts: &[Vec<usize>],
    shape: &[usize],
) -> Option<Tensor> {
    let each = |element: &dyn Fn(&[usize]) -> f64| Some(Tensor::from_fn(shape, element));
    let first = &operands[0];
    match op {
        Op::Normalize(by) => Some(normalized(by, first)),
        Op::Standardize { epsilon } => each(&|index| {
            let [x, mean, variance] = [0, 1, 2].map(|number| broadcast(&operands[number], index));
            (x - mean) / (variance + epsilon.get()).sqrt()
        }),
        Op::Embedding => each(&|index| {
            let (at, feature) = index.split_at(index.len() - 1);
            let row = operands[1].at(at) - number(starts[0][0]);
            let rows = 0..first.shape()[0];
            let row = rows.into_iter().find(|known| number(*known) == row);
            row.map_or(0.0, |row| first.at(&[row, feature[0]]))
        }),
        Op::EmbeddingGradient => each(&|index| {
            let row = number(index[0] + starts[0][0]);
            let places = operands[1].values().iter().enumerate();
            let chosen = places.filter(|(_, chosen)| **chosen == row);
            let upstream = |number: usize| {
                let at = index_of(number, operands[1].shape());
                operands[2].at(&[at, vec![index[1]]].concat())
            };
            chosen.map(|(number, _)| upstream(number)).sum()
        }),
        Op::Attention(mask) => each(&|index| {
            let start = starts[0][first.shape().len() - 2];
            attention(*mask, operands, start, index)
        }),
        Op::Activation(by) => Some(first.map(|x| activation(*by, x))),
        Op::Rotary { base, turn } => each(&|index| {
            let start = starts[0][index.len() - 2];
            let sign = match turn {
                Turn::Forward => 1.0,
                Turn::Back => -1.0,
            };
            rotated(first, index, |position, pair| {
                sign * number(start + position) * base.get().powf(-2.0 * pair)
            })
        }),
        _ => windows::apply(op, operands, shape),
    }
}

fn normalized(by: &Normalization, operand: &Tensor) -> Tensor {
    let rank = operand.shape().len();
    let along: Vec<usize> = by.axes.iter().map(|&axis| place(axis, rank)).collect();
    Tensor::from_fn(operand.shape(), |index| {
        let together = (0..operand.values().len()).map(|number| index_of(number, operand.shape()));
        let together = together.filter(|other| {
            (0..rank).all(|axis| along.contains(&axis) || other[axis] == index[axis])
        });
        let values: Vec<f64> = together.map(|other| operand.at(&other)).collect();
        let count = number(values.len());
        let center = match by.moments {
            Moments::MeanAndVariance => values.iter().sum::<f64>() / count,
            Moments::MeanSquare => 0.0,
        };
        let squares = values.iter().map(|value| (value - center).powi(2));
        let spread = squares.sum::<f64>() / count;
        (operand.at(index) - center) / (spread + by.epsilon.get()).sqrt()
    })
}

/// One element; `start` is the number of the first query.
fn attention(mask: AttentionMask, operands: &[Tensor], start: usize, index: &[usize]) -> f64 {
    let (stack, [query, feature]) = index.split_at(index.len() - 2) else {
        return f64::NAN;
    };
    let at = |operand: usize, row: usize, column: usize| {
        let tensor = &operands[operand];
        let stacked = &tensor.shape()[..tensor.shape().len() - 2];
        let aligned = stack[stack.len() - stacked.len()..].iter().zip(stacked);
        let stack = aligned.map(|(i, size)| if *size == 1 { 0 } else { *i });
        tensor.at(&stack.chain([row, column]).collect::<Vec<_>>())
    };
    let sizes = operands[1].shape();
    let (keys, depth) = (sizes[sizes.len() - 2], sizes[sizes.len() - 1]);
    let is_visible = |key: &usize| mask == AttentionMask::Full || *key <= start + query;
    let weight = |key: usize| {
        let products = (0..depth).map(|d| at(0, *query, d) * at(1, key, d));
        (products.sum::<f64>() / number(depth).sqrt()).exp()
    };
    let visible: Vec<usize> = (0..keys).filter(is_visible).collect();
    let total: f64 = visible.iter().map(|&key| weight(key)).sum();
    let terms = visible.iter();
    terms
        .map(|&key| weight(key) / total * at(2, key, *feature))
        .sum()
}

/// One element; `angle` is that of a position and of a pair, as a part of all.
fn rotated(operand: &Tensor, index: &[usize], angle: impl Fn(usize, f64) -> f64) -> f64 {
    let (place, [column]) = index.split_at(index.len() - 1) else {
        return f64::NAN;
    };
    let depth = operand.shape()[place.len()];
    let (half, pair) = (depth / 2, column % (depth / 2));
    let angle = angle(place[place.len() - 1], number(pair) / number(depth));
    let at = |column: usize| operand.at(&[place, &[column]].concat());
    if *column < half {
        at(pair) * angle.cos() - at(half + pair) * angle.sin()
    } else {
        at(half + pair) * angle.cos() + at(pair) * angle.sin()
    }
}

fn activation(by: Activation, x: f64) -> f64 {
    match by {
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Tanh => x.tanh(),
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => x * normal(x),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

/// The normal distribution up to x, by Simpson's rule.
fn normal(x: f64) -> f64 {
    const STEPS: usize = 400;
    let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let step = x / number(STEPS);
    let inner = (1..STEPS).map(|i| (2.0 + 2.0 * number(i % 2)) * density(number(i) * step));
    0.5 + step / 3.0 * (density(0.0) + inner.sum::<f64>() + density(x))
}
