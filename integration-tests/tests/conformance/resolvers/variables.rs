//! Resolvers that read environment variables: TF_CONFIG and SageMaker.

use meshwork_cluster_resolver::{
    ClusterResolver, Error, SageMakerError, SageMakerResolver, TfConfigResolver, Variables,
};
use serde_json::{Value, json};

use super::probe::{Probe, accelerators, dict, failed, unread, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;

pub(super) fn judge_tf_config(case: &Value) -> Verdict {
    let input = &case["input"];
    if input.get("first").is_some() {
        return judge_reading_again(case);
    }
    let text = input["TF_CONFIG"].as_str();
    let mut resolver = TfConfigResolver::from_variables(variables(text));
    let given = Given::new(&input["kwargs"]);
    if let Some(job) = &given.task_type {
        resolver = resolver.with_task_type(job);
    }
    if let Some(Ok(index)) = given.task_id {
        resolver = resolver.with_task_id(index);
    }
    if let Some(layer) = &given.rpc_layer {
        resolver = resolver.with_rpc_layer(layer);
    }
    if let Some(environment) = &given.environment {
        resolver = resolver.with_environment(environment);
    }
    let wrong = TfConfigResolver::from_variables(variables(text)).cluster_spec();
    judge_answers(&resolver, &given, case, |probe| match &wrong {
        Err(error) if probe.ours.as_ref() == Err(error) => refused_text(error),
        _ => None,
    })
}

pub(super) fn judge_sagemaker(case: &Value) -> Verdict {
    let input = &case["input"];
    let env = input["env"].as_object().expect("recorded variables");
    let env = env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
    let mut resolver = SageMakerResolver::from_variables(Variables::fixed(env));
    let given = Given::new(&input["kwargs"]);
    if let Some(job) = &given.task_type {
        resolver = resolver.with_task_type(job);
    }
    if let Some(Ok(index)) = given.task_id {
        resolver = resolver.with_task_id(index);
    }
    if let Some(layer) = &given.rpc_layer {
        resolver = resolver.with_rpc_layer(layer);
    }
    if let Some(environment) = &given.environment {
        resolver = resolver.with_environment(environment);
    }
    let port = match &input["kwargs"]["port"] {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().and_then(|port| u16::try_from(port).ok()),
        _ => None,
    };
    if let Some(port) = port {
        resolver = resolver.with_port(port);
    }
    judge_answers(&resolver, &given, case, |probe| match &probe.ours {
        Err(Error::SageMaker(SageMakerError::StrangeHost { .. })) => Some(deviations::STRANGE_HOST),
        Err(Error::SageMaker(SageMakerError::Hosts { .. })) => Some(deviations::HOST_NAMES),
        _ => None,
    })
}

/// Arguments of a constructor, as a caller with types would give them.
struct Given {
    task_type: Option<String>,
    /// An error for what is no index, which such a caller cannot give.
    task_id: Option<Result<u32, ()>>,
    rpc_layer: Option<String>,
    environment: Option<String>,
}

impl Given {
    fn new(arguments: &Value) -> Self {
        let text = |name: &str| match &arguments[name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        Self {
            task_type: text("task_type"),
            task_id: text("task_id").map(|id| id.parse().map_err(drop)),
            rpc_layer: text("rpc_layer"),
            environment: text("environment"),
        }
    }
}

fn judge_answers(
    resolver: &dyn ClusterResolver,
    given: &Given,
    case: &Value,
    excuse: impl Fn(&Probe<'_>) -> Option<Deviation>,
) -> Verdict {
    let expected = case["expect"].as_object().expect("recorded answers");
    let probes: Vec<_> = expected
        .iter()
        .filter_map(|(name, recorded)| {
            let ours = answer(resolver, name)?;
            // The caller fails before anything is asked where its own index is none.
            let is_callers = given.task_id == Some(Err(())) && recorded.get("error").is_some();
            Some(if is_callers {
                Probe::new(name, recorded, Err::<Value, _>(no_index()))
            } else {
                Probe::new(name, recorded, ours)
            })
        })
        .collect();
    unread(&case["expect"], &probes).unwrap_or_else(|| verdict(&probes, excuse))
}

fn no_index() -> Error {
    let variable = "task_id".to_owned();
    Error::NotUnicode { variable }
}

fn answer(resolver: &dyn ClusterResolver, name: &str) -> Option<Result<Value, Error>> {
    let master = |job, id, layer| resolver.master(job, id, layer).map(Value::from);
    Some(match name {
        "cluster_spec" => resolver.cluster_spec().map(|spec| dict(&spec)),
        "task_type" => resolver.task_type().map(Value::from),
        "task_id" => resolver.task_id().map(Value::from),
        "rpc_layer" => resolver.rpc_layer().map(Value::from),
        "environment" => Ok(json!(resolver.environment())),
        "master()" => master(None, None, None),
        "master(worker,0)" => master(Some("worker"), Some(0), None),
        "master(ps,0,xx)" => master(Some("ps"), Some(0), Some("xx")),
        "master(None,1)" => master(None, Some(1), None),
        "master(,,empty)" => master(None, None, Some("")),
        "num_accelerators_cpu_only_host" => resolver.num_accelerators().map(accelerators),
        _ => return None,
    })
}

/// Why a text that TensorFlow takes, or takes for half of the questions, is refused.
fn refused_text(error: &Error) -> Option<Deviation> {
    match error {
        Error::Field { path, .. } if path.is_empty() => Some(deviations::CONFIG_OBJECT),
        Error::Field { path, .. } if path == "task.index" => Some(deviations::WHOLE_INDEX),
        Error::Field { path, .. } if path.starts_with("cluster") => Some(deviations::CHECKED_WHOLE),
        Error::Field { path, .. } if path == "task" => Some(deviations::CHECKED_WHOLE),
        Error::Field { .. } => Some(deviations::TEXTS),
        Error::IndexTwice { .. } => Some(deviations::INDEX_TWICE),
        Error::IndexKey { key, .. } if key.trim().starts_with('-') => {
            Some(deviations::NEGATIVE_INDEX)
        }
        Error::IndexKey { .. } => Some(deviations::CHECKED_WHOLE),
        Error::Json { snippet, .. } => ["NaN", "Infinity"]
            .iter()
            .any(|word| snippet.contains(word))
            .then_some(deviations::NOT_JSON),
        _ => None,
    }
}

/// The variable changes between calls. A resolver keeps nothing of a text, so that the one which
/// reads the later text stands for the one that reads again.
fn judge_reading_again(case: &Value) -> Verdict {
    let (input, expected) = (&case["input"], &case["expect"]);
    let resolver = |text: &Value| TfConfigResolver::from_variables(variables(text.as_str()));
    let look = |text: &Value| {
        let resolver = resolver(text);
        Ok(json!([
            resolver.task_id()?,
            dict(&resolver.cluster_spec()?)
        ]))
    };
    let set = &input["then_set"];
    let Ok(id) = u32::try_from(set["task_id"].as_u64().unwrap_or_default()) else {
        return failed(set);
    };
    let after = resolver(&input["then"])
        .with_task_type(set["task_type"].as_str().unwrap_or_default())
        .with_task_id(id)
        .with_rpc_layer(set["rpc_layer"].as_str().unwrap_or_default());
    let probes = [
        Probe::plain("first", &expected["first"], look(&input["first"])),
        Probe::plain("then", &expected["then"], look(&input["then"])),
        Probe::plain(
            "master_after_set",
            &expected["master_after_set"],
            after.master(None, None, None),
        ),
    ];
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, |_| None))
}

fn variables(text: Option<&str>) -> Variables {
    Variables::fixed(text.map(|text| ("TF_CONFIG", text)))
}
