//! Gradient descent with momentum, and a learning rate that falls over the run.

use candle_core::backprop::GradStore;
use candle_core::{Tensor, Var};
use meshwork_candle_ops as ops;
use meshwork_strategy::{Snapshot, VariableSpec};

use crate::args::LearningRate;
use crate::error::Error;

/// The velocity of each variable, and how far the run has got.
#[derive(Debug)]
pub(crate) struct Momentum {
    /// Each variable, its velocity, and what that is called in a checkpoint.
    moving: Vec<(Var, Var, VariableSpec)>,
    rate: LearningRate,
    steps: usize,
    done: usize,
}

impl Momentum {
    /// At rest, before a run of `steps` steps over `vars`.
    ///
    /// # Errors
    ///
    /// [`Error::Network`] for this and the other methods, if candle refuses an operation.
    pub(crate) fn new(
        vars: impl IntoIterator<Item = (String, Var)>,
        rate: LearningRate,
        steps: usize,
    ) -> Result<Self, Error> {
        let mut moving = Vec::new();
        for (name, var) in vars {
            let spec = VariableSpec::new(format!("velocity.{name}"), var.dims())?;
            let at_rest = Var::zeros(var.shape(), var.dtype(), var.device())?;
            moving.push((var, at_rest, spec));
        }
        Ok(Self {
            moving,
            rate,
            steps,
            done: 0,
        })
    }

    /// Moves the variables one step along `gradients`; those without a gradient coast.
    pub(crate) fn step(&mut self, gradients: &GradStore) -> Result<(), Error> {
        let rate = self.current_rate();
        for (var, velocity, _) in &self.moving {
            ops::sgd_step(var, velocity, gradients.get(var), INERTIA, rate)?;
        }
        self.done += 1;
        Ok(())
    }

    /// Adds the velocities to `snapshot`.
    pub(crate) fn save(&self, mut snapshot: Snapshot) -> Result<Snapshot, Error> {
        for (_, velocity, spec) in &self.moving {
            let values = velocity.flatten_all()?.to_vec1::<f32>()?;
            snapshot = snapshot.with_array(spec, &values)?;
        }
        Ok(snapshot)
    }

    /// Takes over the velocities of `snapshot`, after as many steps.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        for (var, velocity, spec) in &self.moving {
            let saved = Tensor::from_slice(snapshot.array(spec)?, var.shape(), var.device())?;
            velocity.set(&saved)?;
        }
        // A run has fewer steps than a usize counts.
        self.done = usize::try_from(snapshot.step()).unwrap_or(usize::MAX);
        Ok(())
    }

    /// Up to the given rate over the first steps, and in a straight line down to a fraction of it
    /// over the whole run.
    fn current_rate(&self) -> f64 {
        self.rate.value() * part_of_rate(self.done, self.steps)
    }
}

/// The part of the given rate after `done` of `steps` steps.
pub(crate) fn part_of_rate(done: usize, steps: usize) -> f64 {
    let warm = ((done + 1) as f64 / WARM_UP as f64).min(1.0);
    let progress = (done as f64 / steps as f64).min(1.0);
    warm * (1.0 - (1.0 - LAST_FRACTION) * progress)
}

/// How much of its velocity a variable keeps. Higher values learn no faster here, and amplify
/// rounding.
pub(crate) const INERTIA: f64 = 0.8;

/// Steps until the full rate is reached; without them some seeds lose in one step what they learned
/// in ten.
const WARM_UP: usize = 10;

/// A rate that ends low averages out the noise of single batches, which at full rate costs 1 % of
/// accuracy.
const LAST_FRACTION: f64 = 0.02;

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn two_steps_follow_the_formula() {
        let var = Var::new(&[1.0_f32, -1.0], &Device::Cpu).unwrap();
        let mut optimizer =
            Momentum::new([("w".to_owned(), var.clone())], "5".parse().unwrap(), 2).unwrap();
        let mut step = |slopes: &[f32; 2]| {
            let slopes = Tensor::new(slopes, &Device::Cpu).unwrap();
            let loss = (var.as_tensor() * slopes).unwrap().sum_all().unwrap();
            optimizer.step(&loss.backward().unwrap()).unwrap();
            var.to_vec1::<f32>().unwrap()
        };
        // A tenth of the rate, then a fifth of 51 % of it, times velocities of 0.8 and 2.
        assert_eq!(step(&[1.0, 0.0]), [0.5, -1.0]);
        let second = step(&[0.0, 2.0]);
        assert!((second[0] - (0.5 - 0.408)).abs() < 1e-6, "{second:?}");
        assert!((second[1] - (-1.0 - 1.02)).abs() < 1e-6, "{second:?}");
    }

    #[test]
    fn the_rate_rises_over_the_first_steps_then_falls_and_stays_above_zero() {
        let mut optimizer = Momentum::new(Vec::new(), "1".parse().unwrap(), 100).unwrap();
        let rates: Vec<f64> = (0..=102)
            .map(|done| {
                optimizer.done = done;
                optimizer.current_rate()
            })
            .collect();
        for (done, expected) in [(0, 0.1), (50, 0.51), (100, 0.02), (102, 0.02)] {
            assert!(
                (rates[done] - expected).abs() < 1e-12,
                "{done}: {}",
                rates[done]
            );
        }
        assert!(rates[..WARM_UP].is_sorted() && rates[WARM_UP..].is_sorted_by(|a, b| a >= b));
    }
}
