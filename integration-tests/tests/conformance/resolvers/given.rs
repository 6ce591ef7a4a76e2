//! Resolvers that answer what they were given, and unions of them.

use meshwork_cluster_resolver::{
    Accelerators, Cluster, ClusterResolver, Error, SimpleResolver, UnionResolver,
};
use serde_json::{Value, json};

use super::probe::{Probe, accelerators, cluster, dict, failed, judge_each};
use crate::deviations::resolvers as deviations;
use crate::harness::Verdict;
use crate::not_askable::TYPES;
use crate::overridden::{overridden, said};

pub(super) fn judge_simple(case: &Value) -> Verdict {
    let input = &case["input"];
    let of_type = input["cluster"].is_object() && are_of_type(&input["kwargs"]);
    if !of_type && case.get("expect_error").is_some() {
        return Verdict::NotAskable(TYPES);
    }
    let mut arguments = input["kwargs"].clone();
    arguments["cluster"] = input["cluster"].clone();
    overlay(&mut arguments, input.get("set"));
    match (simple(&arguments), case.get("expect")) {
        (Ok(resolver), Some(_)) => judge_calls(resolver.as_ref(), case, |_| None),
        (Err(_), None) => Verdict::Passed,
        (other, _) => failed(other),
    }
}

pub(super) fn judge_union(case: &Value) -> Verdict {
    let input = &case["input"];
    let mut own = input.get("kwargs").cloned().unwrap_or_else(|| json!({}));
    overlay(&mut own, input.get("set"));
    let known = ["task_type", "task_id", "rpc_layer"];
    let strange = own.as_object().is_some_and(|own| {
        own.keys()
            .any(|argument| !known.contains(&argument.as_str()))
    });
    // No resolver at all, other things, or arguments that do not exist: the compiler refuses them.
    let members = input["resolvers"].as_array();
    let Some(members) = members
        .filter(|members| !members.is_empty() && members.iter().all(Value::is_object) && !strange)
    else {
        return Verdict::unsayable(case, TYPES);
    };
    let members = match members.iter().map(simple).collect::<Result<Vec<_>, _>>() {
        Ok(members) => members,
        Err(_) if case.get("expect_error").is_some() => return Verdict::Passed,
        Err(error) => return failed(error),
    };
    if case.get("expect_error").is_some() {
        return failed("accepted");
    }
    let union = members.into_iter().fold(None, |union, member| match union {
        None => Some(UnionResolver::new(member)),
        Some(union) => Some(union.and(member)),
    });
    let union = overridden(union.expect("a union of some resolvers"), &said(&own));
    let zero = own["task_id"] == json!(0);
    judge_calls(union.as_ref(), case, |probe| {
        (zero && probe.name.contains("task_id") && probe.ours == Ok(json!(0)))
            .then_some(deviations::TASK_ZERO)
    })
}

/// Whether a typed language can say these arguments.
fn are_of_type(arguments: &Value) -> bool {
    let mut arguments = arguments.as_object().into_iter().flatten();
    arguments.all(|(name, value)| match name.as_str() {
        "master" => value.is_string(),
        _ if value.is_null() => true,
        "task_id" => value.is_u64(),
        "cluster" | "num_accelerators" => value.is_object(),
        _ => value.is_string(),
    })
}

fn simple(arguments: &Value) -> Result<Box<dyn ClusterResolver>, Error> {
    let mut resolver = SimpleResolver::new(cluster(&arguments["cluster"])?);
    if let Some(master) = arguments["master"].as_str() {
        resolver = resolver.with_master(master);
    }
    if let Some(counts) = arguments["num_accelerators"].as_object() {
        let counts = counts.iter().map(|(kind, count)| {
            let count = count.as_u64().and_then(|count| u32::try_from(count).ok());
            (kind.clone(), count.expect("a recorded count"))
        });
        resolver = resolver.with_num_accelerators(counts.collect::<Accelerators>());
    }
    Ok(overridden(resolver, &said(arguments)))
}

/// Attributes set after construction are those it is built with here: nothing can be read between.
fn overlay(arguments: &mut Value, set: Option<&Value>) {
    for (name, value) in set.and_then(Value::as_object).into_iter().flatten() {
        arguments[name] = value.clone();
    }
}

/// Compares all that is recorded: calls written as JSON lists, and answers by name.
fn judge_calls(
    resolver: &dyn ClusterResolver,
    case: &Value,
    excuse: impl Fn(&Probe<'_>) -> Option<crate::deviations::Deviation>,
) -> Verdict {
    let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
    let probe = match case["input"].get("set") {
        Some(_) => Probe::plain,
        None => Probe::new,
    };
    let each = |name, recorded: &Value| Some(probe(name, recorded, answer(&cluster, name)?));
    judge_each(case, each, excuse)
}

fn answer(cluster: &Cluster, name: &str) -> Option<Result<Value, Error>> {
    let call: Value = match name {
        "master(ps,2)" => json!(["master", "ps", 2]),
        "master(worker,0)" => json!(["master", "worker", 0]),
        call if call.starts_with('[') => serde_json::from_str(call).ok()?,
        plain => json!([plain]),
    };
    let index = call[2].as_u64().and_then(|index| u32::try_from(index).ok());
    Some(match call[0].as_str()? {
        "master" => cluster
            .master(call[1].as_str(), index, call[3].as_str())
            .map(Value::from),
        "task_type" => cluster.task_type().map(Value::from),
        "task_id" => cluster.task_id().map(Value::from),
        "rpc_layer" => cluster.rpc_layer().map(Value::from),
        // What TensorFlow calls by an empty text has no name here.
        "environment" => Ok(json!(cluster.environment().unwrap_or_default())),
        "cluster_spec" => cluster.spec().map(dict),
        "num_accelerators" => cluster.num_accelerators().map(accelerators),
        _ => return None,
    })
}
