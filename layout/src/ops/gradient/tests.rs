//! Gradients against finite differences, on whole tensors and on shards, for every layout of the
//! operands that cuts at most one axis.

use meshwork_core::Mesh;

use super::super::naive::{Tensor, shards, whole};
use super::*;
use crate::PartialReduction;

type Function = fn(&[f64]) -> f64;

/// The op, what its elements are made by, and the gradient of that by each operand, given the
/// gradient by the result and the operands.
struct Subject {
    op: Op,
    function: Function,
    derivatives: Vec<Function>,
}

fn linear(op: Op) -> Subject {
    let derivatives: Vec<Function> = vec![|_| f64::NAN; 3];
    Subject {
        op,
        function: |_| f64::NAN,
        derivatives,
    }
}

/// The sum of the result, each element weighted by its number.
fn weighted(subject: &Subject, operands: &[Tensor], inferred: &Inferred) -> f64 {
    let result = whole(&subject.op, subject.function, operands, inferred);
    let weights = (1..).map(f64::from);
    let values = result[0].values().iter();
    values
        .zip(weights)
        .map(|(value, weight)| value * weight)
        .sum()
}

/// The gradient of that sum by one operand, as the difference that small changes make.
fn differences(
    subject: &Subject,
    operands: &[Tensor],
    operand: usize,
    inferred: &Inferred,
) -> Vec<f64> {
    let changed = |place: usize, by: f64| {
        let mut operands = operands.to_vec();
        let values = operands[operand].values().iter().enumerate();
        let values: Vec<f64> = values
            .map(|(other, value)| if other == place { value + by } else { *value })
            .collect();
        let shape = operands[operand].shape().to_vec();
        operands[operand] = Tensor::new(shape, values);
        weighted(subject, &operands, inferred)
    };
    let places = 0..operands[operand].values().len();
    places
        .map(|place| (changed(place, 1e-3) - changed(place, -1e-3)) / 2e-3)
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64], context: &str) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6 * (1.0 + b.abs());
    let same = found.len() == expected.len() && found.iter().zip(expected).all(close);
    assert!(same, "{context}: {found:?} instead of {expected:?}");
}

/// Every layout of an operand that cuts one axis, or none.
fn layouts(mesh: &Mesh, rank: usize) -> Vec<Layout> {
    let mut all = vec![Layout::replicated(mesh, rank)];
    for axis in 0..rank {
        for dim in ["x", "y"] {
            all.push(Layout::axis_sharded(mesh, dim, rank, axis).unwrap());
        }
    }
    all
}

/// The gradients by all operands, on whole tensors and on shards, for all layouts.
fn check(subject: &Subject, shapes: &[&[usize]]) {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let of_shape = |shape: &&[usize]| layouts(&mesh, shape.len());
    let mut combinations: Vec<Vec<Layout>> = vec![vec![]];
    for layouts in shapes.iter().map(of_shape) {
        let with_one = |so_far: Vec<Layout>| {
            let longer = layouts
                .iter()
                .map(move |layout| [so_far.clone(), vec![layout.clone()]].concat());
            longer.collect::<Vec<_>>()
        };
        combinations = combinations.into_iter().flat_map(with_one).collect();
    }
    for layouts in combinations {
        let placed = shapes.iter().zip(layouts);
        let placed =
            placed.map(|(shape, layout)| TensorLayout::new(shape.to_vec(), layout).unwrap());
        check_placed(subject, &placed.collect::<Vec<_>>());
    }
}

fn check_placed(subject: &Subject, placed: &[TensorLayout]) {
    let Ok(inferred) = infer(&subject.op, placed) else {
        return;
    };
    let numbers = placed.iter().enumerate().map(|(operand, placed)| {
        let values = (0_u8..).map(|i| {
            f64::from(i.wrapping_mul(7) % 11) - 4.5 + f64::from(u8::try_from(operand).unwrap())
        });
        Tensor::new(placed.shape().to_vec(), values.take(200))
    });
    let operands: Vec<Tensor> = numbers.collect();
    let result = inferred.results()[0].placement();
    let weights = Tensor::new(result.shape().to_vec(), (1..100).map(f64::from));
    let Ok(gradients) = gradients(&subject.op, placed, result) else {
        return;
    };
    assert_eq!(gradients.len(), operands.len());
    for (operand, gradient) in gradients.iter().enumerate() {
        let context = format!("{:?} by operand {operand} of {placed:?}", subject.op);
        assert_eq!(
            gradient.placement().shape(),
            placed[operand].shape(),
            "{context}"
        );
        let mut previous = weights.clone();
        for step in gradient.steps() {
            let input = |input: &GradientInput| match *input {
                GradientInput::Upstream => weights.clone(),
                GradientInput::Operand(operand) => operands[operand].clone(),
                GradientInput::Previous => previous.clone(),
            };
            let inputs: Vec<Tensor> = step.inputs().iter().map(input).collect();
            let derivative = subject.derivatives[operand];
            previous = whole(step.op(), derivative, &inputs, step.inferred()).remove(0);
            let parts = shards(step.op(), derivative, &inputs, step.inferred()).remove(0);
            let layout = step.inferred().results()[0].layout();
            for (rank, part) in layout.mesh().ranks().zip(parts) {
                assert_close(
                    part.values(),
                    previous.shard(layout, rank).values(),
                    &context,
                );
            }
        }
        let expected = differences(subject, &operands, operand, &inferred);
        assert_close(previous.values(), &expected, &context);
    }
}

#[test]
fn gradients_of_products_of_matrices_are_products() {
    let (plain, transposed) = (Orientation::Plain, Orientation::Transposed);
    let product = |lhs, rhs| linear(Op::MatMul { lhs, rhs });
    check(&product(plain, plain), &[&[2, 3], &[3, 4]]);
    check(&product(plain, transposed), &[&[2, 3], &[4, 3]]);
    check(&product(transposed, plain), &[&[3, 2], &[3, 4]]);
    check(&product(transposed, transposed), &[&[3, 2], &[4, 3]]);
}

#[test]
fn gradients_by_repeated_operands_are_summed() {
    let (lhs, rhs) = (Orientation::Plain, Orientation::Plain);
    check(&linear(Op::MatMul { lhs, rhs }), &[&[2, 2, 3], &[3, 2]]);
    let product = Subject {
        op: Op::Elementwise,
        function: |x| x[0] * x[1],
        derivatives: vec![|x| x[0] * x[2], |x| x[0] * x[1]],
    };
    check(&product, &[&[2, 3], &[2, 3]]);
    check(&product, &[&[2, 1, 3], &[4, 1]]);
    check(&product, &[&[], &[4]]);
}

#[test]
fn gradients_of_einsums_are_einsums() {
    for (equation, shapes) in [
        ("ij,jk->ik", [[2, 3].as_slice(), &[3, 4]]),
        ("bij,bjk->bik", [&[2, 2, 3], &[2, 3, 2]]),
        ("i,j->ij", [&[3], &[4]]),
        ("abc,abd->cd", [&[2, 3, 2], &[2, 3, 4]]),
    ] {
        check(&linear(Op::Einsum(equation.parse().unwrap())), &shapes);
    }
    check(&linear(Op::Einsum("ij->ji".parse().unwrap())), &[&[2, 3]]);
}

#[test]
fn gradients_of_sums_and_means_are_spread() {
    for axes in [vec![0], vec![-1], vec![0, 2], vec![0, 1, 2], vec![]] {
        for reduced in [ReducedAxes::Kept, ReducedAxes::Removed] {
            let reduce = |reducer| Op::Reduce {
                reducer,
                axes: axes.clone(),
                reduced,
            };
            check(&linear(reduce(Reducer::Sum)), &[&[2, 3, 4]]);
            let sizes = axes
                .iter()
                .map(|&axis: &isize| [2.0, 3.0, 4.0][axis.rem_euclid(3).unsigned_abs()]);
            // A function has no captures; the count of elements decides which.
            let derivative: Function = match sizes.product::<f64>() {
                2.0 => |x| x[0] / 2.0,
                4.0 => |x| x[0] / 4.0,
                8.0 => |x| x[0] / 8.0,
                24.0 => |x| x[0] / 24.0,
                _ => |x| x[0],
            };
            let mean = Subject {
                derivatives: vec![derivative],
                ..linear(reduce(Reducer::Mean))
            };
            check(&mean, &[&[2, 3, 4]]);
        }
    }
}

#[test]
fn gradients_of_moves_move_back() {
    check(
        &linear(Op::Transpose {
            perm: vec![2, 0, 1],
        }),
        &[&[2, 3, 4]],
    );
    check(
        &linear(Op::Reshape {
            shape: vec![Some(4), None],
        }),
        &[&[2, 6]],
    );
    check(&linear(Op::ExpandDims { axis: 1 }), &[&[2, 6]]);
    check(&linear(Op::Squeeze { axes: vec![] }), &[&[2, 1, 6]]);
}

#[test]
fn the_gradient_of_a_relayout_lies_as_the_operand_does() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    for from in layouts(&mesh, 2) {
        for to in layouts(&mesh, 2) {
            let op = Op::Relayout(Box::new(to.clone()));
            let operand = TensorLayout::new([4, 6], from.clone()).unwrap();
            let upstream = TensorLayout::new([4, 6], to).unwrap();
            let gradients = gradients(&op, &[operand], &upstream).unwrap();
            assert_eq!(gradients[0].placement().layout(), &from);
        }
    }
}

#[test]
fn the_gradient_of_a_relayout_is_not_partial_where_the_operand_is() {
    let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
    let rows = Layout::axis_sharded(&mesh, "x", 2, 0).unwrap();
    let partial = rows.clone().with_partial(["y"], PartialReduction::Sum);
    let operand = TensorLayout::new([4, 6], partial.unwrap()).unwrap();
    let upstream = TensorLayout::new([4, 6], Layout::replicated(&mesh, 2)).unwrap();
    let op = Op::Relayout(Box::new(upstream.layout().clone()));
    let gradients = gradients(&op, &[operand], &upstream).unwrap();
    let ops: Vec<&Op> = gradients[0].steps().iter().map(GradientStep::op).collect();
    assert_eq!(ops, [&Op::Relayout(Box::new(rows))]);
}

#[test]
fn gradients_that_are_not_known_are_refused() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let placed =
        |rank: usize| TensorLayout::new(vec![2; rank], Layout::replicated(&mesh, rank)).unwrap();
    let refused = |op: Op, rank: usize, operands: usize| {
        let name = op.name();
        let found = gradients(&op, &vec![placed(rank); operands], &placed(1));
        assert_eq!(found, Err(OpError::NoGradient { op: name }), "{op:?}");
    };
    refused(Op::Softmax { axis: 0 }, 1, 1);
    refused(Op::Unstack { axis: 0 }, 1, 1);
    refused(Op::Einsum("ii->i".parse().unwrap()), 2, 1);
    refused(Op::Einsum("ij->i".parse().unwrap()), 2, 1);
}

#[test]
fn the_gradient_by_the_result_has_its_shape() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let placed = |size: usize| TensorLayout::new([size], Layout::replicated(&mesh, 1)).unwrap();
    let shape = OpError::UpstreamShape {
        op: "elementwise",
        found: [3].as_slice().into(),
        expected: [4].as_slice().into(),
    };
    assert_eq!(
        gradients(&Op::Elementwise, &[placed(4)], &placed(3)),
        Err(shape)
    );
}
