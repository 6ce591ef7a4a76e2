//! `LowCommunicationError`: what can be wrong with a training over slow links, and `Part`, which is
//! what its workers need to have in common.

use std::fmt::{self, Display};

use meshwork_collectives::Rank;

/// What all workers of a training with little communication need to have in common.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// The settings of [`LowCommunication`](crate::low_communication::LowCommunication).
    Settings,
    /// The lengths of the model's tensors.
    Tensors,
    /// The step of the snapshot that they begin from.
    Step,
    /// The parameters and the outer momentum.
    Parameters,
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settings => "settings",
            Self::Tensors => "tensors",
            Self::Step => "step",
            Self::Parameters => "parameters",
        })
    }
}

/// What is wrong with a training with little communication.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LowCommunicationError {
    /// There are more fragments than tensors to make them of.
    #[error(
        "a model of {tensors} tensors cannot be exchanged in {fragments} fragments: use at most {tensors}"
    )]
    TooManyFragments {
        /// The fragments that were asked for.
        fragments: usize,
        /// The tensors of the model.
        tensors: usize,
    },
    /// The lengths of all tensors add up to more than memory can hold.
    #[error("{tensors} tensors have more elements than memory can hold: check their lengths")]
    TooManyElements {
        /// The tensors of the model.
        tensors: usize,
    },
    /// A fragment would still be on its way when it is exchanged again.
    #[error(
        "an exchange cannot be applied after {delay} steps in rounds of {inner_steps}: use a delay below {inner_steps}"
    )]
    Delay {
        /// The delay that was asked for.
        delay: u32,
        /// The inner steps of a round.
        inner_steps: u32,
    },
    /// A setting is outside its range.
    #[error("the {name} is {value}, but goes from 0 to {largest}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The largest that it may have.
        largest: f32,
    },
    /// The parameters are more or fewer than those of the tensors.
    #[error("there are {found} parameters, but the tensors have {expected}")]
    ParameterCount {
        /// The parameters that were given.
        found: usize,
        /// The elements of all tensors.
        expected: usize,
    },
    /// The outer optimizer was to be saved with the state of another step.
    #[error(
        "the snapshot is of step {snapshot}, but {made} steps were made: give it the state after the last step"
    )]
    SnapshotStep {
        /// The step of the snapshot.
        snapshot: u64,
        /// The steps that the outer optimizer has seen.
        made: u64,
    },
    /// A worker's parameters differ from the others' by a NaN or an infinity. All workers get this
    /// error.
    #[error(
        "the difference of {rank} is not finite after its inner steps: lower its learning rate, or exclude such workers"
    )]
    NotFinite {
        /// The lowest such worker.
        rank: Rank,
    },
    /// The differences of all workers are finite, but their sum is not. All workers get this error,
    /// also where those whose difference is not finite are excluded: it is nobody's alone.
    #[error(
        "the sum of all workers' differences is not finite, though each of them is: lower the learning rate"
    )]
    SumNotFinite,
    /// Rounds were to end by time, after none.
    #[error("a round cannot end after 0 s: use a time in which a worker makes some inner steps")]
    NoRoundTime,
    /// A quorum takes more workers than there are.
    #[error("a quorum of {workers} cannot come together among {world} workers: use 1 to {world}")]
    QuorumSize {
        /// The workers of the quorum.
        workers: usize,
        /// The workers of the job.
        world: usize,
    },
    /// Rounds were to end both by time and with a quorum.
    #[error("rounds that end with a quorum do not end by time: leave the round time out")]
    QuorumRoundTime,
    /// An inner step was made after the training had finished.
    #[error("the training has finished: make another outer optimizer for more steps")]
    Finished,
    /// A worker begins with something else than another. All workers get this error, or in a job
    /// whose workers may change the one that differs from the others.
    #[error(
        "{rank} and {other} cannot train together, as they differ in their {part}: start both with the same program, settings and state"
    )]
    Differs {
        /// What differs.
        part: Part,
        /// The worker that differs.
        rank: Rank,
        /// From this one.
        other: Rank,
    },
    /// A worker has missed more exchanges than those who go on with it can make up for.
    #[error(
        "{rank} has {sealed} exchanges behind it where others have {furthest}: start it again, to get their state"
    )]
    Behind {
        /// The worker.
        rank: Rank,
        /// Exchanges that it has.
        sealed: u64,
        /// Exchanges that others have.
        furthest: u64,
    },
    /// An exchange that others have ended was never begun here.
    #[error("an exchange that others have was not begun here: start this worker again")]
    NotStarted,
    /// What another worker said of how far it has come has no meaning.
    #[error(
        "a worker tells in another form how far it has come: start all with the same version of the program"
    )]
    Standing,
    /// What other workers, or a snapshot, have in common does not fit this model.
    #[error("{bytes} bytes are no common state of this model: start all with the same model")]
    Package {
        /// Its length.
        bytes: usize,
    },
    /// A snapshot of what one worker has of its own was given to another, where it would count
    /// twice.
    #[error(
        "the snapshot is of {saved}, but this is {rank}: give each worker the one that it saved"
    )]
    SnapshotOfOther {
        /// The worker that saved it.
        saved: Rank,
        /// The worker that was to go on from it.
        rank: Rank,
    },
    /// A snapshot has what was left out of gradients with products of another rank.
    #[error(
        "the snapshot was saved with PowerSGD of rank {saved}, but this training has rank {rank}: go on with the same, where 0 is none"
    )]
    PowerSgdRank {
        /// The rank of the products that were saved; 0 without PowerSGD.
        saved: usize,
        /// The rank of those that were to go on.
        rank: usize,
    },
    /// A text of a snapshot is missing, or no list of numbers.
    #[error("the snapshot has no numbers in {name}: use the one before it")]
    SnapshotText {
        /// The name of the text.
        name: &'static str,
    },
}
