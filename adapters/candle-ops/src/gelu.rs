//! The Gaussian error linear unit, `x · Φ(x)`.

use candle_core::{Result, Tensor};
use multiversion::multiversion;

use crate::elementwise::Elementwise;
use crate::exp::exp;
use crate::storage::is_ours;

/// `x · Φ(x)` of each element, Φ being the normal distribution, as [`Tensor::gelu_erf`], with a
/// gradient that candle's does not have.
///
/// # Errors
/// Those of candle.
pub fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    if !is_ours(x) {
        return x.gelu_erf();
    }
    GELU.apply(x)
}

const GELU: Elementwise = Elementwise {
    name: "gelu_erf",
    forward,
    backward,
};

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn forward(into: &mut [f32], x: &[f32]) {
    for (into, &x) in into.iter_mut().zip(x) {
        *into = x * normal(x, exp(-0.5 * x * x));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn backward(into: &mut [f32], x: &[f32], slopes: &[f32]) {
    for ((into, &x), &slope) in into.iter_mut().zip(x).zip(slopes) {
        let bell = exp(-0.5 * x * x);
        *into = slope * (normal(x, bell) + x * DENSITY * bell);
    }
}

/// The normal distribution at `x`, to within 1e-7, where `bell` is `e^(-x²/2)`: formula 7.1.26 of
/// Abramowitz and Stegun for the error function.
#[inline(always)]
fn normal(x: f32, bell: f32) -> f32 {
    let t = 1.0 / (1.0 + SCALE * x.abs());
    let tail = 0.5 * bell * SERIES.iter().fold(0.0, |sum, term| (sum + term) * t);
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// 0.3275911 / √2
const SCALE: f32 = 0.231_641_9;

/// From the highest power to the first.
const SERIES: [f32; 5] = [
    1.061_405_4,
    -1.453_152_1,
    1.421_413_8,
    -0.284_496_72,
    0.254_829_6,
];

/// 1 / √(2π)
const DENSITY: f32 = 0.398_942_3;
