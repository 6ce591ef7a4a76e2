//! How contributions become one result: all at once, or some at a time.

use std::num::NonZeroU32;

use meshwork_accel::{Element, Error, Reduction};

use crate::schedule::Schedule;

/// How the contributions of all ranks become one result.
#[derive(Clone, Copy, Debug)]
pub(super) enum Combine<T: Element> {
    /// Whoever combines any has all of them.
    AtOnce(Reduction<T>),
    /// Some at a time; when all are in, a mean is made of their sum.
    InSteps(Reduction<T>),
}

impl<T: Element> Combine<T> {
    pub(super) fn by(schedule: &Schedule, reduction: Reduction<T>) -> Self {
        match schedule.combines_at_once() {
            true => Self::AtOnce(reduction),
            false => Self::InSteps(reduction),
        }
    }

    /// Combines two, in place of the first.
    pub(super) fn pair(self, into: &mut [T], from: &[T]) -> Result<(), Error> {
        match self {
            Self::AtOnce(reduction) => reduction.complete_pair(into, from),
            Self::InSteps(reduction) => reduction.reduce(into, from),
        }
    }

    /// Combines several, in their order.
    pub(super) fn several(self, into: &mut [T], from: &[&[T]]) -> Result<(), Error> {
        match self {
            Self::AtOnce(reduction) => reduction.complete(into, from),
            Self::InSteps(reduction) => reduction.fold(into, from),
        }
    }

    /// Makes results of what all ranks were combined to.
    pub(super) fn finish(self, combined: &mut [T], world: u32) {
        if let (Self::InSteps(reduction), Some(world)) = (self, NonZeroU32::new(world)) {
            reduction.finish(combined, world);
        }
    }
}
