//! Ops of networks, alone and as a network: gradients are the slopes.

use meshwork_layout::ops::{
    Activation, AttentionMask, Convolution, Normalization, Padding, Pool, Pooling, Turn, Windows,
};

use super::*;
use crate::ops::all;
use crate::{DVariable, Sgd, compile, f16};

fn three() -> Windows {
    Windows::strides([1, 1]).padded(Padding::Same)
}

#[test]
fn gradients_of_convolutions_and_pools_are_the_slopes() {
    let images = [2, 4, 3, 2];
    check(&[&images, &[3, 2, 2, 3]], &|t| {
        t[0].convolution(&t[1], &Convolution::new(three()))
    });
    for pooling in [Pooling::Max, Pooling::Mean] {
        let pool = Pool::new(pooling, [2, 2]);
        check(&[&images], &|t| t[0].pool(&pool));
    }
}

#[test]
fn gradients_of_normalizations_and_activations_are_the_slopes() {
    check(&[&[3, 4], &[4], &[4]], &|t| {
        t[0].layer_norm(&t[1], &t[2], 1e-3)
    });
    check(&[&[3, 4], &[4]], &|t| t[0].rms_norm(&t[1], 1e-3));
    for activation in [Activation::Gelu, Activation::Silu, Activation::Tanh] {
        check(&[&[3, 3]], &|t| t[0].scale(0.25)?.activation(activation));
    }
}

#[test]
fn a_recorded_gradient_of_gelu_is_there_where_squares_of_short_floats_are_not() {
    let layout = layouts(1).remove(1);
    let values = array![300.0_f32, -300.0, 0.0].mapv(f16::from_f32);
    let x = context().copy_to_mesh(values, &layout).unwrap();
    // What watches it makes the gradient of ops that are known.
    let tape = Tape::new();
    let x = tape.watch(&x);
    let upstream = x.zeros_like().unwrap().add_scalar(f16::ONE).unwrap();
    let slopes = x.activation_gradient(&upstream, Activation::GeluTanh);
    let slopes = slopes.unwrap().to_host().unwrap().mapv(f16::to_f32);
    assert_eq!([slopes[[0]], slopes[[1]], slopes[[2]]], [1.0, 0.0, 0.5]);
}

#[test]
fn gradients_of_attention_and_embeddings_are_the_slopes() {
    for mask in [AttentionMask::Full, AttentionMask::Causal] {
        check(&[&[3, 4], &[5, 4], &[5, 2]], &|t| {
            t[0].scale(0.1)?.attention(&t[1].scale(0.1)?, &t[2], mask)
        });
    }
    check(&[&[3, 4]], &|t| t[0].rotary(100.0, Turn::Forward));
    check(&[&[3, 4]], &|t| {
        let layout = Layout::replicated(&mesh(), 1);
        let rows = array![2_i64, 0, 2];
        t[0].embedding(&t[0].context().copy_to_mesh(rows, &layout)?)
    });
}

/// Floats of 16 bits do not have the numbers of all rows.
#[test]
fn gradients_of_rows_go_to_them_in_short_floats_too() {
    let [words, rows] = [1, 2].map(|rank| Layout::replicated(&mesh(), rank));
    let table = context().full(&[300, 1], &rows, bf16::ONE).unwrap();
    let words = table.context().copy_to_mesh(array![257_i64], &words);
    let tape = Tape::new();
    let table = tape.watch(&table);
    let found = table.embedding(&words.unwrap()).unwrap();
    let [slopes] = tape.gradient(&found.sum_all().unwrap(), [&table]).unwrap();
    let slopes = slopes.to_host().unwrap().mapv(bf16::to_f32);
    assert_eq!([slopes[[256, 0]], slopes[[257, 0]]], [0.0, 1.0]);
}

#[test]
fn a_network_is_differentiated_from_end_to_end() {
    let pool = Pool::new(Pooling::Max, [2, 2]);
    check(&[&[2, 4, 4, 1], &[3, 3, 1, 2]], &|t| {
        let hidden = t[0].convolution(&t[1], &Convolution::new(three()))?;
        let hidden = hidden.scale(0.1)?.silu()?.pool(&pool)?;
        let layout = Layout::replicated(&mesh(), 2);
        let last = t[0].context().copy_to_mesh(numbers(&[8, 3]), &layout)?;
        hidden
            .reshape(&all(&[2, 8]))?
            .matmul(&last)?
            .log_softmax(-1)
    });
}

/// A gradient of a gradient of each, where a nested tape records the first.
#[test]
fn second_gradients_are_the_slopes_of_the_first_or_refused_by_name() {
    let ops: [Compute<'_>; 5] = [
        &|t| t[0].normalize(&Normalization::new([-1], 1e-2)),
        &|t| {
            let small = t[0].scale(0.1)?;
            small.attention(&small, &t[0], AttentionMask::Causal)
        },
        &|t| t[0].silu(),
        &|t| t[0].rotary(100.0, Turn::Forward),
        &|t| {
            let images = t[0].reshape(&all(&[1, 3, 4, 1]))?;
            images.pool(&Pool::new(Pooling::Mean, [2, 2]))
        },
    ];
    for compute in ops {
        let first = |t: &[DTensor<f64>]| {
            let inner = Tape::new();
            let x = inner.watch(&t[0]);
            let [slope] = inner.gradient(&total(compute, std::slice::from_ref(&x))?, [&x])?;
            Ok(slope)
        };
        check(&[&[3, 4]], &first);
    }
    let (outer, inner) = (Tape::new(), Tape::new());
    let matrix = Layout::replicated(&mesh(), 2);
    let x = outer.watch(&context().copy_to_mesh(numbers(&[3, 4]), &matrix).unwrap());
    let x = inner.watch(&x);
    let target = total(&|t| t[0].gelu(), std::slice::from_ref(&x)).unwrap();
    let [slope] = inner.gradient(&target, [&x]).unwrap();
    let refused = outer.gradient(&slope, [&x]).unwrap_err();
    assert!(
        matches!(refused, Error::NoDerivative { op: "zip_with", .. }),
        "{refused}"
    );
}

/// With its gradients and its update: what each op does is known to programs.
#[test]
fn a_transformer_block_is_compiled_whole_and_learns_as_op_by_op() {
    let context = context();
    let rows = Layout::from_names(["x", "unsharded"], &mesh()).unwrap();
    let whole = Layout::replicated(&mesh(), 2);
    let input = context.copy_to_mesh(numbers(&[4, 4]), &rows).unwrap();
    let places = Layout::replicated(&mesh(), 1);
    let places = context
        .copy_to_mesh(array![1_i64, 0, 4, 1], &places)
        .unwrap();
    let step = |weights: &mut DVariable<f64>, input: &DTensor<f64>| {
        let tape = Tape::new();
        let w = tape.watch(weights.value());
        let hidden = input.add(&w.embedding(&places)?)?;
        let hidden = hidden.normalize(&Normalization::new([-1], 1e-3))?;
        let seen = hidden.attention(&hidden, &hidden, AttentionMask::Causal)?;
        let active = seen.activation(Activation::GeluTanh)?;
        let loss = active.mul(&seen)?.mean_all()?;
        let [slope] = tape.gradient(&loss, [&w])?;
        Sgd::new(0.5).step([(weights, &slope)])?;
        Ok::<_, Error>(loss)
    };
    let table = || DVariable::new(context.copy_to_mesh(numbers(&[5, 4]), &whole).unwrap());
    let (mut by_ops, mut compiled) = (table(), table());
    let mut program = compile(step);
    let mut losses = Vec::new();
    for _ in 0..3 {
        let expected = value(&step(&mut by_ops, &input).unwrap());
        let found = value(&program.call(&mut compiled, &input).unwrap());
        assert!(
            (found - expected).abs() < 1e-12,
            "{found} instead of {expected}"
        );
        losses.push(found);
    }
    assert_eq!(program.traces(), 1);
    assert!(losses[2] < losses[0], "{losses:?}");
}
