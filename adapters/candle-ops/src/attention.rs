//! Causal attention of all heads in one operation. Scores of one head at a time fit into the
//! fastest cache; the backward pass computes them again in place of keeping them.

use candle_core::{CpuStorage, CustomOp1, D, DType, Device, Layout, Result, Shape, Tensor};
use multiversion::multiversion;
use rayon::prelude::*;

use crate::Error;
use crate::spread;
use crate::storage::{is_ours, read, values};
use crate::vector::{accumulate, dot, each_beside, softmax};

/// Attention of `heads` heads in which each place of a sequence looks at those up to itself.
///
/// # Shapes
/// `[batch, places, 3 · width]`, queries, keys and values side by side, each the heads one beside
/// the other; the result is `[batch, places, width]`.
///
/// # Errors
/// [`Error::Heads`], and those of candle.
pub fn causal_attention(projected: &Tensor, heads: usize) -> Result<Tensor> {
    let (_, places, columns) = projected.dims3()?;
    let parts = heads.checked_mul(3);
    if parts.is_none_or(|parts| parts == 0 || !columns.is_multiple_of(parts)) {
        return Err(Error::Heads { columns, heads }.into());
    }
    let size = columns / 3 / heads;
    let op = Attention {
        heads,
        size,
        places,
    };
    match is_ours(projected) {
        true => projected.contiguous()?.apply_op1(op),
        false => op.composed(projected),
    }
}

#[derive(Clone, Copy)]
struct Attention {
    heads: usize,
    /// Of one head.
    size: usize,
    places: usize,
}

impl CustomOp1 for Attention {
    fn name(&self) -> &'static str {
        "causal_attention"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (batch, places, columns) = layout.shape().dims3()?;
        let shape = Shape::from((batch, places, columns / 3));
        let mut into = vec![0.0; shape.elem_count()];
        let sequences = values(storage, layout)?.par_chunks(self.step(3));
        let sequences = into.par_chunks_mut(self.step(1)).zip(sequences);
        spread::each_with(
            sequences,
            || Head::new(*self),
            |head, (into, rows)| forward(*self, head, into, rows),
        );
        Ok((CpuStorage::F32(into), shape))
    }

    fn bwd(&self, projected: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let mut into = vec![0.0; projected.elem_count()];
        let (from, above) = (read(projected), read(&gradient));
        let sequences = from.values()?.par_chunks(self.step(3));
        let sequences = sequences.zip(above.values()?.par_chunks(self.step(1)));
        let sequences = into.par_chunks_mut(self.step(3)).zip(sequences);
        spread::each_with(
            sequences,
            || Head::new(*self),
            |head, (into, (rows, above))| backward(*self, head, into, rows, above),
        );
        Ok(Some(Tensor::from_vec(
            into,
            projected.shape(),
            &Device::Cpu,
        )?))
    }
}

impl Attention {
    fn width(self) -> usize {
        self.heads * self.size
    }

    /// Elements of a sequence of so many widths.
    fn step(self, widths: usize) -> usize {
        (self.places * widths * self.width()).max(1)
    }

    /// The same of candle's operations.
    fn composed(self, projected: &Tensor) -> Result<Tensor> {
        let batch = projected.dim(0)?;
        let split = projected.reshape((batch, self.places, 3, self.heads, self.size))?;
        let split = split.permute((2, 0, 3, 1, 4))?.contiguous()?;
        let (query, key, value) = (split.get(0)?, split.get(1)?, split.get(2)?);
        let scores = query.matmul(&key.transpose(2, 3)?.contiguous()?)?;
        let scores = (scores / f64::from(self.size as f32).sqrt())?;
        let seen = Tensor::tril2(self.places, DType::U8, projected.device())?;
        let seen = seen.broadcast_as(scores.shape())?;
        let never = Tensor::full(f32::NEG_INFINITY, scores.shape(), projected.device())?;
        let scores = seen.where_cond(&scores, &never.to_dtype(scores.dtype())?)?;
        let weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
        let looked = weights.matmul(&value)?.transpose(1, 2)?;
        looked.reshape((batch, self.places, self.width()))
    }

    /// Keeps the variance of scores at 1.
    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// How many scores of the place `at` are computed: a multiple of a vector's elements.
    fn reach(self, at: usize) -> usize {
        (at + 1).next_multiple_of(16).min(self.places)
    }
}

/// One head of one sequence, its places one below the other.
struct Head {
    query: Vec<f32>,
    key: Vec<f32>,
    /// Its rows are columns of `key`.
    key_columns: Vec<f32>,
    value: Vec<f32>,
    value_columns: Vec<f32>,
    /// The gradient of the result.
    above: Vec<f32>,
    /// The row of one place: attention weights, and their gradient.
    weights: Vec<f32>,
    slopes: Vec<f32>,
    /// All weights and gradients of scores, a row for each place that is looked at.
    weight_columns: Vec<f32>,
    slope_columns: Vec<f32>,
}

impl Head {
    fn new(of: Attention) -> Self {
        let places = || vec![0.0; of.places];
        let block = || vec![0.0; of.places * of.size];
        let square = || vec![0.0; of.places * of.places];
        Self {
            query: block(),
            key: block(),
            key_columns: block(),
            value: block(),
            value_columns: block(),
            above: block(),
            weights: places(),
            slopes: places(),
            weight_columns: square(),
            slope_columns: square(),
        }
    }

    /// Takes over the head `head` of the sequence `rows`; queries are scaled.
    #[inline(always)]
    fn load(&mut self, of: Attention, rows: &[f32], head: usize) {
        let (size, width) = (of.size, of.width());
        let scale = of.scale();
        for (at, row) in rows.chunks_exact(3 * width).enumerate() {
            let part = |index: usize| &row[index * width + head * size..][..size];
            let into = at * size..(at + 1) * size;
            for (into, value) in self.query[into.clone()].iter_mut().zip(part(0)) {
                *into = value * scale;
            }
            self.key[into.clone()].copy_from_slice(part(1));
            self.value[into].copy_from_slice(part(2));
            for (column, (key, value)) in part(1).iter().zip(part(2)).enumerate() {
                self.key_columns[column * of.places + at] = *key;
                self.value_columns[column * of.places + at] = *value;
            }
        }
    }

    /// How much the place `at` looks at each up to itself, and 0 behind.
    #[inline(always)]
    fn weigh(&mut self, of: Attention, at: usize) {
        let row = &mut self.weights[..of.reach(at)];
        row.fill(0.0);
        let query = &self.query[at * of.size..][..of.size];
        accumulate(row, query, &self.key_columns, of.places);
        // Whole vectors: what stands behind counts for nothing beside the highest score's 1.
        row[at + 1..].fill(f32::NEG_INFINITY);
        softmax(row);
        row[at + 1..].fill(0.0);
    }

    /// The gradients of the scores of the place `at`.
    #[inline(always)]
    fn differentiate(&mut self, of: Attention, at: usize) {
        let reach = of.reach(at);
        let (weights, slopes) = (&self.weights[..reach], &mut self.slopes[..reach]);
        slopes.fill(0.0);
        let above = &self.above[at * of.size..][..of.size];
        accumulate(slopes, above, &self.value_columns, of.places);
        let mean = dot(weights, slopes);
        each_beside(slopes, weights, |slope, weight| weight * (slope - mean));
        for seen in 0..=at {
            self.weight_columns[seen * of.places + at] = self.weights[seen];
            self.slope_columns[seen * of.places + at] = self.slopes[seen];
        }
    }

    /// Writes the gradients of one place's query, key and value, once those of all scores are
    /// there but for the query's, which needs the place's own row.
    #[inline(always)]
    fn write_seen(&self, of: Attention, into: &mut [f32], at: usize) {
        let (size, width) = (of.size, of.width());
        let looking = at * of.places + at..(at + 1) * of.places;
        let slopes = &self.slope_columns[looking.clone()];
        accumulate(
            &mut into[width..][..size],
            slopes,
            &self.query[at * size..],
            size,
        );
        let weights = &self.weight_columns[looking];
        accumulate(
            &mut into[2 * width..][..size],
            weights,
            &self.above[at * size..],
            size,
        );
    }
}

/// One sequence.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn forward(of: Attention, head: &mut Head, into: &mut [f32], rows: &[f32]) {
    let (size, width) = (of.size, of.width());
    for index in 0..of.heads {
        head.load(of, rows, index);
        for (at, into) in into.chunks_exact_mut(width).enumerate() {
            head.weigh(of, at);
            let into = &mut into[index * size..][..size];
            accumulate(into, &head.weights[..=at], &head.value, size);
        }
    }
}

/// The gradient of one sequence, where `above` is that of its result.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn backward(of: Attention, head: &mut Head, into: &mut [f32], rows: &[f32], above: &[f32]) {
    let (size, width, scale) = (of.size, of.width(), of.scale());
    for index in 0..of.heads {
        head.load(of, rows, index);
        for (at, above) in above.chunks_exact(width).enumerate() {
            head.above[at * size..][..size].copy_from_slice(&above[index * size..][..size]);
        }
        for (at, into) in into.chunks_exact_mut(3 * width).enumerate() {
            head.weigh(of, at);
            head.differentiate(of, at);
            let into = &mut into[index * size..][..size];
            accumulate(into, &head.slopes[..=at], &head.key, size);
            into.iter_mut().for_each(|slope| *slope *= scale);
        }
        for (at, into) in into.chunks_exact_mut(3 * width).enumerate() {
            head.write_seen(of, &mut into[index * size..], at);
        }
    }
}
