//! Ops on the shards of all ranks, which go step by step together.

use meshwork_core::{Mesh, MeshRank};

use super::super::{Inferred, Op, Outcome, PartialAllReduce, Reducer};
use super::single::{self, combined, number};
use super::{Tensor, joint, network, place};
use crate::Shape;

/// For each result what each rank holds in the end.
pub(super) fn apply(
    op: &Op,
    function: &dyn Fn(&[f64]) -> f64,
    operands: &[Tensor],
    inferred: &Inferred,
) -> Vec<Vec<Tensor>> {
    let mesh = inferred.operands()[0].mesh();
    let held = |rank: MeshRank| -> Vec<Tensor> {
        let layouts = operands.iter().zip(inferred.operands());
        layouts
            .map(|(operand, layout)| operand.shard(layout, rank))
            .collect()
    };
    let held: Vec<Vec<Tensor>> = mesh.ranks().map(held).collect();
    let produced = if inferred.within().is_empty() {
        let ranks = mesh.ranks().zip(&held);
        let by_rank = ranks.map(|(rank, held)| {
            let shapes = local_shapes(inferred, rank);
            let shapes: Vec<&[usize]> = shapes.iter().map(Shape::as_slice).collect();
            let starts = starts(operands, inferred, rank);
            let network = shapes.first();
            match network.and_then(|shape| network::apply(op, held, &starts, shape)) {
                Some(result) => vec![result],
                None => alone(op, function, operands, held, &shapes),
            }
        });
        by_result(inferred.results().len(), by_rank.collect())
    } else {
        joint::apply(op, operands, &held, inferred)
    };
    let results = inferred.results().iter().zip(produced);
    results
        .map(|(result, produced)| finished(mesh, result, produced))
        .collect()
}

/// The indices at which the shards of one rank begin.
fn starts(operands: &[Tensor], inferred: &Inferred, rank: MeshRank) -> Vec<Vec<usize>> {
    let layouts = operands.iter().zip(inferred.operands());
    let start = |(operand, layout): (&Tensor, &crate::Layout)| {
        let held = layout.shard(rank, operand.shape());
        let held = held.expect("the layout fits the operand");
        held.iter().map(|range| range.start).collect()
    };
    layouts.map(start).collect()
}

/// The shapes of what one rank produces.
fn local_shapes(inferred: &Inferred, rank: MeshRank) -> Vec<Shape> {
    let shape = |result: &Outcome| -> Shape {
        let shape = result
            .produced()
            .local_shape(rank, result.placement().shape());
        shape.expect("the layout fits the result")
    };
    inferred.results().iter().map(shape).collect()
}

/// What one rank makes of what it holds, as results of these shapes.
fn alone(
    op: &Op,
    function: &dyn Fn(&[f64]) -> f64,
    whole: &[Tensor],
    held: &[Tensor],
    shapes: &[&[usize]],
) -> Vec<Tensor> {
    match op {
        Op::ShapeOf => single::apply(op, function, whole, shapes),
        Op::Reduce {
            reducer: Reducer::Mean,
            axes,
            reduced,
        } => {
            let sum = Op::Reduce {
                reducer: Reducer::Sum,
                axes: axes.clone(),
                reduced: *reduced,
            };
            let sizes = whole[0].shape();
            let gone = axes.iter().map(|&axis| sizes[place(axis, sizes.len())]);
            let count = number(gone.product());
            let sums = single::apply(&sum, function, held, shapes).into_iter();
            sums.map(|sum| sum.map(|sum| sum / count)).collect()
        }
        _ => single::apply(op, function, held, shapes),
    }
}

/// The same by result, then by rank.
fn by_result(results: usize, by_rank: Vec<Vec<Tensor>>) -> Vec<Vec<Tensor>> {
    let mut all = vec![Vec::new(); results];
    for results in by_rank {
        for (all, result) in all.iter_mut().zip(results) {
            all.push(result);
        }
    }
    all
}

/// From what ranks have produced to what they hold in the end.
fn finished(mesh: &Mesh, result: &Outcome, produced: Vec<Tensor>) -> Vec<Tensor> {
    let reduced = match result.finish() {
        Some(collective) => all_reduce(mesh, &collective, produced),
        None => produced,
    };
    let cut = |(rank, tensor): (MeshRank, Tensor)| {
        let shape = result.placement().shape();
        let ranges = |layout: &crate::Layout| layout.shard(rank, shape);
        let had = ranges(result.produced()).expect("the layout fits the result");
        let kept = ranges(result.layout()).expect("the layout fits the result");
        let moved = kept.into_iter().zip(had);
        let moved = moved.map(|(kept, had)| kept.start - had.start..kept.end - had.start);
        tensor.part(&moved.collect::<Vec<_>>())
    };
    mesh.ranks().zip(reduced).map(cut).collect()
}

/// The blocks of all ranks after an all-reduce within each group.
pub(super) fn all_reduce(
    mesh: &Mesh,
    collective: &PartialAllReduce,
    tensors: Vec<Tensor>,
) -> Vec<Tensor> {
    let group_of = |rank: MeshRank| -> Vec<(String, usize)> {
        let coords = mesh.named_coords(rank).expect("a rank of the mesh");
        let outside = coords.filter(|(dim, _)| !collective.dims().contains(dim));
        outside
            .map(|(dim, coord)| (dim.to_string(), coord))
            .collect()
    };
    let reduction = collective.reduction();
    let reduced = |rank: MeshRank| {
        let others = mesh.ranks().zip(&tensors);
        let group = others.filter(|(other, _)| group_of(*other) == group_of(rank));
        let terms = group.map(|(_, tensor)| tensor.clone());
        let sum = terms.reduce(|a, b| a.zip(&b, |a, b| combined(reduction, a, b)));
        sum.expect("a rank is in its own group")
    };
    mesh.ranks().map(reduced).collect()
}
