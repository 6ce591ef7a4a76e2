//! `x / (1 + e^-x)`.

use candle_core::{Result, Tensor};
use multiversion::multiversion;

use crate::elementwise::Elementwise;
use crate::exp::exp;
use crate::storage::is_ours;

/// `x · sigmoid(x)` of each element, as [`candle_nn::ops::silu`].
///
/// # Errors
/// Those of candle.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    if !is_ours(x) {
        return x.silu();
    }
    SILU.apply(x)
}

const SILU: Elementwise = Elementwise {
    name: "silu",
    forward,
    backward,
};

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn forward(into: &mut [f32], x: &[f32]) {
    for (into, &x) in into.iter_mut().zip(x) {
        *into = x / (1.0 + exp(-x));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn backward(into: &mut [f32], x: &[f32], slopes: &[f32]) {
    for ((into, &x), &slope) in into.iter_mut().zip(x).zip(slopes) {
        let sigmoid = 1.0 / (1.0 + exp(-x));
        *into = slope * sigmoid * (1.0 + x * (1.0 - sigmoid));
    }
}
