//! The types of elements by name, as they travel and stand in messages.

use std::fmt::{self, Display};

/// Names an [`Element`](crate::Element) type at run time.
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
    /// A truth value, in one byte.
    Bool = 8,
    /// Signed, 8 bits.
    I8 = 9,
    /// Signed, 16 bits.
    I16 = 10,
    /// Unsigned, 16 bits.
    U16 = 11,
    /// IEEE 754 half precision.
    F16 = 12,
    /// The upper half of a single precision number.
    Bf16 = 13,
}

impl ElementType {
    /// Every element type, in the order of its wire code.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U32,
        Self::U64,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::U16,
        Self::F16,
        Self::Bf16,
    ];

    /// Bytes of one element.
    ///
    /// ```
    /// assert_eq!(meshwork_accel::ElementType::F32.size(), 4);
    /// ```
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether it is a floating-point type, whose sums are rounded.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
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
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
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
    fn codes_never_change() {
        let codes = ElementType::ALL.map(|kind| (kind.to_string(), kind.code()));
        let names = codes.iter().map(|(name, _)| name.as_str());
        assert_eq!(
            names.collect::<Vec<_>>().join(" "),
            "u8 u32 u64 i32 i64 f32 f64 bool i8 i16 u16 f16 bf16"
        );
        assert!(codes.iter().map(|(_, code)| *code).eq(1..=13));
    }
}
