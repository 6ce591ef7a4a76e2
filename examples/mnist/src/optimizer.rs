//! Gradient descent with momentum, and a learning rate that falls over the run.

use crate::args::LearningRate;

/// The velocity of each element, and how far the run has got.
#[derive(Debug)]
pub(crate) struct Momentum {
    velocity: Vec<f32>,
    rate: LearningRate,
    steps: usize,
    done: usize,
}

impl Momentum {
    /// At rest, before a run of `steps` steps over `elements` elements.
    pub(crate) fn new(elements: usize, rate: LearningRate, steps: usize) -> Self {
        Self {
            velocity: vec![0.0; elements],
            rate,
            steps,
            done: 0,
        }
    }

    /// Moves `elements` one step along `gradients`.
    pub(crate) fn step(&mut self, elements: &mut [f32], gradients: &[f32]) {
        let rate = self.current_rate();
        for ((element, velocity), gradient) in
            elements.iter_mut().zip(&mut self.velocity).zip(gradients)
        {
            *velocity = INERTIA * *velocity + gradient;
            *element -= rate * *velocity;
        }
        self.done += 1;
    }

    /// Up to the given rate over the first steps, and in a straight line down to a fraction of it over the whole run.
    fn current_rate(&self) -> f32 {
        let warm = ((self.done + 1) as f64 / WARM_UP as f64).min(1.0);
        let progress = (self.done as f64 / self.steps as f64).min(1.0);
        let rate = self.rate.value() * warm * (1.0 - (1.0 - LAST_FRACTION) * progress);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the elements are of this precision too"
        )]
        let rate = rate as f32;
        rate
    }
}

/// How much of its velocity an element keeps. Higher values learn no faster here, and amplify rounding.
const INERTIA: f32 = 0.8;

/// Steps until the full rate is reached; without them some seeds lose in one step what they learned in ten.
const WARM_UP: usize = 20;

/// A rate that ends low averages out the noise of single batches, which at full rate costs 1 % of accuracy.
const LAST_FRACTION: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_follow_the_formula() {
        let mut optimizer = Momentum::new(2, "10".parse().unwrap(), 2);
        let mut elements = [1.0, -1.0];
        optimizer.step(&mut elements, &[1.0, 0.0]);
        assert_eq!(elements, [0.5, -1.0]);
        optimizer.step(&mut elements, &[0.0, 2.0]);
        // A tenth of 51 % of the rate, times velocities of 0.8 and 2.
        assert!((elements[0] - (0.5 - 0.408)).abs() < 1e-6, "{elements:?}");
        assert!((elements[1] - (-1.0 - 1.02)).abs() < 1e-6, "{elements:?}");
    }

    #[test]
    fn the_rate_rises_over_the_first_steps_then_falls_and_stays_above_zero() {
        let mut optimizer = Momentum::new(0, "1".parse().unwrap(), 100);
        let mut rates = Vec::new();
        for _ in 0..=102 {
            rates.push(optimizer.current_rate());
            optimizer.step(&mut [], &[]);
        }
        assert_eq!((rates[0], rates[50], rates[100]), (0.05, 0.51, 0.02));
        assert!(rates[..WARM_UP].is_sorted() && rates[WARM_UP..].is_sorted_by(|a, b| a >= b));
        assert_eq!(rates[102], 0.02);
    }
}
