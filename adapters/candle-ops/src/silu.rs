//! `x / (1 + e^-x)`.

use candle_core::{CpuStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::exp::exp;
use crate::storage::{is_ours, read, values};

/// `x · sigmoid(x)` of each element, as [`candle_nn::ops::silu`].
///
/// # Errors
/// Those of candle.
pub fn silu(x: &Tensor) -> Result<Tensor> {
    if !is_ours(x) {
        return x.silu();
    }
    x.contiguous()?.apply_op1(Silu)
}

struct Silu;

impl CustomOp1 for Silu {
    fn name(&self) -> &'static str {
        "silu"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let x = values(storage, layout)?;
        let mut into = vec![0.0; x.len()];
        let parts = into.par_chunks_mut(PART).zip(x.par_chunks(PART));
        parts.for_each(|(into, x)| forward(into, x));
        Ok((CpuStorage::F32(into), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (from, slopes) = (read(x), read(&gradient));
        let (from, slopes) = (from.values()?, slopes.values()?);
        let mut into = vec![0.0; from.len()];
        let parts = into.par_chunks_mut(PART).zip(from.par_chunks(PART));
        let parts = parts.zip(slopes.par_chunks(PART));
        parts.for_each(|((into, x), slopes)| backward(into, x, slopes));
        Ok(Some(Tensor::from_vec(into, x.shape(), &Device::Cpu)?))
    }
}

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

/// Elements that one thread takes at a time.
const PART: usize = 16 << 10;
