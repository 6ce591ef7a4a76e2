//! What the environment of one task says about its step.

use std::str::FromStr;

use super::counts::{digits, task_counts};
use super::hostlist;
use crate::error::{Error, MOST_HOSTS, SlurmError, Summed};
use crate::ports::JobNames;
use crate::variables::Variables;

/// A step as its variables describe it: checked in itself, not yet placed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Step {
    pub(super) rank: u32,
    /// In the order of `SLURM_STEP_NODELIST`, distinct.
    pub(super) nodes: Vec<String>,
    /// Tasks of each node.
    pub(super) counts: Vec<u32>,
    pub(super) tasks: u32,
    /// `SLURM_DISTRIBUTION` if it is set.
    pub(super) distribution: Option<String>,
    pub(super) plane_size: Option<u32>,
    pub(super) host_file: Option<String>,
    /// The parts of a heterogeneous job, none in an ordinary one.
    pub(super) parts: Vec<Part>,
    pub(super) job: String,
    pub(super) step: String,
    pub(super) own: Own,
}

/// One part of a heterogeneous job, which Slurm keeps as a job of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) job: String,
    pub(super) nodes: Vec<String>,
}

/// What Slurm tells a task about itself, each if it is told.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Own {
    /// The node's name.
    pub(super) node: Option<String>,
    /// The task's number on its node.
    pub(super) local: Option<u32>,
    /// All ranks on its node.
    pub(super) ranks: Option<Vec<u32>>,
}

/// How many tasks run on each node, where the program knows better than the environment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TasksPerNode {
    /// As many on every node of `SLURM_STEP_NODELIST`.
    Each(u32),
    /// These nodes, in this order, with their tasks; the environment is not asked for nodes.
    Of(Vec<(String, u32)>),
}

impl Step {
    /// Reads the variables of this task. `jobs` is how many tasks the program's jobs have, if it
    /// named any: then `SLURM_STEP_NUM_TASKS` is not needed.
    pub(super) fn read(
        variables: &Variables,
        per_node: Option<&TasksPerNode>,
        jobs: Option<u64>,
    ) -> Result<Self, Error> {
        let rank = number(RANK, &required(variables, RANK)?)?;
        let (nodes, counts) = read_nodes(variables, per_node)?;
        let sum = counts.iter().copied().map(u64::from).sum();
        let tasks = match jobs {
            Some(_) => sum,
            None => number::<u32>(TASKS, &required(variables, TASKS)?)?.into(),
        };
        let tasks = check_sums(sum, tasks, jobs)?;
        if rank >= tasks {
            return Err(SlurmError::RankOutside { rank, tasks }.into());
        }
        Ok(Self {
            rank,
            nodes,
            counts,
            tasks,
            distribution: variables.read_nonempty(DISTRIBUTION)?,
            plane_size: read_number(variables, PLANE_SIZE)?,
            host_file: variables.read(HOST_FILE)?,
            parts: read_parts(variables)?,
            job: variables.read(JOB)?.unwrap_or_default(),
            step: variables.read(STEP)?.unwrap_or_default(),
            own: read_own(variables, per_node)?,
        })
    }

    /// How many tasks the node with the most has.
    pub(super) fn most_on_a_node(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or_default()
    }

    /// A step of this number, as `scontrol` calls it.
    pub(super) fn name_in(&self, job: &str) -> String {
        format!("{job}.{}", self.step)
    }
}

fn read_nodes(
    variables: &Variables,
    per_node: Option<&TasksPerNode>,
) -> Result<(Vec<String>, Vec<u32>), Error> {
    let (nodes, counts) = match per_node {
        Some(TasksPerNode::Of(tasks)) => tasks.iter().cloned().unzip(),
        Some(TasksPerNode::Each(count)) => {
            let nodes = host_list(NODES, &required(variables, NODES)?)?;
            let counts = vec![*count; nodes.len()];
            (nodes, counts)
        }
        None => {
            let nodes = host_list(NODES, &required(variables, NODES)?)?;
            (nodes, task_counts(&required(variables, COUNTS)?)?)
        }
    };
    if nodes.len() != counts.len() {
        let (nodes, counts) = (nodes.len(), counts.len());
        return Err(SlurmError::NodesAndCounts { nodes, counts }.into());
    }
    let mut sorted: Vec<&String> = nodes.iter().collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let node = pair[0].clone();
            Err(SlurmError::NodeTwice { node }.into())
        }
        None => Ok((nodes, counts)),
    }
}

fn check_sums(sum: u64, tasks: u64, jobs: Option<u64>) -> Result<u32, SlurmError> {
    let summed = [(Summed::Nodes, Some(sum)), (Summed::Jobs, jobs)];
    for (what, sum) in summed {
        if let Some(sum) = sum.filter(|&sum| sum != tasks) {
            return Err(SlurmError::TaskSum { what, sum, tasks });
        }
    }
    let most = MOST_HOSTS as u64;
    match u32::try_from(tasks) {
        Ok(few) if tasks <= most => Ok(few),
        _ => Err(SlurmError::TooManyTasks { tasks, most }),
    }
}

fn read_parts(variables: &Variables) -> Result<Vec<Part>, Error> {
    let count = read_number::<u32>(variables, PARTS)?.unwrap_or_default();
    // One part is an ordinary job; Slurm has at most 128.
    if !(2..=128).contains(&count) {
        return Ok(Vec::new());
    }
    let part = |number: u32| {
        let list = format!("SLURM_JOB_NODELIST_PACK_GROUP_{number}");
        let job = variables.read(&format!("SLURM_JOB_ID_PACK_GROUP_{number}"))?;
        let nodes = variables.read(&list)?.unwrap_or_default();
        Ok(Part {
            job: job.unwrap_or_default(),
            nodes: host_list("SLURM_JOB_NODELIST_PACK_GROUP", &nodes)?,
        })
    };
    (0..count).map(part).collect()
}

fn read_own(variables: &Variables, per_node: Option<&TasksPerNode>) -> Result<Own, Error> {
    let ranks = |text: String| {
        let ranks = text.split(',').map(digits).collect::<Option<Vec<u32>>>();
        let (variable, value) = (RANKS, text);
        ranks.ok_or(SlurmError::Ranks { variable, value })
    };
    // A program that names the nodes may call them by names that Slurm does not know.
    let is_named_by_slurm = !matches!(per_node, Some(TasksPerNode::Of(_)));
    Ok(Own {
        node: variables.read(NODE)?.filter(|_| is_named_by_slurm),
        local: read_number(variables, LOCAL)?,
        ranks: variables.read(RANKS)?.map(ranks).transpose()?,
    })
}

fn host_list(variable: &'static str, list: &str) -> Result<Vec<String>, SlurmError> {
    hostlist::hosts(list).map_err(|problem| SlurmError::HostList {
        variable,
        list: list.to_owned(),
        problem,
    })
}

fn required(variables: &Variables, variable: &'static str) -> Result<String, Error> {
    if let Some(value) = variables.read(variable)? {
        return Ok(value);
    }
    Err(match variables.read(JOB)? {
        Some(job) => SlurmError::NotInStep { variable, job },
        None => SlurmError::Unset { variable },
    }
    .into())
}

fn read_number<T: FromStr>(
    variables: &Variables,
    variable: &'static str,
) -> Result<Option<T>, Error> {
    let value = variables.read(variable)?;
    Ok(value.map(|value| number(variable, &value)).transpose()?)
}

fn number<T: FromStr>(variable: &'static str, value: &str) -> Result<T, SlurmError> {
    digits(value).ok_or_else(|| SlurmError::Number {
        variable,
        value: value.to_owned(),
    })
}

pub(super) const RANK: &str = "SLURM_PROCID";
pub(super) const NODES: &str = "SLURM_STEP_NODELIST";
pub(super) const COUNTS: &str = "SLURM_STEP_TASKS_PER_NODE";
pub(super) const TASKS: &str = "SLURM_STEP_NUM_TASKS";
pub(super) const DISTRIBUTION: &str = "SLURM_DISTRIBUTION";
pub(super) const PLANE_SIZE: &str = "SLURM_DIST_PLANESIZE";
pub(super) const HOST_FILE: &str = "SLURM_HOSTFILE";
pub(super) const NODE: &str = "SLURMD_NODENAME";
pub(super) const LOCAL: &str = "SLURM_LOCALID";
pub(super) const RANKS: &str = "SLURM_GTIDS";
pub(super) const PARTS: &str = "SLURM_HET_SIZE";
/// All tasks of a heterogeneous step have those of its first part.
pub(super) const NAMES: JobNames = JobNames {
    launcher: "srun",
    job: JOB,
    enclosing: None,
    part: Some(STEP),
};
const JOB: &str = "SLURM_JOB_ID";
const STEP: &str = "SLURM_STEP_ID";

#[cfg(test)]
mod tests;
