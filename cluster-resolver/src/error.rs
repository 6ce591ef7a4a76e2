//! Why a question about a cluster has no answer: one enum, and one for each kind of source.
//!
//! Every module imports from here, and nothing here imports from a source.

use std::fmt::{self, Display};

use crate::address::AddressProblem;
use crate::task::{MAX_TASK_INDEX, Task};
use crate::text::{Jobs, Quoted, Shortened, TasksOf};

mod command;
mod etcd;
mod launcher;
mod sagemaker;
mod scheduler;
mod service;
mod slurm;
mod tf_config;

pub use command::CommandProblem;
pub use etcd::{EtcdError, EtcdOperation};
pub use launcher::LauncherError;
pub use sagemaker::SageMakerError;
pub use scheduler::{FluxProblem, SchedulerError};
pub use service::{
    AccessProblem, CoordinatorProblem, CredentialsProblem, ServiceError, ServiceErrorKind,
};
pub use slurm::{HostListProblem, ScontrolProblem, SlurmError, Summed};
pub(crate) use slurm::{LONGEST_RANGE, MOST_HOSTS};
pub use tf_config::{Expected, JsonProblem};

/// Why a cluster could not be described, or a question about it not be answered.
///
/// The message is one line, whatever text the error carries, and holds no secret. Nothing is
/// changed by a failing call. A source with problems of its own has an enum of its own, wrapped
/// here.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller gave the tasks of one job in two places.
    #[error(
        "job {} is given twice: put all its tasks in one list or map",
        Quoted(job)
    )]
    DuplicateJob {
        /// The job.
        job: String,
    },
    /// The caller gave a task an index above [`MAX_TASK_INDEX`].
    #[error("task {task} has an index above {MAX_TASK_INDEX}: number tasks from 0")]
    TaskIndexTooLarge {
        /// The task.
        task: Task,
    },
    /// The caller asked for a job that the cluster does not have.
    #[error(
        "job {} is not in the cluster, which has {}: ask for a job it has, or add this one",
        Quoted(job),
        Jobs(known)
    )]
    UnknownJob {
        /// The job asked for.
        job: String,
        /// The jobs of the cluster, in its order.
        known: Vec<String>,
    },
    /// The caller asked for an index that the job does not have.
    #[error(
        "task {task} is outside the cluster, which has {}: use an index it has, or add the \
         address of {task}",
        TasksOf { job: task.job(), indices }
    )]
    UnknownTask {
        /// The task asked for.
        task: Task,
        /// The indices that the job has, ascending.
        indices: Vec<u32>,
    },
    /// Two members of a union have the same task.
    #[error(
        "task {task} is in two of the united clusters, at {} and {}: number the tasks of each \
         cluster on their own, or without holes from 0",
        Quoted(first),
        Quoted(second)
    )]
    TaskTwice {
        /// The task.
        task: Task,
        /// Its address in the earlier cluster.
        first: String,
        /// Its address in the later cluster.
        second: String,
    },
    /// The caller gave bytes that are no `ClusterDef` message.
    #[error("these {length} bytes are no ClusterDef message: give them as they were written")]
    NotClusterDef {
        /// How many bytes there are.
        length: usize,
    },
    /// A `ClusterDef` message has a task with a negative index.
    #[error("job {} has a task {index}: number tasks from 0", Quoted(job))]
    NegativeIndex {
        /// The job.
        job: String,
        /// The index.
        index: i32,
    },
    /// The caller left out the job of a server, and the cluster has not just one.
    #[error(
        "the cluster has {}: say which of its jobs the server is in",
        Jobs(known)
    )]
    NoServerJob {
        /// The jobs of the cluster, in its order.
        known: Vec<String>,
    },
    /// The caller left out the index of a server, and its job has not just one task.
    #[error(
        "the cluster has {}: say which of them the server is",
        TasksOf { job, indices }
    )]
    NoServerIndex {
        /// The job of the server.
        job: String,
        /// The indices that the job has, ascending.
        indices: Vec<u32>,
    },
    /// Nobody said which task this process is.
    #[error(
        "the task {part} of this process is unknown: set it in TF_CONFIG as {}, or give it to the \
         resolver",
        part.key()
    )]
    TaskUnknown {
        /// The half of the task's name that is missing.
        part: TaskPart,
    },
    /// An environment variable holds bytes that are no text.
    #[error("{variable} is not valid UTF-8: set it to plain text")]
    NotUnicode {
        /// The variable.
        variable: String,
    },
    /// Members of a job could not be found in etcd, or this one not be registered there.
    #[error(transparent)]
    Etcd(Box<EtcdError>),
    /// The variables of a launcher do not tell who is in the cluster.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The variables of a SageMaker container do not tell who is in the cluster.
    #[error(transparent)]
    SageMaker(#[from] SageMakerError),
    /// What PBS, LSF or Flux says does not tell who is in the job.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// What Slurm says does not tell who is in the step.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// `TF_CONFIG` is not JSON.
    #[error(
        "TF_CONFIG is not valid JSON at line {line}, column {column}{}: {problem}",
        Near(snippet)
    )]
    Json {
        /// Line of the problem, counted from 1.
        line: usize,
        /// Column of the problem in bytes, counted from 1; 0 when a line ends too early.
        column: usize,
        /// The text around the problem, from its line alone and shortened.
        snippet: String,
        /// What is wrong there.
        problem: JsonProblem,
    },
    /// A field of `TF_CONFIG` has a value of the wrong kind.
    #[error("{} is {}: make it {expected}", Place(path), Shortened(found))]
    Field {
        /// The field, such as `task.index`; empty for the whole of `TF_CONFIG`.
        path: String,
        /// The value found, as JSON.
        found: String,
        /// What belongs there.
        expected: Expected,
    },
    /// A key in a map of tasks is no index.
    #[error(
        "{} has the key {}: make each key a task index from \"0\" to \"{MAX_TASK_INDEX}\"",
        Place(path),
        Quoted(key)
    )]
    IndexKey {
        /// The map, such as `cluster.worker`.
        path: String,
        /// The key.
        key: String,
    },
    /// Two keys in a map of tasks, such as `"1"` and `"01"`, mean one index.
    #[error(
        "{} has two keys for the index {index}: keep the one that is right",
        Place(path)
    )]
    IndexTwice {
        /// The map, such as `cluster.worker`.
        path: String,
        /// The index.
        index: u32,
    },
    /// The cluster has a job that no training job has.
    #[error(
        "job {} has no part in training: name it chief, worker, ps or evaluator, or remove it",
        Quoted(job)
    )]
    UnknownRole {
        /// The job.
        job: String,
    },
    /// The cluster has several tasks of a job that can have one.
    #[error(
        "the cluster has {count} {job} tasks, but a training job has at most one: keep one address"
    )]
    TooManyTasks {
        /// The job, `chief` or `evaluator`.
        job: &'static str,
        /// How many tasks it has.
        count: usize,
    },
    /// The task is one that does not train, so it has no rank.
    #[error(
        "task {task} has no rank, because only chief and worker tasks train together: give this \
         process one of those tasks, or do not ask for its placement"
    )]
    NotTraining {
        /// The task.
        task: Task,
    },
    /// The indices of a job that trains have a hole.
    #[error(
        "task {missing} is missing from the cluster, which goes up to {last}: add the address of \
         {missing}, or number the {} tasks from 0 without holes",
        Shortened(missing.job())
    )]
    MissingTask {
        /// The first task that is missing.
        missing: Task,
        /// The task with the largest index.
        last: Task,
    },
    /// The address of a task that trains cannot be connected to.
    #[error("address {} of task {task} {problem}", Quoted(address))]
    Address {
        /// The task.
        task: Task,
        /// Its address, as given.
        address: String,
        /// What is wrong with it, and what to write instead.
        problem: AddressProblem,
    },
    /// A service that describes the cluster could not be asked, or its answer is no cluster.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Two tasks that train have one address.
    #[error(
        "tasks {first} and {second} have the same address {}: give each its own host or port",
        Quoted(address)
    )]
    DuplicateAddress {
        /// The task with the lower rank.
        first: Task,
        /// The task with the higher rank.
        second: Task,
        /// The address as given for the second task.
        address: String,
    },
}

impl Error {
    /// Whether the same question may be answered later without anybody doing anything: a service
    /// or a scheduler gave no answer in time, or what it was asked about is still to come.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Etcd(error) => error.is_transient(),
            Self::Service(error) => error.is_transient(),
            Self::Scheduler(SchedulerError::Flux { problem }) => problem.is_transient(),
            Self::Slurm(SlurmError::Unanswered { problem, .. }) => problem.is_transient(),
            _ => false,
        }
    }
}

impl From<EtcdError> for Error {
    fn from(error: EtcdError) -> Self {
        Self::Etcd(Box::new(error))
    }
}

/// One half of the name of a task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TaskPart {
    /// The job.
    Type,
    /// The index in the job.
    Id,
}

impl TaskPart {
    fn key(self) -> &'static str {
        match self {
            Self::Type => "task.type",
            Self::Id => "task.index",
        }
    }
}

impl Display for TaskPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type => "type",
            Self::Id => "id",
        })
    }
}

/// A field, as a message calls it.
struct Place<'a>(&'a str);

impl Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("TF_CONFIG")
        } else {
            write!(f, "{} in TF_CONFIG", Shortened(self.0))
        }
    }
}

/// The text around a problem; nothing if there is none.
struct Near<'a>(&'a str);

impl Display for Near<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, ", near `{}`", Shortened(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_may_pass_by_itself_is_transient_whichever_source_says_it() {
        let flux = |problem| Error::from(SchedulerError::flux(problem));
        let slurm = |problem| {
            let step = "7.0".to_owned();
            Error::from(SlurmError::Unanswered { step, problem })
        };
        let refused = |status| {
            let (url, said) = ("http://a:1".to_owned(), String::new());
            Error::from(ServiceError::Refused { url, status, said })
        };
        let (pod, variable) = ("default/worker-1".to_owned(), "MESHWORK_ETCD".to_owned());
        let of_etcd = EtcdError::from(ServiceError::PodWithoutAddress { pod: pod.clone() });
        let tpu = |state: &str| {
            let (name, state) = ("tpu".to_owned(), state.to_owned());
            let wanted = "READY";
            Error::from(ServiceError::TpuNotReady {
                name,
                state,
                wanted,
            })
        };
        let said = || "Unable to contact slurm controller".to_owned();
        let late = || CommandProblem::TimedOut { seconds: 10 };
        let failed = || CommandProblem::Failed { said: said() };
        let not_started = |kind| CommandProblem::NotStarted { kind };
        let (full, missing) = (io::ErrorKind::WouldBlock, io::ErrorKind::NotFound);
        let cases: [(Error, bool); 19] = [
            (tpu("CREATING"), true),
            (tpu("PREEMPTED"), false),
            (ServiceError::PodWithoutAddress { pod }.into(), true),
            (ServiceError::NoTls.into(), false),
            (refused(410), true),
            (refused(404), false),
            (of_etcd.into(), true),
            (EtcdError::Authorities.into(), false),
            (flux(late().into()), true),
            (flux(FluxProblem::Unknown), false),
            (slurm(late().into()), true),
            (slurm(ScontrolProblem::NotAsked), false),
            (flux(failed().into()), true),
            (slurm(failed().into()), true),
            (flux(not_started(full).into()), true),
            (slurm(not_started(full).into()), true),
            (flux(not_started(missing).into()), false),
            (slurm(not_started(missing).into()), false),
            (Error::NotUnicode { variable }, false),
        ];
        for (error, is_transient) in cases {
            assert_eq!(error.is_transient(), is_transient, "{error}");
        }
    }

    #[test]
    fn distrust_is_transient_only_where_it_is_read_again_whom_to_trust() {
        let unreachable = |problem| ServiceError::Unreachable {
            url: "https://a:1".to_owned(),
            attempts: 9,
            waited: Duration::from_secs(30),
            problem,
        };
        let etcd = EtcdError::Service {
            operation: EtcdOperation::List,
            key: "/meshwork/bert".to_owned(),
            problem: unreachable(ServiceErrorKind::NoTrust),
        };
        assert!(unreachable(ServiceErrorKind::NoConnection).is_transient());
        assert!(!unreachable(ServiceErrorKind::NoTrust).is_transient());
        assert!(Error::from(etcd).is_transient());
    }
}
