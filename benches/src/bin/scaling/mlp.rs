//! Dense layers by hand: what is measured is their products and the strategy, and no framework.

use std::time::Duration;

use meshwork_accel_cpu::product;
use meshwork_strategy::{
    Error, GradientBuckets, MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec,
};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, ArrayViewMut2, Axis};

struct Layer {
    /// `[inputs, outputs]`
    weight: Array2<f32>,
    bias: Array1<f32>,
}

pub(crate) fn train(
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
    batch: usize,
    duration: Duration,
) -> Result<(usize, Duration, usize), Error> {
    let (mut layers, specs) = initial(strategy, sizes)?;
    let mut gradients = GradientBuckets::new(strategy, &specs, 1)?;
    let inputs = Array2::from_shape_fn((batch, sizes[0]), |(row, column)| noise(row * 31 + column));
    let classes = sizes[sizes.len() - 1];
    let is_chief = strategy.is_chief();
    let (steps, time) = crate::measured(duration, |goes_on| {
        strategy
            .run(|replica| {
                // Only the chief decides.
                gradients.extra_mut()?[0] = if is_chief { goes_on } else { 0.0 };
                let activations = forward(&layers, &inputs)?;
                let delta = delta(&activations.outputs[layers.len() - 1], classes);
                backward(replica, &layers, &activations, delta, &mut gradients)?;
                gradients.finish(replica)?;
                update(&mut layers, &gradients);
                Ok::<_, Error>(gradients.extra()[0])
            })
            .map(meshwork_strategy::PerReplica::into_first)
    })?;
    Ok((steps, time, batch))
}

/// Weights and biases as the chief has them, and their names in the order of the layers.
fn initial(
    strategy: &mut MultiWorkerMirroredStrategy,
    sizes: &[usize],
) -> Result<(Vec<Layer>, Vec<VariableSpec>), Error> {
    let (mut layers, mut specs) = (Vec::new(), Vec::new());
    for (number, pair) in sizes.windows(2).enumerate() {
        let (inputs, outputs) = (pair[0], pair[1]);
        let scale = (3.0 / inputs as f32).sqrt();
        let weight = Array2::from_shape_fn((inputs, outputs), |(row, column)| {
            scale * noise(row * outputs + column)
        });
        let bias = Array1::zeros(outputs);
        specs.push(VariableSpec::new(
            format!("{number}.weight"),
            &[inputs, outputs],
        )?);
        specs.push(VariableSpec::new(format!("{number}.bias"), &[outputs])?);
        layers.push(Layer { weight, bias });
    }
    let mut values: Vec<f32> = Vec::new();
    for layer in &layers {
        values.extend(layer.weight.iter().chain(&layer.bias));
    }
    strategy.scope(|scope| scope.mirror(&specs, &mut values))?;
    let mut values = values.into_iter();
    for layer in &mut layers {
        let own = layer.weight.iter_mut().chain(&mut layer.bias);
        own.zip(values.by_ref())
            .for_each(|(own, value)| *own = value);
    }
    Ok((layers, specs))
}

/// What goes into the first layer, and what comes out of each.
struct Activations<'a> {
    inputs: &'a Array2<f32>,
    outputs: Vec<Array2<f32>>,
}

impl Activations<'_> {
    /// What goes into a layer.
    fn input_of(&self, number: usize) -> &Array2<f32> {
        match number.checked_sub(1) {
            Some(before) => &self.outputs[before],
            None => self.inputs,
        }
    }
}

/// Through all layers, with a ReLU behind all but the last.
fn forward<'a>(layers: &[Layer], inputs: &'a Array2<f32>) -> Result<Activations<'a>, Error> {
    let mut outputs: Vec<Array2<f32>> = Vec::with_capacity(layers.len());
    for (number, layer) in layers.iter().enumerate() {
        let input = outputs.last().unwrap_or(inputs);
        let mut output = Array2::zeros((input.nrows(), layer.weight.ncols()));
        product(input.view(), layer.weight.view(), output.view_mut())?;
        output += &layer.bias;
        if number + 1 < layers.len() {
            output.mapv_inplace(|value| value.max(0.0));
        }
        outputs.push(output);
    }
    Ok(Activations { inputs, outputs })
}

/// The gradient of the mean cross-entropy, with made-up classes.
fn delta(scores: &Array2<f32>, classes: usize) -> Array2<f32> {
    let mut delta = scores.clone();
    let rows = scores.nrows() as f32;
    for (row, mut scores) in delta.outer_iter_mut().enumerate() {
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        scores.mapv_inplace(|score| (score - largest).exp());
        let sum = scores.sum();
        scores.mapv_inplace(|power| power / sum / rows);
        scores[row % classes] -= 1.0 / rows;
    }
    delta
}

/// From the last layer to the first, with each gradient where it is reduced from.
fn backward(
    replica: &mut ReplicaContext<'_>,
    layers: &[Layer],
    activations: &Activations<'_>,
    mut delta: Array2<f32>,
    gradients: &mut GradientBuckets,
) -> Result<(), Error> {
    for (number, layer) in layers.iter().enumerate().rev() {
        let input = activations.input_of(number);
        let bias = delta.sum_axis(Axis(0));
        for (slot, value) in gradients
            .gradient_mut(2 * number + 1)?
            .iter_mut()
            .zip(&bias)
        {
            *slot = *value;
        }
        gradients.ready(replica, 2 * number + 1)?;
        let slot = gradients.gradient_mut(2 * number)?;
        let weight = ArrayViewMut2::from_shape(layer.weight.raw_dim(), slot)
            .expect("a gradient has the shape of its variable");
        product(input.t(), delta.view(), weight)?;
        gradients.ready(replica, 2 * number)?;
        if number > 0 {
            let above = delta;
            delta = Array2::zeros(input.raw_dim());
            product(above.view(), layer.weight.t(), delta.view_mut())?;
            delta.zip_mut_with(input, |delta, input| {
                if *input <= 0.0 {
                    *delta = 0.0;
                }
            });
        }
    }
    Ok(())
}

fn update(layers: &mut [Layer], gradients: &GradientBuckets) {
    for (number, layer) in layers.iter_mut().enumerate() {
        let shape = layer.weight.raw_dim();
        let weight = ArrayView2::from_shape(shape, gradients.gradient(2 * number))
            .expect("a gradient has the shape of its variable");
        layer.weight.scaled_add(-RATE, &weight);
        let bias = ArrayView1::from(gradients.gradient(2 * number + 1));
        layer.bias.scaled_add(-RATE, &bias);
    }
}

/// Between -1 and 1, and the same everywhere.
pub(crate) fn noise(at: usize) -> f32 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}

const RATE: f32 = 0.01;
