//! `{"env": {..}, "num_local_cpu"}`, and one answer for each function, named as it is called:
//! `local_devices(CPU,for_client_id=3)[:1]`.

use meshwork_dtensor::{Config, DeviceCounts, DeviceType, Environment, Error, JOB_NAME};
use serde_json::{Value, json};

use crate::deviations::dtensor::NAMELESS_JOB;
use crate::harness::Verdict;
use crate::mesh::answers::{compare, integer, text};

pub(super) fn judge(case: &Value) -> Verdict {
    let environment = environment(&case["input"]["env"]);
    let cpus = u32::try_from(integer(&case["input"]["num_local_cpu"])).expect("a few CPUs");
    let config = Config::new(environment.clone(), DeviceCounts::cpus(cpus));
    let nameless = environment.get(JOB_NAME).is_some_and(is_no_name);
    let mut deviates = false;
    let verdict = compare(&case["expect"], |call| {
        let found = answer(&config, call)?;
        // No device has a name where its job has none, though TensorFlow makes one up.
        let refused = nameless && call.starts_with("local_devices(") && is_error(&found);
        let made_up = case["expect"][call].is_array();
        deviates |= refused && made_up;
        Some(match refused && made_up {
            true => case["expect"][call].clone(),
            false => found,
        })
    });
    match verdict {
        Verdict::Passed if deviates => Verdict::by(NAMELESS_JOB),
        verdict => verdict,
    }
}

fn is_error(answer: &Value) -> bool {
    answer.get("error").is_some()
}

pub(super) fn environment(recorded: &Value) -> Environment {
    let variables = recorded.as_object().into_iter().flatten();
    Environment::new(variables.map(|(name, value)| (name.as_str(), text(value))))
}

/// Whether a device name with this job would be read as another.
fn is_no_name(job: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || "/:,|".contains(c);
    job.is_empty() || job.contains(separates)
}

fn answer(config: &Config, call: &str) -> Option<Value> {
    let (function, rest) = call.split_once('(').unwrap_or((call, ""));
    let (arguments, slice) = rest.split_once(')').unwrap_or(("", ""));
    let (argument, client) = arguments
        .split_once(",for_client_id=")
        .unwrap_or((arguments, ""));
    let number = |text: &str| text.parse::<u32>().ok();
    let kind = || argument.parse::<DeviceType>();
    Some(match function {
        "client_id" => told(config.client_id()),
        "num_clients" => told(config.num_clients()),
        "job_name" => told(config.job_name()),
        "jobs" => told(config.jobs()),
        "full_job_name" if argument.is_empty() => told(config.full_job_name()),
        "full_job_name" => told(config.full_job_name_of(number(argument)?)),
        "is_local_mode" => told(config.is_local_mode()),
        "heartbeat_enabled" => json!(config.heartbeat_enabled()),
        "num_local_devices" => told(kind().map(|kind| config.num_local_devices(kind))),
        "num_global_devices" => told(kind().and_then(|kind| config.num_global_devices(kind))),
        "local_devices" => {
            let devices = kind().and_then(|kind| match number(client) {
                Some(client) => config.local_devices_of(kind, client),
                None => config.local_devices(kind),
            });
            let first = slice.trim_start_matches("[:").trim_end_matches(']');
            let first = first.parse().unwrap_or(usize::MAX);
            let names = |names: Vec<_>| -> Vec<String> {
                names.iter().take(first).map(ToString::to_string).collect()
            };
            told(devices.map(names))
        }
        "preferred_device_type" => json!(config.preferred_device_type().to_string()),
        "gpu_use_nccl_communication" => json!(config.gpu_use_nccl_communication()),
        "use_multi_device_mode" => json!(config.use_multi_device_mode()),
        _ => return None,
    })
}

fn told(answer: Result<impl Into<Value>, Error>) -> Value {
    match answer {
        Ok(answer) => answer.into(),
        Err(error) => json!({"error": error.to_string()}),
    }
}
