//! Ops over all layouts of their operands, uneven and empty shards included: results must not
//! depend on the layouts. Also means of 16-bit floats, mixed element types and foreign contexts.

use meshwork_layout::ops::{Labels, Op, OpError, Orientation, Parts, ReducedAxes, Reducer};
use meshwork_layout::{Layout, PartialReduction};
use ndarray::{Array, ArrayD, IxDyn, array};

use super::*;
use crate::testing::{context, layouts, mesh};
use crate::{DTensor, Error, Float, bf16, compile, f16};

mod network;

pub(super) fn numbers(shape: &[usize]) -> ArrayD<f64> {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|i| ((i * 7 + 3) % 11) as f64 - 4.0);
    Array::from_iter(values)
        .into_shape_with_order(IxDyn(shape))
        .unwrap()
}

/// An op gives the same whatever the layouts of its operands are, or is refused.
fn check(op: &Op, shapes: &[&[usize]]) {
    let context = context();
    let whole: Vec<ArrayD<f64>> = shapes.iter().map(|shape| numbers(shape)).collect();
    let placed = |layouts: &[&Layout]| -> Vec<DTensor<f64>> {
        let both = whole.iter().zip(layouts);
        both.map(|(whole, layout)| context.copy_to_mesh(whole.clone(), layout).unwrap())
            .collect()
    };
    let apply = |layouts: &[&Layout]| {
        let placed = placed(layouts);
        let tensors: Vec<&DTensor<f64>> = placed.iter().collect();
        let results = DTensor::apply(op, &tensors, &|x| x.iter().product())?;
        results
            .iter()
            .map(DTensor::to_host)
            .collect::<Result<Vec<_>, _>>()
    };
    let plain: Vec<Layout> = shapes
        .iter()
        .map(|s| Layout::replicated(&mesh(), s.len()))
        .collect();
    let expected = apply(&plain.iter().collect::<Vec<_>>()).unwrap();
    let mut tried = 0;
    for first in layouts(shapes[0].len()) {
        let rest = shapes.get(1).map_or(vec![None], |shape| {
            layouts(shape.len()).into_iter().map(Some).collect()
        });
        for second in rest {
            let layouts: Vec<&Layout> = [&first].into_iter().chain(&second).collect();
            let Ok(found) = apply(&layouts) else { continue };
            tried += 1;
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(found.shape(), expected.shape());
                let close = found
                    .iter()
                    .zip(expected)
                    .all(|(a, b)| (a - b).abs() < 1e-9);
                assert!(
                    close,
                    "{op:?} of {first} and {second:?}: {found} instead of {expected}"
                );
            }
        }
    }
    assert!(tried > 1, "{op:?}");
}

#[test]
fn results_do_not_depend_on_layouts_uneven_ones_included() {
    let (lhs, rhs) = (Orientation::Plain, Orientation::Transposed);
    check(&Op::Elementwise, &[&[3, 5], &[5]]);
    check(&Op::MatMul { lhs, rhs: lhs }, &[&[3, 5], &[5, 2]]);
    check(&Op::MatMul { lhs, rhs }, &[&[2, 3, 5], &[1, 4, 5]]);
    check(
        &Op::Einsum("abc,abd->cd".parse().unwrap()),
        &[&[2, 3, 5], &[2, 3, 4]],
    );
    check(&Op::Einsum("aab->b".parse().unwrap()), &[&[3, 3, 5]]);
    check(&Op::Softmax { axis: 0 }, &[&[3, 5]]);
    check(&Op::CrossEntropy(Labels::Dense), &[&[3, 5], &[3, 5]]);
    check(&Op::Scan { axis: -1 }, &[&[3, 5]]);
    check(&Op::Transpose { perm: vec![1, 0] }, &[&[3, 5]]);
    check(
        &Op::Reshape {
            shape: vec![Some(2), None],
        },
        &[&[4, 3]],
    );
    check(&Op::Concat { axis: 0 }, &[&[3, 5], &[2, 5]]);
    check(&Op::Stack { axis: -1 }, &[&[3, 5], &[3, 5]]);
    check(
        &Op::Pad {
            paddings: vec![(1, 2), (0, 0)],
        },
        &[&[3, 5]],
    );
    check(
        &Op::Tile {
            multiples: vec![2, 1],
        },
        &[&[3, 5]],
    );
}

#[test]
fn every_reduction_is_independent_of_layouts() {
    let reducers = [
        Reducer::Sum,
        Reducer::Mean,
        Reducer::Product,
        Reducer::Min,
        Reducer::Max,
        Reducer::Any,
        Reducer::All,
    ];
    for reducer in reducers {
        for (axes, reduced) in [
            (vec![], ReducedAxes::Removed),
            (vec![0], ReducedAxes::Kept),
            (vec![-1, 0], ReducedAxes::Removed),
        ] {
            let op = Op::Reduce {
                reducer,
                axes,
                reduced,
            };
            check(&op, &[&[3, 5]]);
        }
    }
}

#[test]
fn a_class_without_probability_costs_nothing_at_a_logit_of_minus_infinity() {
    let (context, none) = (context(), f64::NEG_INFINITY);
    let logits = array![[0.0, none, 0.0], [0.0, 0.0, none]];
    let right = array![[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]];
    let numbers = context
        .copy_to_mesh(array![2_i64, 1], &Layout::replicated(&mesh(), 1))
        .unwrap();
    for layout in layouts(2) {
        let logits = context.copy_to_mesh(logits.clone(), &layout).unwrap();
        let right = context.copy_to_mesh(right.clone(), &layout).unwrap();
        let dense = logits.cross_entropy(&right).unwrap();
        let sparse = logits.sparse_cross_entropy(&numbers).unwrap();
        for (losses, gradient) in [dense, sparse] {
            let losses = losses.to_host().unwrap();
            let is_right = |loss: &f64| (loss - 2_f64.ln()).abs() < 1e-12;
            assert!(losses.iter().all(is_right), "{layout}: {losses}");
            let gradient = gradient.to_host().unwrap();
            assert_eq!((gradient[[0, 1]], gradient[[1, 2]]), (0.0, 0.0));
        }
    }
    let placed = |row| {
        let whole = Layout::replicated(&mesh(), 2);
        context.copy_to_mesh(row, &whole).unwrap()
    };
    let (losses, _) = placed(array![[none, 0.0]])
        .cross_entropy(&placed(array![[1.0, 0.0]]))
        .unwrap();
    assert_eq!(losses.to_host().unwrap()[[0]], f64::INFINITY);
}

#[test]
fn padding_costs_and_moves_nothing_even_where_all_logits_are_minus_infinity() {
    let (context, none) = (context(), f64::NEG_INFINITY);
    let labels = context
        .copy_to_mesh(array![-1_i64, 0], &Layout::replicated(&mesh(), 1))
        .unwrap();
    for layout in layouts(2) {
        let logits = array![[none, none], [0.0, 0.0]];
        let logits = context.copy_to_mesh(logits, &layout).unwrap();
        let (losses, gradient) = logits.sparse_cross_entropy(&labels).unwrap();
        assert_eq!(losses.to_host().unwrap()[[0]], 0.0, "{layout}");
        let expected = array![[0.0, 0.0], [-0.5, 0.5]].into_dyn();
        assert_eq!(gradient.to_host().unwrap(), expected, "{layout}");
    }
}

#[test]
fn no_element_of_none_is_the_largest_or_smallest() {
    let context = context();
    for layout in layouts(2) {
        let empty = context.zeros::<f64>(&[0, 3], &layout).unwrap();
        for refused in [empty.argmax(0), empty.argmin(0)] {
            let outside = OpError::IndexOutside {
                op: "arg_reduce",
                axis: 0,
                index: 0,
                size: 0,
            };
            assert_eq!(refused.unwrap_err(), Error::Op(outside), "{layout}");
        }
        for found in [empty.argmax(1), empty.argmin(1)] {
            assert_eq!(found.unwrap().to_host().unwrap().shape(), [0], "{layout}");
        }
    }
}

#[test]
fn results_that_no_memory_holds_are_refused() {
    let (context, large) = (context(), 1 << 40);
    let of = |shape: &[usize]| {
        let layout = Layout::replicated(&mesh(), shape.len());
        context.zeros::<f64>(shape, &layout).unwrap()
    };
    let one = of(&[1, 1]);
    for refused in [
        one.broadcast_to(&[large, large]),
        one.tile(&[large, large]),
        one.pad(&[(large, 0), (large, 0)]),
    ] {
        let refused = refused.unwrap_err();
        let is_too_large = matches!(refused, Error::Op(OpError::TooLarge { .. }));
        assert!(is_too_large, "{refused}");
    }
    let refused = of(&[0]).split(0, &Parts::Equal(usize::MAX)).unwrap_err();
    let are_too_many = matches!(refused, Error::Op(OpError::SplitSizes { .. }));
    assert!(are_too_many, "{refused}");
}

#[test]
fn means_of_short_floats_are_there_where_their_sums_are_not() {
    let layout = Layout::from_names(["x", "y"], &mesh()).unwrap();
    let large = f16::from_f32(60_000.0);
    let tensor = context().full(&[4, 6], &layout, large).unwrap();
    let mean = tensor.mean(&ReduceAxes::axes([0, 1])).unwrap();
    assert_eq!(mean.to_host().unwrap(), ndarray::arr0(large).into_dyn());
    assert_eq!(mean.layout(), &Layout::replicated(&mesh(), 0));
    // More of them than such a number counts.
    let many = context().full(&[2, 40_000], &layout, f16::ONE).unwrap();
    let mean = many
        .mean(&ReduceAxes::axes([0, 1]))
        .unwrap()
        .to_host()
        .unwrap();
    assert_eq!(mean, ndarray::arr0(f16::ONE).into_dyn());
    // A sum of as many bits does not grow beyond 256.
    let ones = context().full(&[2, 2048], &layout, bf16::ONE).unwrap();
    let mean = ones
        .mean(&ReduceAxes::axes([-1]))
        .unwrap()
        .to_host()
        .unwrap();
    assert!(mean.iter().all(|mean| *mean == bf16::ONE), "{mean}");
}

#[test]
fn zeros_lie_as_what_they_are_like_with_nothing_partial() {
    let layout = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let partial = layout
        .clone()
        .with_partial(["y"], PartialReduction::Sum)
        .unwrap();
    let tensor = context().full(&[3, 5], &partial, 7.0).unwrap();
    let zeros = tensor.zeros_like().unwrap();
    assert_eq!(zeros.layout(), &layout);
    assert_eq!(
        zeros.to_host().unwrap(),
        ArrayD::<f64>::zeros(IxDyn(&[3, 5]))
    );
}

#[test]
fn empty_shards_reduce_to_what_changes_nothing() {
    let layout = Layout::from_names(["x", "y"], &mesh()).unwrap();
    let one = context().copy_to_mesh(array![[7_i32]], &layout).unwrap();
    let along = ReduceAxes::axes([0, 1]);
    for reduced in [
        one.sum(&along),
        one.min(&along),
        one.max(&along),
        one.product(&along),
    ] {
        assert_eq!(
            reduced.unwrap().to_host().unwrap(),
            ndarray::arr0(7).into_dyn()
        );
    }
    assert_eq!(one.mean(&along).unwrap().unpack().unwrap().len(), 4);
}

#[test]
fn means_of_narrow_whole_numbers_are_there_where_their_sums_are_not() {
    let (context, mesh) = (context(), mesh());
    for names in [["x", "unsharded"], ["unsharded", "y"], ["unsharded"; 2]] {
        let layout = Layout::from_names(names, &mesh).unwrap();
        let all = ReduceAxes::axes([0, 1]);
        let pixels = context.full(&[2, 3], &layout, 200_u8).unwrap();
        let mean = pixels.mean(&all).unwrap().to_host().unwrap();
        assert_eq!(mean, ndarray::arr0(200_u8).into_dyn());
        // More of them than such a number counts.
        let many = context.full(&[2, 100], &layout, -3_i8).unwrap();
        let mean = many.mean(&all).unwrap().to_host().unwrap();
        assert_eq!(mean, ndarray::arr0(-3_i8).into_dyn());
    }
}

#[test]
fn a_softmax_of_short_floats_is_there_where_the_sum_of_its_exponentials_is_not() {
    let (context, mesh) = (context(), mesh());
    for names in [["unsharded", "x"], ["unsharded"; 2]] {
        let layout = Layout::from_names(names, &mesh).unwrap();
        let logits = context.zeros::<f16>(&[1, 70_000], &layout).unwrap();
        let one = 1.0 / 70_000_f32;
        let softmax = logits.softmax(-1).unwrap().to_host().unwrap();
        assert_eq!(softmax[[0, 3]], f16::from_f32(one));
        let logarithm = logits.log_softmax(-1).unwrap().to_host().unwrap();
        assert_eq!(logarithm[[0, 3]], f16::from_f32(one.ln()));
        let label = Layout::replicated(&mesh, 1);
        let label = context.copy_to_mesh(array![3_i64], &label).unwrap();
        let (loss, _) = logits.sparse_cross_entropy(&label).unwrap();
        let loss = loss.to_host().unwrap();
        assert_eq!(loss[[0]], f16::from_f32(-one.ln()));
    }
}

#[test]
fn moments_of_short_floats_are_there_where_squares_are_not() {
    let mut channel = ndarray::Array1::from_elem(100, f16::ZERO);
    channel[7] = f16::from_f32(400.0);
    let layout = Layout::from_names(["x"], &mesh()).unwrap();
    let channel = context().copy_to_mesh(channel, &layout).unwrap();
    let (mean, variance) = channel.moments(&[0]).unwrap();
    assert_eq!(mean.to_host().unwrap()[[0]], f16::from_f32(4.0));
    assert_eq!(variance.to_host().unwrap()[[0]], f16::from_f32(1584.0));
}

#[test]
fn a_batch_of_short_floats_is_normalised_where_its_variance_is_not_there() {
    let (context, mesh) = (context(), mesh());
    let batch = array![[-1000.0_f32], [1000.0]].mapv(f16::from_f32);
    for names in [["x", "unsharded"], ["unsharded"; 2]] {
        let layout = Layout::from_names(names, &mesh).unwrap();
        let batch = context.copy_to_mesh(batch.clone(), &layout).unwrap();
        let vector = Layout::replicated(&mesh, 1);
        let scale = context.full(&[1], &vector, f16::ONE).unwrap();
        let offset = context.zeros::<f16>(&[1], &vector).unwrap();
        let made = batch.batch_norm(&scale, &offset, 1e-3).unwrap();
        let output = made.output.to_host().unwrap().mapv(f16::to_f32);
        let found = [output[[0, 0]], output[[1, 0]]];
        assert!((found[0] + 1.0).abs() < 1e-2, "{found:?}");
        assert!((found[1] - 1.0).abs() < 1e-2, "{found:?}");
        assert_eq!(made.mean.to_host().unwrap()[[0]], f16::ZERO);
    }
}

#[test]
fn what_is_no_number_stays_whatever_it_is_compared_with() {
    let (context, mesh) = (context(), mesh());
    let values = array![[f32::NAN, 1.0, -2.0, 3.0], [1.0, -2.0, 3.0, f32::NAN]];
    for names in [["unsharded", "x"], ["x", "unsharded"], ["unsharded"; 2]] {
        let layout = Layout::from_names(names, &mesh).unwrap();
        let tensor = context.copy_to_mesh(values.clone(), &layout).unwrap();
        let along = ReduceAxes::axes([1]);
        for reduced in [tensor.max(&along), tensor.min(&along)] {
            let reduced = reduced.unwrap().to_host().unwrap();
            assert!(reduced.iter().all(|one| one.is_nan()), "{reduced}");
        }
        let cut = tensor.relu().unwrap().to_host().unwrap();
        assert!(cut[[0, 0]].is_nan() && cut[[1, 3]].is_nan(), "{cut}");
        assert_eq!((cut[[0, 2]], cut[[1, 2]]), (0.0, 3.0));
    }
}

#[test]
fn elements_of_other_types_meet() {
    let rows = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let vector = Layout::from_names(["y"], &mesh()).unwrap();
    let context = context();
    let table = context
        .copy_to_mesh(array![[1_u8, 2], [3, 4], [5, 6]], &rows)
        .unwrap();
    let indices = context.copy_to_mesh(array![2_i64, 0], &vector).unwrap();
    let gathered = table.gather(&indices, 0).unwrap();
    assert_eq!(
        gathered.to_host().unwrap(),
        array![[5_u8, 6], [1, 2]].into_dyn()
    );
    let hot: DTensor<bool> = indices.one_hot(3).unwrap();
    let expected = array![[false, false, true], [true, false, false]];
    assert_eq!(hot.to_host().unwrap(), expected.into_dyn());
    let large = table.map(|element| element > 3).unwrap();
    let zeros = context.zeros::<u8>(&[3, 2], &rows).unwrap();
    let chosen = large.select(&table, &zeros).unwrap();
    assert_eq!(
        chosen.to_host().unwrap(),
        array![[0_u8, 0], [0, 4], [5, 6]].into_dyn()
    );
    assert_eq!(
        table.argmax(0).unwrap().to_host().unwrap(),
        array![2_i64, 2].into_dyn()
    );
    let outside = context
        .copy_to_mesh(array![3_i64], &Layout::replicated(&mesh(), 1))
        .unwrap();
    let (index, axis, size) = (3.0, 0, 3);
    assert_eq!(
        table.gather(&outside, 0).unwrap_err(),
        Error::IndexOutside { index, axis, size }
    );
}

#[test]
fn tensors_of_different_contexts_do_not_meet() {
    let layout = Layout::replicated(&mesh(), 1);
    let one = context().zeros::<f32>(&[2], &layout).unwrap();
    let other = context().zeros::<f32>(&[2], &layout).unwrap();
    assert_eq!(one.add(&other).unwrap_err(), Error::OtherContext);
}

#[test]
fn a_long_sum_does_not_stand_still_at_a_large_element() {
    let mut numbers = vec![0.0_f32; 8192];
    numbers[0] = 16_777_216.0;
    numbers[4096..].fill(1.0);
    let whole = Array::from_vec(numbers);
    for layout in layouts(1) {
        let numbers = context().copy_to_mesh(whole.clone(), &layout).unwrap();
        let sum = numbers.sum_all().unwrap().to_host().unwrap();
        assert_eq!(sum, ndarray::arr0(16_781_312.0).into_dyn(), "{layout}");
    }
}

#[test]
fn the_negative_of_zero_has_the_other_sign_in_a_chain_too() {
    fn check<T: Float>() {
        let layout = Layout::replicated(&mesh(), 1);
        let zeros = array![0.0, -0.0].mapv(T::from_f64);
        let zeros = context().copy_to_mesh(zeros, &layout).unwrap();
        let chain = |x: &DTensor<T>| x.neg()?.scale(T::from_f64(1.0));
        let mut compiled = compile(|(): &mut (), x: &DTensor<T>| chain(x));
        let found = [
            zeros.neg(),
            chain(&zeros),
            compiled.call(&mut (), &zeros),
            compiled.call(&mut (), &zeros),
        ];
        for found in found {
            let found = found.unwrap().to_host().unwrap();
            let signs = found.mapv(|zero| zero.to_f64().is_sign_negative());
            assert_eq!(signs, array![true, false].into_dyn(), "{found:?}");
        }
    }
    check::<f32>();
    check::<f64>();
    check::<bf16>();
    check::<f16>();
    let whole = context().copy_to_mesh(array![0_i64, 7, i64::MIN], &Layout::replicated(&mesh(), 1));
    let negative = whole.unwrap().neg().unwrap().to_host().unwrap();
    assert_eq!(negative, array![0, -7, i64::MIN].into_dyn());
}
