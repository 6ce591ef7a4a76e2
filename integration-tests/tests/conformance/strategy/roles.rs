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
    let excuse = |probe: &Probe<'_>| excuse(&spec, probe);
    if input.get("task_type").is_none() {
        let ours = coordination_leader(&spec).map(Option::unwrap_or_default);
        let probe = match case.get("expect") {
            Some(recorded) => Probe::plain("leader", recorded, ours),
            None => Probe::new("leader", &json!({"error": "any"}), ours),
        };
        return verdict(&[probe], excuse);
    }
    let recorded = &case["expect"];
    let probes = probes(&spec, input, recorded);
    unread(recorded, &probes).unwrap_or_else(|| verdict(&probes, excuse))
}

fn probes(spec: &ClusterSpec, input: &Value, recorded: &Value) -> [Probe<'static>; 4] {
    let index = input["task_id"]
        .as_u64()
        .and_then(|index| u32::try_from(index).ok());
    let task = input["task_type"].as_str().zip(index);
    let task = task.map(|(job, index)| Task::new(job, index));
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
    [
        Probe::new(
            "is_chief",
            &recorded["is_chief"],
            is_chief(spec, task.as_ref()),
        ),
        Probe::new("id_in_cluster", &recorded["id_in_cluster"], id),
        Probe::new("worker_count", &recorded["worker_count"], count),
        Probe::new("collective_leader", &recorded["collective_leader"], leader),
    ]
}

fn excuse(spec: &ClusterSpec, probe: &Probe<'_>) -> Option<Deviation> {
    let has_empty_chief = spec.num_tasks("chief") == Ok(0);
    let has_holes = spec.jobs().any(|job| {
        let indices = spec.task_indices(job).into_iter().flatten();
        (0..).zip(indices).any(|(place, index)| place != index)
    });
    if has_empty_chief && matches!(probe.name, "is_chief" | "collective_leader" | "leader") {
        return Some(strategy::EMPTY_CHIEF);
    }
    has_holes.then_some(strategy::HOLES)
}
