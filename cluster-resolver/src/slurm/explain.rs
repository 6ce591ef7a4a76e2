//! How a Slurm task comes to know its step.

use super::gpus::{ON_NODE, VISIBLE};
use super::placement::Asked;
use super::step::{
    COUNTS, DISTRIBUTION, HOST_FILE, LOCAL, NODE, NODES, PARTS, PLANE_SIZE, RANK, RANKS, TASKS,
};
use super::{SlurmResolver, TasksPerNode};
use crate::{Explanation, Origin, Question};

pub(super) fn explain(resolver: &SlurmResolver) -> Explanation {
    let mut explanation = Explanation::default();
    given(resolver, &mut explanation);
    for &(question, variable, need) in VARIABLES {
        let from = Origin::variable(variable);
        // A variable that cannot be read is reported with each answer.
        match (
            resolver.variables.read(variable),
            overruled(resolver, variable),
        ) {
            (Ok(Some(value)), Some(why)) => explanation.ignore(question, from, value, why),
            (Ok(Some(value)), None) => explanation.read(question, from, value),
            (Ok(None), None) if need == Need::Always => explanation.absent(question, from),
            _ => {}
        }
    }
    for &(question, variable, why) in IGNORED {
        if let Ok(Some(value)) = resolver.variables.read(variable) {
            explanation.ignore(question, Origin::variable(variable), value, why);
        }
    }
    let placement = resolver.step().and_then(|step| resolver.place(&step));
    for asked in placement.map_or_else(|_| Vec::new(), |placement| placement.asked) {
        let (from, value) = match asked {
            Asked::HostFile { path } => (Origin::file(path), "the node of each rank".to_owned()),
            Asked::Scontrol { step, distribution } => {
                let command = format!("scontrol show step {step}");
                (Origin::command(command).field("Dist"), distribution)
            }
        };
        explanation.read(Question::Cluster, from, value);
    }
    explanation.settle_all(resolver);
    explanation
}

/// What the program set.
fn given(resolver: &SlurmResolver, explanation: &mut Explanation) {
    let port = resolver.port_base.to_string();
    let from = if resolver.port_base == super::PORT {
        Origin::default_value()
    } else {
        Origin::program()
    };
    explanation.read(Question::Cluster, from.field("port base"), port);
    let mut said = |question, field: &str, value: String| {
        explanation.read(question, Origin::program().field(field), value);
    };
    if let Some(jobs) = &resolver.jobs {
        let jobs: Vec<_> = jobs
            .iter()
            .map(|(job, tasks)| format!("{job} {tasks}"))
            .collect();
        said(Question::Cluster, "jobs", jobs.join(", "));
    }
    match &resolver.tasks_per_node {
        Some(TasksPerNode::Each(tasks)) => {
            said(Question::Cluster, "tasks per node", tasks.to_string());
        }
        Some(TasksPerNode::Of(nodes)) => {
            let nodes: Vec<_> = nodes
                .iter()
                .map(|(node, tasks)| format!("{node} {tasks}"))
                .collect();
            said(Question::Cluster, "tasks per node", nodes.join(", "));
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

/// Why a variable does not count for this resolver, though it does for others.
fn overruled(resolver: &SlurmResolver, variable: &str) -> Option<&'static str> {
    let by_program = match variable {
        TASKS => resolver.jobs.is_some(),
        COUNTS => resolver.tasks_per_node.is_some(),
        NODES | NODE => matches!(resolver.tasks_per_node, Some(TasksPerNode::Of(_))),
        ON_NODE => resolver.gpus_per_node.is_some(),
        _ => false,
    };
    by_program.then_some("the program says otherwise")
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Need {
    Always,
    Sometimes,
}

const VARIABLES: &[(Question, &str, Need)] = &[
    (Question::Cluster, NODES, Need::Always),
    (Question::Cluster, COUNTS, Need::Always),
    (Question::Cluster, TASKS, Need::Always),
    (Question::Cluster, DISTRIBUTION, Need::Sometimes),
    (Question::Cluster, PLANE_SIZE, Need::Sometimes),
    (Question::Cluster, HOST_FILE, Need::Sometimes),
    (Question::Cluster, PARTS, Need::Sometimes),
    (Question::Task, RANK, Need::Always),
    (Question::Task, NODE, Need::Sometimes),
    (Question::Task, LOCAL, Need::Sometimes),
    (Question::Task, RANKS, Need::Sometimes),
    (Question::Accelerators, ON_NODE, Need::Sometimes),
    (Question::Accelerators, VISIBLE[0], Need::Sometimes),
    (Question::Accelerators, VISIBLE[1], Need::Sometimes),
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
