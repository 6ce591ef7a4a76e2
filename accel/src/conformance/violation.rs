use std::fmt::{self, Debug, Display};

use crate::Error;

/// A claim that a backend does not keep.
#[derive(Clone, Eq, PartialEq)]
pub struct Violation {
    claim: &'static str,
    case: String,
    found: String,
}

impl Violation {
    /// The claim that should hold for every backend.
    #[must_use]
    pub fn claim(&self) -> &'static str {
        self.claim
    }

    /// With which device, element type, length and op it was tried; empty where there is no choice.
    #[must_use]
    pub fn case(&self) -> &str {
        &self.case
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it does not hold that {}", self.claim)?;
        if !self.case.is_empty() {
            write!(f, " ({})", self.case)?;
        }
        write!(f, ": {}", self.found)
    }
}

/// Read by people, in the output of a test that failed.
impl Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

/// A result that contradicts a claim.
#[derive(Debug)]
pub(super) struct Found(String);

impl Found {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    pub(super) fn of(self, claim: &'static str, case: String) -> Violation {
        Violation {
            claim,
            case,
            found: self.0,
        }
    }
}

/// A call that should have worked.
impl From<Error> for Found {
    fn from(error: Error) -> Self {
        Self(format!("refused, {error}"))
    }
}

/// That a call was refused with this error.
pub(super) fn refused<T>(answer: Result<T, Error>, expected: &Error) -> Result<(), Found> {
    match answer {
        Err(error) if error == *expected => Ok(()),
        Err(error) => Err(Found(format!("{error:?} instead of {expected:?}"))),
        Ok(_) => Err(Found(format!("accepted instead of {expected:?}"))),
    }
}

/// Sizes of three axes with more elements than can be counted: in as many bits as sizes have, their
/// product is the length of an empty buffer.
pub(super) const UNCOUNTED: [usize; 3] = [1 << (usize::BITS / 2), 1, 1 << (usize::BITS / 2)];

/// That a call with those sizes was refused.
pub(super) fn refused_uncounted<T>(answer: Result<T, Error>) -> Result<(), Found> {
    let [rows, _, columns] = UNCOUNTED;
    refused(answer, &Error::ShapeTooLarge { rows, columns })
}

/// That two values are equal.
pub(super) fn equal<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), Found> {
    if found == expected {
        return Ok(());
    }
    Err(Found(format!("{what} is {found:?}, not {expected:?}")))
}
