//! What each op does to two values. All commute bit for bit, signed zeros included; only which NaN
//! comes out is open, until `Accumulate::narrow` makes all of them one.

/// An op on values as wide as they are computed in.
pub(crate) trait Op<W> {
    /// The op of two values.
    fn of(a: W, b: W) -> W;
}

pub(crate) struct Sum;
pub(crate) struct Product;
pub(crate) struct Min;
pub(crate) struct Max;
pub(crate) struct And;
pub(crate) struct Or;
pub(crate) struct Xor;

macro_rules! op {
    ($op:ident for $($number:ty),+: |$a:ident, $b:ident| $of:expr) => {$(
        impl Op<$number> for $op {
            #[inline(always)]
            fn of($a: $number, $b: $number) -> $number {
                $of
            }
        }
    )+};
}

op!(Sum for i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a.wrapping_add(b));
op!(Product for i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a.wrapping_mul(b));
op!(Min for i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a.min(b));
op!(Max for i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a.max(b));
op!(And for bool, i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a & b);
op!(Or for bool, i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a | b);
op!(Xor for bool, i8, i16, i32, i64, u8, u16, u32, u64: |a, b| a ^ b);

op!(Sum for f32, f64: |a, b| a + b);
op!(Product for f32, f64: |a, b| a * b);

macro_rules! extremes {
    ($($number:ty),+) => {$(
        // Not `f32::min`: it drops a NaN, and a lost NaN is a lost diverging run. Equal values have
        // equal bits but for the sign of a zero, where -0 is the smaller.
        op!(Min for $number: |a, b| if a == b {
            <$number>::from_bits(a.to_bits() | b.to_bits())
        } else if a < b || a.is_nan() {
            a
        } else {
            b
        });
        op!(Max for $number: |a, b| if a == b {
            <$number>::from_bits(a.to_bits() & b.to_bits())
        } else if a > b || a.is_nan() {
            a
        } else {
            b
        });
    )+};
}

extremes!(f32, f64);
