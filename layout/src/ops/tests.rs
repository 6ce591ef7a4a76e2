//! Every op on shards, held against the same on whole tensors.

use std::num::NonZeroIsize;

use meshwork_core::{DimName, Mesh};
use proptest::prelude::*;

use super::naive::{Tensor, shards, whole};
use super::*;
use crate::{Layout, PartialReduction, ShardingSpec, UNSHARDED};

mod network;

/// A mesh, sizes and choices, all at random.
#[derive(Debug)]
struct World {
    mesh: Mesh,
    sizes: Vec<usize>,
    choices: std::vec::IntoIter<usize>,
}

impl World {
    fn choose(&mut self, ways: usize) -> usize {
        self.choices.next().map_or(0, |choice| choice % ways)
    }

    fn flip(&mut self) -> bool {
        self.choose(2) == 1
    }

    /// A size, 0 now and then.
    fn size(&mut self) -> usize {
        let place = self.choose(self.sizes.len());
        self.sizes[place]
    }

    fn shape(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).map(|_| self.size()).collect()
    }

    fn axis(&mut self, rank: usize) -> isize {
        let axis = self.choose(rank).cast_signed();
        if self.flip() {
            axis
        } else {
            axis - rank.cast_signed()
        }
    }

    /// A shape of as many elements as the product of these factors, in their order.
    fn grouped(&mut self, factors: &[usize]) -> Vec<usize> {
        let mut shape = vec![1];
        for factor in factors {
            if self.flip() {
                shape.push(1);
            }
            if let Some(last) = shape.last_mut() {
                *last *= factor;
            }
        }
        shape
    }

    /// A layout in which each mesh dimension cuts an axis or none, before or after those that do.
    fn layout(&mut self, rank: usize) -> Layout {
        let mut cuts: Vec<Vec<DimName>> = vec![Vec::new(); rank];
        for dim in self.mesh.clone().dim_names() {
            let axis = self.choose(rank + 1);
            if let Some(cuts) = cuts.get_mut(axis) {
                let place = self.choose(cuts.len() + 1);
                cuts.insert(place, dim.clone());
            }
        }
        let specs = cuts
            .into_iter()
            .map(|dims| ShardingSpec::nested(dims).unwrap());
        Layout::new(specs, &self.mesh).unwrap()
    }

    /// What may stand between brackets for an axis of this size or a larger one.
    fn index(&mut self, size: isize) -> Index {
        if self.choose(3) == 0 {
            let ways = 2 * size.unsigned_abs();
            return Index::At(self.choose(ways).cast_signed() - size);
        }
        let step = [1, 1, 2, 3, -1, -2][self.choose(6)];
        Index::Range {
            begin: self.bound(),
            end: self.bound(),
            step: NonZeroIsize::new(step).unwrap(),
        }
    }

    fn bound(&mut self) -> Option<isize> {
        let bound = self.choose(20).cast_signed() - 10;
        (self.choose(3) == 0).then_some(bound)
    }

    fn placed(&mut self, shapes: &[Vec<usize>]) -> Vec<TensorLayout> {
        let placed = shapes.iter().map(|shape| {
            let layout = self.layout(shape.len());
            TensorLayout::new(shape.iter().copied(), layout).unwrap()
        });
        placed.collect()
    }

    fn numbers(&mut self, shape: &[usize], below: usize) -> Tensor {
        let count = shape.iter().product();
        let values = (0..count).map(|_| f64::from(u32::try_from(self.choose(below)).unwrap()));
        let values: Vec<f64> = values.collect();
        Tensor::new(shape.iter().copied(), values)
    }

    fn check_one(&mut self, op: &Op, shape: &[usize]) {
        self.check(op, &[shape.to_vec()]);
    }

    /// Lays operands of these shapes out, and compares.
    fn check(&mut self, op: &Op, shapes: &[Vec<usize>]) {
        let operands: Vec<Tensor> = shapes.iter().map(|shape| self.numbers(shape, 5)).collect();
        let placed = self.placed(shapes);
        check(op, &placed, &operands);
    }
}

fn world() -> impl Strategy<Value = World> {
    let mesh = proptest::collection::vec(1_usize..4, 1..4);
    let sizes = proptest::collection::vec(prop_oneof![10 => 1_usize..8, 1 => Just(0)], 4);
    let choices = proptest::collection::vec(0_usize..1000, 200);
    (mesh, sizes, choices).prop_map(|(mesh, sizes, choices)| World {
        mesh: Mesh::new(["x", "y", "z"].into_iter().zip(mesh)).unwrap(),
        sizes,
        choices: choices.into_iter(),
    })
}

/// Distinguishes its arguments, and their order.
fn mixed(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(1.0, |sum, value| sum * 3.0 + value * value)
}

/// Every rank ends with its part of the right results, unless the op is refused as it is cut.
fn check(op: &Op, placed: &[TensorLayout], operands: &[Tensor]) {
    let inferred = match infer(op, placed) {
        Ok(inferred) => inferred,
        Err(
            OpError::SpecsDiffer { .. }
            | OpError::AxisCut { .. }
            | OpError::StepAcrossShards { .. },
        ) => {
            return;
        }
        Err(error) => panic!("{op:?} {placed:?}: {error}"),
    };
    let expected = whole(op, mixed, operands, &inferred);
    let found = shards(op, mixed, operands, &inferred);
    let results = inferred.results().iter().zip(&expected).zip(&found);
    for ((result, expected), found) in results {
        for (rank, found) in result.layout().mesh().ranks().zip(found) {
            assert_close(found, &expected.shard(result.layout(), rank), || {
                format!("{rank} of {op:?} on {placed:?}: {inferred:?}")
            });
        }
        assert_eq!(result.layout().reduction(), None);
    }
    check_that_needed_layouts_are_kept(op, placed, &inferred);
}

#[track_caller]
fn assert_close(found: &Tensor, expected: &Tensor, context: impl Fn() -> String) {
    let close = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= 1e-9 * (1.0 + b.abs());
    let same = found.shape() == expected.shape()
        && found.values().iter().zip(expected.values()).all(close);
    assert!(same, "{found:?} instead of {expected:?}: {}", context());
}

fn check_that_needed_layouts_are_kept(op: &Op, placed: &[TensorLayout], inferred: &Inferred) {
    // The axes of a strided slice that are not named take the cuts of others.
    if matches!(op, Op::StridedSlice(_)) {
        return;
    }
    let moved = placed
        .iter()
        .zip(inferred.operands())
        .map(|(placed, layout)| {
            TensorLayout::new(placed.shape().iter().copied(), layout.clone()).unwrap()
        });
    let again = infer(op, &moved.collect::<Vec<_>>()).unwrap();
    assert_eq!(again.operands(), inferred.operands(), "{op:?} {placed:?}");
}

/// Every layout of tensors of this rank that TensorFlow can express.
fn layouts(mesh: &Mesh, rank: usize) -> Vec<Layout> {
    let names = mesh.dim_names().map(DimName::as_str).chain([UNSHARDED]);
    let names: Vec<String> = names.map(String::from).collect();
    let mut all: Vec<Vec<String>> = vec![vec![]];
    for _ in 0..rank {
        let longer = |name: &String| {
            let all = all.iter().cloned();
            let longer = all.map(|names| [names, vec![name.clone()]].concat());
            longer.collect::<Vec<_>>()
        };
        all = names.iter().flat_map(longer).collect();
    }
    let layouts = all.into_iter().map(|names| Layout::from_names(names, mesh));
    layouts.filter_map(Result::ok).collect()
}

/// The rule of element-wise ops in other words: a mesh dimension that the operands use on two axes
/// spoils every axis on which one uses it; on the others the first to cut an axis has its way.
fn elementwise_specs(left: &Layout, right: &Layout) -> Vec<String> {
    let shown = |layout: &Layout| layout.specs().map(ToString::to_string).collect();
    let (left, right): (Vec<String>, Vec<String>) = (shown(left), shown(right));
    let mut specs: Vec<String> = Vec::new();
    for (a, b) in left.iter().zip(&right) {
        specs.push(if a == UNSHARDED { b.clone() } else { a.clone() });
    }
    for dim in ["x", "y", "z"] {
        let place = |specs: &[String]| specs.iter().position(|spec| spec == dim);
        if let (Some(a), Some(b)) = (place(&left), place(&right))
            && a != b
        {
            specs[a] = UNSHARDED.into();
            specs[b] = UNSHARDED.into();
        }
    }
    specs
}

#[test]
fn elementwise_ops_follow_their_rule_for_all_layouts() {
    let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).unwrap();
    let all = layouts(&mesh, 3);
    for left in &all {
        for right in &all {
            let placed = [left, right].map(|layout| TensorLayout::new([4, 4, 4], layout.clone()));
            let inferred = infer(&Op::Elementwise, &placed.map(Result::unwrap)).unwrap();
            let expected = Layout::from_names(elementwise_specs(left, right), &mesh).unwrap();
            assert_eq!(inferred.results()[0].layout(), &expected, "{left} {right}");
        }
    }
    assert_eq!(all.len() * all.len(), 1156);
}

/// The rule of products of two matrices in other words.
fn product_specs(left: &Layout, right: &Layout) -> Option<[String; 2]> {
    let shown = |layout: &Layout| layout.specs().map(ToString::to_string).collect();
    let (left, right): (Vec<String>, Vec<String>) = (shown(left), shown(right));
    let (rows, columns) = (left[0].clone(), right[1].clone());
    if left[1] != right[0] && left[1] != UNSHARDED && right[0] != UNSHARDED {
        return None;
    }
    if rows == columns {
        return Some([UNSHARDED.into(), UNSHARDED.into()]);
    }
    Some([rows, columns])
}

#[test]
fn products_follow_their_rule_for_all_layouts() {
    let mesh = Mesh::new([("x", 2), ("y", 2), ("z", 2)]).unwrap();
    let (lhs, rhs) = (Orientation::Plain, Orientation::Plain);
    let all = layouts(&mesh, 2);
    for left in &all {
        for right in &all {
            let placed = [left, right].map(|layout| TensorLayout::new([4, 4], layout.clone()));
            let found = infer(&Op::MatMul { lhs, rhs }, &placed.map(Result::unwrap)).ok();
            let found = found.map(|inferred| inferred.results()[0].layout().clone());
            let expected = product_specs(left, right);
            let expected = expected.map(|specs| Layout::from_names(specs, &mesh).unwrap());
            assert_eq!(found, expected, "{left} {right}");
        }
    }
}

#[test]
fn operands_that_are_partial_are_finished_first() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let layout = Layout::from_names(["y"], &mesh).unwrap();
    let partial = layout
        .clone()
        .with_partial(["x"], PartialReduction::Sum)
        .unwrap();
    let operand = TensorLayout::new([6], partial).unwrap();
    let inferred = infer(&Op::Elementwise, &[operand]).unwrap();
    assert_eq!(inferred.operands(), std::slice::from_ref(&layout));
    assert_eq!(inferred.results()[0].layout(), &layout);
}

/// All pairs of layouts of operands of these shapes.
fn check_all_pairs(op: &Op, shapes: [&[usize]; 2]) {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let operands = shapes.map(|shape| Tensor::new(shape.to_vec(), (1..100).map(f64::from)));
    for left in layouts(&mesh, shapes[0].len()) {
        for right in layouts(&mesh, shapes[1].len()) {
            let placed = [(shapes[0], left.clone()), (shapes[1], right)];
            let placed = placed.map(|(shape, layout)| TensorLayout::new(shape.to_vec(), layout));
            check(op, &placed.map(Result::unwrap), &operands);
        }
    }
}

#[test]
fn matrices_of_all_layouts_are_multiplied_right() {
    let (plain, transposed) = (Orientation::Plain, Orientation::Transposed);
    let product = |lhs, rhs| Op::MatMul { lhs, rhs };
    check_all_pairs(&product(plain, plain), [&[3, 4], &[4, 5]]);
    check_all_pairs(&product(transposed, plain), [&[4, 3], &[4, 5]]);
    check_all_pairs(&product(plain, transposed), [&[3, 4], &[5, 4]]);
    check_all_pairs(&product(transposed, transposed), [&[4, 3], &[5, 4]]);
}

#[test]
fn stacks_of_matrices_of_all_layouts_are_multiplied_right() {
    let (lhs, rhs) = (Orientation::Plain, Orientation::Plain);
    check_all_pairs(&Op::MatMul { lhs, rhs }, [&[2, 3, 4], &[2, 4, 5]]);
    check_all_pairs(&Op::MatMul { lhs, rhs }, [&[2, 3, 4], &[4, 2]]);
    check_all_pairs(&Op::MatMul { lhs, rhs }, [&[1, 3, 4], &[3, 4, 2]]);
}

#[test]
fn pairs_of_all_layouts_are_worked_on_right() {
    check_all_pairs(&Op::Elementwise, [&[4, 6], &[4, 6]]);
    check_all_pairs(&Op::Elementwise, [&[2, 1, 6], &[4, 1]]);
    check_all_pairs(&Op::Concat { axis: 0 }, [&[4, 6], &[3, 6]]);
    check_all_pairs(&Op::Stack { axis: 1 }, [&[4, 6], &[4, 6]]);
    check_all_pairs(&Op::CrossEntropy(Labels::Dense), [&[4, 6], &[4, 6]]);
    check_all_pairs(&Op::CrossEntropy(Labels::Sparse), [&[4, 6], &[4]]);
    check_all_pairs(
        &Op::Einsum("abc,abd->cd".parse().unwrap()),
        [&[2, 3, 4], &[2, 3, 5]],
    );
    check_all_pairs(
        &Op::Einsum("bij,bjk->bik".parse().unwrap()),
        [&[2, 3, 4], &[2, 4, 5]],
    );
}

#[test]
fn padding_costs_and_moves_nothing_even_where_all_logits_are_minus_infinity() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let (op, none) = (Op::CrossEntropy(Labels::Sparse), f64::NEG_INFINITY);
    let operands = [
        Tensor::new([2, 2], [none, none, 0.0, 0.0]),
        Tensor::new([2], [-1.0, 0.0]),
    ];
    let labels = TensorLayout::new([2], Layout::replicated(&mesh, 1)).unwrap();
    for layout in layouts(&mesh, 2) {
        let placed = [TensorLayout::new([2, 2], layout).unwrap(), labels.clone()];
        let inferred = infer(&op, &placed).unwrap();
        let results = whole(&op, mixed, &operands, &inferred);
        assert_eq!(results[0].values()[0], 0.0);
        assert_eq!(results[1].values(), [0.0, 0.0, -0.5, 0.5]);
        check(&op, &placed, &operands);
    }
}

#[test]
fn ranges_with_any_bounds_are_taken_right_from_every_layout() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let bounds = || (-5..=5).map(Some).chain([None]);
    for size in 4..=6 {
        let operand = [Tensor::new(vec![size], (1..100).map(f64::from))];
        let ranges = bounds().flat_map(|begin| bounds().map(move |end| (begin, end)));
        for ((begin, end), step) in ranges.flat_map(|range| [1, 2, -1].map(|step| (range, step))) {
            let step = NonZeroIsize::new(step).unwrap();
            let op = Op::StridedSlice(vec![Index::Range { begin, end, step }]);
            for layout in layouts(&mesh, 1) {
                let placed = TensorLayout::new(vec![size], layout).unwrap();
                check(&op, &[placed], &operand);
            }
        }
    }
}

proptest! {
    #[test]
    fn elementwise_ops_and_choices_broadcast(mut world in world()) {
        let shape = world.shape(3);
        let mut shapes = Vec::new();
        for _ in 0..3 {
            let rank = world.choose(4);
            let aligned = shape[3 - rank..].to_vec();
            shapes.push(aligned.into_iter().map(|size| if world.choose(4) == 0 { 1 } else { size }).collect());
        }
        world.check(&Op::Select, &shapes);
        let operands = 1 + world.choose(3);
        world.check(&Op::Elementwise, &shapes[..operands]);
    }

    #[test]
    fn a_bias_is_added_to_the_last_axis(mut world in world()) {
        let rank = 1 + world.choose(3);
        let value = world.shape(rank);
        let bias = value[rank - 1..].to_vec();
        world.check(&Op::BiasAdd, &[value, bias]);
    }

    #[test]
    fn stacks_of_matrices_are_multiplied(mut world in world()) {
        let stack = world.shape(2);
        let [rows, summed, columns] = [world.size(), world.size(), world.size()];
        let mut oriented = |row, column| {
            let rank = world.choose(3);
            let mut shape: Vec<usize> = stack[2 - rank..].iter().map(|&size| if world.choose(4) == 0 { 1 } else { size }).collect();
            if world.flip() {
                shape.extend([row, column]);
                return (Orientation::Plain, shape);
            }
            shape.extend([column, row]);
            (Orientation::Transposed, shape)
        };
        let ((lhs, left), (rhs, right)) = (oriented(rows, summed), oriented(summed, columns));
        world.check(&Op::MatMul { lhs, rhs }, &[left, right]);
    }

    #[test]
    fn einsums_sum_products(mut world in world()) {
        const EQUATIONS: &[&str] = &[
            "ij,jk->ik", "bij,bjk->bik", "bsd,dhk->bshk", "abc,abd->cd", "i,j->ij", "i,i->", "ij->ji", "ij->",
            "ij,ij,ij->j", "ij,jk,kl->il", "ii->i", "iji->j", "ii,ij->ij", "i,j->i", "->", "i,->i",
        ];
        let equation: Equation = EQUATIONS[world.choose(EQUATIONS.len())].parse()?;
        let sizes: Vec<usize> = world.shape(26).into_iter().map(|size| size.min(4)).collect();
        let size = |label: &char| sizes[usize::from(u8::try_from(*label).unwrap() - b'a')];
        let shapes: Vec<Vec<usize>> = equation.operands().map(|labels| labels.iter().map(size).collect()).collect();
        world.check(&Op::Einsum(equation), &shapes);
    }

    #[test]
    fn axes_are_reduced(mut world in world()) {
        const REDUCERS: [Reducer; 7] = [Reducer::Sum, Reducer::Mean, Reducer::Product, Reducer::Min, Reducer::Max, Reducer::Any, Reducer::All];
        let rank = world.choose(4);
        let shape: Vec<usize> = world.shape(rank).into_iter().map(|size| size.max(1)).collect();
        let reducer = REDUCERS[world.choose(REDUCERS.len())];
        let reduced = if world.flip() { ReducedAxes::Kept } else { ReducedAxes::Removed };
        let axes = (0..rank.cast_signed()).filter(|_| world.flip()).collect();
        world.check_one(&Op::Reduce { reducer, axes, reduced }, &shape);
    }

    #[test]
    fn axes_are_searched_summed_up_and_normalised(mut world in world()) {
        let rank = 1 + world.choose(3);
        let shape = world.shape(rank);
        let axis = world.axis(rank);
        world.check_one(&Op::Scan { axis }, &shape);
        let filled: Vec<usize> = shape.into_iter().map(|size| size.max(1)).collect();
        world.check_one(&Op::ArgReduce { axis }, &filled);
        world.check_one(&Op::Softmax { axis }, &filled);
    }

    #[test]
    fn cross_entropy_adds_up_over_classes(mut world in world()) {
        let rank = 1 + world.choose(3);
        let logits: Vec<usize> = world.shape(rank).into_iter().map(|size| size.max(1)).collect();
        let batch = logits[..rank - 1].to_vec();
        world.check(&Op::CrossEntropy(Labels::Sparse), &[logits.clone(), batch]);
        world.check(&Op::CrossEntropy(Labels::Dense), &[logits.clone(), logits]);
    }

    #[test]
    fn axes_change_places(mut world in world()) {
        let rank = world.choose(4);
        let shape = world.shape(rank);
        let mut perm: Vec<usize> = (0..rank).collect();
        for place in (1..rank).rev() {
            let other = world.choose(place + 1);
            perm.swap(place, other);
        }
        world.check_one(&Op::Transpose { perm }, &shape);
    }

    #[test]
    fn elements_are_arranged_in_another_shape(mut world in world()) {
        let mut factors: Vec<usize> = (0..4).map(|_| 1 + world.choose(4)).collect();
        let from = world.grouped(&factors);
        if world.flip() {
            factors.reverse();
        }
        let mut to: Vec<Option<usize>> = world.grouped(&factors).into_iter().map(Some).collect();
        if world.flip() {
            to[0] = None;
        }
        world.check_one(&Op::Reshape { shape: to }, &from);
    }

    #[test]
    fn axes_of_size_1_come_and_go(mut world in world()) {
        let rank = world.choose(3);
        let mut shape = world.shape(rank);
        let axis = world.axis(rank + 1);
        world.check_one(&Op::ExpandDims { axis }, &shape);
        let place = world.choose(rank + 1);
        shape.insert(place, 1);
        world.check_one(&Op::Squeeze { axes: vec![place.cast_signed()] }, &shape);
        world.check_one(&Op::Squeeze { axes: vec![] }, &shape);
    }

    #[test]
    fn elements_are_repeated_and_padded(mut world in world()) {
        let rank = world.choose(4);
        let shape = world.shape(rank);
        let multiples = shape.iter().map(|_| world.choose(3)).collect();
        world.check_one(&Op::Tile { multiples }, &shape);
        let paddings = shape.iter().map(|_| (world.choose(2), world.choose(3) / 2)).collect();
        world.check_one(&Op::Pad { paddings }, &shape);
        let more = world.choose(2);
        let target = [world.shape(more), shape.clone()].concat();
        let from: Vec<usize> = shape.into_iter().map(|size| if world.flip() { 1 } else { size }).collect();
        world.check_one(&Op::BroadcastTo { shape: target }, &from);
    }

    #[test]
    fn indices_become_ones_and_shapes_are_known(mut world in world()) {
        let rank = world.choose(3);
        let shape = world.shape(rank);
        let depth = world.size();
        world.check_one(&Op::OneHot { depth }, &shape);
        world.check_one(&Op::ShapeOf, &shape);
    }

    #[test]
    fn tensors_are_joined_and_parted(mut world in world()) {
        let rank = 1 + world.choose(3);
        let shape = world.shape(rank);
        let axis = world.choose(rank);
        let signed = axis.cast_signed();
        let count = 1 + world.choose(4);
        let longer = |size: usize| { let mut shape = shape.clone(); shape[axis] = size; shape };
        let shapes: Vec<Vec<usize>> = (0..count).map(|_| longer(world.size())).collect();
        world.check(&Op::Concat { axis: signed - rank.cast_signed() }, &shapes);
        let sizes: Vec<usize> = shapes.iter().map(|shape| shape[axis]).collect();
        let all = longer(sizes.iter().sum());
        world.check_one(&Op::Split { axis: signed, parts: Parts::Sizes(sizes) }, &all);
        world.check(&Op::Split { axis: signed, parts: Parts::Equal(count) }, &[longer(count * 2)]);
        world.check_one(&Op::Unstack { axis: signed }, &shape);
        let new = world.axis(rank + 1);
        world.check(&Op::Stack { axis: new }, &vec![shape; count]);
    }

    #[test]
    fn boxes_are_cut_out(mut world in world()) {
        let rank = world.choose(4);
        let shape = world.shape(rank);
        let mut begin = Vec::new();
        let mut size = Vec::new();
        for &whole in &shape {
            let first = if world.flip() { 0 } else { world.choose(whole + 1) };
            let rest = whole - first;
            begin.push(first);
            size.push(match world.choose(3) { 0 => None, 1 => Some(rest), _ => Some(world.choose(rest + 1)) });
        }
        world.check_one(&Op::Slice { begin, size }, &shape);
    }

    #[test]
    fn brackets_take_what_python_takes(mut world in world()) {
        let rank = world.choose(4);
        let shape: Vec<usize> = world.shape(rank).into_iter().map(|size| size.max(1)).collect();
        let smallest = shape.iter().min().map_or(1, |size| size.cast_signed());
        let named = world.choose(rank + 1);
        let mut indices: Vec<Index> = (0..named).map(|_| world.index(smallest)).collect();
        for extra in [Index::NewAxis, Index::Ellipsis] {
            if world.flip() {
                let place = world.choose(indices.len() + 1);
                indices.insert(place, extra);
            }
        }
        world.check_one(&Op::StridedSlice(indices), &shape);
    }

    #[test]
    fn indices_are_looked_up(mut world in world()) {
        let rank = 1 + world.choose(3);
        let mut params: Vec<usize> = world.shape(rank);
        let axis = world.choose(rank);
        params[axis] = params[axis].max(1);
        let looked_up = world.choose(3);
        let indices = world.shape(looked_up);
        let placed = world.placed(&[params.clone(), indices.clone()]);
        let operands = [world.numbers(&params, 9), world.numbers(&indices, params[axis])];
        check(&Op::Gather { axis: axis.cast_signed() }, &placed, &operands);
    }

    #[test]
    fn relayouts_keep_the_tensor(mut world in world()) {
        let rank = world.choose(4);
        let shape = world.shape(rank);
        let to = world.layout(rank);
        let placed = world.placed(&[shape]);
        let inferred = infer(&Op::Relayout(Box::new(to.clone())), &placed)?;
        prop_assert_eq!(inferred.operands(), std::slice::from_ref(&to));
        prop_assert_eq!(inferred.results()[0].layout(), &to);
    }
}
