//! The network, and what one worker computes with it.
//!
//! ```text
//! 1×28×28 ─ conv 5×5, stride 2 ─ 8×14×14 ─ conv 3×3 ─ 24×14×14 ─ mean of 2×2 ─ 24×7×7 ─ linear ─ 48 ─ linear ─ 10
//! ```
//!
//! All of it is smooth (SiLU, mean pooling): with kinks, as in ReLU and max pooling, two runs whose
//! sums differ in the last bit can part within a hundred steps, and a job with several workers
//! could not be compared with one worker's.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, VarBuilder, VarMap};
use meshwork_candle_ops as ops;

use crate::data::{Batch, ImageShape};
use crate::error::Error;
use crate::initial::seed_variables;

/// Rows and columns that images have at least.
pub(crate) const LEAST_SIDE: usize = 8;

/// The network; its variables live in the map it was made with.
#[derive(Debug)]
pub(crate) struct Model {
    layers: Layers,
}

impl Model {
    /// The network over new variables in `vars`, with initial values that depend on `seed` only.
    ///
    /// # Errors
    ///
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub(crate) fn seeded(images: ImageShape, vars: &VarMap, seed: u64) -> Result<Self, Error> {
        let builder = VarBuilder::from_varmap(vars, DType::F32, &Device::Cpu);
        let layers = Layers::new(images, &builder)?;
        seed_variables(vars, seed)?;
        Ok(Self { layers })
    }

    /// The same network over tensors that stand for its variables.
    pub(crate) fn over(images: ImageShape, vars: &VarBuilder<'_>) -> Result<Self, Error> {
        let layers = Layers::new(images, vars)?;
        Ok(Self { layers })
    }

    /// The mean loss of `batch`, which must not be empty.
    pub(crate) fn loss(&self, batch: Batch) -> Result<Tensor, Error> {
        let (images, labels) = tensors(batch)?;
        let scores = self.layers.forward(&images)?;
        Ok(ops::cross_entropy(&scores, &labels)?)
    }

    /// How many samples of `batch` get the highest score for their own digit.
    pub(crate) fn count_correct(&self, batch: Batch) -> Result<f64, Error> {
        let (images, labels) = tensors(batch)?;
        let guesses = self.layers.forward(&images)?.argmax(D::Minus1)?;
        let hits = guesses.eq(&labels)?.to_dtype(DType::F64)?;
        Ok(hits.sum_all()?.to_scalar()?)
    }
}

#[derive(Debug)]
struct Layers {
    first: Conv2d,
    second: Conv2d,
    hidden: Linear,
    output: Linear,
}

impl Layers {
    fn new(images: ImageShape, vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let quarter = |side: usize| side.div_ceil(2) / 2;
        let places = quarter(images.rows) * quarter(images.cols);
        let halving = Conv2dConfig {
            padding: 2,
            stride: 2,
            ..Conv2dConfig::default()
        };
        let keeping = Conv2dConfig {
            padding: 1,
            ..Conv2dConfig::default()
        };
        Ok(Self {
            first: candle_nn::conv2d(images.channels(), 8, 5, halving, vars.pp("conv1"))?,
            second: candle_nn::conv2d(8, 24, 3, keeping, vars.pp("conv2"))?,
            hidden: candle_nn::linear(24 * places, 48, vars.pp("hidden"))?,
            output: candle_nn::linear(48, 10, vars.pp("output"))?,
        })
    }

    /// Ten scores for each image.
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let halves = ops::silu(&ops::conv2d(&self.first, images)?)?;
        let keeps = ops::silu(&ops::conv2d(&self.second, &halves)?)?;
        let quarters = ops::avg_pool2d(&keeps, 2)?.flatten_from(1)?;
        let hidden = ops::silu(&ops::linear(&self.hidden, &quarters)?)?;
        ops::linear(&self.output, &hidden)
    }
}

fn tensors(batch: Batch) -> Result<(Tensor, Tensor), Error> {
    let count = batch.labels.len();
    let ImageShape { rows, cols, .. } = batch.shape;
    let shape = (count, batch.shape.channels(), rows, cols);
    let images = Tensor::from_vec(batch.pixels, shape, &Device::Cpu)?;
    let labels = Tensor::from_vec(batch.labels, count, &Device::Cpu)?;
    Ok((images, labels))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::{Dataset, Split};

    fn training_images() -> Dataset {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        Dataset::load(&folder, Split::Train).unwrap()
    }

    fn loss(seed: u64, indices: &[usize]) -> f32 {
        let images = training_images();
        let model = Model::seeded(images.shape(), &VarMap::new(), seed).unwrap();
        let loss = model.loss(images.gather(indices)).unwrap();
        loss.to_scalar().unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        assert_eq!(loss(1, &[1, 2, 3]).to_bits(), loss(1, &[1, 2, 3]).to_bits());
        assert_ne!(loss(1, &[1, 2, 3]), loss(2, &[1, 2, 3]));
    }

    #[test]
    fn an_untrained_network_guesses_about_evenly() {
        let batch: Vec<usize> = (0..64).collect();
        let loss = loss(1, &batch);
        assert!((loss - 10_f32.ln()).abs() < 0.5, "{loss}");
        let images = training_images();
        let model = Model::seeded(images.shape(), &VarMap::new(), 1).unwrap();
        assert!(model.count_correct(images.gather(&batch)).unwrap() < 32.0);
    }
}
