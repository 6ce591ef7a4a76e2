//! How workers communicate: options, packs, and names of devices.

use std::str::FromStr;
use std::time::Duration;

use meshwork_core::DeviceSpec;
use meshwork_strategy::{Communication, CommunicationOptions, Error, InputContext, packs};
use serde_json::{Value, json};

use crate::deviations::strategy;
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let input = &case["input"];
    let parts: Vec<&str> = name.splitn(3, '/').collect();
    match parts[..] {
        ["options", "new", _] => judge_options(case, input),
        ["options", "merge", _] => judge_merge(case, input),
        ["packing", "group_by_size", _] => judge_packs(case, input),
        ["input_context", "per_replica", _] => judge_per_replica(case, input),
        ["input_context", "str"] => judge_context(case, input),
        ["device", "canonicalize", _] => judge_device(case, input),
        // Nothing here has keys: members of a group are listed when it is made, and operations are
        // numbered by it.
        ["collective_keys", _] if case.get("expect_error").is_some() => Verdict::Passed,
        ["collective_keys", ..] => Verdict::Deviates(strategy::NO_KEYS),
        _ => Verdict::Failed("no such question".to_owned()),
    }
}

/// Options as given, and whether they ask for what only a GPU's backend has.
fn options(given: &Value) -> Option<CommunicationOptions> {
    let mut options = CommunicationOptions::new();
    if let Some(bytes) = given.get("bytes_per_pack") {
        let bytes = usize::try_from(bytes.as_u64()?).ok()?;
        options = options.with_bytes_per_pack(bytes);
    }
    if let Some(seconds) = given.get("timeout_seconds").filter(|it| !it.is_null()) {
        let timeout = Duration::try_from_secs_f64(seconds.as_f64()?).ok()?;
        options = options.with_operation_timeout(timeout);
    }
    match given.get("implementation").and_then(Value::as_str) {
        None => Some(options),
        Some(name) => Some(options.with_implementation(implementation(name)?)),
    }
}

fn implementation(name: &str) -> Option<Communication> {
    match CommunicationOptions::new().with_implementation_named(name) {
        Ok(named) => Some(named.implementation()),
        // A choice of ours that TensorFlow has no name for stands in, to see it merged.
        Err(Error::HostMemoryOverNccl) => Some(Communication::Direct),
        Err(_) => None,
    }
}

fn recorded_form(options: CommunicationOptions) -> Value {
    json!({
        "bytes_per_pack": options.bytes_per_pack(),
        "timeout_seconds": options.operation_timeout().map(|time| time.as_secs_f64()),
        "implementation": match options.implementation() {
            Communication::Auto => "AUTO",
            Communication::Ring => "RING",
            _ => "NCCL",
        },
    })
}

fn judge_options(case: &Value, given: &Value) -> Verdict {
    let negative = given["timeout_seconds"]
        .as_f64()
        .is_some_and(|seconds| seconds < 0.0);
    if negative && case.get("expect").is_some() {
        return Verdict::Deviates(strategy::NEGATIVE_TIME);
    }
    compare(case, options(given).map(recorded_form))
}

fn judge_merge(case: &Value, input: &Value) -> Verdict {
    let given = |field: &str| match &input[field] {
        Value::Null => Some(CommunicationOptions::new()),
        given => options(given),
    };
    let merged = given("base").zip(given("override"));
    compare(
        case,
        merged.map(|(base, over)| recorded_form(base.merge(over))),
    )
}

fn judge_packs(case: &Value, input: &Value) -> Verdict {
    let size = match input["dtype"].as_str() {
        Some("float16" | "bfloat16") => 2,
        Some("float64" | "int64") => 8,
        _ => 4,
    };
    let elements = input["num_elements"].as_array().into_iter().flatten();
    let elements: Vec<Option<u64>> = elements.map(Value::as_u64).collect();
    let limit = input["bytes_per_pack"].as_u64().unwrap_or(0);
    // A size that is not known beforehand does not occur: buffers have lengths.
    let limit = if elements.contains(&None) { 0 } else { limit };
    let number = |number: u64| usize::try_from(number).expect("a small number");
    let bytes: Vec<usize> = elements
        .iter()
        .map(|count| number(count.unwrap_or(0) * size))
        .collect();
    let packs = packs(&bytes, number(limit)).into_iter();
    let packs: Vec<Vec<usize>> = packs.map(Iterator::collect).collect();
    compare(case, Some(json!(packs)))
}

fn judge_per_replica(case: &Value, input: &Value) -> Verdict {
    let number = |field: &str| usize::try_from(input[field].as_u64().unwrap_or(0));
    let (Ok(global), Ok(replicas)) = (number("global_batch_size"), number("num_replicas_in_sync"))
    else {
        return Verdict::Failed("numbers that do not fit".to_owned());
    };
    let context = InputContext::new(1, 0, replicas);
    let size = context.and_then(|context| context.per_replica_batch_size(global));
    compare(case, size.ok().map(Value::from))
}

fn judge_context(case: &Value, input: &Value) -> Verdict {
    let number = |field: &str| usize::try_from(input[field].as_u64().unwrap_or(0)).ok();
    let context = number("num_input_pipelines")
        .zip(number("input_pipeline_id"))
        .zip(number("num_replicas_in_sync"))
        .and_then(|((pipelines, pipeline), replicas)| {
            InputContext::new(pipelines, pipeline, replicas).ok()
        });
    // TensorFlow names its module too.
    compare(
        case,
        context.map(|context| json!(format!("tf.distribute.{context}"))),
    )
}

fn judge_device(case: &Value, input: &Value) -> Verdict {
    let text = input["device"].as_str().unwrap_or_default();
    let parsed = |text: &str| DeviceSpec::from_str(text).ok();
    let names = parsed(text).and_then(|device| {
        let local = parsed("/job:localhost/replica:0/task:0/device:CPU:0")?;
        let worker = parsed("/job:worker/replica:0/task:5/device:CPU:0")?;
        let canonical = filled(&local, &device);
        let kind = canonical.device_type()?;
        let host = parsed("/device:CPU:0").map(|cpu| canonical.merge(&cpu))?;
        let bare = DeviceSpec::default()
            .with_replica(canonical.replica()?)
            .with_device(kind, canonical.device_index())
            .ok()?;
        Some(json!({
            "canonicalize": canonical.to_string(),
            "with_default_job": filled(&worker, &device).to_string(),
            "no_job_task": {"ok": bare.to_string()},
            "host": {"ok": host.to_string()},
        }))
    });
    compare(case, names)
}

/// `device` with what it leaves open taken from `base`; number 0 of a kind without a number.
fn filled(base: &DeviceSpec, device: &DeviceSpec) -> DeviceSpec {
    let merged = base.merge(device);
    match device.device_type() {
        Some(_) if device.device_index().is_none() => merged.with_index(0),
        _ => merged,
    }
}

fn compare(case: &Value, ours: Option<Value>) -> Verdict {
    match (case.get("expect"), &ours) {
        (None, None) => Verdict::Passed,
        (Some(recorded), Some(ours)) if same(recorded, ours) => {
            let asks_nccl = recorded["implementation"] == "NCCL";
            if asks_nccl {
                Verdict::Deviates(strategy::NO_NCCL_HINT)
            } else {
                Verdict::Passed
            }
        }
        (recorded, _) => Verdict::Failed(format!("{ours:?} for {recorded:?}")),
    }
}

/// Equal, with 5 and 5.0 the same number.
fn same(recorded: &Value, ours: &Value) -> bool {
    match (recorded, ours) {
        (Value::Number(recorded), Value::Number(ours)) => recorded.as_f64() == ours.as_f64(),
        (Value::Object(recorded), Value::Object(ours)) => {
            recorded.len() == ours.len()
                && recorded
                    .iter()
                    .all(|(name, value)| ours.get(name).is_some_and(|ours| same(value, ours)))
        }
        (Value::Array(recorded), Value::Array(ours)) => {
            recorded.len() == ours.len()
                && recorded
                    .iter()
                    .zip(ours)
                    .all(|(value, ours)| same(value, ours))
        }
        _ => recorded == ours,
    }
}
