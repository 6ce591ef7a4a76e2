//! Numbers rounded once to 16 bits, to the nearest and of two to the even one.
//!
//! `half` drops the lowest 32 bits of an `f64` before it rounds, and with them what tells a number
//! a little above the middle between two from the middle itself. Here a number is rounded to odd on
//! its way through wider types: what lies between two then never looks like the middle of narrower
//! ones (Boldo and Melquiond, "When double rounding is odd", 2005).

use half::{bf16, f16};

/// The `f16` that is nearest to a number.
#[must_use]
pub fn nearest_f16(value: f64) -> f16 {
    f16::from_f32(odd_f32(value))
}

/// The `bf16` that is nearest to a number.
#[must_use]
pub fn nearest_bf16(value: f64) -> bf16 {
    bf16::from_f32(odd_f32(value))
}

/// The number itself, or of the two beside it the one whose last bit is set.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what was lost is looked at next"
)]
fn odd_f32(value: f64) -> f32 {
    let near = value as f32;
    let wide = f64::from(near);
    if wide == value || near.is_nan() {
        return near;
    }
    let beyond = u32::from(wide.abs() > value.abs());
    f32::from_bits((near.to_bits() - beyond) | 1)
}

/// As [`odd_f32`], of a whole number of 64 bits with or without a sign.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "what was lost is looked at next, and as many bits are there again"
)]
pub(crate) fn odd_f64(value: impl Into<i128>) -> f64 {
    let value = value.into();
    let near = value as f64;
    let wide = near as i128;
    if wide == value {
        return near;
    }
    let beyond = u64::from(wide.unsigned_abs() > value.unsigned_abs());
    f64::from_bits((near.to_bits() - beyond) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `nearest` makes of the middle between two neighbours, and of what is next to it.
    fn check(bits: u16, wide: impl Fn(u16) -> f64, nearest: impl Fn(f64) -> u16) {
        let (low, high) = (wide(bits), wide(bits + 1));
        let middle = low + (high - low) / 2.0;
        let even = bits + bits % 2;
        let next = |by: i64| f64::from_bits(middle.to_bits().wrapping_add_signed(by));
        assert_eq!(nearest(low), bits);
        assert_eq!(nearest(middle), even, "{middle}");
        assert_eq!(nearest(next(-1)), bits, "below {middle}");
        assert_eq!(nearest(next(1)), bits + 1, "above {middle}");
        let sign = 0x8000;
        assert_eq!(nearest(-middle), even | sign);
        assert_eq!(nearest(-next(1)), (bits + 1) | sign);
    }

    #[test]
    fn all_middles_go_to_the_even_one_and_nothing_else_does() {
        for bits in 0..f16::MAX.to_bits() {
            let wide = |bits| f16::from_bits(bits).to_f64();
            check(bits, wide, |value| nearest_f16(value).to_bits());
        }
        for bits in 0..bf16::MAX.to_bits() {
            let wide = |bits| bf16::from_bits(bits).to_f64();
            check(bits, wide, |value| nearest_bf16(value).to_bits());
        }
    }

    #[test]
    fn ends_stay_ends() {
        assert_eq!(nearest_f16(65_519.999), f16::MAX);
        assert_eq!(nearest_f16(65_520.0), f16::INFINITY);
        assert_eq!(nearest_bf16(f64::MAX), bf16::INFINITY);
        assert_eq!(nearest_f16(f64::NEG_INFINITY), f16::NEG_INFINITY);
        assert!(nearest_f16(f64::NAN).is_nan() && nearest_bf16(f64::NAN).is_nan());
        assert_eq!(nearest_f16(-1e-30).to_bits(), 0x8000);
    }

    #[test]
    fn whole_numbers_beside_a_middle_are_not_taken_for_it() {
        let middle = (1_i128 << 62) + (1 << 54);
        assert_eq!(
            nearest_bf16(odd_f64(middle)),
            bf16::from_f32(2_f32.powi(62))
        );
        for sign in [1, -1] {
            let above = nearest_bf16(odd_f64(sign * (middle + 1))).to_f64();
            assert_eq!(above.abs(), 2_f64.powi(62) + 2_f64.powi(55));
        }
        assert_eq!(
            odd_f64(i128::from(u64::MAX)),
            f64::from_bits(2_f64.powi(64).to_bits() - 1)
        );
        assert_eq!(odd_f64(7), 7.0);
    }
}
