//! What a Slurm task looks at to know its step.

use super::gpus::{ON_NODE, VISIBLE};
use super::placement::Asked;
use super::step::{
    COUNTS, DISTRIBUTION, HOST_FILE, LOCAL, NAMES, NODE, NODES, PARTS, PLANE_SIZE, RANK, RANKS,
    TASKS,
};
use super::{SlurmResolver, TasksPerNode};
use crate::explanation::{Explanation, OVERRULED, Origin, Question};
use crate::variables::Variables;

/// What the program and the environment say.
pub(super) fn of(resolver: &SlurmResolver, variables: &Variables) -> Explanation {
    let mut evidence = Explanation::default();
    resolver.port_base.note(&mut evidence, variables, NAMES);
    given(resolver, &mut evidence);
    for &(question, variable) in VARIABLES {
        let from = Origin::variable(variable);
        // A variable that cannot be read is reported with each answer.
        match (variables.read(variable), is_overruled(resolver, variable)) {
            (Ok(Some(value)), true) => evidence.ignore(question, from, value, OVERRULED),
            (Ok(Some(value)), false) => evidence.read(question, from, value),
            (Ok(None), false) if NEEDED.contains(&variable) => evidence.absent(question, from),
            _ => {}
        }
    }
    for &(question, variable, why) in IGNORED {
        if let Ok(Some(value)) = variables.read(variable) {
            evidence.ignore(question, Origin::variable(variable), value, why);
        }
    }
    evidence
}

/// What had to be asked outside of the environment.
pub(super) fn add_asked(evidence: &mut Explanation, asked: &[Asked]) {
    for asked in asked {
        let (from, value) = match asked {
            Asked::HostFile { path } => (Origin::file(path), "the node of each rank"),
            Asked::Scontrol { step, distribution } => {
                let command = format!("scontrol show step {step}");
                (
                    Origin::command(command).field("Dist"),
                    distribution.as_str(),
                )
            }
        };
        evidence.read(Question::Cluster, from, value);
    }
}

/// What the program set.
fn given(resolver: &SlurmResolver, explanation: &mut Explanation) {
    let mut said = |question, field: &str, value: String| {
        explanation.read(question, Origin::program().field(field), value);
    };
    if let Some(jobs) = &resolver.jobs {
        said(Question::Cluster, "jobs", counts(jobs));
    }
    match &resolver.tasks_per_node {
        Some(TasksPerNode::Each(tasks)) => {
            said(Question::Cluster, "tasks per node", tasks.to_string());
        }
        Some(TasksPerNode::Of(nodes)) => {
            let nodes = nodes.iter().map(|(node, tasks)| (node, tasks));
            said(Question::Cluster, "tasks per node", counts(nodes));
        }
        None => {}
    }
    for (node, host) in &resolver.addresses {
        said(Question::Cluster, "host", format!("{node} is {host}"));
    }
    for (field, gpus) in [
        ("GPUs per node", resolver.gpus_per_node),
        ("GPUs per task", resolver.gpus_per_task),
    ] {
        if let Some(gpus) = gpus {
            said(Question::Accelerators, field, gpus.to_string());
        }
    }
}

/// Names with how many tasks each has.
fn counts<'a>(named: impl IntoIterator<Item = (&'a String, &'a u32)>) -> String {
    let each = named
        .into_iter()
        .map(|(name, tasks)| format!("{name} {tasks}"));
    each.collect::<Vec<_>>().join(", ")
}

/// Whether the program says what a variable says to other resolvers.
fn is_overruled(resolver: &SlurmResolver, variable: &str) -> bool {
    match variable {
        TASKS => resolver.jobs.is_some(),
        COUNTS => resolver.tasks_per_node.is_some(),
        NODES | NODE => matches!(resolver.tasks_per_node, Some(TasksPerNode::Of(_))),
        ON_NODE => resolver.gpus_per_node.is_some(),
        _ => false,
    }
}

/// Variables that every task of a step has.
const NEEDED: [&str; 4] = [NODES, COUNTS, TASKS, RANK];

const VARIABLES: &[(Question, &str)] = &[
    (Question::Cluster, NODES),
    (Question::Cluster, COUNTS),
    (Question::Cluster, TASKS),
    (Question::Cluster, DISTRIBUTION),
    (Question::Cluster, PLANE_SIZE),
    (Question::Cluster, HOST_FILE),
    (Question::Cluster, PARTS),
    (Question::Task, RANK),
    (Question::Task, NODE),
    (Question::Task, LOCAL),
    (Question::Task, RANKS),
    (Question::Accelerators, ON_NODE),
    (Question::Accelerators, VISIBLE[0]),
    (Question::Accelerators, VISIBLE[1]),
];

const IGNORED: &[(Question, &str, &str)] = &[
    (Question::Cluster, "SLURM_JOB_NODELIST", OF_JOB),
    (Question::Cluster, "SLURM_TASKS_PER_NODE", OF_JOB),
    (Question::Cluster, "SLURM_NTASKS", OF_JOB),
    (Question::Task, "OMPI_COMM_WORLD_RANK", OF_MPI),
    (Question::Task, "PMI_RANK", OF_MPI),
];

const OF_JOB: &str = "it describes the whole job, not this step";
const OF_MPI: &str = "the rank that another launcher gave";
