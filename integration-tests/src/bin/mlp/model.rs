//! A two-layer perceptron with a hand-written backward pass, on synthetic samples that are a
//! function of their index, so that runs can be compared bit by bit.

use meshwork_strategy::{Error, FlatGradients, MirroredVariable, Scope, VariableSpec};

const INPUTS: usize = 16;
const CLASSES: usize = 10;
const RATE: f32 = 0.2;

/// Two dense layers with a ReLU between them, and the softmax cross-entropy as the loss.
pub(crate) struct Model {
    hidden: usize,
    /// First weights `[inputs, hidden]` and biases, second weights `[hidden, classes]` and biases.
    layers: [MirroredVariable; 4],
}

impl Model {
    /// Initial values differ between the ranks, so that only rank 0's make the runs equal.
    pub(crate) fn new(scope: &mut Scope<'_>, hidden: usize, rank: u32) -> Result<Self, Error> {
        let seed = u64::from(rank) << 32;
        let weights = |count: usize, salt: u64, scale: f32| {
            (0..count as u64)
                .map(|at| scale * noise(seed + salt + at))
                .collect()
        };
        let layers = [
            scope.variable(
                "layer1.weight",
                &[INPUTS, hidden],
                weights(INPUTS * hidden, 1 << 20, 0.35),
            )?,
            scope.variable("layer1.bias", &[hidden], vec![0.0; hidden])?,
            scope.variable(
                "layer2.weight",
                &[hidden, CLASSES],
                weights(hidden * CLASSES, 2 << 20, 0.25),
            )?,
            scope.variable("layer2.bias", &[CLASSES], vec![0.0; CLASSES])?,
        ];
        Ok(Self { hidden, layers })
    }

    pub(crate) fn specs(&self) -> Vec<VariableSpec> {
        self.layers
            .iter()
            .map(|layer| layer.spec().clone())
            .collect()
    }

    pub(crate) fn values(&self) -> Vec<f32> {
        self.layers
            .iter()
            .flat_map(|layer| layer.values())
            .copied()
            .collect()
    }

    /// Adds `scale` times the gradient of one sample's loss, and returns `scale` times its loss.
    pub(crate) fn accumulate(
        &self,
        index: usize,
        scale: f32,
        gradients: &mut FlatGradients,
    ) -> f32 {
        let (inputs, class) = sample(index);
        let [w1, b1, w2, b2] = &self.layers;
        let hidden: Vec<f32> = (0..self.hidden)
            .map(|h| b1.values()[h] + dot(&inputs, |i| w1.values()[i * self.hidden + h]))
            .map(|sum| sum.max(0.0))
            .collect();
        let logits: Vec<f32> = (0..CLASSES)
            .map(|c| b2.values()[c] + dot(&hidden, |h| w2.values()[h * CLASSES + c]))
            .collect();
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f32> = logits.iter().map(|logit| (logit - largest).exp()).collect();
        let total: f32 = powers.iter().sum();
        let errors: Vec<f32> = (0..CLASSES)
            .map(|c| scale * (powers[c] / total - if c == class { 1.0 } else { 0.0 }))
            .collect();
        self.backward(&inputs, &hidden, &errors, gradients);
        scale * (total.ln() + largest - logits[class])
    }

    fn backward(
        &self,
        inputs: &[f32],
        hidden: &[f32],
        errors: &[f32],
        gradients: &mut FlatGradients,
    ) {
        let w2 = self.layers[2].values();
        let back: Vec<f32> = (0..self.hidden)
            .map(|h| {
                if hidden[h] > 0.0 {
                    dot(errors, |c| w2[h * CLASSES + c])
                } else {
                    0.0
                }
            })
            .collect();
        outer(inputs, &back, gradients.gradient_mut(0));
        outer(&[1.0], &back, gradients.gradient_mut(1));
        outer(hidden, errors, gradients.gradient_mut(2));
        outer(&[1.0], errors, gradients.gradient_mut(3));
    }

    pub(crate) fn apply(&mut self, gradients: &FlatGradients) {
        for (index, layer) in self.layers.iter_mut().enumerate() {
            for (value, gradient) in layer.values_mut().iter_mut().zip(gradients.gradient(index)) {
                *value -= RATE * gradient;
            }
        }
    }
}

fn dot(left: &[f32], right: impl Fn(usize) -> f32) -> f32 {
    left.iter()
        .enumerate()
        .map(|(at, value)| value * right(at))
        .sum()
}

/// Adds the outer product of `rows` and `columns`.
fn outer(rows: &[f32], columns: &[f32], into: &mut [f32]) {
    for (row, line) in rows.iter().zip(into.chunks_mut(columns.len())) {
        for (column, value) in columns.iter().zip(line) {
            *value += row * column;
        }
    }
}

/// Sample number `index`: a class, and inputs around that class's centre.
fn sample(index: usize) -> (Vec<f32>, usize) {
    let class = index % CLASSES;
    let inputs = (0..INPUTS)
        .map(|i| {
            noise((class * INPUTS + i) as u64)
                + 0.9 * noise((7 << 40) + (index * INPUTS + i) as u64)
        })
        .collect();
    (inputs, class)
}

/// A number in -1..1 that is a fixed function of `key` (the finalizer of SplitMix64).
fn noise(key: u64) -> f32 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}
