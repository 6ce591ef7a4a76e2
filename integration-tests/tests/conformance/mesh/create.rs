//! `{"args": {"mesh_dims", "mesh_name", "devices", "device_type", "use_xla_spmd"}}`, each left out
//! where it has its default, on one process with eight CPUs; and with `"env"`, which says which
//! process of how many this is, `"num_local_cpu"`, and `"local_devices"` in place of `"devices"`.

use meshwork_core::{Client, CreateMesh, DeviceSpec, Error, Mesh};
use serde_json::Value;

use super::answers::{any_answer, compare, integer, judge_error, text, texts};
use super::excuses;
use crate::harness::Verdict;

pub(super) fn judge(case: &Value) -> Verdict {
    judge_by(case, |mesh, args| {
        let client = Client::new("localhost", 0, 1)?.with_devices("CPU", 8)?;
        with_devices(mesh, &args["devices"])?.create(&client)
    })
}

pub(super) fn judge_distributed(case: &Value) -> Verdict {
    let dims = pairs(&case["input"]["args"]["mesh_dims"]);
    // TensorFlow does not infer the size -1 where there are several processes; here it is a method.
    if case.get("expect").is_none() && dims.iter().any(|(_, size)| *size < 0) {
        return Verdict::Passed;
    }
    judge_by(case, |mesh, args| {
        let client = client(&case["input"])?;
        with_devices(mesh, &args["local_devices"])?.create_distributed(&client)
    })
}

fn judge_by(case: &Value, create: impl Fn(CreateMesh, &Value) -> Result<Mesh, Error>) -> Verdict {
    let input = &case["input"];
    let Some(mesh) = described(&input["args"]) else {
        return match case.get("expect") {
            // A size is never negative here, so there is nothing to call.
            None => Verdict::Passed,
            Some(expect) => Verdict::Failed(format!("cannot be asked for; recorded is {expect}")),
        };
    };
    match (create(mesh, &input["args"]), case.get("expect")) {
        (Ok(mesh), Some(expect)) => {
            compare(expect, |field| any_answer(&mesh.clone().into(), field))
        }
        (Err(error), Some(_)) => excuses::for_refusal(input, &error),
        (result, None) => judge_error(case, &result),
    }
}

fn described(args: &Value) -> Option<CreateMesh> {
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
    Some(mesh)
}

fn with_devices(mesh: CreateMesh, devices: &Value) -> Result<CreateMesh, Error> {
    if devices.is_null() {
        return Ok(mesh);
    }
    let texts = texts(devices).into_iter();
    let specs = texts.map(|text| DeviceSpec::parse(&text));
    Ok(mesh.devices(specs.collect::<Result<Vec<_>, _>>()?))
}

/// The process that the recorded environment describes; numbers in it are whole.
fn client(input: &Value) -> Result<Client, Error> {
    let variable = |name: &str| input["env"][name].as_str();
    let jobs = variable("DTENSOR_JOBS").map_or(1, |jobs| jobs.split(',').count());
    let jobs = u32::try_from(jobs).expect("a few jobs");
    let default = if jobs == 1 { "localhost" } else { "worker" };
    let index = variable("DTENSOR_CLIENT_ID").unwrap_or("0").parse();
    let client = Client::new(
        variable("DTENSOR_JOB_NAME").unwrap_or(default),
        index.expect("a client's number"),
        jobs,
    )?;
    let cpus = u32::try_from(integer(&input["num_local_cpu"])).expect("a few CPUs");
    client.with_devices("CPU", cpus)
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
