//! Ops of networks, alone and as a network: gradients are the slopes.

use meshwork_layout::ops::{
    Activation, AttentionMask, Convolution, Padding, Pool, Pooling, Turn, Windows,
};

use super::*;
use crate::ops::all;

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

/// Nothing that a nested tape records of a gradient without one is taken for a constant.
#[test]
fn second_gradients_that_are_not_known_are_refused_by_name() {
    let context = context();
    let matrix = Layout::replicated(&mesh(), 2);
    let ops: [(&str, Compute<'_>); 3] = [
        ("normalize_gradient", &|t| {
            let scale = t[0]
                .context()
                .full(&[4], &Layout::replicated(&mesh(), 1), 1.0)?;
            t[0].rms_norm(&scale, 1e-3)
        }),
        ("attention_gradient", &|t| {
            t[0].attention(&t[0], &t[0], AttentionMask::Full)
        }),
        ("zip_with", &|t| t[0].silu()),
    ];
    for (name, compute) in ops {
        let (outer, inner) = (Tape::new(), Tape::new());
        let x = outer.watch(&context.copy_to_mesh(numbers(&[3, 4]), &matrix).unwrap());
        let x = inner.watch(&x);
        let target = total(compute, std::slice::from_ref(&x)).unwrap();
        let [slope] = inner.gradient(&target, [&x]).unwrap();
        let refused = outer.gradient(&slope, [&x]).unwrap_err();
        assert!(
            matches!(refused, Error::NoDerivative { op, .. } if op == name),
            "{refused}"
        );
    }
}
