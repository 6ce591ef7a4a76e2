//! Dense layers in burn, with its optimizer.

use std::time::Duration;

use burn_core::module::{Module, Param};
use burn_core::tensor::{Device, Int, Tensor, TensorData, activation};
use burn_core::{self as burn};
use burn_optim::{GradientsParams, SgdConfig};
use meshwork_burn::{Error, MirroredParams};
use meshwork_strategy::{MultiWorkerMirroredStrategy, PerReplica};

use crate::mlp::noise;

#[derive(Module, Debug)]
struct Network {
    layers: Vec<Layer>,
}

#[derive(Module, Debug)]
struct Layer {
    /// `[inputs, outputs]`
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Network {
    fn new(sizes: &[usize], device: &Device) -> Self {
        let layer = |pair: &[usize]| {
            let (inputs, outputs) = (pair[0], pair[1]);
            let scale = (3.0 / inputs as f32).sqrt();
            let weight = (0..inputs * outputs).map(|at| scale * noise(at));
            let weight = TensorData::new(weight.collect(), [inputs, outputs]);
            let bias = TensorData::new(vec![0.0_f32; outputs], [outputs]);
            Layer {
                weight: Param::from_data(weight, device),
                bias: Param::from_data(bias, device),
            }
        };
        Self {
            layers: sizes.windows(2).map(layer).collect(),
        }
    }

    /// With a ReLU behind all layers but the last.
    fn forward(&self, inputs: Tensor<2>) -> Tensor<2> {
        let mut outputs = inputs;
        for (number, layer) in self.layers.iter().enumerate() {
            outputs = outputs.matmul(layer.weight.val()) + layer.bias.val().unsqueeze();
            if number + 1 < self.layers.len() {
                outputs = activation::relu(outputs);
            }
        }
        outputs
    }
}

pub(crate) fn train(
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
    batch: usize,
    duration: Duration,
) -> Result<(usize, Duration, usize), Error> {
    let device = Device::flex().autodiff();
    let mirrored = MirroredParams::with_extra(strategy, Network::new(sizes, &device), 1)?;
    // The network written by hand does not compare its copies either.
    let (mut mirrored, network) = (mirrored.0.without_checks(), mirrored.1);
    let mut network = Some(network);
    let mut optimizer = SgdConfig::new().init();
    let inputs = (0..batch * sizes[0]).map(noise);
    let inputs = TensorData::new(inputs.collect(), [batch, sizes[0]]);
    let inputs = Tensor::<2>::from_data(inputs, &device);
    let classes = i64::try_from(sizes[sizes.len() - 1]).unwrap_or(i64::MAX);
    let labels = TensorData::new((0..classes).cycle().take(batch).collect(), [batch, 1]);
    let labels = Tensor::<2, Int>::from_data(labels, &device);
    let is_chief = strategy.is_chief();
    let weight = 1.0 / strategy.num_replicas_in_sync() as f32;
    let (steps, time) = crate::measured(duration, |goes_on| {
        // Moved through the optimizer: a second handle would make it copy every parameter.
        let Some(before) = network.take() else {
            return Ok(0.0);
        };
        let sums = strategy.run(|replica| {
            let scores = activation::log_softmax(before.forward(inputs.clone()), 1);
            let loss = -scores.gather(1, labels.clone()).mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &before);
            // Only the chief decides.
            mirrored.extra_mut()?[0] = if is_chief { goes_on } else { 0.0 };
            mirrored.all_reduce(replica, &before, gradients, weight)
        });
        let sums = sums.map(PerReplica::into_first)?;
        network = Some(optimizer.step(RATE, before, sums));
        Ok::<_, Error>(mirrored.extra()[0])
    })?;
    Ok((steps, time, batch))
}

const RATE: f64 = 0.01;
