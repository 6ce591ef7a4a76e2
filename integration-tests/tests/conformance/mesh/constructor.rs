//! `{"ctor": {"dim_names", "global_device_ids", "local_device_ids", "local_devices", …}}`, or
//! `{"ctor": {"single_device"}}`.

use meshwork_core::{AnyMesh, DeviceIds, Devices, Error, Mesh};
use serde_json::{Value, json};

use super::answers::{any_answer, compare, integer, integers, judge_error, text, texts};
use super::excuses;
use crate::deviations::mesh::IDS_FROM_ELSEWHERE;
use crate::harness::Verdict;
use crate::not_askable::{IN_PAIRS, TYPES};

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    if input["python_only"] == true {
        return Verdict::NotAskable(TYPES);
    }
    let Some(built) = build(&input["ctor"]) else {
        return Verdict::unsayable(case, IN_PAIRS);
    };
    match (built, case.get("expect")) {
        (Ok(any), Some(expect)) => judge_fields(&any, expect),
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

pub(super) fn judge_host(case: &Value) -> Verdict {
    let input = &case["input"];
    let Some(built) = build(&input["ctor"]) else {
        return Verdict::unsayable(case, IN_PAIRS);
    };
    match (built.and_then(|any| any.host_mesh()), case.get("expect")) {
        (Ok(host), Some(expect)) => compare(expect, |field| any_answer(&host, field)),
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

/// The mesh that a constructor is asked for, or `None` where names and sizes do not pair: they are
/// given in pairs here, so there is nothing to call.
pub(super) fn build(ctor: &Value) -> Option<Result<AnyMesh, Error>> {
    if let Some(device) = ctor.get("single_device") {
        return Some(AnyMesh::from_device(text(device)));
    }
    let names = texts(&ctor["dim_names"]);
    let sizes = integers(&ctor["global_device_ids"]["shape"]);
    let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| size.try_into().ok()).collect();
    let dims: Vec<(String, usize)> = names.iter().cloned().zip(sizes?).collect();
    let paired = dims.len() == names.len()
        && ctor["global_device_ids"]["shape"].as_array().map(Vec::len) == Some(names.len());
    paired.then(|| build_mesh(ctor, dims).map(AnyMesh::Mesh))
}

fn build_mesh(ctor: &Value, dims: Vec<(String, usize)>) -> Result<Mesh, Error> {
    let size: usize = dims.iter().map(|(_, size)| size).product();
    let global = &ctor["global_device_ids"];
    let ids = match global.get("values") {
        Some(values) => DeviceIds::new(integers(values))?,
        None => DeviceIds::consecutive(global.get("start").map_or(0, integer), size)?,
    };
    let local_ids = DeviceIds::new(integers(&ctor["local_device_ids"]));
    let mut builder = Mesh::builder(dims)
        .name(ctor["mesh_name"].as_str().unwrap_or_default())
        .global_device_ids(ids)
        .local(local_ids?, Devices::parse(texts(&ctor["local_devices"]))?)
        .global_devices(Devices::parse(texts(&ctor["global_devices"]))?);
    if ctor["use_xla_spmd"] == true {
        builder = builder.xla_spmd();
    }
    builder.build()
}

/// Compares all fields; local ids that start elsewhere than at 0 have locations here.
fn judge_fields(any: &AnyMesh, expect: &Value) -> Verdict {
    let locations = expect.get("local_device_locations");
    let failed_there = locations.is_some_and(|locations| locations.get("error").is_some());
    let answer = |field: &str| match field {
        "local_device_locations" if failed_there => Some(json!({"error": "looked at below"})),
        _ => any_answer(any, field),
    };
    match (compare(expect, answer), any.mesh()) {
        (Verdict::Passed, Some(mesh)) if failed_there && mesh.min_global_device_id() != 0 => {
            let ranks: Vec<i64> = mesh.local_ranks().map(|rank| rank.index() as i64).collect();
            let ids = mesh.local_device_ids().iter();
            let start = mesh.min_global_device_id();
            if ids.map(|id| id - start).eq(ranks) {
                Verdict::by(IDS_FROM_ELSEWHERE)
            } else {
                Verdict::Failed("local ranks are not at the places of their ids".to_owned())
            }
        }
        (Verdict::Passed, _) if failed_there => {
            Verdict::Failed("there is no reason for locations to fail".to_owned())
        }
        (verdict, _) => verdict,
    }
}
