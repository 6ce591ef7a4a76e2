use std::fmt::{self, Display};

use meshwork_collectives::Rank;

use crate::VariableSpec;

/// Everything that can go wrong with a strategy.
///
/// After [`Error::Group`] and [`Error::VariablesDiffer`] the group of workers is over.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description of the cluster is wrong, or does not fit this process.
    #[error(transparent)]
    Cluster(#[from] meshwork_cluster_resolver::Error),
    /// The workers could not meet, or one of them was lost.
    #[error(transparent)]
    Group(#[from] meshwork_collectives::Error),
    /// The names of jobs, tasks and devices do not make a mesh.
    #[error(transparent)]
    Mesh(#[from] meshwork_core::Error),
    /// The resolver knows a cluster but not which task of it this process is.
    #[error(
        "the cluster has {tasks} tasks, but it is not said which one this process is: set task.type and task.index in TF_CONFIG, or the resolver's task type and id"
    )]
    NoTask {
        /// Tasks in the cluster.
        tasks: usize,
    },
    /// A global batch would leave workers without samples in every step.
    #[error(
        "a global batch of {global_batch} samples cannot be split among {workers} workers: use a global batch of at least {workers}, or fewer workers"
    )]
    BatchTooSmall {
        /// Samples in a global batch.
        global_batch: usize,
        /// Workers.
        workers: usize,
    },
    /// A dataset without samples.
    #[error("the data set has no samples: there is nothing to train on")]
    NoSamples,
    /// A global batch that was to be split evenly does not.
    #[error(
        "a global batch of {global_batch} samples does not split evenly among {replicas} replicas: use a multiple of {replicas}"
    )]
    BatchNotDivisible {
        /// Samples in a global batch.
        global_batch: usize,
        /// Replicas of all workers.
        replicas: usize,
    },
    /// There is no input of that number, or the replicas do not split evenly among the inputs.
    #[error(
        "input {pipeline} of {pipelines} cannot feed {replicas} replicas: inputs are numbered from 0, and each feeds as many replicas"
    )]
    NoSuchInput {
        /// The number of the input.
        pipeline: usize,
        /// Inputs of all workers.
        pipelines: usize,
        /// Replicas of all workers.
        replicas: usize,
    },
    /// An input of files was given none.
    #[error("the input has no files: was a pattern without a match?")]
    NoFiles,
    /// An input was to be split by file, and is not made of any.
    #[error(
        "the input is not made of files, so {workers} workers cannot share it by file: share it by data, or make it with Input::files"
    )]
    NotFiles {
        /// Workers.
        workers: usize,
    },
    /// An input was to be split by file, and some workers would have none.
    #[error(
        "{files} files cannot be shared by {workers} workers: write at least {workers} files, or share the input by data"
    )]
    TooFewFiles {
        /// Files of the input.
        files: usize,
        /// Workers.
        workers: usize,
    },
    /// The position in the data was saved by another number of replicas, which read other shares.
    #[error(
        "the position in the data was saved by {saved} replicas, and means nothing to {replicas}: resume with {saved}, or share the input by data"
    )]
    CursorElsewhere {
        /// Replicas that saved it.
        saved: u64,
        /// Replicas now.
        replicas: usize,
    },
    /// A text is no position in the data.
    #[error("{text:?} is no position in the data: it takes three numbers, such as 0:1200:0")]
    CursorText {
        /// The text.
        text: String,
    },
    /// A position lies behind the end of its epoch.
    #[error(
        "position {position} lies outside the data set of {samples} samples: was it saved for another one?"
    )]
    CursorOutside {
        /// The position, in samples.
        position: u64,
        /// Samples in the data set.
        samples: usize,
    },
    /// No thread could be started.
    #[error("no thread can be started: {kind}; are there too many?")]
    NoThread {
        /// What the system said.
        kind: std::io::ErrorKind,
    },
    /// The values of a variable do not fill its shape.
    #[error("variable {} of shape {} takes {} values, but {found} were given", spec.name(), spec.dims(), spec.len())]
    ValueCount {
        /// The variable.
        spec: VariableSpec,
        /// Values that were given.
        found: usize,
    },
    /// The dimensions of a variable multiply to more elements than memory can hold.
    #[error("variable {name} has more elements than memory can hold: check its shape")]
    TooLarge {
        /// The variable's name.
        name: String,
    },
    /// Two variables of one scope share a name.
    #[error("variable {name} was given twice: variables of one model need different names")]
    DuplicateVariable {
        /// The shared name.
        name: String,
    },
    /// The buffer of a gradient has another length than its variable.
    #[error("variable {} holds {} values, but its gradient holds {found}", spec.name(), spec.len())]
    GradientLength {
        /// The variable.
        spec: VariableSpec,
        /// Values in the gradient.
        found: usize,
    },
    /// Two workers built different models.
    #[error(
        "variable number {index} is {} on {rank} but {} on rank 0: build the same model, with the same sizes, in every worker",
        Known(mine),
        Known(chiefs)
    )]
    VariablesDiffer {
        /// The variable's place in the model, from 0.
        index: usize,
        /// This worker.
        rank: Rank,
        /// What it has in that place.
        mine: Option<Box<VariableSpec>>,
        /// What the chief has there.
        chiefs: Option<Box<VariableSpec>>,
    },
    /// A buffer is shorter than what the check of copies takes at its end.
    #[error(
        "a buffer of {found} numbers has no room for a check, which takes {needed} at its end: make it longer by check_len"
    )]
    NoRoomForCheck {
        /// Numbers in the buffer.
        found: usize,
        /// Numbers that the check takes.
        needed: usize,
    },
    /// Copies that must be equal are not.
    #[error(
        "the copies of the model are not equal any more: those of {} differ from rank 0's; was a variable changed outside a step, or by different values?",
        Listed(ranks)
    )]
    ReplicasDiverged {
        /// The ranks whose copies differ from rank 0's.
        ranks: Vec<Rank>,
    },
}

struct Known<'a>(&'a Option<Box<VariableSpec>>);

impl Display for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(spec) => write!(f, "{} of shape {}", spec.name(), spec.dims()),
            None => f.write_str("missing"),
        }
    }
}

struct Listed<'a>(&'a [Rank]);

impl Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rank) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{rank}")?;
        }
        Ok(())
    }
}
