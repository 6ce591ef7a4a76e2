//! What the dumps of a job's ranks say about why it failed.
//!
//! When a group fails, each rank that still can leaves its last operations in the folder that
//! [`GroupConfig::with_dump`](crate::GroupConfig::with_dump) names. Alone none of them knows much;
//! together they tell who did not do what the others waited for. `meshwork doctor --dump` shows it.
//!
//! ```text
//!   rank 0   … all_reduce, all_reduce, barrier ──waits──┐
//!   rank 1   … all_reduce, all_reduce, barrier ──waits──┤   missing call: rank 2 dropped its
//!   rank 2   … all_reduce, all_reduce   (nothing)  <────┘   group without barrier at train.rs:91
//! ```
//!
//! ```
//! use meshwork_collectives::diagnosis::{Cause, Dump, diagnose};
//!
//! let survivor = r#"{ "version": 1, "rank": 0, "world": 2, "address": "a:1", "written": 900,
//!     "failure": { "kind": "lost", "peer": 1, "cause": "died", "text": "rank 1 (b:1) was lost" },
//!     "operations": [] }"#;
//! let found = diagnose(&[Dump::from_json(survivor)?]);
//! assert_eq!(found.cause().class(), "dead rank");
//! assert!(matches!(found.cause(), Cause::DeadRank { rank, .. } if rank.number() == 1));
//! # Ok::<(), meshwork_collectives::diagnosis::DumpError>(())
//! ```

mod call_pattern;
mod dump;
mod judge;
mod trace;

use std::fmt::{self, Display};

use crate::Rank;

pub use crate::flight_recorder::{dumps_in, epoch_folders};
pub use dump::{Dump, DumpError, PastCall};
pub use judge::{diagnose, diagnose_live};
pub use trace::trace;

/// What is wrong, and what shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnosis {
    cause: Cause,
    evidence: Vec<String>,
}

/// Why a job failed, and whose fault it is.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Cause {
    /// A rank went on, or away, without a call that the others made.
    MissingCall {
        /// The rank.
        rank: Rank,
        /// The call that it did not make, where another rank is known to have made it.
        missing: Option<PastCall>,
        /// What it called instead; `None` if it dropped its group.
        instead: Option<PastCall>,
    },
    /// Two ranks made different calls where one was due.
    Mismatch {
        /// One rank, and its call.
        one: (Rank, PastCall),
        /// The other; the one that left its own habit, if just one did.
        other: (Rank, PastCall),
    },
    /// A rank is alive, and came too late or has not come yet.
    SlowRank {
        /// The rank.
        rank: Rank,
        /// How long it was waited for, in microseconds.
        micros: u64,
    },
    /// A rank's process ended, or it stopped to do anything.
    DeadRank {
        /// The rank.
        rank: Rank,
        /// Whether its end was seen, or only its silence.
        seen: Death,
    },
    /// Two ranks are alive, and do not hear each other.
    DeadLink {
        /// One rank.
        one: Rank,
        /// The other.
        other: Rank,
    },
    /// Something else ended the group, such as a rank's own decision.
    Other {
        /// What the ranks said.
        text: String,
    },
    /// Nothing has failed, and no rank waits for another at length.
    Running,
    /// No dump says why.
    Unknown,
}

/// How a dead rank was noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Death {
    /// Its process ended.
    Ended,
    /// It was silent, and has left no dump: stopped, cut off or on a machine that is down.
    Silent,
}

impl Diagnosis {
    /// Why the job failed.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// What shows it, a line for each rank in order, without line feeds.
    #[must_use]
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }
}

impl Cause {
    /// The kind of cause in two words.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::MissingCall { .. } => "missing call",
            Self::Mismatch { .. } => "mismatch",
            Self::SlowRank { .. } => "slow rank",
            Self::DeadRank { .. } => "dead rank",
            Self::DeadLink { .. } => "dead link",
            Self::Other { .. } => "other cause",
            Self::Running => "no fault",
            Self::Unknown => "unknown cause",
        }
    }

    /// The ranks at fault, in order; of a link, its two ends.
    #[must_use]
    pub fn ranks(&self) -> Vec<Rank> {
        let mut ranks = match self {
            Self::MissingCall { rank, .. }
            | Self::SlowRank { rank, .. }
            | Self::DeadRank { rank, .. } => vec![*rank],
            Self::Mismatch { one, other } => vec![one.0, other.0],
            Self::DeadLink { one, other } => vec![*one, *other],
            Self::Other { .. } | Self::Running | Self::Unknown => Vec::new(),
        };
        ranks.sort_unstable();
        ranks
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::MissingCall { .. } => {
                "look for a branch, an early return or uneven data on the way to that call"
            }
            Self::Mismatch { .. } => "make the same calls in the same order on every rank",
            Self::SlowRank { .. } => {
                "see what that rank computes or loads before the call, or raise \
                 MESHWORK_OPERATION_TIMEOUT"
            }
            Self::DeadRank {
                seen: Death::Ended, ..
            } => {
                "see that process's exit status and standard error, and the kernel's log for lack of memory"
            }
            Self::DeadRank { .. } => {
                "see whether that process is stopped and its machine reachable"
            }
            Self::DeadLink { .. } => {
                "check the network between the two hosts: a firewall, a changed address, a lost route"
            }
            Self::Other { .. } => "see what the rank that ended the group says",
            Self::Running => "see where its time goes: meshwork top",
            Self::Unknown => "set MESHWORK_DUMP to the same folder on every rank",
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.class())?;
        match self {
            Self::MissingCall {
                rank,
                missing,
                instead,
            } => {
                match missing {
                    Some(missing) => write!(f, ": {rank} did not call {missing}")?,
                    None => write!(f, ": {rank} did not make the call that others waited for")?,
                }
                match instead {
                    Some(instead) => write!(f, ", but went on to {instead}"),
                    None => f.write_str(", but dropped its group"),
                }
            }
            Self::Mismatch { one, other } => {
                write!(
                    f,
                    ": {} called {}, {} called {}",
                    one.0, one.1, other.0, other.1
                )
            }
            Self::SlowRank { rank, micros } => {
                write!(
                    f,
                    ": {rank} was waited for for {:.1} s",
                    *micros as f64 / 1e6
                )
            }
            Self::DeadRank { rank, seen } => match seen {
                Death::Ended => write!(f, ": the process of {rank} ended"),
                Death::Silent => write!(f, ": {rank} fell silent"),
            },
            Self::DeadLink { one, other } => {
                write!(
                    f,
                    ": {one} and {other} are alive and do not hear each other"
                )
            }
            Self::Other { text } => write!(f, ": {text}"),
            Self::Running => f.write_str(": no rank waits for another"),
            Self::Unknown => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
