//! What tasks of real Slurm steps saw: each must find itself where it ran, and all others too, or
//! refuse.

use std::collections::BTreeMap;

use meshwork_cluster_resolver::{ClusterResolver, Error, SlurmError, SlurmResolver, Variables};
use serde_json::{Value, json};

use super::probe::failed;
use crate::harness::{Case, Verdict};

/// One case for each task of each scenario, with the nodes of all tasks of its step.
pub(super) fn cases(text: &str) -> Vec<Case> {
    let scenarios = match serde_json::from_str(text) {
        Ok(Value::Object(scenarios)) => scenarios,
        Ok(other) => return vec![Err(format!("no scenarios by name: {other}"))],
        Err(error) => return vec![Err(format!("no JSON: {error}"))],
    };
    let mut cases = Vec::new();
    for (scenario, tasks) in &scenarios {
        let Some(tasks) = tasks.as_object() else {
            cases.push(Err(format!("{scenario} has no tasks by name")));
            continue;
        };
        for (task, variables) in tasks {
            let same_step = |other: &&Value| {
                ["SLURM_JOB_ID", "SLURM_STEP_ID"]
                    .iter()
                    .all(|id| other[*id] == variables[*id])
            };
            let nodes: BTreeMap<_, _> = tasks
                .values()
                .filter(same_step)
                .map(|other| {
                    (
                        text_of(other, "SLURM_PROCID"),
                        text_of(other, "SLURMD_NODENAME"),
                    )
                })
                .collect();
            cases.push(Ok(json!({
                "case": format!("{scenario}/{task}"),
                "variables": variables,
                "nodes": nodes,
            })));
        }
    }
    cases
}

pub(super) fn judge(case: &Value) -> Verdict {
    let variables = case["variables"].as_object().expect("variables by name");
    let fixed = variables
        .iter()
        .map(|(name, value)| (name, value.as_str().unwrap_or_default()));
    let resolver = SlurmResolver::from_variables(Variables::fixed(fixed)).without_scontrol();
    let spec = match resolver.cluster_spec() {
        Ok(spec) => spec,
        Err(error) => return judge_refusal(&error, variables),
    };
    let rank = text_of(&case["variables"], "SLURM_PROCID");
    if resolver.task_id().map(|id| id.map(|id| id.to_string())) != Ok(Some(rank.to_owned())) {
        return failed(resolver.task_id());
    }
    let local = text_of(&case["variables"], "SLURM_LOCALID").parse::<u16>();
    for (rank, node) in case["nodes"].as_object().expect("nodes by rank") {
        let node = node.as_str().unwrap_or_default();
        let index = rank.parse().unwrap_or(u32::MAX);
        match spec.task_address("worker", index) {
            Ok(address)
                if address
                    .rsplit_once(':')
                    .is_some_and(|(host, _)| host == node) => {}
            other => return Verdict::Failed(format!("rank {rank} on {node}: {other:?}")),
        }
    }
    let own = resolver.master(None, None, Some(""));
    let port = local.map(|local| format!(":{}", 8888 + local));
    match (own, port) {
        (Ok(own), Ok(port)) if own.ends_with(&port) => Verdict::Passed,
        other => failed(other),
    }
}

/// The reasons for which a task of a real step may say nothing.
fn judge_refusal(error: &Error, variables: &serde_json::Map<String, Value>) -> Verdict {
    let set = |name: &str| variables.contains_key(name);
    let is_due = match error {
        Error::Slurm(SlurmError::NotInStep { variable, .. }) => !set(variable),
        // The environment tells one distribution, the parts may have several.
        Error::Slurm(SlurmError::Unanswered { .. }) => set("SLURM_HET_SIZE"),
        // The file of the job is not here.
        Error::Slurm(SlurmError::HostFile { .. } | SlurmError::NoHostFile) => {
            variables.get("SLURM_DISTRIBUTION") == Some(&json!("arbitrary"))
        }
        _ => false,
    };
    if is_due {
        Verdict::Passed
    } else {
        failed(error)
    }
}

fn text_of<'a>(variables: &'a Value, name: &str) -> &'a str {
    variables[name].as_str().unwrap_or_default()
}
