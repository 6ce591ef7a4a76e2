//! Normalisation of one batch, forward and backward: sums in `f64`, over the workers whose batches
//! count, and one pass over the values for each.

use std::sync::{Arc, OnceLock};

use candle_core::{CpuStorage, CustomOp3, Device, Layout, Shape, Storage, Tensor};

use super::statistics::{Batch, backward_len, forward_len};
use super::{BatchNorms, Inputs};

/// `weight · (x - mean) / deviation + bias` of each feature of a batch.
pub(super) struct Normalize {
    norms: BatchNorms,
    layer: Arc<str>,
    /// Known from the forward pass on.
    batch: OnceLock<Batch>,
}

impl Normalize {
    pub(super) fn new(norms: BatchNorms, layer: Arc<str>) -> Self {
        Self {
            norms,
            layer,
            batch: OnceLock::new(),
        }
    }
}

impl CustomOp3 for Normalize {
    fn name(&self) -> &'static str {
        "meshwork-batch-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let planes = Planes::of(x_layout.shape());
        let x = values(x, x_layout)?;
        let (weight, bias) = (values(weight, weight_layout)?, values(bias, bias_layout)?);
        let mut sums = vec![0.0; forward_len(planes.features)];
        for (feature, plane) in planes.each(x) {
            let [sum, squares] = sums_of(plane, plane);
            sums[feature] += sum;
            sums[planes.features + feature] += squares;
        }
        sums[2 * planes.features] = (x.len() / planes.features.max(1)) as f64;
        let batch = self.norms.statistics().observe(&self.layer, &mut sums)?;
        let mut into = Vec::with_capacity(x.len());
        for (feature, plane) in planes.each(x) {
            let (mean, bias) = (batch.mean[feature], bias[feature]);
            let scale = batch.scale[feature] * weight[feature];
            into.extend(plane.iter().map(|x| (x - mean) * scale + bias));
        }
        let set = self.batch.set(batch);
        set.expect("each operation has one forward pass");
        Ok((CpuStorage::F32(into), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        bias: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let batch = self.batch.get();
        let batch = batch.expect("a backward pass follows its forward pass");
        let planes = Planes::of(x.shape());
        let gradient = gradient.contiguous()?;
        let (x_storage, x_layout) = x.storage_and_layout();
        let (above, above_layout) = gradient.storage_and_layout();
        let (weights, weight_layout) = weight.storage_and_layout();
        let from = on_host(&x_storage, x_layout)?;
        let above = on_host(&above, above_layout)?;
        let weights = on_host(&weights, weight_layout)?;

        let features = planes.features;
        let mut sums = vec![0.0; backward_len(features)];
        for ((feature, plane), (_, x)) in planes.each(above).zip(planes.each(from)) {
            let [sum, products] = sums_of(plane, x);
            sums[feature] += sum;
            sums[features + feature] += products;
        }
        // Of gradients with normal values, not with those of x.
        for feature in 0..features {
            let (mean, scale) = (batch.mean[feature], batch.scale[feature]);
            let along = sums[features + feature] - f64::from(mean) * sums[feature];
            sums[features + feature] = along * f64::from(scale);
        }
        let [of_bias, of_weight] = tensors(&sums, [bias, weight])?;
        if batch.inputs == Inputs::Padding {
            sums.fill(0.0);
        }
        self.norms.statistics().add_up(&self.layer, &mut sums)?;
        if batch.inputs == Inputs::Padding {
            return Ok((Some(x.zeros_like()?), Some(of_weight), Some(of_bias)));
        }
        let mut into = Vec::with_capacity(from.len());
        for ((feature, plane), (_, x)) in planes.each(above).zip(planes.each(from)) {
            let (mean, scale) = (batch.mean[feature], batch.scale[feature]);
            let even = narrow(sums[feature] / batch.count);
            let along = narrow(sums[features + feature] / batch.count) * scale;
            let outer = scale * weights[feature];
            let values = plane.iter().zip(x);
            into.extend(values.map(|(above, x)| (above - even - (x - mean) * along) * outer));
        }
        let of_x = Tensor::from_vec(into, x.shape(), &Device::Cpu)?;
        Ok((Some(of_x), Some(of_weight), Some(of_bias)))
    }
}

/// The values of a batch: of each sample those of the first feature, of the second, and so on.
#[derive(Clone, Copy)]
struct Planes {
    features: usize,
    /// Values of a feature of a sample.
    area: usize,
}

impl Planes {
    /// Of a shape `[samples, features, …]`.
    fn of(shape: &Shape) -> Self {
        let dims = shape.dims();
        Self {
            features: dims[1],
            area: dims[2..].iter().product(),
        }
    }

    /// Each with its feature.
    fn each(self, values: &[f32]) -> impl Iterator<Item = (usize, &[f32])> {
        (0..self.features)
            .cycle()
            .zip(values.chunks_exact(self.area.max(1)))
    }
}

/// The sum of `values`, and that of their products with `others`.
fn sums_of(values: &[f32], others: &[f32]) -> [f64; 2] {
    let mut sums = [0.0; LANES];
    let mut products = [0.0; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    let (other_blocks, other_rest) = others.as_chunks::<LANES>();
    for (block, others) in blocks.iter().zip(other_blocks) {
        for lane in 0..LANES {
            let value = f64::from(block[lane]);
            sums[lane] += value;
            products[lane] += value * f64::from(others[lane]);
        }
    }
    for (value, other) in rest.iter().zip(other_rest) {
        sums[0] += f64::from(*value);
        products[0] += f64::from(*value) * f64::from(*other);
    }
    [sums.iter().sum(), products.iter().sum()]
}

/// The halves of `sums` as gradients of these.
fn tensors(sums: &[f64], of: [&Tensor; 2]) -> candle_core::Result<[Tensor; 2]> {
    let (first, second) = sums.split_at(sums.len() / 2);
    let tensor = |sums: &[f64], of: &Tensor| {
        let values = sums.iter().map(|sum| narrow(*sum)).collect();
        Tensor::from_vec(values, of.shape(), &Device::Cpu)
    };
    Ok([tensor(first, of[0])?, tensor(second, of[1])?])
}

fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    let offsets = layout.contiguous_offsets();
    let (start, end) = offsets.ok_or(candle_core::Error::RequiresContiguous { op: OP })?;
    Ok(&storage.as_slice::<f32>()?[start..end])
}

fn on_host<'a>(storage: &'a Storage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match storage {
        Storage::Cpu(storage) => values(storage, layout),
        Storage::Cuda(_) | Storage::Metal(_) => {
            Err(candle_core::Error::RequiresContiguous { op: OP })
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "gradients are of the precision of variables"
)]
fn narrow(value: f64) -> f32 {
    value as f32
}

const OP: &str = "meshwork-batch-norm";

/// Sums that are made side by side.
const LANES: usize = 8;
