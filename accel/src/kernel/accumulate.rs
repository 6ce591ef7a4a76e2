//! How an element is computed with: in which type, and how it comes back.

use std::fmt::Debug;
use std::num::NonZeroU32;

use half::{bf16, f16};

/// An element: the bits that it is kept as, and the type that its reductions are computed in, wider
/// for 16-bit floats.
pub(crate) trait Accumulate {
    /// What stands in memory: of most types an unsigned number, so that types whose loops do the
    /// same to their bits have one loop.
    type Bits: Copy + Debug + Default;
    /// The type computed in.
    type Wide: Copy;

    /// The value of some bits.
    fn widen(bits: Self::Bits) -> Self::Wide;

    /// The nearest element, ties to even. Of NaN there is one, the positive quiet one without a
    /// payload: hardware keeps the payload of either operand, so ranks would differ.
    fn narrow(wide: Self::Wide) -> Self::Bits;

    /// The value divided by a number of parts, then narrowed; integers towards zero.
    fn part(wide: Self::Wide, by: NonZeroU32) -> Self::Bits;
}

impl Accumulate for bool {
    type Bits = Self;
    type Wide = Self;

    #[inline(always)]
    fn widen(bits: Self) -> Self {
        bits
    }

    #[inline(always)]
    fn narrow(wide: Self) -> Self {
        wide
    }

    /// A truth value has no mean.
    fn part(wide: Self, _: NonZeroU32) -> Self {
        wide
    }
}

macro_rules! unsigned {
    ($($number:ty),+) => {$(
        impl Accumulate for $number {
            type Bits = Self;
            type Wide = Self;

            #[inline(always)]
            fn widen(bits: Self) -> Self {
                bits
            }

            #[inline(always)]
            fn narrow(wide: Self) -> Self {
                wide
            }

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "a quotient is no longer than its dividend")]
            #[allow(trivial_numeric_casts, reason = "the widest type divides as itself")]
            fn part(wide: Self, by: NonZeroU32) -> Self {
                (u64::from(wide) / u64::from(by.get())) as Self
            }
        }
    )+};
}

unsigned!(u8, u16, u32, u64);

macro_rules! signed {
    ($($number:ty as $bits:ty),+) => {$(
        impl Accumulate for $number {
            type Bits = $bits;
            type Wide = Self;

            #[inline(always)]
            fn widen(bits: $bits) -> Self {
                bits.cast_signed()
            }

            #[inline(always)]
            fn narrow(wide: Self) -> $bits {
                wide.cast_unsigned()
            }

            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "a quotient is no longer than its dividend")]
            #[allow(trivial_numeric_casts, reason = "the widest type divides as itself")]
            fn part(wide: Self, by: NonZeroU32) -> $bits {
                Self::narrow((i64::from(wide) / i64::from(by.get())) as Self)
            }
        }
    )+};
}

signed!(i8 as u8, i16 as u16, i32 as u32, i64 as u64);

macro_rules! float {
    ($($number:ty as $bits:ty, $nan:literal);+) => {$(
        impl Accumulate for $number {
            type Bits = $bits;
            type Wide = Self;

            #[inline(always)]
            fn widen(bits: $bits) -> Self {
                Self::from_bits(bits)
            }

            #[inline(always)]
            fn narrow(wide: Self) -> $bits {
                if wide.is_nan() { $nan } else { wide.to_bits() }
            }

            #[inline(always)]
            fn part(wide: Self, by: NonZeroU32) -> $bits {
                Self::narrow(wide / by.get() as Self)
            }
        }
    )+};
}

float!(f32 as u32, 0x7FC0_0000; f64 as u64, 0x7FF8_0000_0000_0000);

macro_rules! half_float {
    ($($number:ty, $widen:ident, $narrow:ident);+) => {$(
        impl Accumulate for $number {
            type Bits = u16;
            type Wide = f32;

            #[inline(always)]
            fn widen(bits: u16) -> f32 {
                $widen(bits)
            }

            #[inline(always)]
            fn narrow(wide: f32) -> u16 {
                $narrow(wide)
            }

            #[inline(always)]
            fn part(wide: f32, by: NonZeroU32) -> u16 {
                Self::narrow(wide / by.get() as f32)
            }
        }
    )+};
}

half_float!(f16, f16_to_f32, f32_to_f16; bf16, bf16_to_f32, f32_to_bf16);

// The conversions of `half` ask for CPU features at each element. These select instead of branching
// and touch no subnormal `f32`, so that loops over them become vector code.

#[inline(always)]
fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
fn f32_to_bf16(wide: f32) -> u16 {
    let bits = wide.to_bits();
    // Half a unit of the last place that stays, less one bit where that place is even. Cannot
    // overflow but for NaN.
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    if wide.is_nan() {
        0x7FC0
    } else {
        rounded as u16
    }
}

#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let (sign, rest) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7FFF));
    let rebias = |by: u32| (rest << 13) + (by << 23);
    // Subnormals are whole multiples of 2^-24, which this constant is.
    let subnormal = (rest as f32 * f32::from_bits(0x3380_0000)).to_bits();
    let finite = if rest < 0x0400 {
        subnormal
    } else {
        rebias(127 - 15)
    };
    let special = rebias(2 * (127 - 15));
    let magnitude = if rest < 0x7C00 { finite } else { special };
    f32::from_bits(sign | magnitude)
}

#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "each choice leaves 16 bits"
)]
fn f32_to_f16(wide: f32) -> u16 {
    let bits = wide.to_bits();
    let (sign, rest) = ((bits >> 16) as u16 & 0x8000, bits & 0x7FFF_FFFF);
    // The last place of a number just above 0.5 is 2^-24, the smallest subnormal.
    let subnormal = (f32::from_bits(rest) + 0.5).to_bits() - 0.5_f32.to_bits();
    let odd = rest >> 13 & 1;
    // Rounding may carry into the exponent, up to infinity.
    let normal = rest
        .wrapping_sub((127 - 15) << 23)
        .wrapping_add(0x0FFF + odd)
        >> 13;
    let finite = if rest < 0x3880_0000 {
        subnormal
    } else {
        normal
    };
    let infinite = if rest < 0x4780_0000 { finite } else { 0x7C00 };
    // A NaN loses its sign too.
    let signed = u32::from(sign) | infinite;
    (if rest > 0x7F80_0000 { 0x7E00 } else { signed }) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_16_bit_float_widens_as_in_half_and_comes_back() {
        for bits in 0..=u16::MAX {
            let (short, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            let (wide, brain_wide) = (f16::widen(bits), bf16::widen(bits));
            if short.is_nan() {
                assert_eq!(f16::narrow(wide), f16::NAN.to_bits());
            } else {
                assert_eq!(wide.to_bits(), short.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(f16::narrow(wide), bits);
            }
            if brain.is_nan() {
                assert_eq!(bf16::narrow(brain_wide), bf16::NAN.to_bits());
            } else {
                assert_eq!(brain_wide.to_bits(), brain.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(bf16::narrow(brain_wide), bits);
            }
        }
    }

    #[track_caller]
    fn narrows_as_in_half(wide: f32) {
        if wide.is_nan() {
            assert_eq!(f16::narrow(wide), f16::NAN.to_bits());
            assert_eq!(bf16::narrow(wide), bf16::NAN.to_bits());
        } else {
            assert_eq!(f16::narrow(wide), f16::from_f32(wide).to_bits(), "{wide:e}");
            assert_eq!(
                bf16::narrow(wide),
                bf16::from_f32(wide).to_bits(),
                "{wide:e}"
            );
        }
    }

    #[test]
    fn numbers_halfway_between_neighbours_and_beside_it_round_as_in_half() {
        for bits in 0..=u16::MAX {
            let halfway = [
                (u32::from(bits) << 16) + 0x8000,
                f16_to_f32(bits).to_bits() + 0x1000,
                (f32::midpoint(f16_to_f32(bits), f16_to_f32(bits.wrapping_add(1)))).to_bits(),
            ];
            for bits in halfway {
                for near in [bits - 1, bits, bits.wrapping_add(1)] {
                    narrows_as_in_half(f32::from_bits(near));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_number_rounds_as_in_half(bits in any::<u32>()) {
            narrows_as_in_half(f32::from_bits(bits));
        }

        #[test]
        fn any_number_of_the_range_of_f16_rounds_as_in_half(wide in -70_000.0_f32..70_000.0, scale in -30..1) {
            narrows_as_in_half(wide * (scale as f32).exp2());
        }
    }
}
