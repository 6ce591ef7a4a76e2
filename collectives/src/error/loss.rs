use std::fmt::{self, Display};
use std::time::Duration;

use crate::{Member, OperationError, Rank};

/// How the loss of a rank was noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LossCause {
    /// Its process has ended, or the launcher said so.
    Died,
    /// Its process has been stopped, by a signal such as SIGSTOP or by a debugger, for longer than
    /// the group waits.
    Stopped,
    /// It is on another host, which says that nobody listens at its port any more.
    PortClosed,
    /// Nothing was heard of it for this long.
    Silent(Duration),
    /// Its connection closed without a goodbye.
    Disconnected,
    /// It dropped its group without leaving.
    Left,
}

impl Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died => f.write_str("its process ended"),
            Self::Stopped => {
                f.write_str("its process is stopped; SIGCONT or its debugger lets it go on")
            }
            Self::PortClosed => {
                f.write_str("its host says that nobody listens at its port any more")
            }
            Self::Silent(silence) => write!(f, "nothing was heard of it for {silence:.1?}"),
            Self::Disconnected => f.write_str("its connection closed without a goodbye"),
            Self::Left => f.write_str("it dropped its group before the others had finished"),
        }
    }
}

impl OperationError {
    /// The loss of a rank, of which nothing else is known.
    pub(crate) fn lost(peer: Member, cause: LossCause) -> Self {
        Self::RankLost {
            peer,
            cause,
            reporter: None,
            heard: None,
            completed: 0,
        }
    }
}

/// What is known of a loss besides its cause: when its rank was last heard of, and who noticed.
pub(super) struct Told<'a>(
    pub(super) &'a LossCause,
    pub(super) Option<Duration>,
    pub(super) Option<Rank>,
);

impl Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(cause, heard, reporter) = self;
        // Silence is its own measure.
        let heard = heard.filter(|_| !matches!(cause, LossCause::Silent(_)));
        match (heard, reporter) {
            (Some(heard), Some(reporter)) => {
                write!(
                    f,
                    " (last heard of {heard:.1?} before; reported by {reporter})"
                )
            }
            (Some(heard), None) => write!(f, " (last heard of {heard:.1?} before)"),
            (None, Some(reporter)) => write!(f, " (reported by {reporter})"),
            (None, None) => Ok(()),
        }
    }
}

/// How far a rank had come; nothing where it had not begun.
pub(super) struct Completed(pub(super) u64);

impl Display for Completed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str("; 1 operation was completed here"),
            many => write!(f, "; {many} operations were completed here"),
        }
    }
}
