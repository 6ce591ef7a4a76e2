//! What the operating system refused.

use std::fmt::{self, Display};
use std::io;

/// The operating system refused memory, a thread, a timer or a socket option.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what} failed: {kind}; is it limited for this process?")]
pub struct SystemError {
    what: &'static str,
    kind: io::ErrorKind,
}

impl SystemError {
    pub(crate) fn new(what: &'static str, kind: io::ErrorKind) -> Self {
        Self { what, kind }
    }

    /// What was tried.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// What the system said.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

/// Which limit of open files has been reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FileLimit {
    /// That of this process (`RLIMIT_NOFILE`, the soft one), where there is one.
    OfProcess(Option<u64>),
    /// That of its machine.
    OfMachine,
}

impl Display for FileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfProcess(limit) => {
                f.write_str("its process has ")?;
                if let Some(limit) = limit {
                    write!(f, "{limit} open files, ")?;
                }
                f.write_str(
                    "as many as it may; raise the limit with 'ulimit -n' where it is started",
                )
            }
            Self::OfMachine => f.write_str(
                "its machine has as many open files as it may; raise fs.file-max with sysctl",
            ),
        }
    }
}
