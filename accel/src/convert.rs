//! What an element is as one of another type, on all backends.

use crate::device_buffer::equal;
use crate::{Element, Error};

/// Replaces each element of `into` by the nearest to the same one of `from`.
///
/// Whole numbers are rounded towards zero and stop at their ends, and are 0 for NaN; a float is the
/// nearest one, of two as near the even one; a truth value is whether the number is not 0, and as a
/// number 1 or 0.
///
/// ```
/// use meshwork_accel::convert_slice;
///
/// let mut whole = [0_u8; 4];
/// convert_slice(&[-1.0_f32, 2.75, 1e9, f32::NAN], &mut whole)?;
/// assert_eq!(whole, [0, 2, 255, 0]);
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
///
/// # Errors
/// [`Error::LengthMismatch`].
pub fn convert_slice<T: Element, U: Element>(from: &[T], into: &mut [U]) -> Result<(), Error> {
    equal(into.len(), from.len())?;
    for (into, from) in into.iter_mut().zip(from) {
        *into = U::narrow(from.widen());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    fn all<T: Element, U: Element>(from: &[T]) -> Vec<U> {
        let mut into = vec![U::default(); from.len()];
        convert_slice(from, &mut into).unwrap();
        into
    }

    #[test]
    fn whole_numbers_stop_at_the_ends_of_others() {
        assert_eq!(all::<i64, u8>(&[-1, 255, 256]), [0, 255, 255]);
        assert_eq!(all::<u64, i64>(&[u64::MAX, 7]), [i64::MAX, 7]);
        assert_eq!(all::<i32, u64>(&[i32::MIN, 3]), [0, 3]);
        // Beyond what a float of 64 bits tells apart.
        let large = [i64::MAX - 1, i64::MIN + 1];
        assert_eq!(all::<i64, i64>(&large), large);
    }

    #[test]
    fn floats_become_whole_towards_zero_and_nan_is_none() {
        let values = [-2.75, 2.75, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        assert_eq!(all::<f64, i16>(&values), [-2, 2, 0, i16::MAX, i16::MIN]);
        assert_eq!(all::<f64, u16>(&values), [0, 2, 0, u16::MAX, 0]);
        let holds = [true, true, true, true, true];
        assert_eq!(all::<f64, bool>(&values), holds);
        assert_eq!(all::<f32, bool>(&[-0.0, 0.0]), [false, false]);
    }

    #[test]
    fn numbers_become_the_nearest_float() {
        // Half way between two floats of 32 bits, of which the even one is taken.
        assert_eq!(all::<i64, f32>(&[16_777_217]), [16_777_216.0]);
        assert_eq!(all::<f32, bf16>(&[1.0 + 1.0 / 256.0]), [bf16::ONE]);
        assert_eq!(all::<f64, f16>(&[1e9]), [f16::INFINITY]);
        assert_eq!(all::<bool, f16>(&[true, false]), [f16::ONE, f16::ZERO]);
    }

    #[test]
    fn slices_of_other_lengths_are_refused() {
        let refused = convert_slice(&[1_u8, 2], &mut [0.0_f32]);
        let (left, right) = (1, 2);
        assert_eq!(refused, Err(Error::LengthMismatch { left, right }));
    }
}
