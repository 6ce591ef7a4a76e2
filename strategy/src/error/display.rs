//! Values of errors as their messages show them.

use std::fmt::{self, Display};

use meshwork_collectives::Rank;

use crate::VariableSpec;

pub(super) struct Known<'a>(pub(super) &'a Option<Box<VariableSpec>>);

impl Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(spec) => write!(f, "{} of shape {}", spec.name(), spec.dims()),
            None => f.write_str("missing"),
        }
    }
}

pub(super) struct Found<'a>(pub(super) &'a Option<Vec<usize>>);

impl Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(shape) => write!(f, "{shape:?}"),
            None => f.write_str("nothing"),
        }
    }
}

pub(super) struct Listed<'a>(pub(super) &'a [Rank]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rank) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{rank}")?;
        }
        Ok(())
    }
}
