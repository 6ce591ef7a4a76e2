//! Numbers and lists as messages have them.

use std::fmt::{self, Display};

use crate::DimName;

/// A number with its noun: `1 rank`, `8 ranks`.
pub(super) struct Counted(pub(super) usize, pub(super) &'static str);

impl Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

/// Sizes joined by `×`.
pub(super) struct By<'a>(pub(super) &'a [usize]);

impl Display for By<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, size) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "×" };
            write!(f, "{separator}{size}")?;
        }
        Ok(())
    }
}

/// The dimensions of a mesh: `no dimensions`, `the dimension x`, `the dimensions x, y`.
pub(super) struct Dims<'a>(pub(super) &'a [DimName]);

impl Display for Dims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = self.0 else {
            return f.write_str("no dimensions");
        };
        let plural = if rest.is_empty() { "" } else { "s" };
        write!(f, "the dimension{plural} {first}")?;
        rest.iter().try_for_each(|name| write!(f, ", {name}"))
    }
}
