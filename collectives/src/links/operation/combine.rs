//! How contributions become one result: all at once, or some at a time.

use std::fmt::Debug;
use std::num::NonZeroU32;

use bytemuck::checked::{cast_slice, cast_slice_mut};
use meshwork_accel::{Element, ElementType, Error, ReduceOp, Reduction};

use crate::schedule::Schedule;

/// A reduction of elements that are given as bytes, and lie where such elements may.
pub(super) trait ReduceBytes: Debug {
    /// As [`Reduction::reduce`].
    fn reduce(&self, into: &mut [u8], from: &[u8]) -> Result<(), Error>;
    /// As [`Reduction::complete_pair`].
    fn complete_pair(&self, into: &mut [u8], from: &[u8]) -> Result<(), Error>;
    /// As [`Reduction::fold`].
    fn fold(&self, into: &mut [u8], sources: &[&[u8]]) -> Result<(), Error>;
    /// As [`Reduction::complete`].
    fn complete(&self, into: &mut [u8], contributions: &[&[u8]]) -> Result<(), Error>;
    /// As [`Reduction::finish`].
    fn finish(&self, combined: &mut [u8], contributions: NonZeroU32);
}

impl<T: Element> ReduceBytes for Reduction<T> {
    fn reduce(&self, into: &mut [u8], from: &[u8]) -> Result<(), Error> {
        self.reduce(cast_slice_mut(into), cast_slice(from))
    }

    fn complete_pair(&self, into: &mut [u8], from: &[u8]) -> Result<(), Error> {
        self.complete_pair(cast_slice_mut(into), cast_slice(from))
    }

    fn fold(&self, into: &mut [u8], sources: &[&[u8]]) -> Result<(), Error> {
        let sources: Vec<&[T]> = sources.iter().map(|source| cast_slice(source)).collect();
        self.fold(cast_slice_mut(into), &sources)
    }

    fn complete(&self, into: &mut [u8], contributions: &[&[u8]]) -> Result<(), Error> {
        let contributions: Vec<&[T]> = contributions.iter().map(|one| cast_slice(one)).collect();
        self.complete(cast_slice_mut(into), &contributions)
    }

    fn finish(&self, combined: &mut [u8], contributions: NonZeroU32) {
        self.finish(cast_slice_mut(combined), contributions);
    }
}

/// The reduction of such elements by `op`.
///
/// # Errors
/// [`Error::UnsupportedOp`].
pub(super) fn reduction_of_bytes(
    element: ElementType,
    op: ReduceOp,
) -> Result<Box<dyn ReduceBytes>, Error> {
    Ok(match element.size() {
        1 => Box::new(Reduction::<u8>::carrying(element, op)?),
        2 => Box::new(Reduction::<u16>::carrying(element, op)?),
        4 => Box::new(Reduction::<u32>::carrying(element, op)?),
        8 => Box::new(Reduction::<u64>::carrying(element, op)?),
        size => unreachable!("no element has {size} bytes"),
    })
}

/// How the contributions of all ranks become one result.
#[derive(Debug)]
pub(super) enum Combine {
    /// Whoever combines any has all of them.
    AtOnce(Box<dyn ReduceBytes>),
    /// Some at a time; when all are in, a mean is made of their sum.
    InSteps(Box<dyn ReduceBytes>),
}

impl Combine {
    pub(super) fn by(schedule: &Schedule, reduction: Box<dyn ReduceBytes>) -> Self {
        match schedule.combines_at_once() {
            true => Self::AtOnce(reduction),
            false => Self::InSteps(reduction),
        }
    }

    /// Combines two, in place of the first.
    pub(super) fn pair(&self, into: &mut [u8], from: &[u8]) -> Result<(), Error> {
        match self {
            Self::AtOnce(reduction) => reduction.complete_pair(into, from),
            Self::InSteps(reduction) => reduction.reduce(into, from),
        }
    }

    /// Combines several, in their order.
    pub(super) fn several(&self, into: &mut [u8], from: &[&[u8]]) -> Result<(), Error> {
        match self {
            Self::AtOnce(reduction) => reduction.complete(into, from),
            Self::InSteps(reduction) => reduction.fold(into, from),
        }
    }

    /// Makes results of what all ranks were combined to.
    pub(super) fn finish(&self, combined: &mut [u8], world: u32) {
        if let (Self::InSteps(reduction), Some(world)) = (self, NonZeroU32::new(world)) {
            reduction.finish(combined, world);
        }
    }
}
