//! The number of a process in its group.

use std::fmt::{self, Display};

/// A process's (or thread's) place in its group: `0..world`.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Rank(u32);

impl Rank {
    /// The rank that the group calls chief: its initial values win, its process reports.
    pub const CHIEF: Self = Self(0);

    /// The rank with this number; whether it is inside a group is for the group to say.
    ///
    /// ```
    /// assert_eq!(meshwork_schedule::Rank::new(3).to_string(), "rank 3");
    /// ```
    #[must_use]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number, for indexing tables of ranks.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number as it stands on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The rank at this place among the members of a group; inverse of [`index`](Self::index).
    ///
    /// # Panics
    /// For a place that is no rank's: 2³² and more.
    #[must_use]
    pub fn at(place: usize) -> Self {
        Self(u32::try_from(place).expect("a rank is less than 2^32"))
    }

    /// All ranks of a group of `world`, in order.
    pub fn all(world: u32) -> impl ExactSizeIterator<Item = Self> + Clone {
        (0..world).map(Self)
    }
}

impl Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}
