//! `{"env": {..}, "calls": [["init", {..}], ["shutdown", {}], ["mesh", {}], ["touch", {}]]}`, and
//! after each call what it returned, whether the system is initialised, and how many CPUs there
//! are.

use std::num::NonZeroU32;

use meshwork_core::CreateMesh;
use meshwork_dtensor::{DeviceCounts, DeviceType, Environment, Error, Initialize, JOBS, System};
use serde_json::{Value, json};

use super::config::environment;
use crate::deviations::dtensor::SHUT_DOWN_TOGETHER;
use crate::harness::Verdict;
use crate::mesh::answers::text;
use crate::not_askable::{NO_CPUS, TYPES, UNTOLD};

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
    for (place, (call, expected)) in calls.iter().zip(steps).enumerate() {
        if is_refused_in_jobs(call, &environment, expected) {
            let together = system.is_initialized() && system.shutdown().is_ok();
            return match together && !system.is_initialized() {
                true => Verdict::by(SHUT_DOWN_TOGETHER),
                false => Verdict::Failed("jobs cannot be shut down".to_owned()),
            };
        }
        let asked = match Asked::read(call, place) {
            Ok(asked) => asked,
            Err(verdict) => return verdict,
        };
        let found = asked.answer(&mut system, &environment, expected);
        if let Some(problem) = differs(&system, &environment, &found, expected) {
            return Verdict::Failed(format!("{call}: {problem}"));
        }
    }
    match calls.len() == steps.len() {
        true => Verdict::Passed,
        false => Verdict::Failed(format!("{} answers to {calls:?}", steps.len())),
    }
}

/// Whether TensorFlow refuses to shut down a system of listed jobs.
fn is_refused_in_jobs(call: &Value, environment: &Environment, expected: &Value) -> bool {
    let listed = environment.get(JOBS).is_some();
    listed && call[0] == "shutdown" && expected["error"]["category"] == "unsupported"
}

/// A recorded call.
enum Asked {
    Init(Result<Initialize, Error>),
    Shutdown,
    /// A tensor with the value 1.
    Touch,
    Mesh,
    /// So many logical CPUs before anything else, or a look at how many there are.
    Logical(Option<u32>),
}

impl Asked {
    fn read(call: &Value, place: usize) -> Result<Self, Verdict> {
        let arguments = &call[1];
        match text(&call[0]) {
            "init" => initialize(arguments).map(Self::Init),
            "shutdown" => Ok(Self::Shutdown),
            "touch" => Ok(Self::Touch),
            "mesh" => Ok(Self::Mesh),
            "logical" => {
                let mut numbers = arguments.as_object().into_iter().flatten();
                let named = numbers.find_map(|(_, number)| number.as_i64());
                let count = arguments.as_i64().or(named);
                match (count.map(u32::try_from), place) {
                    (None, _) => Ok(Self::Logical(None)),
                    (Some(Ok(count)), 0) if count > 0 => Ok(Self::Logical(Some(count))),
                    (Some(Ok(_)), 0) | (Some(Err(_)), _) => Err(Verdict::NotAskable(NO_CPUS)),
                    // A process has its CPUs from the start.
                    (Some(Ok(_)), _) => Err(Verdict::NotAskable(TYPES)),
                }
            }
            _ => Err(Verdict::NotAskable(UNTOLD)),
        }
    }

    fn answer(
        self,
        system: &mut System,
        environment: &Environment,
        expected: &Value,
    ) -> Result<Value, Error> {
        match self {
            Self::Init(asked) => {
                let device_type = system.initialize(environment, asked?)?;
                Ok(json!(device_type.to_string()))
            }
            Self::Shutdown => system.shutdown().map(|()| Value::Null),
            Self::Touch => system.context(environment).map(|_| json!(1)),
            Self::Mesh => {
                let mesh = CreateMesh::new().create(&system.config(environment).client()?)?;
                Ok(json!(mesh.to_string()))
            }
            Self::Logical(count) => {
                if let Some(count) = count {
                    *system = System::new(DeviceCounts::cpus(count));
                }
                let config = system.config(environment);
                // Whatever TensorFlow returns beside a number are objects of its own.
                Ok(match expected.get("returns") {
                    Some(Value::Number(_)) => json!(config.num_local_devices(DeviceType::Cpu)),
                    other => other.cloned().unwrap_or_default(),
                })
            }
        }
    }
}

/// The arguments of a call, or what is to be said of a case that has others.
fn initialize(arguments: &Value) -> Result<Result<Initialize, Error>, Verdict> {
    let mut asked = Initialize::new();
    for (name, value) in arguments.as_object().into_iter().flatten() {
        asked = match (name.as_str(), value) {
            (_, Value::Null) => asked,
            ("device_type", Value::String(name)) => match name.parse::<DeviceType>() {
                Ok(device_type) => asked.device_type(device_type),
                Err(error) => return Ok(Err(error)),
            },
            ("num_logical_cpu_devices", count) => {
                let count = count.as_i64().and_then(|count| u32::try_from(count).ok());
                let count = count.and_then(NonZeroU32::new);
                asked.logical_cpu_devices(count.ok_or(Verdict::NotAskable(NO_CPUS))?)
            }
            ("enable_coordination_service", Value::Bool(false)) => {
                asked.without_coordination_service()
            }
            ("experimental_reset_context", Value::Bool(true)) => asked.reset_context(),
            ("experimental_enable_megcore", Value::Bool(true)) => asked.megacore(),
            (
                "enable_coordination_service"
                | "experimental_reset_context"
                | "experimental_enable_megcore",
                Value::Bool(_),
            ) => asked,
            _ => return Err(Verdict::Failed(format!("the argument {name} is not known"))),
        };
    }
    Ok(Ok(asked))
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
            let answers = ["returns", "mesh"].map(|field| expected.get(field));
            // A call that changes a setting may be recorded with no answer at all.
            answers.into_iter().flatten().next().unwrap_or(&Value::Null) == found
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
