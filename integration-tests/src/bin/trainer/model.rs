//! Softmax regression with momentum on synthetic samples, which are a function of their index. Its
//! state is the weights and the velocity; both are in snapshots.

use meshwork_strategy::{Error, VariableSpec};

const CLASSES: usize = 10;
const RATE: f32 = 0.3;
const INERTIA: f32 = 0.5;

/// Softmax regression, by gradient descent with momentum.
pub(crate) struct Model {
    inputs: usize,
    /// Weights `[inputs, classes]`, then biases.
    values: Vec<f32>,
    velocity: Vec<f32>,
}

impl Model {
    pub(crate) fn new(inputs: usize) -> Self {
        let len = (inputs + 1) * CLASSES;
        Self {
            inputs,
            values: vec![0.0; len],
            velocity: vec![0.0; len],
        }
    }

    /// Weight and bias.
    pub(crate) fn specs(&self) -> Result<[VariableSpec; 2], Error> {
        Ok([
            VariableSpec::new("weight", &[self.inputs, CLASSES])?,
            VariableSpec::new("bias", &[CLASSES])?,
        ])
    }

    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    pub(crate) fn velocity(&self) -> &[f32] {
        &self.velocity
    }

    pub(crate) fn set(&mut self, values: &[f32], velocity: &[f32]) {
        self.values.copy_from_slice(values);
        self.velocity.copy_from_slice(velocity);
    }

    /// Adds `scale` times the gradient of one sample's cross-entropy.
    pub(crate) fn accumulate(&self, index: usize, scale: f32, gradient: &mut [f32]) {
        let class = index % CLASSES;
        let (weights, biases) = gradient.split_at_mut(self.inputs * CLASSES);
        let scores = self.scores(index);
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers = scores.map(|score| (score - largest).exp());
        let total: f32 = powers.iter().sum();
        for (c, power) in powers.iter().enumerate() {
            let error = scale * (power / total - f32::from(u8::from(c == class)));
            biases[c] += error;
            for (i, row) in weights.chunks_mut(CLASSES).enumerate() {
                row[c] += error * input(index, i);
            }
        }
    }

    pub(crate) fn apply(&mut self, gradient: &[f32]) {
        let moving = self.values.iter_mut().zip(&mut self.velocity);
        for ((value, velocity), slope) in moving.zip(gradient) {
            *velocity = INERTIA * *velocity + slope;
            *value -= RATE * *velocity;
        }
    }

    /// The fraction of the samples that are recognised.
    pub(crate) fn accuracy(&self, samples: usize) -> f64 {
        let is_right = |index: &usize| {
            let scores = self.scores(*index);
            let best = |one: &usize, other: &usize| scores[*one].total_cmp(&scores[*other]);
            (0..CLASSES).max_by(best) == Some(index % CLASSES)
        };
        (0..samples).filter(is_right).count() as f64 / samples as f64
    }

    fn scores(&self, index: usize) -> [f32; CLASSES] {
        let (weights, biases) = self.values.split_at(self.inputs * CLASSES);
        std::array::from_fn(|c| {
            let rows = weights.chunks(CLASSES).enumerate();
            let sum: f32 = rows.map(|(i, row)| input(index, i) * row[c]).sum();
            biases[c] + sum
        })
    }
}

/// Input number `i` of a sample: around the centre of its class.
fn input(index: usize, i: usize) -> f32 {
    let centre = noise(((index % CLASSES) * 64 + i) as u64);
    centre + 1.2 * noise((7 << 40) + (index * 64 + i) as u64)
}

/// A number in -1..1 that is a fixed function of `key` (the finalizer of SplitMix64).
fn noise(key: u64) -> f32 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
}
