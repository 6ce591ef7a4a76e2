use std::fmt::{self, Display};

use crate::Rank;

/// A rank and where it is: what an error needs to be acted on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    rank: Rank,
    address: String,
}

impl Member {
    pub(crate) fn new(rank: Rank, address: impl Into<String>) -> Self {
        Self {
            rank,
            address: address.into(),
        }
    }

    /// A rank that has not said where it is.
    pub(crate) fn unknown(rank: Rank) -> Self {
        Self::new(rank, "at an unknown address")
    }

    /// Its rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Its address as the members list has it, or what stands for it between threads.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.rank, self.address)
    }
}

/// Several of them in a sentence, and how many more.
pub(super) struct Listed<'a, T>(pub(super) &'a [T]);

impl<T: Display> Display for Listed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (index, one) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{one}")?;
        }
        match self.0.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}
