use std::fmt::{self, Debug, Display};

use bytemuck::Pod;

use crate::ReduceOp;

/// A number that buffers hold, ranks exchange and reduce ops combine.
///
/// Sealed: an element type has one wire form (little-endian) and one meaning of every
/// [`ReduceOp`] on all backends, so it is added here and nowhere else.
pub trait Element: Pod + PartialEq + Debug + Default + Send + Sync + sealed::Sealed {
    /// The type's tag on the wire and in buffers.
    const TYPE: ElementType;

    /// Replaces each `into[i]` by `op(into[i], from[i])`, over the shorter of both lengths.
    ///
    /// Callers want [`reduce_slice`](crate::reduce_slice), which checks the lengths.
    #[doc(hidden)]
    fn reduce(op: ReduceOp, into: &mut [Self], from: &[Self]);
}

/// Names an [`Element`] type at run time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
#[repr(u8)]
pub enum ElementType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Unsigned, 32 bits.
    U32 = 2,
    /// Unsigned, 64 bits.
    U64 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Signed, 64 bits.
    I64 = 5,
    /// IEEE 754 single precision.
    F32 = 6,
    /// IEEE 754 double precision.
    F64 = 7,
}

impl ElementType {
    /// Every element type, in the order of its wire code.
    pub const ALL: [Self; 7] = [
        Self::U8,
        Self::U32,
        Self::U64,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one element.
    ///
    /// ```
    /// assert_eq!(meshwork_accel::ElementType::F32.size(), 4);
    /// ```
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The code that stands for this type on the wire; inverse of [`ElementType::from_code`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this wire code, `None` for a code of no type; inverse of
    /// [`ElementType::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

macro_rules! integer {
    ($($number:ty => $kind:ident),+) => {$(
        impl sealed::Sealed for $number {}
        impl Element for $number {
            const TYPE: ElementType = ElementType::$kind;

            fn reduce(op: ReduceOp, into: &mut [Self], from: &[Self]) {
                match op {
                    ReduceOp::Sum => combine(into, from, <$number>::wrapping_add),
                    ReduceOp::Product => combine(into, from, <$number>::wrapping_mul),
                    ReduceOp::Min => combine(into, from, Ord::min),
                    ReduceOp::Max => combine(into, from, Ord::max),
                }
            }
        }
    )+};
}

macro_rules! float {
    ($($number:ty => $kind:ident),+) => {$(
        impl sealed::Sealed for $number {}
        impl Element for $number {
            const TYPE: ElementType = ElementType::$kind;

            fn reduce(op: ReduceOp, into: &mut [Self], from: &[Self]) {
                match op {
                    ReduceOp::Sum => combine(into, from, |a, b| a + b),
                    ReduceOp::Product => combine(into, from, |a, b| a * b),
                    // Not `f32::min`: it drops a NaN, and a lost NaN is a lost diverging run.
                    ReduceOp::Min => combine(into, from, |a, b| if a < b || a.is_nan() { a } else { b }),
                    ReduceOp::Max => combine(into, from, |a, b| if a > b || a.is_nan() { a } else { b }),
                }
            }
        }
    )+};
}

integer!(u8 => U8, u32 => U32, u64 => U64, i32 => I32, i64 => I64);
float!(f32 => F32, f64 => F64);

/// The closure is a type parameter so that each op becomes a loop of its own and vectorises.
fn combine<T: Copy>(into: &mut [T], from: &[T], op: impl Fn(T, T) -> T) {
    for (a, b) in into.iter_mut().zip(from) {
        *a = op(*a, *b);
    }
}

mod sealed {
    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Sealed {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_types_are_inverse_and_other_codes_are_refused() {
        for code in 0..=u8::MAX {
            let kind = ElementType::from_code(code);
            assert_eq!(kind.map(ElementType::code), kind.is_some().then_some(code));
        }
        assert_eq!(
            (0..=u8::MAX).filter_map(ElementType::from_code).count(),
            ElementType::ALL.len()
        );
    }

    #[test]
    fn sizes_are_those_of_the_rust_types() {
        fn check<T: Element>() {
            assert_eq!(T::TYPE.size(), size_of::<T>(), "{}", T::TYPE);
        }
        check::<u8>();
        check::<u32>();
        check::<u64>();
        check::<i32>();
        check::<i64>();
        check::<f32>();
        check::<f64>();
    }
}
