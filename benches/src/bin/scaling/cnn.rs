//! The network of the MNIST example, in candle, with its optimizer.

use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Optimizer, SGD, VarBuilder, VarMap};
use meshwork_candle::{Error, MirroredVars};
use meshwork_candle_ops as ops;
use meshwork_strategy::MultiWorkerMirroredStrategy;

struct Network {
    first: Conv2d,
    second: Conv2d,
    hidden: Linear,
    output: Linear,
}

impl Network {
    fn new(vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let config = |padding, stride| Conv2dConfig {
            padding,
            stride,
            ..Conv2dConfig::default()
        };
        Ok(Self {
            first: candle_nn::conv2d(1, 8, 5, config(2, 2), vars.pp("conv1"))?,
            second: candle_nn::conv2d(8, 24, 3, config(1, 1), vars.pp("conv2"))?,
            hidden: candle_nn::linear(24 * 7 * 7, 48, vars.pp("hidden"))?,
            output: candle_nn::linear(48, 10, vars.pp("output"))?,
        })
    }

    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let halves = ops::silu(&ops::conv2d(&self.first, images)?)?;
        let keeps = ops::silu(&ops::conv2d(&self.second, &halves)?)?;
        let quarters = ops::avg_pool2d(&keeps, 2)?.flatten_from(1)?;
        let hidden = ops::silu(&ops::linear(&self.hidden, &quarters)?)?;
        ops::linear(&self.output, &hidden)
    }
}

pub(crate) fn train(
    strategy: &mut MultiWorkerMirroredStrategy,
    batch: usize,
    duration: Duration,
) -> Result<(usize, Duration, usize), Error> {
    let vars = VarMap::new();
    let network = Network::new(&VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
    let mut mirrored = MirroredVars::with_extra(strategy, &vars, 1)?;
    let mut optimizer = SGD::new(vars.all_vars(), 0.01)?;
    let images = Tensor::rand(0.0_f32, 1.0, (batch, 1, 28, 28), &Device::Cpu)?;
    let digits: Vec<u32> = (0..10).cycle().take(batch).collect();
    let labels = Tensor::from_vec(digits, batch, &Device::Cpu)?;
    let is_chief = strategy.is_chief();
    let weight = 1.0 / strategy.num_replicas_in_sync() as f32;
    let overlaps = strategy.options().bytes_per_bucket() > 0;
    let (steps, time) = crate::measured(duration, |goes_on| {
        strategy
            .run(|replica| {
                // Only the chief decides.
                mirrored.extra_mut()?[0] = if is_chief { goes_on } else { 0.0 };
                let gradients = if overlaps {
                    let network = Network::new(&mirrored.hooked()?)?;
                    let loss = ops::cross_entropy(&network.forward(&images)?, &labels)?;
                    mirrored.backward(replica, &loss, weight)?
                } else {
                    let loss = ops::cross_entropy(&network.forward(&images)?, &labels)?;
                    let mut gradients = loss.backward()?;
                    mirrored.all_reduce(replica, &mut gradients, weight)?;
                    gradients
                };
                optimizer.step(&gradients)?;
                Ok::<_, Error>(mirrored.extra()[0])
            })
            .map(meshwork_strategy::PerReplica::into_first)
    })?;
    Ok((steps, time, batch))
}
