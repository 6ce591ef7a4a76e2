use std::fmt::{self, Display};
use std::net::SocketAddr;

use super::Refusal;

/// A process that asked to join during the join and was not let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnauthenticatedPeer {
    address: SocketAddr,
    cause: UnauthenticatedCause,
}

impl UnauthenticatedPeer {
    pub(crate) fn new(address: SocketAddr, cause: UnauthenticatedCause) -> Self {
        Self { address, cause }
    }

    /// Where it called from.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why it was refused.
    #[must_use]
    pub fn cause(&self) -> UnauthenticatedCause {
        self.cause
    }
}

impl Display for UnauthenticatedPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process at {} {}", self.address, self.cause)
    }
}

/// Why a stranger was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum UnauthenticatedCause {
    /// It has no certificate of this job.
    OtherJob,
    /// It belongs to the job, and did not find the rank here that it called.
    OtherRank,
    /// Its certificate is not valid at this time.
    Expired,
    /// It belongs to the job but was refused for this reason.
    Refused(Refusal),
}

impl Display for UnauthenticatedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherJob => f.write_str("holds another job secret"),
            Self::OtherRank => f.write_str(
                "expected another rank here, so it has another list of members, index or \
                 MESHWORK_CERTIFICATE_JOB",
            ),
            Self::Expired => f.write_str("shows a certificate that is not valid at this time"),
            Self::Refused(refusal) => write!(f, "was refused: {refusal}"),
        }
    }
}

/// Who was not let in, after what went wrong.
pub(super) struct Refused<'a>(pub(super) &'a [UnauthenticatedPeer]);

impl Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("; is every process started, and can its address be reached?"),
            [first, rest @ ..] => {
                write!(f, "; {first}")?;
                rest.iter().try_for_each(|peer| write!(f, ", {peer}"))
            }
        }
    }
}
