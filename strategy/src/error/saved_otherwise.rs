use std::fmt::{self, Display};

use crate::VariableSpec;

/// A tensor that a checkpoint does not hold as a model has it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SavedOtherwise {
    /// The tensor of the model.
    pub spec: VariableSpec,
    /// The shape under its name in the checkpoint, if there is one.
    pub found: Option<Vec<usize>>,
}

impl SavedOtherwise {
    pub(crate) fn new(spec: VariableSpec, found: Option<Vec<usize>>) -> Self {
        Self { spec, found }
    }
}

impl Display for SavedOtherwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(shape) => write!(f, "{} is {shape:?} there", self.spec),
            None => write!(f, "{} is not there", self.spec),
        }
    }
}

/// As many as a line has room for.
pub(super) struct Tensors<'a>(pub(super) &'a [SavedOtherwise]);

impl Display for Tensors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, tensor) in self.0.iter().take(MOST).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{tensor}")?;
        }
        match self.0.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

const MOST: usize = 8;
