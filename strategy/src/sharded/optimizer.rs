//! Optimizers that shards can have: those whose update of an element needs that element alone.

/// An optimizer whose update of a number depends on that number, its gradient and what is
/// remembered of it: it does the same to a shard as to the whole.
///
/// Others, such as those that look at the norm or the rows of a whole tensor (LARS, Adafactor,
/// Muon, Shampoo), would compute something else on each shard, and are refused when the program is
/// compiled:
///
/// ```compile_fail
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::sharded::{Shard, ShardedModel, Sharding};
///
/// struct Lars;
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// ShardedModel::new(&mut strategy, Sharding::new(Shard::Optimizer), &[], Lars, |_, _, _| ())?;
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not known to be element-wise, so it cannot train shards",
    note = "an optimizer whose update of an element needs others, such as a norm over a tensor, \
            computes something else on each shard"
)]
pub trait ElementWise {
    /// What it remembers of each element, by name: the state of the optimizer.
    const STATE: &'static [&'static str];

    /// Updates values in step number `step`, which counts from 1. `state` has as many slices as
    /// [`STATE`](Self::STATE) names, all of the length of `values`, and of zeros in the first step.
    fn update(&self, step: u64, values: &mut [f32], gradients: &[f32], state: &mut [&mut [f32]]);
}

/// Stochastic gradient descent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    rate: f32,
}

/// Stochastic gradient descent with momentum, as torch's `SGD(momentum=…)`: `v ← μ v + g`, and the
/// value less `rate` times `v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    rate: f32,
    momentum: f32,
}

/// Adam with decoupled weight decay, as torch's `AdamW`; without weight decay it is Adam.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(alias("Adam", "ZeroRedundancyOptimizer"))]
pub struct AdamW {
    rate: f32,
    betas: [f32; 2],
    epsilon: f32,
    weight_decay: f32,
}

impl Sgd {
    /// With this learning rate.
    #[must_use]
    pub fn new(rate: f32) -> Self {
        Self { rate }
    }
}

impl Momentum {
    /// With this learning rate and momentum.
    #[must_use]
    pub fn new(rate: f32, momentum: f32) -> Self {
        Self { rate, momentum }
    }
}

impl AdamW {
    /// With this learning rate, betas of 0.9 and 0.999, an epsilon of 10⁻⁸, and no weight decay.
    #[must_use]
    pub fn new(rate: f32) -> Self {
        Self {
            rate,
            betas: [0.9, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
        }
    }

    /// With these decays of the means of gradients and of their squares.
    #[must_use]
    pub fn with_betas(mut self, betas: [f32; 2]) -> Self {
        self.betas = betas;
        self
    }

    /// With this number added to the root of the mean square.
    #[must_use]
    pub fn with_epsilon(mut self, epsilon: f32) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// With values that lose this fraction of themselves, times the rate, in each step.
    #[must_use]
    pub fn with_weight_decay(mut self, weight_decay: f32) -> Self {
        self.weight_decay = weight_decay;
        self
    }
}

impl ElementWise for Sgd {
    const STATE: &'static [&'static str] = &[];

    fn update(&self, _step: u64, values: &mut [f32], gradients: &[f32], _state: &mut [&mut [f32]]) {
        for (value, gradient) in values.iter_mut().zip(gradients) {
            *value -= self.rate * gradient;
        }
    }
}

impl ElementWise for Momentum {
    const STATE: &'static [&'static str] = &["momentum_buffer"];

    fn update(&self, _step: u64, values: &mut [f32], gradients: &[f32], state: &mut [&mut [f32]]) {
        let [velocities] = state else {
            unreachable!("STATE names one");
        };
        let elements = values.iter_mut().zip(gradients).zip(velocities.iter_mut());
        for ((value, gradient), velocity) in elements {
            *velocity = self.momentum * *velocity + gradient;
            *value -= self.rate * *velocity;
        }
    }
}

impl ElementWise for AdamW {
    const STATE: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];

    fn update(&self, step: u64, values: &mut [f32], gradients: &[f32], state: &mut [&mut [f32]]) {
        let [means, squares] = state else {
            unreachable!("STATE names two");
        };
        let [first, second] = self.betas;
        // After 2³¹ steps there is nothing left to correct.
        let step = i32::try_from(step).unwrap_or(i32::MAX);
        let rate = self.rate / (1.0 - first.powi(step));
        let unbiased = 1.0 / (1.0 - second.powi(step)).sqrt();
        let kept = 1.0 - self.rate * self.weight_decay;
        let moments = means.iter_mut().zip(squares.iter_mut());
        for ((value, gradient), (mean, square)) in values.iter_mut().zip(gradients).zip(moments) {
            *mean = first * *mean + (1.0 - first) * gradient;
            *square = second * *square + (1.0 - second) * gradient * gradient;
            let step = rate * *mean / (square.sqrt() * unbiased + self.epsilon);
            *value = kept * *value - step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values after steps with gradients that begin at 0.5 and are halved.
    fn after(optimizer: &impl ElementWise, steps: u64) -> f32 {
        fn of<O: ElementWise>(optimizer: &O, steps: u64) -> f32 {
            let (mut value, mut gradient) = ([1.0], 1.0);
            let mut state = vec![[0.0]; O::STATE.len()];
            for step in 1..=steps {
                let mut state: Vec<&mut [f32]> = state.iter_mut().map(|one| &mut one[..]).collect();
                gradient /= 2.0;
                optimizer.update(step, &mut value, &[gradient], &mut state);
            }
            value[0]
        }
        of(optimizer, steps)
    }

    #[test]
    fn steps_follow_the_formulas() {
        // Worked out by hand from the formulas in torch's documentation.
        for (found, expected) in [
            (after(&Sgd::new(0.1), 2), 0.925),
            (after(&Momentum::new(0.1, 0.9), 1), 0.95),
            (after(&Momentum::new(0.1, 0.9), 3), 0.8045),
            (after(&AdamW::new(0.1), 1), 0.9),
            (after(&AdamW::new(0.1).with_weight_decay(0.5), 1), 0.85),
        ] {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
    }

    #[test]
    fn a_shard_is_updated_as_in_the_whole() {
        let optimizer = AdamW::new(0.01).with_betas([0.8, 0.99]).with_epsilon(1e-3);
        let gradients: Vec<f32> = (0..37).map(|at| (at as f32).sin()).collect();
        let run = |parts: &[std::ops::Range<usize>]| {
            let mut numbers = [vec![1.0; 37], vec![0.0; 37], vec![0.0; 37]];
            for step in 1..4 {
                for part in parts {
                    let [values, means, squares] = &mut numbers;
                    let mut state = [&mut means[part.clone()], &mut squares[part.clone()]];
                    let gradients = &gradients[part.clone()];
                    optimizer.update(step, &mut values[part.clone()], gradients, &mut state);
                }
            }
            numbers[0]
                .iter()
                .map(|value| value.to_bits())
                .collect::<Vec<_>>()
        };
        assert_eq!(run(&[0..1, 1..18, 18..37]), run(&[0..37, 37..37]));
    }
}
