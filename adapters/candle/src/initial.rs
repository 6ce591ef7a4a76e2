//! Initial values of which each worker makes its own rows: by the hints of candle's layers, from
//! numbers that depend on a seed, a name and a position only.

use std::f64::consts::TAU;

use candle_core::Shape;
use candle_nn::Init;
use candle_nn::init::NormalOrUniform;

/// What the values of one parameter are drawn from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distribution {
    init: Init,
    key: u64,
}

impl Distribution {
    /// That of a parameter of this name and shape.
    pub(crate) fn new(init: Init, name: &str, shape: &[usize], seed: u64) -> Self {
        let key = name
            .bytes()
            .fold(mixed(seed), |key, byte| mixed(key ^ u64::from(byte)));
        let init = match init {
            Init::Kaiming {
                dist,
                fan,
                non_linearity,
            } => {
                let inputs = fan.for_shape(&Shape::from(shape)).max(1);
                let stdev = non_linearity.gain() / (inputs as f64).sqrt();
                let up = 3_f64.sqrt() * stdev;
                match dist {
                    NormalOrUniform::Normal => Init::Randn { mean: 0.0, stdev },
                    NormalOrUniform::Uniform => Init::Uniform { lo: -up, up },
                }
            }
            plain => plain,
        };
        Self { init, key }
    }

    /// The element at a position.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "parameters are of this precision"
    )]
    pub(crate) fn at(&self, position: usize) -> f32 {
        let value = match self.init {
            Init::Const(value) => value,
            Init::Uniform { lo, up } => lo + (up - lo) * self.even(2 * position as u64),
            Init::Randn { mean, stdev } => mean + stdev * self.normal(position as u64),
            Init::Kaiming { .. } => unreachable!("`new` knows its bounds"),
        };
        value as f32
    }

    /// Between 0 and 1, and not 1.
    fn even(&self, counter: u64) -> f64 {
        let bits = mixed(self.key ^ mixed(counter)) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }

    /// By Box and Muller.
    fn normal(&self, position: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.even(2 * position)).ln()).sqrt();
        radius * (TAU * self.even(2 * position + 1)).cos()
    }
}

/// A number that has no more to do with the one it comes from: the last step of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use candle_nn::init::{DEFAULT_KAIMING_NORMAL, DEFAULT_KAIMING_UNIFORM};

    use super::*;

    /// The mean and the standard deviation of many.
    fn moments(init: Init, shape: &[usize]) -> [f64; 2] {
        let drawn = Distribution::new(init, "layer.weight", shape, 7);
        let count = 40_000;
        let values: Vec<f64> = (0..count).map(|at| f64::from(drawn.at(at))).collect();
        let mean = values.iter().sum::<f64>() / count as f64;
        let square = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>();
        [mean, (square / count as f64).sqrt()]
    }

    #[test]
    fn hints_have_the_moments_of_candles_own() {
        let kaiming = 2_f64.sqrt() / 5.0;
        for (init, [mean, deviation]) in [
            (Init::Const(0.5), [0.5, 0.0]),
            (
                Init::Uniform { lo: -1.0, up: 3.0 },
                [1.0, 4.0 / 12_f64.sqrt()],
            ),
            (
                Init::Randn {
                    mean: 2.0,
                    stdev: 0.5,
                },
                [2.0, 0.5],
            ),
            (DEFAULT_KAIMING_UNIFORM, [0.0, kaiming]),
            (DEFAULT_KAIMING_NORMAL, [0.0, kaiming]),
        ] {
            let [found_mean, found_deviation] = moments(init, &[4, 25]);
            assert!((found_mean - mean).abs() < 0.03, "{init:?}: {found_mean}");
            assert!(
                (found_deviation - deviation).abs() < 0.02,
                "{init:?}: {found_deviation}"
            );
        }
    }

    #[test]
    fn seeds_and_names_have_numbers_of_their_own() {
        let init = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let of = |name, seed| Distribution::new(init, name, &[4], seed).at(3).to_bits();
        assert_eq!(of("a", 1), of("a", 1));
        assert_ne!(of("a", 1), of("a", 2));
        assert_ne!(of("a", 1), of("b", 1));
        assert_ne!(of("ab", 1), of("ba", 1));
    }
}
