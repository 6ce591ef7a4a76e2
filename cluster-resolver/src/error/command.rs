//! Why the client of a scheduler gives no answer.

use std::fmt;
use std::io;

use crate::text::Quoted;

/// Why the client of a scheduler, such as `flux` or `scontrol`, gives no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CommandProblem {
    /// It cannot be started.
    NotStarted {
        /// Why.
        kind: io::ErrorKind,
    },
    /// It took too long.
    TimedOut {
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// It gave no answer, and not because what it was asked for is unknown.
    Failed {
        /// Its last words, empty if it said nothing.
        said: String,
    },
}

impl CommandProblem {
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotStarted { kind } => *kind == io::ErrorKind::WouldBlock,
            Self::TimedOut { .. } | Self::Failed { .. } => true,
        }
    }

    /// Shows it behind the name of the command, which asks this service.
    pub(super) fn show(&self, service: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted {
                kind: io::ErrorKind::WouldBlock,
            } => f.write_str(
                "cannot be run, for no more processes may be started: raise 'ulimit -u' of this \
                 user or pids.max of its control group",
            ),
            Self::NotStarted { kind } => write!(f, "cannot be run ({kind}): put it on the PATH"),
            Self::TimedOut { seconds } => write!(
                f,
                "did not answer in {seconds} s: look whether {service} is up"
            ),
            Self::Failed { said } => write!(
                f,
                "gave no answer but {}: look whether {service} is up",
                Quoted(said)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{FluxProblem, ScontrolProblem};

    #[test]
    fn a_command_that_cannot_be_started_is_told_with_what_stands_against_it() {
        let check = |kind, said: &str| {
            let problem = CommandProblem::NotStarted { kind };
            assert_eq!(FluxProblem::from(problem.clone()).to_string(), said);
            assert_eq!(ScontrolProblem::from(problem).to_string(), said);
        };
        check(
            io::ErrorKind::NotFound,
            "cannot be run (entity not found): put it on the PATH",
        );
        check(
            io::ErrorKind::WouldBlock,
            "cannot be run, for no more processes may be started: raise 'ulimit -u' of this user \
             or pids.max of its control group",
        );
    }
}
