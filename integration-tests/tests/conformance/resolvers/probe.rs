//! One recorded answer beside ours, and what comes of all answers of a case.

use std::collections::BTreeSet;

use meshwork_cluster_resolver::{Accelerators, ClusterSpec, Error, Task, Tasks, TfConfig};
use serde_json::{Map, Value, json};

use crate::deviations::Deviation;
use crate::harness::Verdict;

/// A question, what was recorded for it as `{"ok": value}` or `{"error": kind}`, and our answer.
pub(crate) struct Probe<'a> {
    pub(crate) name: &'a str,
    pub(crate) recorded: Value,
    pub(crate) ours: Result<Value, Error>,
}

impl<'a> Probe<'a> {
    pub(crate) fn new<T: Into<Value>>(
        name: &'a str,
        recorded: &Value,
        ours: Result<T, Error>,
    ) -> Self {
        Self {
            name,
            recorded: recorded.clone(),
            ours: ours.map(Into::into),
        }
    }

    /// A probe whose recorded value stands by itself.
    pub(crate) fn plain<T: Into<Value>>(
        name: &'a str,
        value: &Value,
        ours: Result<T, Error>,
    ) -> Self {
        Self::new(name, &json!({ "ok": value }), ours)
    }

    pub(crate) fn expects_error(&self) -> bool {
        self.recorded.get("error").is_some()
    }

    fn is_met(&self) -> bool {
        match &self.ours {
            Ok(value) => self.recorded.get("ok") == Some(value),
            Err(_) => self.expects_error(),
        }
    }
}

/// Passed if every probe is met, deviations if every other one has an excuse, a failure otherwise.
pub(crate) fn verdict(
    probes: &[Probe<'_>],
    excuse: impl Fn(&Probe<'_>) -> Option<Deviation>,
) -> Verdict {
    let mut rules = BTreeSet::new();
    for probe in probes.iter().filter(|probe| !probe.is_met()) {
        match excuse(probe) {
            Some(rule) => rules.extend([rule]),
            None => {
                let (name, recorded, ours) = (probe.name, &probe.recorded, &probe.ours);
                return Verdict::Failed(format!("{name}: {ours:?} for {recorded}"));
            }
        }
    }
    if probes.is_empty() {
        return Verdict::Failed("nothing was compared".to_owned());
    }
    Verdict::by_all(rules)
}

/// As [`verdict`], of a probe of each answer that is recorded for a case, by its name.
pub(crate) fn judge_each<'a>(
    case: &'a Value,
    probe: impl Fn(&'a str, &'a Value) -> Option<Probe<'a>>,
    excuse: impl Fn(&Probe<'_>) -> Option<Deviation>,
) -> Verdict {
    let expected = &case["expect"];
    let answers = expected.as_object().expect("recorded answers").iter();
    let probes = answers.filter_map(|(name, recorded)| probe(name, recorded));
    let probes: Vec<_> = probes.collect();
    unread(expected, &probes).unwrap_or_else(|| verdict(&probes, excuse))
}

/// The cluster that a JSON value describes, in any of the forms that `TF_CONFIG` takes.
pub(crate) fn cluster(value: &Value) -> Result<ClusterSpec, Error> {
    let text = json!({ "cluster": value }).to_string();
    Ok(TfConfig::parse(&text)?.cluster().clone())
}

/// A cluster as recorded: lists, or maps from index to address.
pub(crate) fn dict(spec: &ClusterSpec) -> Value {
    let jobs = spec.as_dict().into_iter().map(|(job, tasks)| {
        let tasks = match tasks {
            Tasks::List(addresses) => json!(addresses),
            Tasks::Map(tasks) => {
                let tasks = tasks.into_iter();
                let tasks = tasks.map(|(index, address)| (index.to_string(), json!(address)));
                Value::Object(tasks.collect())
            }
        };
        (job.to_owned(), tasks)
    });
    Value::Object(jobs.collect())
}

pub(crate) fn accelerators(accelerators: Accelerators) -> Value {
    let counts = accelerators.into_iter();
    Value::Object(
        counts
            .map(|(kind, count)| (kind, json!(count)))
            .collect::<Map<_, _>>(),
    )
}

/// Says which recorded fields nobody compared.
pub(crate) fn unread(recorded: &Value, probes: &[Probe<'_>]) -> Option<Verdict> {
    let fields = recorded.as_object()?;
    let missed = fields
        .keys()
        .find(|field| !probes.iter().any(|probe| probe.name == *field));
    missed.map(|field| Verdict::Failed(format!("{field} was not compared")))
}

pub(crate) fn failed(how: impl std::fmt::Debug) -> Verdict {
    Verdict::Failed(format!("{how:?}"))
}

/// A task that a job and an index of any size name; none where the index is no index.
pub(crate) fn task(job: &Value, index: &Value) -> Option<Task> {
    let index = index.as_u64().and_then(|index| u32::try_from(index).ok())?;
    Some(Task::new(job.as_str()?, index))
}
