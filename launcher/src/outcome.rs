//! How a run ended: success, the first failed worker, an interruption, or too few workers left,
//! each with its exit status and one line of text. Who is to blame is decided in `run_state`.

use std::fmt::{self, Display};

use meshwork_collectives::Rank;
use rustix::process::WaitIdStatus;

/// The outcome of a run. Its `Display` is one line for people, without rank prefixes.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a run that failed is reported here and nowhere else"]
#[non_exhaustive]
pub enum Outcome {
    /// All workers exited with status 0, even if they were asked to by a signal; of an elastic run,
    /// at least as many as it needs.
    Succeeded,
    /// One worker failed first, and the others were ended; in an elastic run that others had ended
    /// well, it may also have kept that from having as many successes as it needs.
    Failed(Failure),
    /// SIGINT or SIGTERM reached the launcher before any worker had failed.
    Interrupted(Interruption),
    /// Too few workers of an elastic run were left, as the others were lost for good.
    TooFew(Shortage),
}

impl Outcome {
    /// The exit status for a command whose run went so: 0, the first failed worker's, or 128 plus
    /// the number of the signal, but 75 where the workers have [saved](Interruption::is_saved) the
    /// job; with too few workers, that of the first that was lost for good.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Failed(failure) => failure.end.exit_code(),
            Self::Interrupted(interruption) => interruption.exit_code(),
            Self::TooFew(shortage) => shortage.exit_code(),
        }
    }

    /// Says besides what the kernel has done for want of memory, where a worker that is named has
    /// ended as by that.
    pub(crate) fn with_memory_kills(mut self, kills: MemoryKills) -> Self {
        match &mut self {
            Self::Failed(failure) => failure.memory_kills = kills.beside(failure.end),
            Self::TooFew(shortage) => {
                let lost = shortage.lost.iter().map(|loss| kills.beside(loss.end));
                shortage.memory_kills = lost.max().unwrap_or_default();
            }
            Self::Succeeded | Self::Interrupted(_) => {}
        }
        self
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("all workers succeeded"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Interrupted(interruption) => interruption.fmt(f),
            Self::TooFew(shortage) => shortage.fmt(f),
        }
    }
}

/// The worker that failed first, which is where to look for the cause. Of one of this machine that
/// was killed by SIGKILL the text says how many processes the kernel has ended for want of memory
/// since the run began, where it counts them, as Linux does, and has ended any.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    pub(crate) rank: Rank,
    pub(crate) end: WorkerEnd,
    pub(crate) others: usize,
    pub(crate) last_words: Option<String>,
    pub(crate) hidden: usize,
    pub(crate) memory_kills: MemoryKills,
}

impl Failure {
    /// Its rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How it ended.
    #[must_use]
    pub fn end(&self) -> WorkerEnd {
        self.end
    }

    /// How many other workers were running when it failed.
    #[must_use]
    pub fn others(&self) -> usize {
        self.others
    }

    /// The start of the last line it wrote to stderr, if the launcher saw any.
    #[must_use]
    pub fn last_words(&self) -> Option<&str> {
        self.last_words.as_deref()
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = if self.others == 0 { "" } else { " first" };
        write!(f, "{} failed{first}: {}", self.rank, self.end)?;
        if let Some(words) = &self.last_words {
            // Quoted as Rust would: what a worker writes cannot forge a line or colour a terminal.
            write!(f, ": {words:?}")?;
        }
        self.memory_kills.fmt(f)?;
        match self.others {
            0 => {}
            1 => f.write_str("; the other one was ended")?,
            others => write!(f, "; the other {others} were ended")?,
        }
        match self.hidden {
            0 => Ok(()),
            lines => write!(f, ", and {lines} of their lines not shown"),
        }
    }
}

/// The signal that stopped a run, and how many workers did not obey it in time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interruption {
    pub(crate) signal: Signal,
    pub(crate) workers: usize,
    pub(crate) killed: usize,
    pub(crate) is_saved: bool,
}

impl Interruption {
    /// The first SIGINT or SIGTERM.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// How many workers had to be killed, after the grace time or by a second signal.
    #[must_use]
    pub fn killed(&self) -> usize {
        self.killed
    }

    /// Whether the workers have saved the job after SIGTERM, to be gone on with by another run: by
    /// exit status 75 of one or more, while all others ended with 0.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        self.is_saved
    }

    fn exit_code(&self) -> u8 {
        match self.is_saved() {
            true => WorkerEnd::SAVED.exit_code(),
            false => self.signal.exit_code(),
        }
    }
}

impl Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            signal,
            workers,
            killed,
            is_saved,
        } = self;
        write!(f, "interrupted by {signal}")?;
        if *is_saved {
            f.write_str("; the job was saved: run it again to go on")?;
        }
        match killed {
            0 => Ok(()),
            _ => write!(
                f,
                "; {killed} of {workers} workers did not end in time and were killed"
            ),
        }
    }
}

/// Which workers an elastic run has lost for good, when too few were left.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shortage {
    pub(crate) least: usize,
    pub(crate) left: usize,
    pub(crate) lost: Vec<Loss>,
    pub(crate) memory_kills: MemoryKills,
}

/// A worker that was started again as often as it may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Loss {
    pub(crate) rank: Rank,
    pub(crate) end: WorkerEnd,
    pub(crate) restarts: u32,
}

impl Shortage {
    /// The workers that the run needs.
    #[must_use]
    pub fn least(&self) -> usize {
        self.least
    }

    /// The workers that were left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// The workers that were lost for good, in the order of ranks.
    #[must_use]
    pub fn lost(&self) -> &[Loss] {
        &self.lost
    }

    fn exit_code(&self) -> u8 {
        let first = self.lost.first();
        first.map_or(1, |loss| loss.end.exit_code())
    }
}

impl Loss {
    /// Its rank.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How it ended last.
    #[must_use]
    pub fn end(&self) -> WorkerEnd {
        self.end
    }

    /// How often it had been started again.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }
}

impl Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            least,
            left,
            lost,
            memory_kills,
        } = self;
        write!(f, "{left} of at least {least} workers are left")?;
        for (place, loss) in lost.iter().enumerate() {
            let mark = if place == 0 { ": lost " } else { ", " };
            let Loss {
                rank,
                end,
                restarts,
            } = loss;
            write!(f, "{mark}{rank} ({end}, after {restarts} restarts)")?;
        }
        memory_kills.fmt(f)
    }
}

/// How many processes the kernel has ended on this machine for want of memory, since the run began;
/// which ones it does not tell. Shown as what follows the end of a worker, nothing for none.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct MemoryKills(pub(crate) u64);

impl MemoryKills {
    /// What is to be told of them beside this end: only one by SIGKILL can be among them.
    pub(crate) fn beside(self, end: WorkerEnd) -> Self {
        match end == WorkerEnd::KILLED {
            true => self,
            false => Self::default(),
        }
    }
}

impl Display for MemoryKills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes = match self.0 {
            0 => return Ok(()),
            1 => "1 process".to_owned(),
            kills => format!("{kills} processes"),
        };
        write!(
            f,
            "; since the run began the kernel has ended {processes} on this machine for want of \
             memory"
        )
    }
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum WorkerEnd {
    /// It exited by itself.
    Exited {
        /// Its exit status, 0 for success.
        status: u8,
    },
    /// A signal killed it.
    Killed {
        /// Which one.
        signal: Signal,
    },
}

impl WorkerEnd {
    /// The end of a worker that has saved the state of the job for a later run (`EX_TEMPFAIL` of
    /// sysexits); it speaks for all.
    pub(crate) const SAVED: Self = Self::Exited { status: 75 };

    /// The end of a worker that was made to end at once, by whomever.
    pub(crate) const KILLED: Self = Self::Killed {
        signal: Signal::KILL,
    };

    /// The exit status that a shell would report: 128 plus the signal's number if killed by one.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Exited { status } => status,
            Self::Killed { signal } => signal.exit_code(),
        }
    }

    /// Whether it exited with status 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Exited { status: 0 }
    }

    /// How a worker on another host ended, of which only the exit status is told: one above 128 is
    /// what shells make of a signal.
    pub(crate) fn seen_through_ssh(self) -> Self {
        match self {
            Self::Exited { status } if (129..=192).contains(&status) => Self::Killed {
                signal: Signal::new(i32::from(status) - 128),
            },
            end => end,
        }
    }

    /// Reads what `waitid` says of a child that has ended; `None` if it has not.
    pub(crate) fn from_wait(status: &WaitIdStatus) -> Option<Self> {
        let exited = status.exit_status().map(|status| Self::Exited {
            status: u8::try_from(status & 0xff).expect("eight bits"),
        });
        exited.or_else(|| {
            let signal = Signal::new(status.terminating_signal()?);
            Some(Self::Killed { signal })
        })
    }
}

impl Display for WorkerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { status } => write!(f, "exit status {status}"),
            Self::Killed { signal } => write!(f, "killed by {signal}"),
        }
    }
}

/// A Unix signal; shown as `signal 9 (SIGKILL)`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signal(i32);

impl Signal {
    pub(crate) const INTERRUPT: Self = Self(signal_hook::consts::SIGINT);
    pub(crate) const TERMINATE: Self = Self(signal_hook::consts::SIGTERM);
    pub(crate) const KILL: Self = Self(signal_hook::consts::SIGKILL);

    /// `number` comes from the kernel or from constants, so it is one.
    pub(crate) const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Its number on this system.
    #[must_use]
    pub fn number(self) -> i32 {
        self.0
    }

    /// Whether it asks a program to end, in good order.
    pub(crate) fn asks_to_end(self) -> bool {
        matches!(self, Self::INTERRUPT | Self::TERMINATE)
    }

    /// Its name without `SIG`, as shells have it; `None` for one without a name.
    pub(crate) fn short_name(self) -> Option<&'static str> {
        let name = signal_hook::low_level::signal_name(self.0)?;
        Some(name.strip_prefix("SIG").unwrap_or(name))
    }

    /// 128 plus its number, as shells report it.
    pub(crate) fn exit_code(self) -> u8 {
        u8::try_from(self.0.saturating_add(128)).unwrap_or(u8::MAX)
    }
}

impl Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_hook::low_level::signal_name(self.0) {
            Some(name) => write!(f, "signal {} ({name})", self.0),
            None => write!(f, "signal {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(end: WorkerEnd, others: usize, last_words: Option<&str>) -> Outcome {
        Outcome::Failed(Failure {
            rank: Rank::new(2),
            end,
            others,
            last_words: last_words.map(str::to_owned),
            hidden: 0,
            memory_kills: MemoryKills::default(),
        })
    }

    #[test]
    fn a_killed_rank_is_named_with_its_signal() {
        let signal = Signal::new(9);
        let outcome = failure(WorkerEnd::Killed { signal }, 3, None);
        assert_eq!(outcome.exit_code(), 137);
        assert_eq!(
            outcome.to_string(),
            "rank 2 failed first: killed by signal 9 (SIGKILL); the other 3 were ended"
        );
    }

    #[test]
    fn what_many_survivors_said_is_counted() {
        let end = WorkerEnd::Exited { status: 3 };
        let Outcome::Failed(failure) = failure(end, 511, None) else {
            panic!("a failure");
        };
        let many = Failure {
            hidden: 1006,
            ..failure
        };
        assert_eq!(
            many.to_string(),
            "rank 2 failed first: exit status 3; the other 511 were ended, and 1006 of their lines \
             not shown"
        );
    }

    #[test]
    fn last_words_are_quoted_so_that_they_cannot_forge_a_line() {
        let outcome = failure(
            WorkerEnd::Exited { status: 3 },
            0,
            Some("no \"x\"\n\x1b[0m"),
        );
        assert_eq!(outcome.exit_code(), 3);
        assert_eq!(
            outcome.to_string(),
            r#"rank 2 failed: exit status 3: "no \"x\"\n\u{1b}[0m""#
        );
    }

    #[test]
    fn an_interruption_says_how_many_were_killed() {
        let outcome = |killed| {
            Outcome::Interrupted(Interruption {
                signal: Signal::new(15),
                workers: 4,
                killed,
                is_saved: false,
            })
        };
        assert_eq!(outcome(0).exit_code(), 143);
        assert_eq!(outcome(0).to_string(), "interrupted by signal 15 (SIGTERM)");
        assert_eq!(
            outcome(1).to_string(),
            "interrupted by signal 15 (SIGTERM); 1 of 4 workers did not end in time and were killed"
        );
    }

    #[test]
    fn an_interruption_after_which_the_job_was_saved_says_so_by_its_status() {
        let interruption = Interruption {
            signal: Signal::new(15),
            workers: 4,
            killed: 0,
            is_saved: true,
        };
        assert!(interruption.is_saved());
        let outcome = Outcome::Interrupted(interruption);
        assert_eq!(outcome.exit_code(), 75);
        assert_eq!(
            outcome.to_string(),
            "interrupted by signal 15 (SIGTERM); the job was saved: run it again to go on"
        );
    }

    #[test]
    fn a_shortage_names_everybody_who_is_lost() {
        let loss = |rank, end| Loss {
            rank: Rank::new(rank),
            end,
            restarts: 3,
        };
        let signal = Signal::new(9);
        let lost = vec![
            loss(0, WorkerEnd::Exited { status: 2 }),
            loss(2, WorkerEnd::Killed { signal }),
        ];
        let outcome = Outcome::TooFew(Shortage {
            least: 2,
            left: 1,
            lost,
            memory_kills: MemoryKills::default(),
        });
        assert_eq!(outcome.exit_code(), 2);
        assert_eq!(
            outcome.to_string(),
            "1 of at least 2 workers are left: lost rank 0 (exit status 2, after 3 restarts), \
             rank 2 (killed by signal 9 (SIGKILL), after 3 restarts)"
        );
        let outcome = outcome.with_memory_kills(MemoryKills(4)).to_string();
        let told = "restarts); since the run began the kernel has ended 4 processes on this machine \
                    for want of memory";
        assert!(outcome.ends_with(told), "{outcome}");
    }

    #[test]
    fn what_the_kernel_did_for_want_of_memory_is_told_of_who_was_killed_alone() {
        let told = |end, others, kills| {
            let outcome = failure(end, others, None);
            outcome.with_memory_kills(MemoryKills(kills)).to_string()
        };
        assert_eq!(
            told(WorkerEnd::KILLED, 1, 1),
            "rank 2 failed first: killed by signal 9 (SIGKILL); since the run began the kernel has \
             ended 1 process on this machine for want of memory; the other one was ended"
        );
        let killed = told(WorkerEnd::KILLED, 0, 0);
        assert_eq!(killed, "rank 2 failed: killed by signal 9 (SIGKILL)");
        let terminated = WorkerEnd::Killed {
            signal: Signal::TERMINATE,
        };
        for end in [terminated, WorkerEnd::Exited { status: 137 }] {
            let told = told(end, 0, 3);
            assert!(!told.contains("memory"), "{told}");
        }
    }

    #[test]
    fn a_signal_without_a_name_is_a_number() {
        assert_eq!(Signal::new(64).to_string(), "signal 64");
        assert_eq!(Signal::new(64).exit_code(), 192);
    }
}
