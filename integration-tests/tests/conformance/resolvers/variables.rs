//! Resolvers that read environment variables: TF_CONFIG and SageMaker.

use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, Error, SageMakerError, SageMakerResolver, TfConfigResolver, Variables,
};
use serde_json::{Value, json};

use super::probe::{Probe, accelerators, dict, failed, judge_each, unread, verdict};
use crate::deviations::{Deviation, resolvers as deviations};
use crate::harness::Verdict;
use crate::overridden::{overridden, said};

pub(super) fn judge_tf_config(case: &Value) -> Verdict {
    let input = &case["input"];
    if input.get("first").is_some() {
        return judge_reading_again(case);
    }
    let text = input["TF_CONFIG"].as_str();
    let resolver = TfConfigResolver::from_variables(variables(text));
    let given = Given::new(&input["kwargs"]);
    let wrong = resolver.cluster_spec();
    judge_answers(resolver, &given, case, |probe| match &wrong {
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
    let port = match &input["kwargs"]["port"] {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().and_then(|port| u16::try_from(port).ok()),
        _ => None,
    };
    if let Some(port) = port {
        resolver = resolver.with_port(port);
    }
    judge_answers(resolver, &given, case, |probe| match &probe.ours {
        Err(Error::SageMaker(SageMakerError::StrangeHost { .. })) => Some(deviations::STRANGE_HOST),
        Err(Error::SageMaker(SageMakerError::Hosts { .. })) => Some(deviations::HOST_NAMES),
        _ => None,
    })
}

/// Arguments of a constructor, as a caller with types would give them.
struct Given {
    arguments: Value,
    /// Whether the index is none, which such a caller cannot give.
    no_index: bool,
}

impl Given {
    fn new(arguments: &Value) -> Self {
        let mut arguments = said(arguments);
        let mut no_index = false;
        for (name, value) in arguments.as_object_mut().into_iter().flatten() {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            *value = match text.parse::<u32>() {
                Ok(index) if name == "task_id" => json!(index),
                _ => json!(text),
            };
            no_index |= name == "task_id" && !value.is_u64();
        }
        if no_index {
            arguments["task_id"] = json!(0);
        }
        Self {
            arguments,
            no_index,
        }
    }
}

fn judge_answers(
    resolver: impl ClusterResolver + 'static,
    given: &Given,
    case: &Value,
    excuse: impl Fn(&Probe<'_>) -> Option<Deviation>,
) -> Verdict {
    let resolver = overridden(resolver, &given.arguments);
    let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
    let probe = |name, recorded: &Value| {
        let ours = answer(&cluster, name)?;
        // The caller fails before anything is asked where its own index is none.
        let is_callers = given.no_index && recorded.get("error").is_some();
        let ours = if is_callers { Err(no_index()) } else { ours };
        Some(Probe::new(name, recorded, ours))
    };
    judge_each(case, probe, excuse)
}

fn no_index() -> Error {
    let variable = "task_id".to_owned();
    Error::NotUnicode { variable }
}

fn answer(cluster: &Cluster, name: &str) -> Option<Result<Value, Error>> {
    let master = |job, id, layer| cluster.master(job, id, layer).map(Value::from);
    Some(match name {
        "cluster_spec" => cluster.spec().map(dict),
        "task_type" => cluster.task_type().map(Value::from),
        "task_id" => cluster.task_id().map(Value::from),
        "rpc_layer" => cluster.rpc_layer().map(Value::from),
        "environment" => Ok(json!(cluster.environment())),
        "master()" => master(None, None, None),
        "master(worker,0)" => master(Some("worker"), Some(0), None),
        "master(ps,0,xx)" => master(Some("ps"), Some(0), Some("xx")),
        "master(None,1)" => master(None, Some(1), None),
        "master(,,empty)" => master(None, None, Some("")),
        "num_accelerators_cpu_only_host" => cluster.num_accelerators().map(accelerators),
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
    let mut after = set.clone();
    after["task_id"] = json!(id);
    let after = overridden(resolver(&input["then"]), &after);
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
