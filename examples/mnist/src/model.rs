//! The network, and what one worker computes with it.
//!
//! ```text
//! 1×28×28 ─ conv 5×5, stride 2 ─ 8×14×14 ─ conv 3×3 ─ 24×14×14 ─ mean of 2×2 ─ 24×7×7 ─ linear ─ 48 ─ linear ─ 10
//! ```
//!
//! All of it is smooth (SiLU, mean pooling): with kinks, as in ReLU and max pooling, two runs whose sums differ in the last
//! bit can part within a hundred steps, and a job with several workers could not be compared with one worker's.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, VarBuilder, VarMap, loss};

use crate::data::Batch;
use crate::error::Error;
use crate::variables::Variables;

/// Rows and columns of the images that the network takes.
pub(crate) const SIDE: usize = 28;

/// The network with its variables.
#[derive(Debug)]
pub(crate) struct Model {
    layers: Layers,
    variables: Variables,
}

/// What one worker adds to a step: gradients and loss, ready to be summed with those of the others.
#[derive(Debug)]
pub(crate) struct Contribution {
    /// The gradient of each element of the variables, then the loss: one buffer, so one exchange.
    values: Vec<f32>,
}

impl Model {
    /// The network with initial variables that depend on `seed` only.
    ///
    /// # Errors
    ///
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub(crate) fn seeded(seed: u64) -> Result<Self, Error> {
        let map = VarMap::new();
        let layers = Layers::new(&VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu))?;
        let variables = Variables::seeded(&map, seed)?;
        Ok(Self { layers, variables })
    }

    /// The variables that training changes.
    pub(crate) fn variables(&self) -> &Variables {
        &self.variables
    }

    /// Puts the mean loss of `batch` and its gradients, times `weight`, into `out`; zeros if there are no samples.
    ///
    /// With each worker's part of the global batch as weight, the sum over workers is the mean over the global batch.
    pub(crate) fn contribute(
        &self,
        batch: Batch,
        weight: f64,
        out: &mut Contribution,
    ) -> Result<(), Error> {
        if batch.labels.is_empty() {
            out.values.fill(0.0);
            return Ok(());
        }
        let (images, labels) = tensors(batch)?;
        let mean = loss::cross_entropy(&self.layers.forward(&images)?, &labels)?;
        let weighted = (mean * weight)?;
        let (loss, gradients) = out.split_mut();
        *loss = weighted.to_scalar()?;
        self.variables.gradients(&weighted.backward()?, gradients)
    }

    /// How many samples of `batch` get the highest score for their own digit.
    pub(crate) fn count_correct(&self, batch: Batch) -> Result<usize, Error> {
        let (images, labels) = tensors(batch)?;
        let guesses = self.layers.forward(&images)?.argmax(D::Minus1)?;
        let hits = guesses
            .eq(&labels)?
            .to_dtype(DType::U32)?
            .to_vec1::<u32>()?;
        Ok(hits.into_iter().filter(|&hit| hit == 1).count())
    }
}

impl Contribution {
    /// Room for the gradients of these variables, all zero.
    pub(crate) fn zeros(variables: &Variables) -> Self {
        Self {
            values: vec![0.0; variables.element_count() + 1],
        }
    }

    /// Everything that has to be summed over workers.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// The loss, and the gradients in the order of the elements.
    pub(crate) fn split(&self) -> (f32, &[f32]) {
        let (&loss, gradients) = self
            .values
            .split_last()
            .expect("made with room for the loss");
        (loss, gradients)
    }

    fn split_mut(&mut self) -> (&mut f32, &mut [f32]) {
        self.values
            .split_last_mut()
            .expect("made with room for the loss")
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
    fn new(vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
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
            first: candle_nn::conv2d(1, 8, 5, halving, vars.pp("conv1"))?,
            second: candle_nn::conv2d(8, 24, 3, keeping, vars.pp("conv2"))?,
            hidden: candle_nn::linear(24 * (SIDE / 4) * (SIDE / 4), 48, vars.pp("hidden"))?,
            output: candle_nn::linear(48, 10, vars.pp("output"))?,
        })
    }

    /// Ten scores for each image.
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let halves = self.first.forward(images)?.silu()?;
        let quarters = self.second.forward(&halves)?.silu()?.avg_pool2d(2)?;
        let hidden = self.hidden.forward(&quarters.flatten_from(1)?)?.silu()?;
        self.output.forward(&hidden)
    }
}

fn tensors(batch: Batch) -> Result<(Tensor, Tensor), Error> {
    let count = batch.labels.len();
    let images = Tensor::from_vec(batch.pixels, (count, 1, SIDE, SIDE), &Device::Cpu)?;
    let labels = Tensor::from_vec(batch.labels, count, &Device::Cpu)?;
    Ok((images, labels))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::{Dataset, Split};
    use crate::shard;

    fn training_images() -> Dataset {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        Dataset::load(&folder, Split::Train).unwrap()
    }

    fn contribution(model: &Model, batch: Batch, weight: f64) -> Vec<f32> {
        let mut out = Contribution::zeros(model.variables());
        model.contribute(batch, weight, &mut out).unwrap();
        out.values
    }

    #[test]
    fn contributions_of_all_parts_add_up_to_that_of_the_whole_batch() {
        let (data, model) = (training_images(), Model::seeded(3).unwrap());
        let batch: Vec<usize> = (0..30).collect();
        let whole = contribution(&model, data.gather(&batch), 1.0);
        let largest = whole.iter().fold(0f32, |max, value| max.max(value.abs()));
        for workers in [2, 4, 31] {
            let mut sum = vec![0.0; whole.len()];
            for rank in 0..workers {
                let part = &batch[shard::share(batch.len(), rank, workers)];
                let weight = part.len() as f64 / batch.len() as f64;
                let values = contribution(&model, data.gather(part), weight);
                sum.iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += value);
            }
            let worst = whole
                .iter()
                .zip(&sum)
                .fold(0f32, |max, (a, b)| max.max((a - b).abs()));
            assert!(
                worst <= 1e-6 * largest,
                "{workers} workers: off by {worst} of {largest}"
            );
        }
    }

    #[test]
    fn a_worker_without_samples_adds_zeros() {
        let (data, model) = (training_images(), Model::seeded(3).unwrap());
        let mut out = Contribution::zeros(model.variables());
        model.contribute(data.gather(&[0]), 1.0, &mut out).unwrap();
        assert!(out.split().0 > 0.0);
        model.contribute(data.gather(&[]), 0.0, &mut out).unwrap();
        assert!(out.values.iter().all(|&value| value == 0.0));
    }

    #[test]
    fn the_same_seed_gives_the_same_bits() {
        let data = training_images();
        let run = |seed| contribution(&Model::seeded(seed).unwrap(), data.gather(&[1, 2, 3]), 1.0);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn an_untrained_network_guesses_about_evenly() {
        let (data, model) = (training_images(), Model::seeded(1).unwrap());
        let batch: Vec<usize> = (0..64).collect();
        let loss = contribution(&model, data.gather(&batch), 1.0)
            .pop()
            .unwrap();
        assert!((loss - 10f32.ln()).abs() < 0.5, "{loss}");
        assert!(model.count_correct(data.gather(&batch)).unwrap() < 32);
    }
}
