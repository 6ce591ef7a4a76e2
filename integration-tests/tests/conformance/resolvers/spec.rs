//! Cluster specs, server definitions and device filters.

use meshwork_cluster_resolver::{ClusterSpec, DeviceFilters, Error, ServerDef};
use serde_json::{Map, Value, json};

use super::probe::{Probe, cluster, dict, failed, task, unread, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;
use crate::mesh::answers::{bytes, hex, text};
use crate::not_askable::TYPES;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if input.get("set").is_some() {
        return judge_filters(case);
    }
    if let Some(given) = input.get("cluster_def_hex") {
        return judge_bytes(&bytes(text(given)), &case["expect"]);
    }
    if let (Some(a), Some(b)) = (input.get("a"), input.get("b")) {
        return judge_equality(a, b, &case["expect"]);
    }
    if let Some(call) = input.get("call") {
        return judge_call(&input["cluster"], call, case);
    }
    let name = case["case"].as_str().unwrap_or_default();
    if name.starts_with("server_def/") {
        return judge_server(case);
    }
    judge_spec(case)
}

fn judge_spec(case: &Value) -> Verdict {
    let given = &case["input"]["cluster"];
    let spec = match cluster(given) {
        Ok(spec) => spec,
        Err(_) if case.get("expect_error").is_some() => return Verdict::Passed,
        Err(error) => return excuse(&error).map_or_else(|| failed(error), Verdict::by),
    };
    let Some(expected) = case.get("expect") else {
        return failed(dict(&spec));
    };
    let jobs: Vec<&str> = spec.jobs().collect();
    let each = |answer: &dyn Fn(&str) -> Value| -> Value {
        let answers = jobs.iter().map(|&job| (job.to_owned(), answer(job)));
        Value::Object(answers.collect::<Map<_, _>>())
    };
    let mut empty = None;
    let fields = expected.as_object().expect("recorded fields");
    let probes: Vec<_> = fields
        .iter()
        .filter_map(|(field, value)| {
            let ours = match field.as_str() {
                "bool" => json!(!spec.is_empty()),
                "jobs" => json!(jobs),
                "as_dict" => dict(&spec),
                "num_tasks" => each(&|job| json!(spec.num_tasks(job).ok())),
                "task_indices" => {
                    each(&|job| json!(spec.task_indices(job).ok().map(Iterator::collect::<Vec<_>>)))
                }
                // TensorFlow fails on a job without tasks, whose list is empty here.
                "job_tasks" => each(&|job| match job_tasks(&spec, job) {
                    list if list == json!([]) => json!({"error": value[job]["error"]}),
                    list => json!({ "ok": list }),
                }),
                "cluster_def_hex" => json!(hex(spec.to_proto())),
                _ => return None,
            };
            if field == "job_tasks" && jobs.iter().any(|job| spec.num_tasks(job) == Ok(0)) {
                empty = Some(deviations::NO_TASKS);
            }
            Some(Probe::plain(field, value, Ok(ours)))
        })
        .collect();
    match unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None)) {
        Verdict::Passed => empty.map_or(Verdict::Passed, Verdict::by),
        other => other,
    }
}

fn job_tasks(spec: &ClusterSpec, job: &str) -> Value {
    json!(spec.job_tasks(job).ok().map(Iterator::collect::<Vec<_>>))
}

/// Why a cluster that TensorFlow takes is refused.
fn excuse(error: &Error) -> Option<Deviation> {
    match error {
        Error::IndexTwice { .. } => Some(deviations::INDEX_TWICE),
        Error::IndexKey { key, .. } => {
            let negative = key.trim().strip_prefix('-').map(str::parse::<u64>);
            matches!(negative, Some(Ok(_))).then_some(deviations::NEGATIVE_INDEX)
        }
        _ => None,
    }
}

fn judge_call(given: &Value, call: &Value, case: &Value) -> Verdict {
    let spec = match cluster(given) {
        Ok(spec) => spec,
        Err(error) => return failed(error),
    };
    let job = call[1].as_str().unwrap_or_default();
    let ours = match call[0].as_str() {
        Some("task_address") => match task(&call[1], &call[2]) {
            Some(task) => spec.task_address(job, task.index()).map(Value::from),
            // An index of another type, which the compiler refuses.
            None => return Verdict::unsayable(case, TYPES),
        },
        Some("task_indices") => spec
            .task_indices(job)
            .map(|indices| json!(indices.collect::<Vec<_>>())),
        Some("num_tasks") => spec.num_tasks(job).map(Value::from),
        Some("job_tasks") => spec
            .job_tasks(job)
            .map(|tasks| json!(tasks.collect::<Vec<_>>())),
        _ => return failed(call),
    };
    verdict(&[Probe::new("call", &recorded(case), ours)], |_| None)
}

/// The recorded outcome of a case as that of a probe.
fn recorded(case: &Value) -> Value {
    match case.get("expect_error") {
        Some(error) => json!({ "error": error["kind"] }),
        None => json!({ "ok": case["expect"] }),
    }
}

fn judge_bytes(bytes: &[u8], expected: &Value) -> Verdict {
    let spec = match ClusterSpec::from_proto(bytes) {
        Ok(spec) => spec,
        Err(Error::DuplicateJob { job }) if times(job.as_bytes(), bytes) > 1 => {
            return Verdict::by(deviations::JOB_TWICE);
        }
        Err(Error::NegativeIndex { .. }) => return Verdict::by(deviations::NEGATIVE_INDEX),
        Err(error) => return failed(error),
    };
    let same = spec.to_proto() == bytes;
    let probes = [
        Probe::plain(
            "jobs",
            &expected["jobs"],
            Ok(json!(spec.jobs().collect::<Vec<_>>())),
        ),
        Probe::plain("as_dict", &expected["as_dict"], Ok(dict(&spec))),
        Probe::plain("same_proto_back", &expected["same_proto_back"], Ok(same)),
    ];
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None))
}

fn times(part: &[u8], bytes: &[u8]) -> usize {
    bytes
        .windows(part.len().max(1))
        .filter(|window| *window == part)
        .count()
}

fn judge_equality(a: &Value, b: &Value, expected: &Value) -> Verdict {
    let (a, b) = match (cluster(a), cluster(b)) {
        (Ok(a), Ok(b)) => (a, b),
        specs => return failed(specs),
    };
    let probes = [
        Probe::plain("eq", &expected["eq"], Ok(a == b)),
        Probe::plain("ne", &expected["ne"], Ok(a != b)),
    ];
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None))
}

fn judge_server(case: &Value) -> Verdict {
    let input = &case["input"];
    let spec = match cluster(&input["cluster"]) {
        Ok(spec) => spec,
        Err(error) => return failed(error),
    };
    let index = input.get("task_index").and_then(Value::as_u64);
    let index = index.map(|index| u32::try_from(index).expect("a recorded index"));
    let server = ServerDef::new(spec, input.get("job_name").and_then(Value::as_str), index);
    let server = server.map(
        |server| match input.get("protocol").and_then(Value::as_str) {
            Some(protocol) => server.with_protocol(protocol),
            None => server,
        },
    );
    let (server, expected) = match (server, case.get("expect")) {
        (Ok(server), Some(expected)) => (server, expected),
        (Err(_), None) => return Verdict::Passed,
        (server, _) => return failed(server),
    };
    let probes = [
        Probe::plain("job_name", &expected["job_name"], Ok(server.job_name())),
        Probe::plain(
            "task_index",
            &expected["task_index"],
            Ok(server.task_index()),
        ),
        Probe::plain("protocol", &expected["protocol"], Ok(server.protocol())),
        Probe::plain(
            "server_def_hex",
            &expected["server_def_hex"],
            Ok(hex(server.to_proto())),
        ),
    ];
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None))
}

fn judge_filters(case: &Value) -> Verdict {
    let mut filters = DeviceFilters::default();
    for set in case["input"]["set"].as_array().expect("a list of settings") {
        let Some(task) = task(&set[0], &set[1]) else {
            return Verdict::unsayable(case, TYPES);
        };
        let patterns = set[2].as_array().expect("a list of filters");
        let patterns = patterns
            .iter()
            .map(|pattern| pattern.as_str().unwrap_or_default());
        if let Err(error) = filters.set(task, patterns) {
            return failed(error);
        }
    }
    let expected = &case["expect"];
    let probes = [Probe::plain(
        "hex",
        &expected["hex"],
        Ok(hex(filters.to_proto())),
    )];
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None))
}
