//! From any element to any other, by a number that holds both.

use half::{bf16, f16};

use crate::rounding::{nearest_bf16, nearest_f16, odd_f64};

/// A number that holds any element as it is.
#[derive(Clone, Copy, Debug)]
#[expect(unnameable_types, reason = "part of a sealed trait")]
pub enum Number {
    /// A whole one, or a truth value.
    Signed(i64),
    /// A whole one that may be larger.
    Unsigned(u64),
    /// Any other.
    Real(f64),
}

/// From any element to any other.
#[expect(
    unnameable_types,
    reason = "a sealed trait is sealed by having no path"
)]
pub trait Convert: Sized {
    /// The same number.
    fn widen(self) -> Number;

    /// The nearest element.
    fn narrow(number: Number) -> Self;
}

impl Convert for bool {
    fn widen(self) -> Number {
        Number::Signed(i64::from(self))
    }

    fn narrow(number: Number) -> Self {
        match number {
            Number::Signed(value) => value != 0,
            Number::Unsigned(value) => value != 0,
            Number::Real(value) => value != 0.0,
        }
    }
}

macro_rules! whole {
    ($($number:ty),+ => $kind:ident) => {$(
        impl Convert for $number {
            fn widen(self) -> Number {
                Number::$kind(self.into())
            }

            #[expect(
                clippy::cast_possible_truncation,
                reason = "a float becomes a whole number as this says"
            )]
            #[allow(clippy::cast_sign_loss, reason = "and stops at its ends")]
            fn narrow(number: Number) -> Self {
                match number {
                    Number::Signed(value) => {
                        let end = if value < 0 { Self::MIN } else { Self::MAX };
                        value.try_into().unwrap_or(end)
                    }
                    Number::Unsigned(value) => value.try_into().unwrap_or(Self::MAX),
                    Number::Real(value) => value as Self,
                }
            }
        }
    )+};
}

whole!(i8, i16, i32, i64 => Signed);
whole!(u8, u16, u32, u64 => Unsigned);

macro_rules! float {
    ($($number:ty: $signed:expr, $unsigned:expr, $real:expr;)+) => {$(
        impl Convert for $number {
            fn widen(self) -> Number {
                Number::Real(self.into())
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "the nearest is what is asked for"
            )]
            fn narrow(number: Number) -> Self {
                match number {
                    Number::Signed(value) => $signed(value),
                    Number::Unsigned(value) => $unsigned(value),
                    Number::Real(value) => $real(value),
                }
            }
        }
    )+};
}

float!(
    f16: |value| nearest_f16(odd_f64(value)), |value| nearest_f16(odd_f64(value)), nearest_f16;
    bf16: |value| nearest_bf16(odd_f64(value)), |value| nearest_bf16(odd_f64(value)), nearest_bf16;
    f32: |value| value as Self, |value| value as Self, |value| value as Self;
    f64: |value| value as Self, |value| value as Self, std::convert::identity;
);
