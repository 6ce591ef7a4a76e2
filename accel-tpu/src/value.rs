use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// Attributes of plugins and devices, by name.
pub type Attributes = BTreeMap<String, AttributeValue>;

/// A named value, as options to a plugin and attributes from it have them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AttributeValue {
    /// Text.
    Text(String),
    /// A number.
    Int(i64),
    /// Numbers.
    Ints(Vec<i64>),
    /// A number with a fraction.
    Float(f32),
    /// A truth value.
    Bool(bool),
}

impl AttributeValue {
    /// The number, if it is one.
    #[must_use]
    pub const fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The numbers, if it is several.
    #[must_use]
    pub fn as_ints(&self) -> Option<&[i64]> {
        match self {
            Self::Ints(numbers) => Some(numbers),
            _ => None,
        }
    }
}

impl Display for AttributeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => Display::fmt(number, f),
            Self::Ints(numbers) => write!(f, "{numbers:?}"),
            Self::Float(number) => Display::fmt(number, f),
            Self::Bool(truth) => Display::fmt(truth, f),
        }
    }
}
