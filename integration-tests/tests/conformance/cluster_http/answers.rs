//! Answers in the recorded form, and what makes two of them the same.

use std::fmt::Display;
use std::time::Duration;

use meshwork_cluster_resolver::{Cluster, ClusterResolver, RetryPolicy};
use serde_json::{Map, Value, json};

use super::loopback::Asked;
use crate::deviations::Deviation;
use crate::harness::Verdict;
pub(super) use crate::resolvers::probe::dict;

/// Keys of one case with the answers of ours; what is recorded and not among them is a failure.
#[derive(Default)]
pub(super) struct Answers(Map<String, Value>);

impl Answers {
    pub(super) fn add(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    pub(super) fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// The recorded keys whose values are other ones here.
    pub(super) fn differing<'a>(&self, expected: &'a Value) -> Vec<&'a str> {
        let keys = expected.as_object().into_iter().flatten();
        let differ = keys.filter(|(key, value)| {
            self.0
                .get(key.as_str())
                .is_none_or(|ours| !same(value, ours))
        });
        differ.map(|(key, _)| key.as_str()).collect()
    }

    /// Passed if nothing differs, else what the rule says, if these answers follow it.
    pub(super) fn verdict(&self, expected: &Value, rule: Option<(Deviation, &Self)>) -> Verdict {
        let differing = self.differing(expected);
        if differing.is_empty() {
            return Verdict::Passed;
        }
        let Some((deviation, model)) = rule else {
            return self.failed(&differing, expected);
        };
        // What the rule says nothing about must be as recorded.
        let beyond: Vec<_> = differing
            .iter()
            .copied()
            .filter(|key| model.0.get(*key).is_none())
            .collect();
        if !beyond.is_empty() {
            return self.failed(&beyond, expected);
        }
        let model = Value::Object(model.0.clone());
        let off = self.differing(&model);
        if off.is_empty() {
            Verdict::by(deviation)
        } else {
            self.failed(&off, &model)
        }
    }

    fn failed(&self, keys: &[&str], expected: &Value) -> Verdict {
        let each = keys
            .iter()
            .map(|key| format!("{key}: {} instead of {}", self.get(key), expected[*key]));
        Verdict::Failed(each.collect::<Vec<_>>().join("; "))
    }
}

/// Whether our answer is the recorded one; of an error only that it is one counts, since its class
/// and words are the recorded system's own.
pub(super) fn same(expected: &Value, ours: &Value) -> bool {
    if expected.get("error").is_some() {
        return ours.get("error").is_some();
    }
    expected == ours
}

/// An outcome as `{"ok": …}` or `{"error": …}`.
pub(super) fn outcome<T: Into<Value>, E: Display>(result: Result<T, E>) -> Value {
    match result {
        Ok(value) => json!({"ok": value.into()}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

/// The cluster, with the lists of a model: an empty job is an empty map.
pub(super) fn jobs(jobs: impl IntoIterator<Item = (String, Vec<String>)>) -> Value {
    let tasks = |list: Vec<String>| {
        if list.is_empty() {
            json!({})
        } else {
            json!(list)
        }
    };
    Value::Object(
        jobs.into_iter()
            .map(|(job, list)| (job, tasks(list)))
            .collect(),
    )
}

/// The master that a model cluster has: job, index and layer as asked for or as set.
pub(super) fn model_master(
    cluster: &Result<Value, String>,
    task: (Option<&str>, Option<u64>),
    layer: Option<&str>,
) -> Value {
    let (Some(job), Some(index)) = task else {
        return json!({"ok": ""});
    };
    let Ok(cluster) = cluster else {
        return json!({"error": ""});
    };
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    match (cluster[job][index].as_str(), layer) {
        (None, _) => json!({"error": ""}),
        (Some(address), None | Some("")) => json!({"ok": address}),
        (Some(address), Some(layer)) => json!({"ok": format!("{layer}://{address}")}),
    }
}

/// The key of an answer, and the job, index and layer that it was asked with.
type AskedMaster = (
    &'static str,
    Option<&'static str>,
    Option<u32>,
    Option<&'static str>,
);

/// The masters that every resolver case asks for.
pub(super) const MASTERS: [AskedMaster; 5] = [
    ("master()", None, None, None),
    ("master(worker,1)", Some("worker"), Some(1), None),
    ("master(worker,0,zz)", Some("worker"), Some(0), Some("zz")),
    ("master(None,0)", None, Some(0), None),
    ("master(worker,1,zz)", Some("worker"), Some(1), Some("zz")),
];

/// What every resolver answers.
pub(super) fn common(answers: &mut Answers, resolver: &dyn ClusterResolver) {
    let cluster = resolver.snapshot().unwrap_or_else(Cluster::unknown);
    for (key, job, index, layer) in MASTERS {
        answers.add(key, outcome(cluster.master(job, index, layer)));
    }
    answers.add("task_type", json!(cluster.task_type().ok().flatten()));
    answers.add("task_id", json!(cluster.task_id().ok().flatten()));
    answers.add("rpc_layer", json!(cluster.rpc_layer().ok().flatten()));
    // Recorded as the empty text where nobody said anything.
    answers.add("environment", cluster.environment().unwrap_or_default());
}

/// Enough for a server on this machine, and for one that never answers well.
pub(super) fn retry_policy() -> RetryPolicy {
    let millis = Duration::from_millis;
    let policy = RetryPolicy::new(Duration::from_secs(10));
    policy.with_backoff(millis(1), millis(5))
}

/// Little, for servers that always fail.
pub(super) fn short_retry_policy() -> RetryPolicy {
    let millis = Duration::from_millis;
    RetryPolicy::new(millis(200)).with_backoff(millis(5), millis(20))
}

/// A request in the recorded form, with these of its headers.
pub(super) fn recorded(asked: &Asked, headers: &[&str]) -> Value {
    let query = asked.query.iter().map(|(name, value)| json!([name, value]));
    let headers = headers.iter().filter_map(|name| {
        asked
            .header(name)
            .map(|value| ((*name).to_owned(), json!(value)))
    });
    json!({
        "method": asked.method,
        "path": asked.path,
        "query": query.collect::<Vec<_>>(),
        "headers": Value::Object(headers.collect()),
        "body": asked.body,
    })
}

/// A text of the case, if it is there.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// A small number of the case, if it is there.
pub(super) fn number(value: &Value, key: &str) -> Option<u32> {
    value
        .get(key)
        .and_then(Value::as_u64)
        .and_then(|number| u32::try_from(number).ok())
}

/// Cuts a name into what is compared by value and what is compared as text.
pub(super) fn counted(name: &str) -> Vec<(u64, String)> {
    let mut runs = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let start = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (before, digits) = rest.split_at(start);
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        runs.push((0, before.to_owned()));
        runs.push((digits[..end].parse().unwrap_or(0), String::new()));
        rest = &digits[end..];
    }
    runs
}
