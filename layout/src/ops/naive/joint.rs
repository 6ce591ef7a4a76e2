//! A softmax, a cross-entropy or a normalisation along an axis that is cut: ranks talk while they
//! compute.

use super::super::{Inferred, Labels, Moments, Normalization, Op, ReducedAxes, Reducer};
use super::ranks::all_reduce;
use super::single::{self, number};
use super::{Tensor, place};

/// For each result what each rank produces.
pub(super) fn apply(
    op: &Op,
    whole: &[Tensor],
    held: &[Vec<Tensor>],
    inferred: &Inferred,
) -> Vec<Vec<Tensor>> {
    let mesh = inferred.operands()[0].mesh();
    let mut collectives = inferred.within().iter();
    let mut reduce = |tensors: Vec<Tensor>| {
        let collective = collectives.next().expect("an all-reduce for each step");
        all_reduce(mesh, collective, tensors)
    };
    let rank = whole[0].shape().len();
    if let Op::Normalize(by) = op {
        return vec![normalized(by, whole, held, reduce)];
    }
    let along = match op {
        Op::Softmax { axis } => place(*axis, rank),
        _ => rank - 1,
    };
    let logits = || held.iter().map(|held| &held[0]);
    let largest = reduce(logits().map(|x| kept(x, Reducer::Max, along)).collect());
    let shifted = logits().zip(&largest);
    let shifted: Vec<Tensor> = shifted.map(|(x, m)| spread(x, m, |x, m| x - m)).collect();
    let exps: Vec<Tensor> = shifted.iter().map(|x| x.map(f64::exp)).collect();
    let sums = reduce(exps.iter().map(|x| kept(x, Reducer::Sum, along)).collect());
    let softmax = exps.iter().zip(&sums);
    let softmax = softmax.map(|(x, sum)| spread(x, sum, |x, sum| x / sum));
    let Op::CrossEntropy(form) = op else {
        return vec![softmax.collect()];
    };
    let labels = labels(*form, whole, held, inferred);
    let terms = shifted.iter().zip(&sums).zip(&labels);
    let terms = terms.map(|((x, sum), labels)| {
        let logs = spread(x, sum, |x, sum| x - sum.ln());
        // What has no probability costs nothing, even where its logarithm is no number.
        let cost = |log: f64, label: f64| if label == 0.0 { 0.0 } else { -log * label };
        kept(&logs.zip(labels, cost), Reducer::Sum, along)
    });
    let losses = reduce(terms.collect()).into_iter();
    let losses = losses.map(|loss| Tensor::new(loss.shape[..along].to_vec(), loss.values));
    let softmax: Vec<Tensor> = match form {
        Labels::Dense => softmax.collect(),
        Labels::Sparse => {
            let has = labels.iter().map(|x| kept(x, Reducer::Sum, along));
            let has = reduce(has.collect());
            let both = softmax.zip(&has);
            let moves = |p: f64, has: f64| if has == 0.0 { 0.0 } else { p };
            both.map(|(p, has)| spread(&p, has, moves)).collect()
        }
    };
    let gradients = softmax
        .iter()
        .zip(&labels)
        .map(|(p, labels)| p.zip(labels, |p, label| p - label));
    vec![losses.collect(), gradients.collect()]
}

/// What each rank produces of a normalisation.
fn normalized(
    by: &Normalization,
    whole: &[Tensor],
    held: &[Vec<Tensor>],
    mut reduce: impl FnMut(Vec<Tensor>) -> Vec<Tensor>,
) -> Vec<Tensor> {
    let shape = whole[0].shape();
    let gone: Vec<usize> = by
        .axes
        .iter()
        .map(|&axis| place(axis, shape.len()))
        .collect();
    let count = number(gone.iter().map(|&axis| shape[axis]).product());
    let sum = |tensor: &Tensor| {
        let kept = |tensor: Tensor, &axis: &usize| kept(&tensor, Reducer::Sum, axis);
        gone.iter().fold(tensor.clone(), kept)
    };
    let mut shifted: Vec<Tensor> = held.iter().map(|held| held[0].clone()).collect();
    if by.moments == Moments::MeanAndVariance {
        let sums = reduce(shifted.iter().map(sum).collect());
        let both = shifted.iter().zip(&sums);
        shifted = both
            .map(|(x, total)| spread(x, total, |x, total| x - total / count))
            .collect();
    }
    let squares = shifted.iter().map(|x| sum(&x.map(|x| x * x)));
    let squares = reduce(squares.collect());
    let both = shifted.iter().zip(&squares);
    both.map(|(x, total)| {
        spread(x, total, |x, total| {
            x / (total / count + by.epsilon.get()).sqrt()
        })
    })
    .collect()
}

/// The probability that each rank has to give to each class that it holds.
fn labels(
    form: Labels,
    whole: &[Tensor],
    held: &[Vec<Tensor>],
    inferred: &Inferred,
) -> Vec<Tensor> {
    let layout = &inferred.operands()[0];
    let ranks = layout.mesh().ranks().zip(held);
    let of_rank = |(rank, held): (_, &Vec<Tensor>)| {
        if form == Labels::Dense {
            return held[1].clone();
        }
        let shard = layout.shard(rank, whole[0].shape());
        let shard = shard.expect("the layout fits the logits");
        let first = shard.last().map_or(0, |classes| classes.start);
        Tensor::from_fn(held[0].shape(), |index| {
            let (class, index) = index.split_last().expect("the axis of classes");
            f64::from(held[1].at(index) == number(first + class))
        })
    };
    ranks.map(of_rank).collect()
}

/// The tensor reduced along an axis, which stays with size 1.
fn kept(tensor: &Tensor, reducer: Reducer, along: usize) -> Tensor {
    let mut shape = tensor.shape().to_vec();
    shape[along] = 1;
    let op = Op::Reduce {
        reducer,
        axes: vec![along.cast_signed()],
        reduced: ReducedAxes::Kept,
    };
    let operands = std::slice::from_ref(tensor);
    single::apply(&op, &|_| 0.0, operands, &[&shape]).remove(0)
}

/// Each element with that of a tensor that has size 1 along some axes.
fn spread(tensor: &Tensor, other: &Tensor, function: impl Fn(f64, f64) -> f64) -> Tensor {
    Tensor::from_fn(tensor.shape(), |index| {
        let sizes = index.iter().zip(other.shape());
        let place = sizes.map(|(i, size)| if *size == 1 { 0 } else { *i });
        function(tensor.at(index), other.at(&place.collect::<Vec<_>>()))
    })
}
