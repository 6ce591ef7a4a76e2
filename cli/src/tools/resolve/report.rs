//! All answers of one resolver, for people and for programs.

use std::fmt::{self, Display};

use meshwork_cluster_resolver::{
    Cluster, ClusterResolver, ClusterSpec, Error, Explanation, Finding, Origin, Step, Tasks,
};
use serde_json::{Map, Value, json};

use super::source::Choice;

/// The answers of one snapshot, each by itself: one may be there where another is not.
#[derive(Debug)]
pub(super) struct Report {
    source: String,
    signs: Vec<(&'static str, String)>,
    cluster: Cluster,
    explanation: Option<Explanation>,
}

impl Report {
    pub(super) fn ask(choice: &Choice, resolver: &dyn ClusterResolver) -> Self {
        let signs = choice.signs.iter();
        Self {
            source: choice.source.name(),
            signs: signs.map(|&(sign, source)| (sign, source.name())).collect(),
            cluster: resolver.snapshot().unwrap_or_else(Cluster::unknown),
            explanation: None,
        }
    }

    pub(super) fn explained(mut self) -> Self {
        self.explanation = Some(self.cluster.explanation());
        self
    }

    /// The halves of the task, either of which may not be known.
    fn task(&self) -> Result<(Option<&str>, Option<u32>), Error> {
        Ok((self.cluster.task_type()?, self.cluster.task_id()?))
    }

    fn master(&self) -> Result<String, Error> {
        self.cluster.master(None, None, None)
    }

    /// The rank among those that train and their number, if the cluster is one that trains.
    fn rank(&self) -> Option<(u32, u32)> {
        let placement = self.cluster.placement().ok()?;
        Some((placement.rank(), placement.world()))
    }

    fn errors(&self) -> impl Iterator<Item = (&'static str, Error)> {
        let errors = [
            ("cluster", self.cluster.spec().err()),
            ("task", self.task().err()),
            ("master", self.master().err()),
            ("rpc_layer", self.cluster.rpc_layer().err()),
            ("num_accelerators", self.cluster.num_accelerators().err()),
        ];
        errors
            .into_iter()
            .filter_map(|(name, error)| Some((name, error?)))
    }

    /// The first error, which is why the others are there as a rule.
    pub(super) fn into_error(self) -> Option<Error> {
        self.errors().next().map(|(_, error)| error)
    }

    /// One object: answers that are not there are null, and in `errors` by name.
    pub(super) fn to_json(&self) -> Value {
        let (job, index) = self.task().unwrap_or_default();
        let rank = self.rank();
        let signs = self
            .signs
            .iter()
            .map(|(sign, source)| json!({"variable": sign, "source": source}));
        let errors = self
            .errors()
            .map(|(name, error)| (name.to_owned(), json!(error.to_string())));
        let mut object = json!({
            "source": self.source,
            "signs": signs.collect::<Vec<_>>(),
            "cluster": self.cluster.spec().ok().map(cluster),
            "task": {"type": job, "index": index},
            "rank": rank.map(|(rank, _)| rank),
            "world": rank.map(|(_, world)| world),
            "master": self.master().ok(),
            "rpc_layer": self.cluster.rpc_layer().ok(),
            "environment": self.cluster.environment(),
            "num_accelerators": self.cluster.num_accelerators().ok(),
            "errors": errors.collect::<Map<_, _>>(),
        });
        if let Some(explanation) = &self.explanation {
            object["explanation"] = explanation.steps().map(step).collect();
        }
        object
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "source        {}", self.source)?;
        match self.signs.split_first() {
            Some(((sign, _), others)) => {
                write!(f, ", because {sign} is set")?;
                for (sign, source) in others {
                    write!(f, "; {sign} shows {source}")?;
                }
                writeln!(f)?;
            }
            None => writeln!(f)?,
        }
        if let Ok(spec) = self.cluster.spec() {
            write_cluster(f, spec)?;
        }
        if let Ok((Some(job), Some(index))) = self.task() {
            write!(f, "task          {job}:{index}")?;
            match self.rank() {
                Some((rank, world)) => writeln!(f, ", rank {rank} of {world}")?,
                None => writeln!(f)?,
            }
        }
        if let Ok(master) = self.master() {
            writeln!(f, "master        {}", or_none(&master))?;
        }
        if let Ok(accelerators) = self.cluster.num_accelerators() {
            let each = accelerators
                .iter()
                .map(|(kind, count)| format!("{count} {kind}"));
            let each: Vec<_> = each.collect();
            writeln!(f, "accelerators  {}", or_none(&each.join(", ")))?;
        }
        match &self.explanation {
            Some(explanation) => write!(f, "\n{explanation}"),
            None => Ok(()),
        }
    }
}

fn write_cluster(f: &mut fmt::Formatter<'_>, spec: &ClusterSpec) -> fmt::Result {
    if spec.tasks().next().is_none() {
        return writeln!(f, "cluster       (no tasks)");
    }
    let tasks: Vec<_> = spec.tasks().collect();
    let width = tasks
        .iter()
        .map(|(job, index, _)| job.len() + index.to_string().len());
    let width = width.max().unwrap_or_default() + 1;
    for (position, (job, index, address)) in tasks.into_iter().enumerate() {
        let title = if position == 0 { "cluster" } else { "" };
        let task = format!("{job}:{index}");
        writeln!(f, "{title:<12}  {task:<width$}  {address}")?;
    }
    Ok(())
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

fn cluster(spec: &ClusterSpec) -> Value {
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

fn step(step: &Step) -> Value {
    let mut object = json!({"question": step.question().to_string()});
    if !step.members().is_empty() {
        object["members"] = json!(step.members());
    }
    match step.finding() {
        Finding::Read { from, value } => add(&mut object, "read", from, Some(value)),
        Finding::Absent { from } => add(&mut object, "absent", from, None),
        Finding::Ignored { from, value, why } => {
            add(&mut object, "ignored", from, Some(value));
            object["why"] = json!(why);
        }
        Finding::Concluded { value } => object["answer"] = json!(value),
        Finding::Failed { error } => object["error"] = json!(error.to_string()),
        // What later versions find, in words.
        other => object["found"] = json!(other.to_string()),
    }
    object
}

fn add(object: &mut Value, what: &str, from: &Origin, value: Option<&String>) {
    object[what] = json!(from.to_string());
    if let Some(value) = value {
        object["value"] = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use meshwork_cluster_resolver::{TfConfigResolver, Variables};

    use super::*;
    use crate::tools::resolve::source::Source;

    fn report(text: &str) -> Report {
        let variables = Variables::fixed([("TF_CONFIG", text), ("SM_HOSTS", "[]")]);
        let choice = Choice::detect(&variables).unwrap().unwrap();
        Report::ask(&choice, &TfConfigResolver::from_variables(variables))
    }

    const TWO: &str = r#"{"cluster": {"chief": ["c:1"], "worker": ["w0:1", "w1:1"]},
        "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}"#;

    #[test]
    fn people_read_a_line_for_each_answer() {
        assert_eq!(
            report(TWO).to_string(),
            "\
source        tf-config, because TF_CONFIG is set; SM_HOSTS shows sagemaker
cluster       chief:0   c:1
              worker:0  w0:1
              worker:1  w1:1
task          worker:1, rank 2 of 3
master        grpc://w1:1
accelerators  (none)
"
        );
    }

    #[test]
    fn programs_read_one_object() {
        let expected = json!({
            "source": "tf-config",
            "signs": [
                {"variable": "TF_CONFIG", "source": "tf-config"},
                {"variable": "SM_HOSTS", "source": "sagemaker"},
            ],
            "cluster": {"chief": ["c:1"], "worker": ["w0:1", "w1:1"]},
            "task": {"type": "worker", "index": 1},
            "rank": 2,
            "world": 3,
            "master": "grpc://w1:1",
            "rpc_layer": "grpc",
            "environment": null,
            "num_accelerators": {},
            "errors": {},
        });
        assert_eq!(report(TWO).to_json(), expected);
    }

    #[test]
    fn an_answer_that_is_missing_leaves_the_others() {
        let report = report(r#"{"cluster": {"worker": {"0": "a:1", "2": "c:1"}}}"#);
        let shown = report.to_string();
        let expected = "\
source        tf-config, because TF_CONFIG is set; SM_HOSTS shows sagemaker
cluster       worker:0  a:1
              worker:2  c:1
";
        assert_eq!(shown, expected);
        let json = report.to_json();
        assert_eq!(json["cluster"], json!({"worker": {"0": "a:1", "2": "c:1"}}));
        assert_eq!(json["master"], Value::Null);
        assert!(json["errors"]["master"].is_string(), "{json}");
        assert!(report.into_error().is_some());
    }

    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl ClusterResolver for Counting {
        fn snapshot(&self) -> Result<Cluster, Error> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Cluster::new(ClusterSpec::from_addresses(["a:1"])?))
        }
    }

    #[test]
    fn a_source_is_asked_once_for_all_forms_of_its_report() {
        let resolver = Counting::default();
        let report = Report::ask(&Choice::named(Source::TfConfig), &resolver).explained();
        assert!(!report.to_string().is_empty() && report.to_json().is_object());
        assert!(report.into_error().is_none());
        assert_eq!(resolver.0.into_inner(), 1);
    }

    #[test]
    fn an_explanation_is_shown_when_asked_for() {
        let choice = Choice::named(Source::TfConfig);
        let resolver = TfConfigResolver::from_json(TWO);
        let report = Report::ask(&choice, &resolver).explained();
        assert!(
            report
                .to_string()
                .contains("\n\ncluster: chief 1, worker 2\n")
        );
        let json = report.to_json();
        let steps = json["explanation"].as_array().unwrap();
        let expected = json!({
            "question": "task",
            "read": "task.index in the program",
            "value": "1",
        });
        assert!(steps.contains(&expected), "{json}");
        let expected = json!({"question": "task", "answer": "worker:1"});
        assert!(steps.contains(&expected), "{json}");
    }
}
