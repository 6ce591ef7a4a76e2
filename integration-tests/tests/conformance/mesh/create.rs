//! `{"args": {"mesh_dims", "mesh_name", "devices", "device_type", "use_xla_spmd"}}`, each left out
//! where it has its default, on one process with eight CPUs; and with `"env"`, which says which
//! process of how many this is, `"num_local_cpu"`, and `"local_devices"` in place of `"devices"`.

use meshwork_core::{Client, CreateMesh, DeviceSpec, Error, Mesh};
use meshwork_dtensor::{Config, DeviceCounts, DeviceType, Environment};
use serde_json::Value;

use super::answers::{any_answer, compare, integer, judge_error, text, texts};
use super::excuses;
use crate::deviations::mesh::INFERRED_SIZE;
use crate::harness::Verdict;
use crate::not_askable::NOT_NEGATIVE;

pub(super) fn judge(case: &Value) -> Verdict {
    judge_by(case, |mesh, args| {
        let client = Client::new("localhost", 0, 1)?.with_devices("CPU", 8)?;
        with_devices(mesh, &args["devices"])?.create(&client)
    })
}

pub(super) fn judge_distributed(case: &Value) -> Verdict {
    let input = &case["input"];
    let config = config(input);
    let client = match (config.client(), case.get("expect_error")) {
        (Ok(client), _) => client,
        // What is wrong with an environment was not sorted, unless it is no number.
        (Err(_), Some(recorded))
            if ["other", "parse_error"]
                .map(Value::from)
                .contains(&recorded["category"]) =>
        {
            return Verdict::Passed;
        }
        (Err(error), recorded) => {
            return Verdict::Failed(format!("{error} for an environment with {recorded:?}"));
        }
    };
    let create = |mesh, args: &Value| {
        with_devices(mesh, &args["local_devices"])?.create_distributed(&client)
    };
    // TensorFlow does not infer a size where there may be several processes.
    if case.get("expect").is_none() && is_inferred(&input["args"]) {
        let made = described(&input["args"]).map(|mesh| create(mesh, &input["args"]));
        if let Some(Ok(mesh)) = made {
            return judge_inferred(&mesh, &config);
        }
    }
    judge_by(case, create)
}

fn is_inferred(args: &Value) -> bool {
    matches!(pairs(&args["mesh_dims"])[..], [(_, -1)])
}

/// The only dimension has all devices of all processes.
fn judge_inferred(mesh: &Mesh, config: &Config) -> Verdict {
    let kind = mesh.device_type().unwrap_or_default();
    let kind = kind.parse::<DeviceType>();
    let all = kind.and_then(|kind| config.num_global_devices(kind));
    match all {
        Ok(all) if mesh.size() == all as usize => Verdict::by(INFERRED_SIZE),
        all => Verdict::Failed(format!("{mesh} of {all:?} devices")),
    }
}

fn judge_by(case: &Value, create: impl Fn(CreateMesh, &Value) -> Result<Mesh, Error>) -> Verdict {
    let input = &case["input"];
    let Some(mesh) = described(&input["args"]) else {
        return Verdict::unsayable(case, NOT_NEGATIVE);
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

/// The recorded environment, of which a number is as good as its text.
fn config(input: &Value) -> Config {
    let variables = input["env"].as_object().into_iter().flatten();
    let variables = variables.map(|(name, value)| match value {
        Value::String(text) => (name.as_str(), text.clone()),
        other => (name.as_str(), other.to_string()),
    });
    let cpus = u32::try_from(integer(&input["num_local_cpu"])).expect("a few CPUs");
    Config::new(Environment::new(variables), DeviceCounts::cpus(cpus))
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
