//! Dense layers in candle, with its optimizer.

use std::time::Duration;

use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, loss};
use meshwork_candle::{Error, MirroredVars};
use meshwork_strategy::{MultiWorkerMirroredStrategy, PerReplica};

pub(crate) fn train(
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
    batch: usize,
    duration: Duration,
) -> Result<(usize, Duration, usize), Error> {
    let vars = VarMap::new();
    let layers = layers(
        &VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu),
        sizes,
    )?;
    let mut mirrored = MirroredVars::with_extra(strategy, &vars, 1)?;
    let mut optimizer = SGD::new(vars.all_vars(), 0.01)?;
    let inputs = Tensor::rand(-1.0_f32, 1.0, (batch, sizes[0]), &Device::Cpu)?;
    let classes = u32::try_from(sizes[sizes.len() - 1]).unwrap_or(u32::MAX);
    let labels: Vec<u32> = (0..classes).cycle().take(batch).collect();
    let labels = Tensor::from_vec(labels, batch, &Device::Cpu)?;
    let is_chief = strategy.is_chief();
    let weight = 1.0 / strategy.num_replicas_in_sync() as f32;
    let (steps, time) = crate::measured(duration, |goes_on| {
        strategy
            .run(|replica| {
                let loss = loss::cross_entropy(&forward(&layers, &inputs)?, &labels)?;
                let mut gradients = loss.backward()?;
                // Only the chief decides.
                mirrored.extra_mut()?[0] = if is_chief { goes_on } else { 0.0 };
                mirrored.all_reduce(replica, &mut gradients, weight)?;
                optimizer.step(&gradients)?;
                Ok::<_, Error>(mirrored.extra()[0])
            })
            .map(PerReplica::into_first)
    })?;
    Ok((steps, time, batch))
}

fn layers(vars: &VarBuilder<'_>, sizes: &[usize]) -> candle_core::Result<Vec<Linear>> {
    let layer =
        |(number, pair): (usize, &[usize])| candle_nn::linear(pair[0], pair[1], vars.pp(number));
    sizes.windows(2).enumerate().map(layer).collect()
}

/// With a ReLU behind all layers but the last.
fn forward(layers: &[Linear], inputs: &Tensor) -> candle_core::Result<Tensor> {
    let mut outputs = inputs.clone();
    for (number, layer) in layers.iter().enumerate() {
        outputs = layer.forward(&outputs)?;
        if number + 1 < layers.len() {
            outputs = outputs.relu()?;
        }
    }
    Ok(outputs)
}
