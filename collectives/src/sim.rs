//! Whole jobs in virtual time: the product's own membership, agreement, contracts and schedules,
//! among processes that crash, stand still, come back and are cut off.
//!
//! ```text
//!   seed ── faults ──> world ── time, bytes ──> processes: membership, agreement, operations
//!                        │                          │
//!                        └───── what happened ──────┴──> oracle: who saw what, and may it be
//! ```
//!
//! What a seed decides, it decides once: where ranks are, how fast and lossy their links are, how
//! wrong their clocks run, what the program does, and what goes wrong when. The same seed gives the
//! same story to the nanosecond. Every process runs the program of a job that goes on: works one
//! after the other, between them a look at who has asked to join, listed or not; after a loss the
//! survivors agree on the next epoch and go on with the first work that not all of them have
//! completed.
//!
//! On each seed it is checked that
//! - every operation gives what follows from the contributions of exactly the members of its epoch,
//!   and does not come back before those have made them;
//! - no epoch is followed by two, no member id has two processes in one, and what is agreed to be
//!   completed is what all survivors have, no more and no less;
//! - no epoch fails for another reason than a loss, and none at all where nothing goes wrong;
//! - a majority that lives and hears each other goes on, whatever happened before, and everybody
//!   comes to an end;
//! - nobody is called lost to whom nothing has happened.
//!
//! Each of these checks can fail: a [`Plant`] is a mistake in how the product's machines are
//! driven, and leads to the [`ProblemKind`] that it names.
//!
//! What the simulation has of its own are links, clocks and the calls that processes make to find
//! each other; shared memory is not simulated.
//!
//! ```
//! use meshwork_collectives::sim::{Setting, play};
//!
//! let played = play(&Setting::default(), 7);
//! assert_eq!(played.problem(), None);
//! assert!(played.works() > 0);
//! ```

mod dice;
pub mod fabric;
mod faults;
mod net;
mod oracle;
mod plant;
mod process;
mod program;
pub mod scale;
mod world;

use std::ops::RangeInclusive;

use crate::wire::{MESSAGE_HEAD_BYTES, Message, MessageHead};
use oracle::Oracle;
use world::World;

pub use plant::Plant;

/// How many ranks a job can be played with.
pub const RANKS: RangeInclusive<u32> = 2..=16;

/// What is played.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Setting {
    /// How many ranks, of [`RANKS`], or the nearest of them; `None` for 2 to 7, as the seed
    /// decides. [`Scenario::TwoMemberPolicy`] has 2 whatever this says.
    pub ranks: Option<u32>,
    /// What goes wrong.
    pub scenario: Scenario,
    /// A mistake that is to be found.
    pub plant: Plant,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Scenario {
    /// Anything, up to four times.
    #[default]
    Mixed,
    /// Nothing but slow and lossy links.
    Calm,
    /// Processes are killed.
    Crash,
    /// Processes are killed, and others start in their places.
    Restart,
    /// Some ranks are cut off for a while.
    Partition,
    /// Some ranks are cut off for long, and all are more patient than that.
    Outage,
    /// Processes stand still for a while.
    Pause,
    /// Processes stand still until the others have gone on without them, and then go on too.
    Stop,
    /// Processes are killed, and others in their places begin the job anew.
    Amnesia,
    /// Processes are told that others have ended, or they themselves.
    Rumour,
    /// Anything, between two ranks.
    TwoMemberPolicy,
    /// Processes that are on no list come in, and some of them are killed while they do; and
    /// anything.
    Growth,
}

impl Scenario {
    /// Every scenario with its name on a command line.
    pub const ALL: [(&'static str, Self); 12] = [
        ("mixed", Self::Mixed),
        ("calm", Self::Calm),
        ("crash", Self::Crash),
        ("restart", Self::Restart),
        ("partition", Self::Partition),
        ("outage", Self::Outage),
        ("pause", Self::Pause),
        ("stop", Self::Stop),
        ("amnesia", Self::Amnesia),
        ("rumour", Self::Rumour),
        ("pair", Self::TwoMemberPolicy),
        ("growth", Self::Growth),
    ];
}

/// What must never happen, and did.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An operation gave a rank something other than it must.
    #[error("operation {sequence} of epoch {epoch} gave member {member_id} a wrong value")]
    WrongValue {
        /// The epoch.
        epoch: u64,
        /// The operation's number in it, from 1.
        sequence: u64,
        /// Where.
        member_id: u32,
    },
    /// An operation came back before those had begun it whose part it needs.
    #[error(
        "operation {sequence} of epoch {epoch} came back at member {member_id} before all had begun it"
    )]
    TooEarly {
        /// The epoch.
        epoch: u64,
        /// The operation's number in it, from 1.
        sequence: u64,
        /// Where.
        member_id: u32,
    },
    /// Two processes entered different epochs with one number, or two with one member id the same.
    #[error("member {member_id} has another epoch {epoch} than those before it")]
    TwoDecisions {
        /// The number.
        epoch: u64,
        /// The later of the two.
        member_id: u32,
    },
    /// A survivor has not completed what the agreement says that all have.
    #[error("member {member_id} has completed less of epoch {epoch} than was agreed")]
    NotCompleted {
        /// The epoch.
        epoch: u64,
        /// Who.
        member_id: u32,
    },
    /// All survivors have completed more than the agreement says: what they have done is done anew.
    #[error(
        "all survivors of epoch {epoch} have completed {completed} of its operations, but {agreed} were agreed"
    )]
    ThrownAway {
        /// The epoch.
        epoch: u64,
        /// What all survivors have completed.
        completed: u64,
        /// What was agreed.
        agreed: u64,
    },
    /// An epoch failed though nothing went wrong, or for another reason than a loss.
    #[error("member {member_id} saw epoch {epoch} fail, to which nothing has led: {error}")]
    WrongFailure {
        /// The epoch.
        epoch: u64,
        /// Where.
        member_id: u32,
        /// What it failed with.
        error: String,
    },
    /// A majority that lives and hears each other gave up.
    #[error("a majority of epoch {epoch} gave up")]
    MajorityStopped {
        /// The epoch.
        epoch: u64,
    },
    /// Nothing went wrong, and yet not all finished.
    #[error("nothing went wrong, but only {finished} ranks finished")]
    NotFinished {
        /// How many did.
        finished: usize,
    },
    /// Some processes came to no end.
    #[error("members {member_ids:?} come to no end")]
    Hangs {
        /// Which.
        member_ids: Vec<u32>,
    },
    /// A rank was called lost though nothing had happened to it.
    #[error("member {member_id} calls member {blamed} lost, to which nothing has happened")]
    WrongBlame {
        /// Who calls.
        member_id: u32,
        /// Whom.
        blamed: u32,
    },
    /// A message was not understood.
    #[error("member {member_id} got a message that it does not understand")]
    Garbled {
        /// Who.
        member_id: u32,
    },
}

/// The kinds of [`Problem`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each is a problem of the same name")]
pub enum ProblemKind {
    WrongValue,
    TooEarly,
    TwoDecisions,
    NotCompleted,
    ThrownAway,
    WrongFailure,
    MajorityStopped,
    NotFinished,
    Hangs,
    WrongBlame,
    Garbled,
}

impl ProblemKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::WrongValue,
        Self::TooEarly,
        Self::TwoDecisions,
        Self::NotCompleted,
        Self::ThrownAway,
        Self::WrongFailure,
        Self::MajorityStopped,
        Self::NotFinished,
        Self::Hangs,
        Self::WrongBlame,
        Self::Garbled,
    ];
}

impl Problem {
    /// Which one it is.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        match self {
            Self::WrongValue { .. } => ProblemKind::WrongValue,
            Self::TooEarly { .. } => ProblemKind::TooEarly,
            Self::TwoDecisions { .. } => ProblemKind::TwoDecisions,
            Self::NotCompleted { .. } => ProblemKind::NotCompleted,
            Self::ThrownAway { .. } => ProblemKind::ThrownAway,
            Self::WrongFailure { .. } => ProblemKind::WrongFailure,
            Self::MajorityStopped { .. } => ProblemKind::MajorityStopped,
            Self::NotFinished { .. } => ProblemKind::NotFinished,
            Self::Hangs { .. } => ProblemKind::Hangs,
            Self::WrongBlame { .. } => ProblemKind::WrongBlame,
            Self::Garbled { .. } => ProblemKind::Garbled,
        }
    }
}

/// What came of a seed.
#[derive(Debug)]
pub struct Played(Oracle);

impl Played {
    /// What went wrong that must not.
    #[must_use]
    pub fn problem(&self) -> Option<&Problem> {
        self.0.problem.as_ref()
    }

    /// What happened, line by line, if it was [told](tell).
    #[must_use]
    pub fn story(&self) -> &[String] {
        self.0.story.as_deref().unwrap_or_default()
    }

    /// Epochs that the group went through.
    #[must_use]
    pub fn epochs(&self) -> u64 {
        self.0.epochs()
    }

    /// Works that were completed and checked, summed over all ranks.
    #[must_use]
    pub fn works(&self) -> u64 {
        self.0.works
    }

    /// Processes that came to the end of the program.
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.0.finished
    }
}

/// Plays a job from its seed.
#[must_use]
pub fn play(setting: &Setting, seed: u64) -> Played {
    played(setting, seed, None)
}

/// Plays it again, and keeps what happened.
#[must_use]
pub fn tell(setting: &Setting, seed: u64) -> Played {
    played(setting, seed, Some(Vec::new()))
}

fn played(setting: &Setting, seed: u64, story: Option<Vec<String>>) -> Played {
    Played(World::new(setting, seed, story).run())
}

fn decode(bytes: &[u8]) -> Option<Message> {
    let (head, body) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
    Message::decode(MessageHead::decode(head).ok()?, body).ok()
}

#[cfg(test)]
mod tests;
