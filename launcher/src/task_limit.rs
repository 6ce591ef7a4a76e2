use std::fmt::{self, Display};

/// Who bounds the number of processes and threads. Its `Display` says how to raise the bound.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum TaskLimit {
    /// `RLIMIT_NPROC`, for all that this user runs.
    User,
    /// A control group that this process is in.
    ControlGroup,
}

impl Display for TaskLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "'ulimit -u' of this user",
            Self::ControlGroup => "pids.max of its control group",
        })
    }
}
