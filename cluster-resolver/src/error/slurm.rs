//! What can be wrong with what Slurm says.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

use super::CommandProblem;
use crate::text::{Quoted, Shortened};

/// Why the environment of a Slurm task does not say who is in its step.
///
/// Nothing is guessed: where the variables leave two answers, and `scontrol` cannot settle it, this
/// is the answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SlurmError {
    /// The process runs in a Slurm job, but is no task of a step.
    #[error(
        "{variable} is not set, though job {} runs here: start this process as a task, by srun",
        Shortened(job)
    )]
    NotInStep {
        /// The variable that every task has.
        variable: &'static str,
        /// The job.
        job: String,
    },
    /// The process runs under no Slurm job, or lost its variables.
    #[error("{variable} is not set: start this process by srun, or choose another resolver")]
    Unset {
        /// The variable.
        variable: &'static str,
    },
    /// A variable that holds a number holds something else.
    #[error("{variable} is {}: set it to a whole number from 0 up", Quoted(value))]
    Number {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A variable with a list of ranks holds something else.
    #[error("{variable} is {}: set it to ranks such as 0,1,4", Quoted(value))]
    Ranks {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A list of nodes cannot be read.
    #[error("{variable} is {}, where {problem}", Quoted(list))]
    HostList {
        /// The variable.
        variable: &'static str,
        /// The list.
        list: String,
        /// What is wrong with it.
        problem: HostListProblem,
    },
    /// The tasks per node cannot be read.
    #[error(
        "SLURM_STEP_TASKS_PER_NODE is {}, where {} is no count: write counts such as 3,1(x2)",
        Quoted(text),
        Quoted(item)
    )]
    TaskCounts {
        /// The counts.
        text: String,
        /// The part that is wrong.
        item: String,
    },
    /// There are more or fewer nodes than counts of tasks.
    #[error(
        "the step has {nodes} nodes, but the tasks of {counts}: make SLURM_STEP_NODELIST and \
         SLURM_STEP_TASKS_PER_NODE those of one step"
    )]
    NodesAndCounts {
        /// Nodes in the list.
        nodes: usize,
        /// Counts of tasks.
        counts: usize,
    },
    /// A node is in the list twice.
    #[error("SLURM_STEP_NODELIST has {} twice: name each node once", Quoted(node))]
    NodeTwice {
        /// The node.
        node: String,
    },
    /// The tasks of the nodes, or of the jobs, do not add up to those of the step.
    #[error("the {what} have {sum} tasks in all, but the step has {tasks}: make them agree")]
    TaskSum {
        /// What was added up.
        what: Summed,
        /// The sum.
        sum: u64,
        /// The tasks of the step.
        tasks: u64,
    },
    /// The step has more tasks than are taken.
    #[error("the step has {tasks} tasks: {most} are the most that are taken")]
    TooManyTasks {
        /// The tasks.
        tasks: u64,
        /// The most.
        most: u64,
    },
    /// The rank of this process is not one of the step's.
    #[error("SLURM_PROCID is {rank}, but the step has {tasks} tasks: unset it and start by srun")]
    RankOutside {
        /// The rank.
        rank: u32,
        /// The tasks of the step.
        tasks: u32,
    },
    /// The distribution of tasks over nodes is none that is known here.
    #[error(
        "tasks are distributed as {}, which does not say their nodes: use block, cyclic, plane \
         or arbitrary",
        Quoted(distribution)
    )]
    Distribution {
        /// What `SLURM_DISTRIBUTION` or `scontrol` says.
        distribution: String,
    },
    /// The distribution is arbitrary, and no file says what it is.
    #[error(
        "tasks are distributed arbitrarily, and SLURM_HOSTFILE does not say how: give srun a host \
         file, or distribute in block or cyclic order"
    )]
    NoHostFile,
    /// The file that says on which node each task is cannot be read.
    #[error("host file {} cannot be read ({kind}): put it where every task sees it", path.display())]
    HostFile {
        /// The file.
        path: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// The file that says on which node each task is holds something else.
    #[error("host file {} has {}, where {problem}", path.display(), Quoted(line))]
    HostFileLine {
        /// The file.
        path: PathBuf,
        /// The line.
        line: String,
        /// What is wrong with it.
        problem: HostListProblem,
    },
    /// The file that says on which node each task is belongs to another step.
    #[error(
        "host file {} puts {found} tasks on {}, but the step has {expected} there: keep the \
         file as it was when the step began",
        path.display(),
        Quoted(node)
    )]
    HostFileStale {
        /// The file.
        path: PathBuf,
        /// The first node on which they differ.
        node: String,
        /// Tasks by the file.
        found: u32,
        /// Tasks by the environment.
        expected: u32,
    },
    /// The parts of a heterogeneous step share a node.
    #[error(
        "node {} is in two parts of the heterogeneous job, so its tasks cannot be told apart: \
         give the parts nodes of their own",
        Quoted(node)
    )]
    SharedNode {
        /// The node.
        node: String,
    },
    /// A node of a heterogeneous step is in none of its parts.
    #[error(
        "node {} of SLURM_STEP_NODELIST is in no SLURM_JOB_NODELIST_PACK_GROUP variable: start \
         this process by srun",
        Quoted(node)
    )]
    StrayNode {
        /// The node.
        node: String,
    },
    /// The environment leaves open where tasks run, and `scontrol` does not answer.
    #[error(
        "only scontrol can tell where the tasks of step {} run, and it {problem}",
        Shortened(step)
    )]
    Unanswered {
        /// The step.
        step: String,
        /// Why it does not answer.
        problem: ScontrolProblem,
    },
    /// What the environment says about this task does not fit where it says all tasks are.
    #[error(
        "{variable} of rank {rank} is {}, but the step's distribution makes it {}: start this \
         process by srun, with the distribution that srun is given",
        Quoted(found),
        Quoted(expected)
    )]
    Contradiction {
        /// The variable that does not fit.
        variable: &'static str,
        /// The rank of this task.
        rank: u32,
        /// What the variable holds.
        found: String,
        /// What would fit.
        expected: String,
    },
    /// The tasks of a node need more GPUs than it has.
    #[error(
        "{tasks} tasks with {per_task} GPUs each do not fit a node with {per_node} GPUs: start \
         fewer tasks on a node, or give them fewer GPUs"
    )]
    TooFewGpus {
        /// The most tasks on a node.
        tasks: u32,
        /// GPUs of each.
        per_task: u32,
        /// GPUs of a node.
        per_node: u32,
    },
    /// The ports of a node's tasks do not fit below 65536.
    #[error(
        "node {} has {tasks} tasks, so ports from {base} on do not suffice: choose a lower base",
        Quoted(node)
    )]
    Ports {
        /// The node.
        node: String,
        /// Its tasks.
        tasks: u32,
        /// The port of its first task.
        base: u16,
    },
}

/// What makes up the tasks of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Summed {
    /// The nodes.
    Nodes,
    /// The jobs that the resolver was given.
    Jobs,
}

impl Display for Summed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Jobs => "jobs",
        })
    }
}

/// Why a text is no list of hosts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListProblem {
    /// A bracket opens and does not close.
    #[error("a bracket is not closed: add the ]")]
    Unclosed,
    /// A bracket closes that did not open.
    #[error("the ] at byte {at} has no [: add or remove one")]
    Unopened {
        /// Its place in bytes, counted from 1.
        at: usize,
    },
    /// A bracket opens inside of another.
    #[error("the [ at byte {at} is in a bracket: remove it")]
    Nested {
        /// Its place in bytes, counted from 1.
        at: usize,
    },
    /// Text follows the last bracket of a host.
    #[error(
        "{} follows the last bracket: list these hosts one by one",
        Quoted(text)
    )]
    AfterBracket {
        /// The text.
        text: String,
    },
    /// What stands in a bracket is no ascending range of numbers below 2⁶⁴.
    #[error("{} is no range: write numbers such as 3 or 08-12", Quoted(range))]
    Range {
        /// What stands there.
        range: String,
    },
    /// A range has more numbers than Slurm takes.
    #[error(
        "{} has more than {LONGEST_RANGE} numbers: cut it in several",
        Quoted(range)
    )]
    LongRange {
        /// The range.
        range: String,
    },
    /// The list stands for more hosts than are taken.
    #[error("there are more than {MOST_HOSTS} hosts: list fewer")]
    TooManyHosts,
}

/// Why `scontrol` did not answer.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ScontrolProblem {
    /// The resolver was told not to ask it.
    NotAsked,
    /// It gives no answer at all.
    Command(CommandProblem),
    /// It knows nothing about the step.
    Unknown,
    /// It answered something that is not understood.
    Answer {
        /// The field that is missing or wrong.
        field: &'static str,
        /// What stands there, empty if nothing does.
        value: String,
    },
}

impl ScontrolProblem {
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Command(problem) if problem.is_transient())
    }
}

impl From<CommandProblem> for ScontrolProblem {
    fn from(problem: CommandProblem) -> Self {
        Self::Command(problem)
    }
}

impl Display for ScontrolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("is not asked: allow it, or use one task per node"),
            Self::Command(problem) => problem.show("slurmctld", f),
            Self::Unknown => f.write_str("knows no such step: look whether it still runs"),
            Self::Answer { field, value } => {
                write!(
                    f,
                    "answered {} as {field}: update this resolver",
                    Quoted(value)
                )
            }
        }
    }
}

/// Numbers in one range, as in Slurm.
pub(crate) const LONGEST_RANGE: u64 = 65_536;

/// Hosts in one list: twice the nodes that Slurm manages. A short text may stand for all of them.
pub(crate) const MOST_HOSTS: usize = 1 << 17;
