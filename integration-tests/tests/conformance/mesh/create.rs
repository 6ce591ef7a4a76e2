//! `{"args": {"mesh_dims", "mesh_name", "devices", "device_type", "use_xla_spmd"}}`, each left out
//! where it has its default, on one process with eight CPUs.

use meshwork_core::{AnyMesh, Client, CreateMesh, DeviceSpec, Error};
use serde_json::Value;

use super::answers::{any_answer, compare, integer, judge_error, text, texts};
use super::excuses;
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    let input = &case["input"];
    let Some(created) = create(&input["args"]) else {
        return match case.get("expect") {
            // A size is never negative here, so there is nothing to call.
            None => Verdict::Passed,
            Some(expect) => Verdict::Failed(format!("cannot be asked for; recorded is {expect}")),
        };
    };
    match (created, case.get("expect")) {
        (Ok(any), Some(expect)) => compare(expect, |field| any_answer(&any, field)),
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

fn create(args: &Value) -> Option<Result<AnyMesh, Error>> {
    let mut mesh = CreateMesh::new().name(args["mesh_name"].as_str().unwrap_or_default());
    let dims = args.get("mesh_dims").filter(|dims| !dims.is_null());
    match dims.map(pairs).as_deref() {
        None => {}
        Some([(dim, -1)]) => mesh = mesh.along(dim.as_str()),
        Some(dims) => {
            let sizes = dims
                .iter()
                .map(|(dim, size)| Some((dim, usize::try_from(*size).ok()?)));
            mesh = mesh.dims(sizes.collect::<Option<Vec<_>>>()?);
        }
    }
    if let Some(device_type) = args["device_type"].as_str() {
        mesh = mesh.device_type(device_type);
    }
    if args["use_xla_spmd"] == true {
        mesh = mesh.xla_spmd();
    }
    Some(create_of(mesh, &args["devices"]))
}

fn create_of(mesh: CreateMesh, devices: &Value) -> Result<AnyMesh, Error> {
    let client = Client::new("localhost", 0, 1)?.with_devices("CPU", 8)?;
    let mesh = if devices.is_null() {
        mesh
    } else {
        let texts = texts(devices).into_iter();
        let specs = texts.map(|text| DeviceSpec::parse(&text));
        mesh.devices(specs.collect::<Result<Vec<_>, _>>()?)
    };
    mesh.create(&client).map(AnyMesh::Mesh)
}

/// Dimensions as a list of pairs or as an object.
pub(super) fn pairs(dims: &Value) -> Vec<(String, i64)> {
    match dims {
        Value::Object(dims) => dims
            .iter()
            .map(|(dim, size)| (dim.clone(), integer(size)))
            .collect(),
        dims => {
            let pairs = dims.as_array().into_iter().flatten();
            pairs
                .map(|pair| (text(&pair[0]).to_owned(), integer(&pair[1])))
                .collect()
        }
    }
}
