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
//! after the other, between them a look at who has knocked; after a loss the survivors agree on the
//! next epoch and go on with the first work that not all of them have completed.
//!
//! On each seed it is checked that
//! - all processes give the same result to the same operation, and it is the reduction of the
//!   contributions of exactly the members of its epoch;
//! - no epoch is followed by two, and no survivor is held to have completed what it has not;
//! - everybody comes to an end: finished, or stopped for want of a majority.
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
mod process;
mod program;
mod world;

use crate::wire::{MESSAGE_HEAD_BYTES, Message, MessageHead};
use faults::Faults;
use oracle::Oracle;
use world::World;

/// What is played.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Setting {
    /// How many ranks; `None` for 2 to 7, as the seed decides. At most 16.
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
    /// Processes stand still for a while.
    Pause,
}

impl Scenario {
    /// Every scenario with its name on a command line.
    pub const ALL: [(&'static str, Self); 6] = [
        ("mixed", Self::Mixed),
        ("calm", Self::Calm),
        ("crash", Self::Crash),
        ("restart", Self::Restart),
        ("partition", Self::Partition),
        ("pause", Self::Pause),
    ];
}

/// A mistake in the simulated processes, to show that the checks find it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// One of two ranks takes the other's silence for a proof of its death.
    SilenceIsProof,
}

/// What must never happen, and did.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An operation gave a rank something other than it must.
    #[error("operation {sequence} of epoch {epoch} gave seat {seat} a wrong value")]
    WrongValue {
        /// The epoch.
        epoch: u64,
        /// The operation's number in it, from 1.
        sequence: u64,
        /// Where.
        seat: u32,
    },
    /// Two processes entered different epochs with one number.
    #[error("seat {seat} has another epoch {epoch} than those before it")]
    TwoDecisions {
        /// The number.
        epoch: u64,
        /// The later of the two.
        seat: u32,
    },
    /// A survivor has not completed what the agreement says that all have.
    #[error("seat {seat} has completed less of epoch {epoch} than was agreed")]
    NotCompleted {
        /// The epoch.
        epoch: u64,
        /// Who.
        seat: u32,
    },
    /// A majority that could talk to each other gave up.
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
    #[error("seats {seats:?} come to no end")]
    Hangs {
        /// Which.
        seats: Vec<u32>,
    },
    /// A message was not understood.
    #[error("seat {seat} got a message that it does not understand")]
    Garbled {
        /// Who.
        seat: u32,
    },
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
    let ranks = setting.ranks.map(|ranks| ranks.clamp(1, MOST_RANKS));
    let faults = Faults::of(setting.scenario, ranks, seed);
    let mut oracle = Oracle::default();
    oracle.story = story;
    oracle.reach_is_lasting = faults.reach_is_lasting();
    if let Some(story) = &mut oracle.story {
        story.push(format!(
            "seed {seed}: hosts of the ranks {:?}",
            faults.hosts
        ));
        story.extend(faults.cuts.iter().map(|cut| format!("{cut:?}")));
        story.extend(faults.crashes.iter().map(|crash| format!("{crash:?}")));
        story.extend(faults.pauses.iter().map(|pause| format!("pause {pause:?}")));
    }
    Played(World::new(setting, seed, faults, oracle).run())
}

const MOST_RANKS: u32 = 16;

fn decode(bytes: &[u8]) -> Option<Message> {
    let (head, body) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
    Message::decode(MessageHead::decode(head).ok()?, body).ok()
}

#[cfg(test)]
mod tests;
