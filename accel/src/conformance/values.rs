//! What is put into buffers, and when two of them are the same.

use half::{bf16, f16};

use super::violation::Found;
use crate::{Element, Error, ReduceOp, Reduction};

/// An element type with values to try.
pub(super) trait Sample: Element {
    /// One, of which sums are exact in any order.
    const ONE: Self;

    /// The element nearest to a whole number; of whole types its lowest bits.
    fn whole(number: usize) -> Self;

    /// A value for each number, the same at every call; neighbours are unlike.
    fn sample(number: u64) -> Self;
}

/// `len` values, others for each `seed`.
pub(super) fn samples<T: Sample>(seed: u64, len: usize) -> Vec<T> {
    let first = seed << 32;
    (first..).take(len).map(T::sample).collect()
}

/// What makes elements along an axis one: not a mean, as backends do not know what to divide by.
pub(super) fn reduction_along<T: Sample>(op: ReduceOp) -> Result<Reduction<T>, Error> {
    let element = T::TYPE;
    match op {
        ReduceOp::Mean => Err(Error::UnsupportedOp { op, element }),
        _ => Reduction::new(op),
    }
}

/// `len` numbers whose sums and products are exact in any order; any at all for ops of bits.
pub(super) fn terms<T: Sample>(op: ReduceOp, len: usize) -> Vec<T> {
    let term = |at: usize| match (op, at * 7 % 5) {
        (ReduceOp::And | ReduceOp::Or | ReduceOp::Xor, _) => T::sample(at as u64),
        (_, 0..=2) => T::ONE,
        _ => T::default(),
    };
    (0..len).map(term).collect()
}

/// That all elements have the same bits.
pub(super) fn same<T: Element>(found: &[T], expected: &[T]) -> Result<(), Found> {
    let (found_bytes, expected_bytes) = (bytes(found), bytes(expected));
    if found_bytes == expected_bytes {
        return Ok(());
    }
    let size = size_of::<T>();
    let pairs = found_bytes.chunks(size).zip(expected_bytes.chunks(size));
    let first = pairs
        .into_iter()
        .position(|(found, expected)| found != expected);
    let at = first.unwrap_or_else(|| found.len().min(expected.len()));
    let (left, right) = (shown(found.get(at)), shown(expected.get(at)));
    Err(Found::new(format!(
        "element {at} of {} is {left}, not {right}",
        found.len()
    )))
}

/// A value and its bytes, as many values have the same name.
fn shown<T: Element>(value: Option<&T>) -> String {
    value.map_or_else(
        || "missing".to_owned(),
        |value| format!("{value:?} {:02x?}", bytemuck::bytes_of(value)),
    )
}

fn bytes<T: Element>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

impl Sample for bool {
    const ONE: Self = true;

    fn whole(number: usize) -> Self {
        number & 1 == 1
    }

    fn sample(number: u64) -> Self {
        mixed(number) & 1 == 1
    }
}

macro_rules! integer {
    ($($number:ty),+) => {$(
        impl Sample for $number {
            const ONE: Self = 1;

            #[allow(clippy::cast_possible_truncation, reason = "as it says")]
            fn whole(number: usize) -> Self {
                number as Self
            }

            #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
            #[allow(trivial_numeric_casts, reason = "one of the types is as wide as the bits")]
            fn sample(number: u64) -> Self {
                mixed(number) as Self
            }
        }
    )+};
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! float {
    ($($number:ty, $bits:ty, $one:expr, $from:expr);+) => {$(
        impl Sample for $number {
            const ONE: Self = $one;

            #[allow(clippy::cast_possible_truncation, reason = "the nearest is asked for")]
            fn whole(number: usize) -> Self {
                $from(number as f64)
            }

            #[allow(clippy::cast_possible_truncation, reason = "any bits will do")]
            #[allow(trivial_numeric_casts, reason = "one of the types is as wide as the bits")]
            fn sample(number: u64) -> Self {
                let bits = mixed(number);
                match bits % 16 {
                    // NaN with a payload, both infinities, both zeros, the largest; no subnormal,
                    // and none that comes out: devices that take them for zero are common.
                    0 => Self::from_bits(Self::NAN.to_bits() | (bits >> 56) as $bits),
                    1 => -Self::NAN,
                    2 => Self::INFINITY,
                    3 => Self::NEG_INFINITY,
                    4 => $from(0.0),
                    5 => $from(-0.0),
                    6 => Self::MAX,
                    _ => $from(f64::from((bits >> 40) as u16) * 0.37 - 12_000.0),
                }
            }
        }
    )+};
}

float!(
    f16, u16, f16::ONE, f16::from_f64;
    bf16, u16, bf16::ONE, bf16::from_f64;
    f32, u32, 1.0, |wide| wide as f32;
    f64, u64, 1.0, |wide| wide
);

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_what_floats_are_tested_for() {
        let values = samples::<f32>(1, 1000);
        assert!(values.iter().any(|value| value.is_nan()));
        assert!(values.iter().any(|value| value.is_infinite()));
        assert!(!values.iter().any(|value| value.is_subnormal()));
        assert!(
            values
                .iter()
                .any(|value| value.to_bits() == (-0.0_f32).to_bits())
        );
        assert!(values.iter().filter(|value| value.is_normal()).count() > 500);
        assert_ne!(bytes(&values), bytes(&samples::<f32>(2, 1000)));
    }

    #[test]
    fn zeros_of_unlike_sign_are_not_the_same_and_equal_nan_are() {
        assert!(same(&[0.0_f32], &[-0.0]).is_err());
        assert!(same(&[f32::NAN], &[f32::NAN]).is_ok());
        assert!(same(&[1_u8], &[1, 2]).is_err());
    }
}
