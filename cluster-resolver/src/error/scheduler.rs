//! What can be wrong with what PBS, LSF and Flux say.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use super::CommandProblem;
use crate::text::Quoted;

/// Why a scheduler that lists a host for each task does not say who is in the cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulerError {
    /// The file of hosts cannot be read here.
    #[error(
        "{variable} names {}, which cannot be read ({kind}): copy it where every task sees it, and \
         hand that name on",
        Quoted(&path.to_string_lossy())
    )]
    HostFile {
        /// The variable that names it.
        variable: &'static str,
        /// Its name.
        path: PathBuf,
        /// Why it cannot be read.
        kind: io::ErrorKind,
    },
    /// `LSB_MCPU_HOSTS` does not consist of pairs.
    #[error(
        "LSB_MCPU_HOSTS is {}: make it each host with the number of its slots, such as a 2 b 1",
        Quoted(value)
    )]
    Counts {
        /// Its value.
        value: String,
    },
    /// A number does not fit the list of tasks.
    #[error(
        "{variable} is {task}, but {list} lists {listed}: unset what is left over from another job"
    )]
    Task {
        /// The variable with the number.
        variable: &'static str,
        /// The number.
        task: u32,
        /// The variable with the list.
        list: &'static str,
        /// How many there are.
        listed: usize,
    },
    /// PBS says on which host this task is, and that host has several.
    #[error(
        "PBS does not say which of the {tasks} tasks of host {} this process is: ask for one task \
         on each host, such as select=2:mpiprocs=1",
        Quoted(host)
    )]
    WhichTask {
        /// The host.
        host: String,
        /// How many tasks it has.
        tasks: usize,
    },
    /// The ports of a host's tasks do not fit below 65536.
    #[error(
        "host {} has {tasks} tasks, so ports from {base} on do not suffice: choose a lower base",
        Quoted(host)
    )]
    Ports {
        /// The host.
        host: String,
        /// Its tasks.
        tasks: usize,
        /// The port of its first task.
        base: u16,
    },
    /// `flux` does not say where the tasks are.
    #[error("only flux can tell where the tasks of this job run, and it {problem}")]
    Flux {
        /// Why not.
        problem: FluxProblem,
    },
}

impl SchedulerError {
    pub(crate) fn flux(problem: FluxProblem) -> Self {
        Self::Flux { problem }
    }
}

/// Why `flux` gives no answer that helps. Shown, it continues "it …".
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FluxProblem {
    /// It gives no answer at all.
    Command(CommandProblem),
    /// It knows nothing about the job.
    Unknown,
    /// It answered something that is not understood.
    Line {
        /// The line.
        line: String,
    },
    /// It leaves out a task.
    Nowhere {
        /// The task.
        task: usize,
    },
}

impl FluxProblem {
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Command(problem) if problem.is_transient())
    }
}

impl From<CommandProblem> for FluxProblem {
    fn from(problem: CommandProblem) -> Self {
        Self::Command(problem)
    }
}

impl Display for FluxProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(problem) => problem.show("its broker", f),
            Self::Unknown => f.write_str(
                "knows no such job: look whether it still runs, and whether this flux knows \
                 job taskmap --to=hosts",
            ),
            Self::Line { line } => write!(
                f,
                "answered {}: unset FLUX_JOB_SIZE where it is left over from another job",
                Quoted(line)
            ),
            Self::Nowhere { task } => write!(
                f,
                "does not name task {task}: unset FLUX_JOB_SIZE where it is left over from another \
                 job"
            ),
        }
    }
}
