use crate::PartialReduction;

/// A value on which a plan can be executed: one that can be reduced.
pub trait Term: Copy {
    /// Reduces two terms to one.
    #[must_use]
    fn reduce(self, other: Self, reduction: PartialReduction) -> Self;

    /// The term that leaves any other as it is.
    #[must_use]
    fn neutral(reduction: PartialReduction) -> Self;
}

/// Sums and products wrap around.
impl Term for i64 {
    fn reduce(self, other: Self, reduction: PartialReduction) -> Self {
        match reduction {
            PartialReduction::Sum => self.wrapping_add(other),
            PartialReduction::Product => self.wrapping_mul(other),
            PartialReduction::Min => self.min(other),
            PartialReduction::Max => self.max(other),
        }
    }

    fn neutral(reduction: PartialReduction) -> Self {
        match reduction {
            PartialReduction::Sum => 0,
            PartialReduction::Product => 1,
            PartialReduction::Min => Self::MAX,
            PartialReduction::Max => Self::MIN,
        }
    }
}

impl Term for f64 {
    fn reduce(self, other: Self, reduction: PartialReduction) -> Self {
        match reduction {
            PartialReduction::Sum => self + other,
            PartialReduction::Product => self * other,
            PartialReduction::Min => self.min(other),
            PartialReduction::Max => self.max(other),
        }
    }

    fn neutral(reduction: PartialReduction) -> Self {
        match reduction {
            // 0.0 would make 0.0 of -0.0.
            PartialReduction::Sum => -0.0,
            PartialReduction::Product => 1.0,
            PartialReduction::Min => Self::INFINITY,
            PartialReduction::Max => Self::NEG_INFINITY,
        }
    }
}
