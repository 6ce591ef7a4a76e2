//! `{"env": {..}, "calls": [["init", {..}], ["shutdown", {}], ["mesh", {}], ["touch", {}]]}`, and after
//! each call what it returned, whether the system is initialised, and how many CPUs there are.

use std::num::NonZeroU32;

use meshwork_core::CreateMesh;
use meshwork_dtensor::{DeviceCounts, DeviceType, Environment, Error, Initialize, JOBS, System};
use serde_json::{Value, json};

use super::config::environment;
use crate::deviations::Deviation;
use crate::deviations::dtensor::{NO_CPUS, SHUT_DOWN_TOGETHER};
use crate::harness::Verdict;
use crate::mesh::answers::text;

pub(super) fn judge(case: &Value) -> Verdict {
    // Nobody listens where one process is the whole job, so any port will do.
    let recorded = case["input"]["env"].to_string().replace("{port}", "4000");
    let recorded = serde_json::from_str(&recorded).expect("still JSON");
    let environment = environment(&recorded);
    let mut system = System::new(DeviceCounts::cpus(1));
    let calls = case["input"]["calls"].as_array().expect("a list of calls");
    let steps = case["expect"]["steps"]
        .as_array()
        .expect("a list of answers");
    for (call, expected) in calls.iter().zip(steps) {
        if let Some(deviation) = deviation(call, &environment, expected, &mut system) {
            return Verdict::Deviates(deviation);
        }
        let found = answer(&mut system, &environment, call);
        if let Some(problem) = differs(&system, &environment, &found, expected) {
            return Verdict::Failed(format!("{call}: {problem}"));
        }
    }
    match calls.len() == steps.len() {
        true => Verdict::Passed,
        false => Verdict::Failed(format!("{} answers to {calls:?}", steps.len())),
    }
}

/// The rule by which a call is answered otherwise, if it is.
fn deviation(
    call: &Value,
    environment: &Environment,
    expected: &Value,
    system: &mut System,
) -> Option<Deviation> {
    match text(&call[0]) {
        "init" if expected.get("returns").is_some() => {
            let cpus = call[1]["num_logical_cpu_devices"].as_i64();
            (cpus? <= 0).then_some(NO_CPUS)
        }
        "shutdown" if expected.get("error").is_some() => {
            let listed = environment.get(JOBS).is_some();
            let done = listed && system.is_initialized() && system.shutdown().is_ok();
            (done && !system.is_initialized()).then_some(SHUT_DOWN_TOGETHER)
        }
        _ => None,
    }
}

fn answer(system: &mut System, environment: &Environment, call: &Value) -> Result<Value, Error> {
    match text(&call[0]) {
        "init" => {
            let device_type = system.initialize(environment, asked(&call[1])?)?;
            Ok(json!(device_type.to_string()))
        }
        "shutdown" => system.shutdown().map(|()| Value::Null),
        // A tensor with the value 1.
        "touch" => system.context(environment).map(|_| json!(1)),
        "mesh" => {
            let mesh = CreateMesh::new().create(&system.config(environment).client()?)?;
            Ok(json!(mesh.to_string()))
        }
        other => panic!("nobody has recorded a call of {other}"),
    }
}

fn asked(arguments: &Value) -> Result<Initialize, Error> {
    let mut asked = Initialize::new();
    if let Some(device_type) = arguments["device_type"].as_str() {
        asked = asked.device_type(device_type.parse::<DeviceType>()?);
    }
    let cpus = arguments["num_logical_cpu_devices"].as_i64();
    if let Some(cpus) = cpus.and_then(|count| NonZeroU32::new(u32::try_from(count).ok()?)) {
        asked = asked.logical_cpu_devices(cpus);
    }
    if arguments["enable_coordination_service"] == false {
        asked = asked.without_coordination_service();
    }
    if arguments["experimental_reset_context"] == true {
        asked = asked.reset_context();
    }
    if arguments["experimental_enable_megcore"] == true {
        asked = asked.megacore();
    }
    Ok(asked)
}

fn differs(
    system: &System,
    environment: &Environment,
    found: &Result<Value, Error>,
    expected: &Value,
) -> Option<String> {
    let same = match (found, expected.get("error")) {
        (Err(error), Some(recorded)) => fits(error, recorded["category"].as_str()),
        (Ok(found), None) => {
            let recorded = expected.get("returns").or_else(|| expected.get("mesh"));
            recorded == Some(found)
        }
        _ => false,
    };
    let cpus = system
        .config(environment)
        .num_local_devices(DeviceType::Cpu);
    let state = expected["is_initialized"] == json!(system.is_initialized())
        && expected["num_local_cpu"] == json!(cpus);
    (!same || !state).then(|| {
        let initialized = system.is_initialized();
        format!("{found:?}, initialised {initialized}, {cpus} CPUs, instead of {expected}")
    })
}

fn fits(error: &Error, category: Option<&str>) -> bool {
    let is_known_before = matches!(error, Error::AlreadyInitialized { .. } | Error::UsedBefore);
    is_known_before == (category == Some("already_initialized"))
}
