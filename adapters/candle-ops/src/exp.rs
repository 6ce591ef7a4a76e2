//! The exponential function, in operations that vector units have.

/// `e` to the power of `x`, to within two units in the last place. Below -87 it stays at its value
/// there, 1.6e-38, and from 88.4 on it is infinite.
///
/// With `x = n·ln 2 + r` it is `2^n · e^r`: the power of two by its bits, the rest by a polynomial
/// (the one of Cephes).
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // For 89 the bits of the power of two are those of infinity.
    let x = x.clamp(-87.0, 89.0);
    // Adding it rounds to a whole number, which the lowest bits of the sum then hold.
    let shifted = x * std::f32::consts::LOG2_E + ROUNDING;
    let n = shifted - ROUNDING;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let series = POLYNOMIAL.iter().fold(0.0, |sum, term| sum * r + term);
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    (series * r * r + r + 1.0) * power
}

/// 1.5 · 2^23: numbers of this size have no fraction.
const ROUNDING: f32 = 12_582_912.0;

/// The logarithm of 2 in two parts, the first short enough for exact products with small numbers.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

const POLYNOMIAL: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    0.166_666_65,
    0.5,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential_to_a_few_last_places() {
        for step in -87_000..=88_000 {
            let x = step as f32 / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "{x}: {error}");
        }
    }

    #[test]
    fn it_is_infinite_where_it_is_too_large_and_keeps_what_is_no_number() {
        assert_eq!(exp(f32::NEG_INFINITY), exp(-87.0));
        for x in [88.73, 89.0, 1e38, f32::INFINITY] {
            assert_eq!(exp(x), f32::INFINITY, "{x}");
        }
        assert!(exp(88.3).is_finite() && exp(-87.0) > 0.0);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
    }
}
