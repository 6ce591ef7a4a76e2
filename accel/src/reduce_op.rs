//! What is done with the contributions of several ranks, as it travels and stands in messages.

use std::fmt::{self, Display};

use crate::ElementType;

/// How the contributions of several ranks become one value.
///
/// | elements | ops |
/// |---|---|
/// | `bool` | min, max, and, or, xor; false is smaller than true |
/// | integers | all |
/// | floats | sum, product, min, max, mean |
///
/// A sum of truth values could be a count, an or or a parity, so the caller says which.
///
/// Every op commutes to the last bit. Integers wrap on overflow. A NaN in any contribution makes
/// the result NaN, for [`Min`](Self::Min) and [`Max`](Self::Max) too, and all NaN that come out
/// have the same bits; −0 is smaller than +0. 16-bit floats are computed in `f32` and rounded to
/// the nearest, ties to even, once per call.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
#[repr(u8)]
pub enum ReduceOp {
    /// Addition.
    Sum = 1,
    /// Multiplication.
    Product = 2,
    /// The smallest contribution.
    Min = 3,
    /// The largest contribution.
    Max = 4,
    /// The sum, divided by the number of contributions; of integers, what is left of the division
    /// is dropped, and a sum that wraps is not the mean. Of 16-bit floats that meet [all at
    /// once](crate::Reduction::complete) the sum is divided before it is rounded, so it may be
    /// beyond what they can be; a sum that is rounded on its way to others is infinite then, and so
    /// is the mean.
    Mean = 5,
    /// The bits that all contributions have.
    And = 6,
    /// The bits that any contribution has.
    Or = 7,
    /// The bits that an odd number of contributions has.
    Xor = 8,
}

impl ReduceOp {
    /// Every op, in the order of its wire code.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::Mean,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// The code that stands for this op on the wire; inverse of [`ReduceOp::from_code`].
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The op with this wire code, `None` for a code of no op; inverse of [`ReduceOp::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == code)
    }

    /// Whether elements of this type have this op: what [`Reduction::new`](crate::Reduction::new)
    /// refuses otherwise.
    ///
    /// ```
    /// use meshwork_accel::{ElementType, ReduceOp};
    ///
    /// assert!(ReduceOp::Mean.supports(ElementType::I32));
    /// assert!(!ReduceOp::Xor.supports(ElementType::F32));
    /// ```
    #[must_use]
    pub const fn supports(self, element: ElementType) -> bool {
        match element {
            ElementType::Bool => !matches!(self, Self::Sum | Self::Product | Self::Mean),
            _ if element.is_float() => !matches!(self, Self::And | Self::Or | Self::Xor),
            _ => true,
        }
    }

    /// Whether the result is one of the elements, which are in an order, so that it has an index:
    /// what [`Fold::arg_reduce`](crate::Fold::arg_reduce) refuses otherwise.
    ///
    /// ```
    /// use meshwork_accel::{ElementType, ReduceOp};
    ///
    /// assert!(ReduceOp::Max.has_index(ElementType::F32));
    /// assert!(!ReduceOp::Max.has_index(ElementType::Bool));
    /// ```
    #[must_use]
    pub const fn has_index(self, element: ElementType) -> bool {
        matches!(self, Self::Min | Self::Max) && !matches!(element, ElementType::Bool)
    }

    /// Whether the result depends on the order in which contributions are combined: sums and
    /// products of floats do, and what is rounded otherwise.
    #[must_use]
    pub const fn depends_on_order(self, element: ElementType) -> bool {
        let rounds = matches!(self, Self::Sum | Self::Product | Self::Mean);
        rounds && element.is_float()
    }
}

impl Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        })
    }
}
