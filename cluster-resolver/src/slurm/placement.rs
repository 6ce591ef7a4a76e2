//! On which node each rank of a step runs: from the environment, and where that leaves two answers
//! from a host file or `scontrol`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::layout::{self, Distribution, Form};
use super::step::{LOCAL, NODE, PLANE_SIZE, Part, RANKS, Step};
use crate::error::{ScontrolProblem, SlurmError};

/// What may be asked when the environment does not suffice.
pub(super) trait Outside {
    /// The text of a file.
    fn file(&self, path: &Path) -> Result<String, SlurmError>;

    /// The distribution of a step, such as `34.0`, in the words of `scontrol show step`.
    fn distribution(&self, step: &str) -> Result<String, ScontrolProblem>;
}

/// Where the ranks of a step run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Placement {
    /// The node of each rank, as a position in the nodes of the step.
    pub(super) nodes: Vec<usize>,
    /// What had to be asked.
    pub(super) asked: Vec<Asked>,
}

/// Something outside of the environment that decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    HostFile { path: PathBuf },
    Scontrol { step: String, distribution: String },
}

/// Finds the node of each rank, and checks it with what Slurm told this task about itself.
pub(super) fn place(step: &Step, outside: &dyn Outside) -> Result<Placement, SlurmError> {
    let mut asked = Vec::new();
    let parts = parts_of(step)?;
    let nodes = if parts.len() > 1 {
        assign_parts(step, &parts, outside, &mut asked)?
    } else {
        assign_whole(step, outside, &mut asked)?
    };
    Ok(Placement { nodes, asked })
}

fn assign_whole(
    step: &Step,
    outside: &dyn Outside,
    asked: &mut Vec<Asked>,
) -> Result<Vec<usize>, SlurmError> {
    if let Some(declared) = &step.distribution {
        let form = layout::form(declared)?;
        let nodes = assign(step, form, outside, asked)?;
        check(step, &nodes)?;
        return Ok(nodes);
    }
    // srun says so when it is asked for another distribution than its default.
    let nodes = layout::assign(&step.counts, Distribution::Block);
    if check(step, &nodes).is_ok() {
        return Ok(nodes);
    }
    let form = ask(&step.name_in(&step.job), outside, asked)?;
    let nodes = assign(step, form, outside, asked)?;
    check(step, &nodes)?;
    Ok(nodes)
}

fn assign(
    step: &Step,
    form: Form,
    outside: &dyn Outside,
    asked: &mut Vec<Asked>,
) -> Result<Vec<usize>, SlurmError> {
    let distribution = match form {
        Form::Block => Distribution::Block,
        Form::Cyclic => Distribution::Cyclic,
        Form::Plane => plane(step)?,
        Form::Arbitrary => {
            let path = step.host_file.as_ref().ok_or(SlurmError::NoHostFile)?;
            let path = PathBuf::from(path);
            let text = outside.file(&path)?;
            let nodes = layout::by_host_file(&text, &path, &step.nodes, &step.counts)?;
            asked.push(Asked::HostFile { path });
            return Ok(nodes);
        }
    };
    Ok(layout::assign(&step.counts, distribution))
}

fn plane(step: &Step) -> Result<Distribution, SlurmError> {
    let variable = PLANE_SIZE;
    let size = step.plane_size.ok_or(SlurmError::Unset { variable })?;
    Ok(Distribution::Plane(size))
}

/// The positions of each part's nodes, in the order of its list; parts without nodes are left out.
/// An ordinary job is one part.
fn parts_of(step: &Step) -> Result<Vec<(&Part, Vec<usize>)>, SlurmError> {
    let position: BTreeMap<&str, usize> = step.nodes.iter().map(String::as_str).zip(0..).collect();
    let mut owners = vec![0; step.nodes.len()];
    let mut parts = Vec::new();
    for part in &step.parts {
        let nodes = part.nodes.iter();
        let nodes: Vec<usize> = nodes
            .filter_map(|node| position.get(node.as_str()).copied())
            .collect();
        for &node in &nodes {
            owners[node] += 1;
        }
        if !nodes.is_empty() {
            parts.push((part, nodes));
        }
    }
    if step.parts.is_empty() {
        return Ok(parts);
    }
    for (node, owners) in step.nodes.iter().zip(owners) {
        let node = || node.clone();
        match owners {
            0 => return Err(SlurmError::StrayNode { node: node() }),
            1 => {}
            _ => return Err(SlurmError::SharedNode { node: node() }),
        }
    }
    Ok(parts)
}

/// The parts follow each other in their order, whatever the order of all nodes. Each has a
/// distribution of its own, of which the environment tells one.
fn assign_parts(
    step: &Step,
    parts: &[(&Part, Vec<usize>)],
    outside: &dyn Outside,
    asked: &mut Vec<Asked>,
) -> Result<Vec<usize>, SlurmError> {
    let mut ranks = Vec::new();
    for (part, nodes) in parts {
        let counts: Vec<u32> = nodes.iter().map(|&node| step.counts[node]).collect();
        let distribution = if layout::is_order_free(&counts) {
            Distribution::Block
        } else {
            let name = step.name_in(&part.job);
            match ask(&name, outside, asked)? {
                Form::Block => Distribution::Block,
                Form::Cyclic => Distribution::Cyclic,
                Form::Plane => plane(step)?,
                Form::Arbitrary => return Err(SlurmError::NoHostFile),
            }
        };
        let assigned = layout::assign(&counts, distribution);
        ranks.extend(assigned.into_iter().map(|node| nodes[node]));
    }
    check(step, &ranks)?;
    Ok(ranks)
}

fn ask(step: &str, outside: &dyn Outside, asked: &mut Vec<Asked>) -> Result<Form, SlurmError> {
    let distribution = outside.distribution(step);
    let distribution = distribution.map_err(|problem| SlurmError::Unanswered {
        step: step.to_owned(),
        problem,
    })?;
    let form = layout::form(&distribution)?;
    asked.push(Asked::Scontrol {
        step: step.to_owned(),
        distribution,
    });
    Ok(form)
}

/// Holds the nodes of all ranks against what Slurm told this task.
fn check(step: &Step, nodes: &[usize]) -> Result<(), SlurmError> {
    let rank = step.rank;
    let at = rank as usize;
    let own = nodes[at];
    let contradiction = |variable, found: &str, expected: String| {
        let found = found.to_owned();
        Err(SlurmError::Contradiction {
            variable,
            rank,
            found,
            expected,
        })
    };
    match &step.own.node {
        Some(node) if *node != step.nodes[own] => {
            return contradiction(NODE, node, step.nodes[own].clone());
        }
        _ => {}
    }
    let expected = (0..).zip(nodes).filter(|&(_, &node)| node == own);
    let expected: Vec<u32> = expected.map(|(rank, _)| rank).collect();
    match &step.own.ranks {
        Some(ranks) if *ranks != expected => {
            return contradiction(RANKS, &list(ranks), list(&expected));
        }
        _ => {}
    }
    let local = nodes[..at].iter().filter(|&&node| node == own).count();
    match step.own.local {
        Some(found) if found as usize != local => {
            contradiction(LOCAL, &found.to_string(), local.to_string())
        }
        _ => Ok(()),
    }
}

fn list(ranks: &[u32]) -> String {
    let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}

#[cfg(test)]
mod tests;
