//! Why one operation stopped, as whatever carried its bytes found it.
//!
//! Ranks are those of the operation's own group. The [session](crate::session) says what became of
//! the whole group, and which error its caller gets.

use std::io;

use crate::contract::Call;
use crate::wire::WireError;
use crate::{OperationError, Rank};

/// Why an operation stopped.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The group has failed meanwhile.
    GroupOver,
    /// This rank has left the memory that it shared, or failed there.
    Closed(Rank),
    /// The stream to or from this rank ended or was reset. Why is for membership to say.
    LinkBroken(Rank),
    /// The time was up while waiting for this rank.
    TimedOut(Rank),
    /// This rank made another call.
    Disagreement(Rank, Box<Call>),
    /// What this rank sent, or shows, means nothing.
    Protocol(Rank, WireError),
    /// This rank offers another number of elements than this rank was told to expect.
    Uneven {
        peer: Rank,
        offered: u64,
        expected: u64,
    },
    /// The registered memory of this rank cannot be reached.
    Unreachable(Rank, io::ErrorKind),
    /// The elements cannot be reduced so.
    Unsupported(meshwork_accel::Error),
    /// An operation that this one is made of has failed, with the error of its own session.
    Part(OperationError),
}

/// What ended an operation without saying why: membership knows, or nobody.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unexplained {
    GroupOver,
    Closed(Rank),
    LinkBroken(Rank),
    TimedOut(Rank),
}

impl Failure {
    /// The error of `me`, which made this call, with ranks called as `name` has them.
    pub(crate) fn into_error(
        self,
        me: Rank,
        call: impl FnOnce() -> Call,
        name: impl Fn(Rank) -> Rank,
    ) -> Result<OperationError, Unexplained> {
        let rank = name(me);
        Ok(match self {
            Self::GroupOver => return Err(Unexplained::GroupOver),
            Self::Closed(peer) => return Err(Unexplained::Closed(peer)),
            Self::LinkBroken(peer) => return Err(Unexplained::LinkBroken(peer)),
            Self::TimedOut(peer) => return Err(Unexplained::TimedOut(peer)),
            Self::Disagreement(peer, theirs) => OperationError::Disagreement {
                rank,
                mine: Box::new(call()),
                peer: name(peer),
                theirs,
            },
            Self::Protocol(peer, error) => OperationError::Protocol {
                peer: name(peer),
                error,
            },
            Self::Uneven {
                peer,
                offered,
                expected,
            } => OperationError::Uneven {
                rank,
                peer: name(peer),
                offered,
                expected,
            },
            Self::Unreachable(peer, kind) => OperationError::Memory {
                peer: name(peer),
                kind,
            },
            Self::Unsupported(error) => error.into(),
            Self::Part(error) => error,
        })
    }
}

impl From<meshwork_accel::Error> for Failure {
    fn from(error: meshwork_accel::Error) -> Self {
        Self::Unsupported(error)
    }
}
