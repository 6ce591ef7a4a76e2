//! What a cluster means for each of its tasks.

use meshwork_cluster_resolver::multi_worker::{
    collective_leader, coordination_leader, id_in_cluster, is_chief, worker_count,
};
use meshwork_cluster_resolver::{ClusterSpec, Error, Task};
use serde_json::{Value, json};

use crate::deviations::{Deviation, strategy};
use crate::harness::Verdict;
use crate::resolvers::probe::{Probe, cluster, unread, verdict};

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let spec = match cluster(&input["cluster"]) {
        Ok(spec) => spec,
        Err(error) => return Verdict::Failed(error.to_string()),
    };
    let ours = answers(&spec, input);
    let recorded = |name: &str| match name {
        "leader" => case
            .get("expect")
            .map_or_else(|| json!({"error": "any"}), |leader| json!({ "ok": leader })),
        name => case["expect"][name].clone(),
    };
    let probe = |(name, ours): &(&'static str, _)| Probe {
        name,
        recorded: recorded(name),
        ours: Clone::clone(ours),
    };
    let probes: Vec<Probe<'_>> = ours.iter().map(probe).collect();
    let unread = match probes[..] {
        [Probe { name: "leader", .. }] => None,
        _ => unread(&case["expect"], &probes),
    };
    unread.unwrap_or_else(|| verdict(&probes, |probe| excuse(&spec, input, probe)))
}

type Answers = Vec<(&'static str, Result<Value, Error>)>;

/// What is asked about a task, or about the cluster alone.
fn answers(spec: &ClusterSpec, input: &Value) -> Answers {
    if input.get("task_type").is_none() {
        let leader = coordination_leader(spec).map(Option::unwrap_or_default);
        return vec![("leader", leader.map(Value::from))];
    }
    let task = task(input);
    // Who has no task has no number in the cluster either: that such a question cannot be put is
    // the error.
    let no_task = Error::TaskUnknown {
        part: meshwork_cluster_resolver::TaskPart::Type,
    };
    let id = task
        .as_ref()
        .map_or_else(|| Err(no_task.clone()), |task| id_in_cluster(spec, task));
    let count = task
        .as_ref()
        .map_or_else(|| Err(no_task), |task| worker_count(spec, task.job()));
    let leader = collective_leader(spec, task.as_ref()).map(Option::unwrap_or_default);
    vec![
        ("is_chief", is_chief(spec, task.as_ref()).map(Value::from)),
        ("id_in_cluster", id.map(Value::from)),
        ("worker_count", count.map(Value::from)),
        ("collective_leader", leader.map(Value::from)),
    ]
}

fn task(input: &Value) -> Option<Task> {
    let index = input["task_id"].as_u64()?;
    let job = input["task_type"].as_str()?;
    Some(Task::new(job, u32::try_from(index).ok()?))
}

fn excuse(spec: &ClusterSpec, input: &Value, probe: &Probe<'_>) -> Option<Deviation> {
    if spec.num_tasks("chief") == Ok(0) {
        // All is as where nobody speaks of a chief.
        let mut without = input["cluster"].clone();
        without.as_object_mut()?.shift_remove("chief");
        let same = answers(&cluster(&without).ok()?, input).into_iter();
        let mut same = same.filter(|(name, _)| *name == probe.name);
        let (_, same) = same.next()?;
        return (probe.ours.clone().ok() == same.ok()).then_some(strategy::EMPTY_CHIEF);
    }
    let has_holes = spec.jobs().any(|job| {
        let indices = spec.task_indices(job).into_iter().flatten();
        (0..).zip(indices).any(|(place, index)| place != index)
    });
    let listed = by_listing(&input["cluster"], &task(input)?, probe.name)?;
    (has_holes && probe.ours.clone().ok() == listed).then_some(strategy::HOLES)
}

/// What holds of a task that the cluster lists, in its own words; `Some(None)` of one that it does
/// not, and `None` of evaluators, who need not be listed, and for other questions.
#[expect(clippy::option_option, reason = "no answer, and an error for one")]
fn by_listing(cluster: &Value, task: &Task, question: &str) -> Option<Option<Value>> {
    let (job, index) = (task.job(), task.index());
    if !["chief", "worker", "ps"].contains(&job) {
        return None;
    }
    let is_listed = match &cluster[job] {
        Value::Array(list) => (index as usize) < list.len(),
        Value::Object(map) => map.contains_key(&index.to_string()),
        _ => false,
    };
    let chiefs = match &cluster["chief"] {
        Value::Array(list) => list.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    let leads = if chiefs > 0 { "chief" } else { "worker" };
    let answer = match (question, job) {
        ("is_chief", _) => json!(job == "chief" || job == leads && index == 0),
        ("id_in_cluster", "chief") => json!(0),
        ("id_in_cluster", "worker") => json!(index as usize + chiefs),
        ("id_in_cluster", _) => return Some(None),
        ("collective_leader", _) => json!(format!("/job:{leads}/replica:0/task:0")),
        _ => return None,
    };
    Some(is_listed.then_some(answer))
}
