//! Layer normalisation.

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::Error;
use crate::spread;
use crate::storage::{is_ours, read, values};
use crate::vector::{dot, fold};

/// Each row of `x` with mean 0 and variance 1, times `weight`, plus `bias`, as
/// [`candle_nn::ops::layer_norm`]. `epsilon` is added to the variance.
///
/// # Shapes
/// `x` of any rank from 1, its last size that of `weight` and `bias`, which have one axis.
///
/// # Errors
/// [`Error::Norm`], and those of candle.
pub fn layer_norm(x: &Tensor, weight: &Tensor, bias: &Tensor, epsilon: f32) -> Result<Tensor> {
    if ![x, weight, bias].into_iter().all(is_ours) {
        // candle's operation of one pass has no gradient.
        return candle_nn::ops::layer_norm_slow(x, weight, bias, epsilon);
    }
    let size = x.dims().last().copied();
    if size.is_none_or(|size| weight.dims() != [size] || bias.dims() != [size]) {
        return Err(Error::Norm {
            inputs: x.dims().to_vec(),
            weight: weight.dims().to_vec(),
            bias: bias.dims().to_vec(),
        }
        .into());
    }
    let (weight, bias) = (weight.contiguous()?, bias.contiguous()?);
    x.contiguous()?
        .apply_op3(&weight, &bias, LayerNorm { epsilon })
}

struct LayerNorm {
    epsilon: f32,
}

impl CustomOp3 for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let x = values(x, x_layout)?;
        let (weight, bias) = (values(weight, weight_layout)?, values(bias, bias_layout)?);
        let mut into = vec![0.0; x.len()];
        let part = ROWS * weight.len().max(1);
        let parts = into.par_chunks_mut(part).zip(x.par_chunks(part));
        spread::each(parts, |(into, x)| {
            forward(self.epsilon, into, x, weight, bias);
        });
        Ok((CpuStorage::F32(into), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let size = weight.elem_count();
        let (from, weights, above) = (read(x), read(weight), read(&gradient));
        let (from, weights, above) = (from.values()?, weights.values()?, above.values()?);
        let part = ROWS * size.max(1);
        let mut of_x = vec![0.0; from.len()];
        let parts = of_x.par_chunks_mut(part).zip(from.par_chunks(part));
        let parts = parts.zip(above.par_chunks(part));
        let sums = spread::collect(parts, |((into, x), above)| {
            let mut sums = Sums::new(size);
            backward(self.epsilon, into, &mut sums, Rows { x, above }, weights);
            sums
        });
        // In their order, so that the result does not depend on the number of threads.
        let sums = sums.iter().fold(Sums::new(size), Sums::plus);
        let tensor = |values, like: &Tensor| Tensor::from_vec(values, like.shape(), &Device::Cpu);
        Ok((
            Some(tensor(of_x, x)?),
            Some(tensor(sums.weight, weight)?),
            Some(tensor(sums.bias, bias)?),
        ))
    }
}

/// The gradients of weight and bias, of some rows.
struct Sums {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Sums {
    fn new(size: usize) -> Self {
        Self {
            weight: vec![0.0; size],
            bias: vec![0.0; size],
        }
    }

    fn plus(mut self, more: &Self) -> Self {
        for (sum, more) in self.weight.iter_mut().zip(&more.weight) {
            *sum += more;
        }
        for (sum, more) in self.bias.iter_mut().zip(&more.bias) {
            *sum += more;
        }
        self
    }
}

/// Some rows of the input, and of the gradient of the result.
#[derive(Clone, Copy)]
struct Rows<'a> {
    x: &'a [f32],
    above: &'a [f32],
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn forward(epsilon: f32, into: &mut [f32], x: &[f32], weight: &[f32], bias: &[f32]) {
    let size = weight.len().max(1);
    for (into, row) in into.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
        let scale = centre(epsilon, into, row);
        for ((value, weight), bias) in into.iter_mut().zip(weight).zip(bias) {
            *value = *value * scale * weight + bias;
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn backward(epsilon: f32, into: &mut [f32], sums: &mut Sums, of: Rows<'_>, weight: &[f32]) {
    let size = weight.len().max(1);
    let (mut unit, mut scaled) = (vec![0.0; size], vec![0.0; size]);
    let rows = of.x.chunks_exact(size).zip(of.above.chunks_exact(size));
    for (into, (row, above)) in into.chunks_exact_mut(size).zip(rows) {
        let scale = centre(epsilon, &mut unit, row);
        unit.iter_mut().for_each(|value| *value *= scale);
        for ((sum, above), unit) in sums.weight.iter_mut().zip(above).zip(&unit) {
            *sum += above * unit;
        }
        for (sum, above) in sums.bias.iter_mut().zip(above) {
            *sum += above;
        }
        for ((scaled, above), weight) in scaled.iter_mut().zip(above).zip(weight) {
            *scaled = above * weight;
        }
        let mean = fold(&scaled, 0.0, |a, b| a + b) / size as f32;
        let along = dot(&scaled, &unit) / size as f32;
        for ((into, scaled), unit) in into.iter_mut().zip(&scaled).zip(&unit) {
            *into = scale * (scaled - mean - unit * along);
        }
    }
}

/// Writes `row` less its mean, and returns what makes its variance 1.
#[inline(always)]
fn centre(epsilon: f32, into: &mut [f32], row: &[f32]) -> f32 {
    let mean = fold(row, 0.0, |a, b| a + b) / row.len() as f32;
    for (into, value) in into.iter_mut().zip(row) {
        *into = value - mean;
    }
    let variance = dot(into, into) / row.len() as f32;
    1.0 / (variance + epsilon).sqrt()
}

/// Rows that one thread takes at a time.
const ROWS: usize = 64;
