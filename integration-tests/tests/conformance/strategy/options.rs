//! How workers communicate: options, buckets, and names of devices.

use std::str::FromStr;
use std::time::Duration;

use meshwork_core::DeviceSpec;
use meshwork_strategy::{Communication, CommunicationOptions, Error, InputContext, bucket_ranges};
use serde_json::{Value, json};

use crate::deviations::strategy;
use crate::harness::Verdict;
use crate::not_askable::{KEYS, NEGATIVE_TIME, NOT_NEGATIVE};

pub(super) fn judge(case: &Value) -> Verdict {
    let name = case["case"].as_str().unwrap_or_default();
    let input = &case["input"];
    let parts: Vec<&str> = name.splitn(3, '/').collect();
    match parts[..] {
        ["options", "new", _] => judge_options(case, input),
        ["options", "merge", _] => judge_merge(case, input),
        ["packing", "group_by_size", _] => judge_buckets(case, input),
        ["input_context", "per_replica", _] => judge_per_replica(case, input),
        ["input_context", "str"] => judge_context(case, input),
        ["device", "canonicalize", _] => judge_device(case, input),
        ["collective_keys", ..] => Verdict::NotAskable(KEYS),
        _ => Verdict::Failed("no such question".to_owned()),
    }
}

/// Why there is no answer.
#[derive(Debug)]
enum Without {
    /// The question cannot be put.
    Unsayable(&'static str),
    /// It is refused.
    Refused(Error),
}

impl From<Error> for Without {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Options as given, where what only a GPU's backend has is asked for too.
fn options(given: &Value) -> Result<CommunicationOptions, Without> {
    let mut options = CommunicationOptions::new();
    if let Some(bytes) = given.get("bytes_per_pack") {
        let bytes = bytes.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
        options = options.with_bytes_per_bucket(bytes.ok_or(Without::Unsayable(NOT_NEGATIVE))?);
    }
    if let Some(seconds) = given.get("timeout_seconds").filter(|it| !it.is_null()) {
        let seconds = seconds.as_f64().unwrap_or(f64::NAN);
        let timeout = Duration::try_from_secs_f64(seconds);
        let timeout = timeout.map_err(|_| Without::Unsayable(NEGATIVE_TIME))?;
        options = options.with_operation_timeout(timeout);
    }
    match given.get("implementation").and_then(Value::as_str) {
        None => Ok(options),
        Some(name) => Ok(options.with_implementation(implementation(name)?)),
    }
}

fn implementation(name: &str) -> Result<Communication, Error> {
    match CommunicationOptions::new().with_implementation_named(name) {
        Ok(named) => Ok(named.implementation()),
        // A choice of ours that TensorFlow has no name for stands in, to see it merged.
        Err(Error::HostMemoryOverNccl) => Ok(Communication::Direct),
        Err(error) => Err(error),
    }
}

fn recorded_form(options: CommunicationOptions) -> Value {
    json!({
        "bytes_per_pack": options.bytes_per_bucket(),
        "timeout_seconds": options.operation_timeout().map(|time| time.as_secs_f64()),
        "implementation": match options.implementation() {
            Communication::Auto => "AUTO",
            Communication::Ring => "RING",
            _ => "NCCL",
        },
    })
}

fn judge_options(case: &Value, given: &Value) -> Verdict {
    match options(given) {
        // TensorFlow does not look at it, and fails in the first operation.
        Err(Without::Unsayable(NEGATIVE_TIME)) => Verdict::NotAskable(NEGATIVE_TIME),
        options => compare(case, options.map(recorded_form)),
    }
}

fn judge_merge(case: &Value, input: &Value) -> Verdict {
    let given = |field: &str| match &input[field] {
        Value::Null => Ok(CommunicationOptions::new()),
        given => options(given),
    };
    let merged = given("base").and_then(|base| Ok(recorded_form(base.merge(given("override")?))));
    compare(case, merged)
}

fn judge_buckets(case: &Value, input: &Value) -> Verdict {
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
    let buckets = bucket_ranges(&bytes, number(limit)).into_iter();
    let buckets: Vec<Vec<usize>> = buckets.map(Iterator::collect).collect();
    compare(case, Ok(json!(buckets)))
}

fn judge_per_replica(case: &Value, input: &Value) -> Verdict {
    let number = |field: &str| usize::try_from(input[field].as_u64().unwrap_or(0));
    let (Ok(global), Ok(replicas)) = (number("global_batch_size"), number("num_replicas_in_sync"))
    else {
        return Verdict::Failed("numbers that do not fit".to_owned());
    };
    let context = InputContext::new(1, 0, replicas);
    let size = context.and_then(|context| context.per_replica_batch_size(global));
    compare(case, size.map(Value::from).map_err(Without::from))
}

fn judge_context(case: &Value, input: &Value) -> Verdict {
    let number = |field: &str| {
        let number = input[field]
            .as_u64()
            .and_then(|number| usize::try_from(number).ok());
        number.ok_or(Without::Unsayable(NOT_NEGATIVE))
    };
    let context = || {
        let (pipelines, replicas) = (
            number("num_input_pipelines")?,
            number("num_replicas_in_sync")?,
        );
        let context = InputContext::new(pipelines, number("input_pipeline_id")?, replicas)?;
        // TensorFlow names its module too.
        Ok(json!(format!("tf.distribute.{context}")))
    };
    compare(case, context())
}

fn judge_device(case: &Value, input: &Value) -> Verdict {
    let names = || {
        let parsed = |text: &str| DeviceSpec::from_str(text).map_err(Error::Mesh);
        let device = parsed(input["device"].as_str().unwrap_or_default())?;
        let canonical = filled(
            &parsed("/job:localhost/replica:0/task:0/device:CPU:0")?,
            &device,
        );
        let worker = parsed("/job:worker/replica:0/task:5/device:CPU:0")?;
        let host = canonical.merge(&parsed("/device:CPU:0")?);
        let bare = DeviceSpec::default()
            .with_replica(canonical.replica().expect("the base has one"))
            .with_device(
                canonical.device_type().expect("the base has one"),
                canonical.device_index(),
            );
        Ok(json!({
            "canonicalize": canonical.to_string(),
            "with_default_job": filled(&worker, &device).to_string(),
            "no_job_task": {"ok": bare.map_err(Error::Mesh)?.to_string()},
            "host": {"ok": host.to_string()},
        }))
    };
    compare(case, names())
}

/// `device` with what it leaves open taken from `base`; number 0 of a kind without a number.
fn filled(base: &DeviceSpec, device: &DeviceSpec) -> DeviceSpec {
    let merged = base.merge(device);
    match device.device_type() {
        Some(_) if device.device_index().is_none() => merged.with_index(0),
        _ => merged,
    }
}

fn compare(case: &Value, ours: Result<Value, Without>) -> Verdict {
    match (case.get("expect"), &ours) {
        (None, Err(Without::Unsayable(reason))) => Verdict::NotAskable(reason),
        (
            None,
            Err(Without::Refused(
                Error::NoSuchImplementation { .. }
                | Error::BatchNotDivisible { .. }
                | Error::NoSuchInput { .. }
                | Error::Mesh(_),
            )),
        ) => Verdict::Passed,
        (Some(recorded), Ok(ours)) if same(recorded, ours) => {
            match recorded["implementation"] == "NCCL" {
                true => Verdict::by(strategy::NO_NCCL_HINT),
                false => Verdict::Passed,
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
