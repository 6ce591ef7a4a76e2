use std::fmt::{self, Display};

/// The reduction by which the terms of an element on several ranks become its value.
///
/// There is no mean: a mean over the ranks of a cut dimension is a [`Sum`](Self::Sum) of each
/// rank's terms divided by the count of all, which is right for uneven and empty shards as well.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[doc(alias = "Partial")]
pub enum PartialReduction {
    /// Addition.
    Sum,
    /// Multiplication.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl PartialReduction {
    /// Every reduction.
    pub const ALL: [Self; 4] = [Self::Sum, Self::Product, Self::Min, Self::Max];

    /// The reduction with this name; inverse of its [`Display`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

impl Display for PartialReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reduction_is_found_by_its_name_and_by_no_other() {
        for reduction in PartialReduction::ALL {
            assert_eq!(
                PartialReduction::from_name(&reduction.to_string()),
                Some(reduction)
            );
        }
        assert_eq!(PartialReduction::from_name("mean"), None);
        assert_eq!(PartialReduction::from_name("Sum"), None);
    }
}
