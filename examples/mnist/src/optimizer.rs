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

    /// From the given rate at the first step down to [`LAST_FRACTION`] of it after the last.
    fn current_rate(&self) -> f32 {
        let progress = (self.done as f64 / self.steps as f64).min(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the elements are of this precision too"
        )]
        let rate = (self.rate.value() * (1.0 - (1.0 - LAST_FRACTION) * progress)) as f32;
        rate
    }
}

/// How much of its velocity an element keeps. Higher values learn no faster here, and amplify rounding.
const INERTIA: f32 = 0.8;

/// A rate that ends low averages out the noise of single batches, which at full rate costs 1 % of accuracy.
const LAST_FRACTION: f64 = 0.02;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_follow_the_formula() {
        let mut optimizer = Momentum::new(2, "0.5".parse().unwrap(), 2);
        let mut elements = [1.0, -1.0];
        optimizer.step(&mut elements, &[1.0, 0.0]);
        assert_eq!(elements, [0.5, -1.0]);
        optimizer.step(&mut elements, &[0.0, 2.0]);
        // The second of two steps has 51 % of the rate: 0.255 times velocities 0.8 and 2.
        assert!((elements[0] - (0.5 - 0.204)).abs() < 1e-6, "{elements:?}");
        assert!((elements[1] - (-1.0 - 0.51)).abs() < 1e-6, "{elements:?}");
    }

    #[test]
    fn the_rate_falls_in_a_straight_line_and_stays_above_zero() {
        let mut optimizer = Momentum::new(0, "1".parse().unwrap(), 100);
        let mut rates = Vec::new();
        for _ in 0..=102 {
            rates.push(optimizer.current_rate());
            optimizer.step(&mut [], &[]);
        }
        assert_eq!((rates[0], rates[50], rates[100]), (1.0, 0.51, 0.02));
        assert_eq!(rates[102], 0.02);
    }
}
