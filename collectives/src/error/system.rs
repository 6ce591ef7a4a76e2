//! What the operating system refused.

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
