use crate::Reduction;

/// What a plan is carried out on: something that can be reduced.
pub trait Value: Copy {
    /// What a reduction makes of two terms.
    #[must_use]
    fn reduce(self, other: Self, reduction: Reduction) -> Self;

    /// The term that leaves any other as it is.
    #[must_use]
    fn neutral(reduction: Reduction) -> Self;
}

/// Sums and products wrap around.
impl Value for i64 {
    fn reduce(self, other: Self, reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => self.wrapping_add(other),
            Reduction::Product => self.wrapping_mul(other),
            Reduction::Min => self.min(other),
            Reduction::Max => self.max(other),
        }
    }

    fn neutral(reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => 0,
            Reduction::Product => 1,
            Reduction::Min => Self::MAX,
            Reduction::Max => Self::MIN,
        }
    }
}

impl Value for f64 {
    fn reduce(self, other: Self, reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => self + other,
            Reduction::Product => self * other,
            Reduction::Min => self.min(other),
            Reduction::Max => self.max(other),
        }
    }

    fn neutral(reduction: Reduction) -> Self {
        match reduction {
            Reduction::Sum => 0.0,
            Reduction::Product => 1.0,
            Reduction::Min => Self::INFINITY,
            Reduction::Max => Self::NEG_INFINITY,
        }
    }
}
