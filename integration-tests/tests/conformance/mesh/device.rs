//! `{"from_string"}` or `{"base", "merged_with"}`.

use meshwork_core::{DeviceSpec, Error};
use serde_json::{Value, json};

use super::answers::{compare, judge_error, text};
use super::excuses;
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let spec = match input.get("from_string") {
        Some(spec) => DeviceSpec::parse(text(spec)),
        None => merged(text(&input["base"]), text(&input["merged_with"])),
    };
    match (spec, case.get("expect")) {
        (Ok(spec), Some(expect)) => compare(expect, |field| answer(&spec, field)),
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

fn merged(base: &str, other: &str) -> Result<DeviceSpec, Error> {
    Ok(DeviceSpec::parse(base)?.merge(&DeviceSpec::parse(other)?))
}

fn answer(spec: &DeviceSpec, field: &str) -> Option<Value> {
    Some(match field {
        "to_string" => json!(spec.to_string()),
        "job" => json!(spec.job()),
        "replica" => json!(spec.replica()),
        "task" => json!(spec.task()),
        "device_type" => json!(spec.device_type()),
        "device_index" => json!(spec.device_index()),
        _ => return None,
    })
}
