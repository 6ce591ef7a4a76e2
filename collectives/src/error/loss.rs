use std::fmt::{self, Display};
use std::time::Duration;

/// How the loss of a rank was noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LossCause {
    /// Its process has ended, or the launcher said so.
    Died,
    /// Its process is on this host and has been stopped by a signal, as SIGSTOP does.
    Stopped,
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
            Self::Stopped => f.write_str("its process is stopped; SIGCONT lets it go on"),
            Self::Silent(silence) => write!(f, "nothing was heard of it for {silence:.1?}"),
            Self::Disconnected => f.write_str("its connection closed without a goodbye"),
            Self::Left => f.write_str("it dropped its group before the others had finished"),
        }
    }
}
