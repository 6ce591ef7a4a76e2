//! Reads the files of recorded cases, and has each case judged by itself.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::deviations::Deviation;
use crate::report::Report;

/// One recorded file and the function that judges its cases.
#[derive(Clone, Copy)]
pub(crate) struct Topic {
    /// The name under which it is reported.
    pub(crate) name: &'static str,
    /// The file, from the folder of vectors.
    pub(crate) file: &'static str,
    /// Cuts the file into cases.
    pub(crate) cases: fn(&str) -> Vec<Case>,
    /// Judges one case.
    pub(crate) judge: fn(&Value) -> Verdict,
}

/// A recorded case, or how a piece of a file is none.
pub(crate) type Case = Result<Value, String>;

/// What came of one case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The answer is the recorded one.
    Passed,
    /// The answer is another, on purpose, and it is the one that these rules ask for.
    Deviates(BTreeSet<Deviation>),
    /// There is nothing here to put the question to, for this reason.
    NotAskable(&'static str),
    /// The answer is wrong, or the case could not be read, and this is how.
    Failed(String),
}

impl Verdict {
    /// Of what no program can say here: where an answer is recorded, that is not enough.
    pub(crate) fn unsayable(case: &Value, reason: &'static str) -> Self {
        match case.get("expect") {
            None => Self::NotAskable(reason),
            Some(expect) => Self::Failed(format!("cannot be said; recorded is {expect}")),
        }
    }

    /// Passed for an error of the recorded category, which `fits` knows.
    pub(crate) fn refused_as<T: Debug, E: Debug>(
        case: &Value,
        result: &Result<T, E>,
        fits: impl FnOnce(Option<&str>, &E) -> bool,
    ) -> Self {
        let recorded = &case["expect_error"];
        match result {
            Err(error) if fits(recorded["category"].as_str(), error) => Self::Passed,
            Err(error) => Self::Failed(format!("the error {error:?} is not {recorded}")),
            Ok(answer) => Self::Failed(format!("{answer:?} instead of {recorded}")),
        }
    }

    /// Another answer, by one rule.
    pub(crate) fn by(rule: Deviation) -> Self {
        Self::Deviates(BTreeSet::from([rule]))
    }

    /// Another answer, if there are rules for it.
    pub(crate) fn by_all(rules: BTreeSet<Deviation>) -> Self {
        match rules.is_empty() {
            true => Self::Passed,
            false => Self::Deviates(rules),
        }
    }

    /// Passed, unless there is a problem.
    pub(crate) fn of(problem: Option<String>) -> Self {
        problem.map_or(Self::Passed, Self::Failed)
    }
}

impl Topic {
    /// A file with one JSON object a line, each with an answer or an error, those of metadata left
    /// out.
    pub(crate) const fn lines(
        name: &'static str,
        file: &'static str,
        judge: fn(&Value) -> Verdict,
    ) -> Self {
        Self {
            name,
            file,
            cases: answered_lines,
            judge,
        }
    }

    /// A file with one JSON object a line, of a form of its own.
    pub(crate) const fn own_lines(
        name: &'static str,
        file: &'static str,
        judge: fn(&Value) -> Verdict,
    ) -> Self {
        Self {
            cases: json_lines,
            ..Self::lines(name, file, judge)
        }
    }
}

/// Where the recorded files are.
pub(crate) enum Vectors {
    /// Those that the project carries, of which every one is accounted for.
    Own(PathBuf),
    /// Others of the same forms: files may be missing, and rules may have nothing to fit.
    Given(PathBuf),
}

impl Vectors {
    pub(crate) fn of_environment() -> Self {
        match std::env::var_os("MESHWORK_VECTORS") {
            None => Self::Own(Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")),
            Some(folder) => Self::Given(folder.into()),
        }
    }

    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Own(folder) | Self::Given(folder) => folder,
        }
    }
}

/// Judges every case of every claimed topic that has a file.
pub(crate) fn judge_all(folder: &Path, topics: &[Topic]) -> Report {
    let mut report = Report::default();
    for topic in topics {
        match fs::read_to_string(folder.join(topic.file)) {
            Err(error) => report.add_missing(topic, &error),
            Ok(text) => {
                let cases = (topic.cases)(&text).into_iter();
                let judged = cases.map(|case| (id(&case), judge_alone(&case, topic.judge)));
                report.add(topic, &judged.collect::<Vec<_>>());
            }
        }
    }
    report.add_unclaimed(unclaimed(folder, topics));
    report
}

/// Judges one case, whose failure is its own, also where what judges it panics.
pub(crate) fn judge_alone(case: &Case, judge: impl FnOnce(&Value) -> Verdict) -> Verdict {
    let case = match case {
        Ok(case) => case,
        Err(how) => return Verdict::Failed(how.clone()),
    };
    // Nothing outlives a case but what no case can change.
    let judged = catch_unwind(AssertUnwindSafe(|| judge(case)));
    judged.unwrap_or_else(|panic| {
        Verdict::Failed(format!("cannot be asked: {}", message(panic.as_ref())))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic that says nothing")
}

/// Names the cases that neither passed nor deviate nor are beyond asking.
pub(crate) fn failures<'a>(judged: impl IntoIterator<Item = &'a (String, Verdict)>) -> Vec<String> {
    let judged = judged.into_iter();
    let failed = judged.filter_map(|(case, verdict)| match verdict {
        Verdict::Failed(how) => Some(format!("{case}: {how}")),
        Verdict::Passed | Verdict::Deviates(_) | Verdict::NotAskable(_) => None,
    });
    failed.collect()
}

fn unclaimed(folder: &Path, topics: &[Topic]) -> Vec<String> {
    let mut files = Vec::new();
    for sub in ["mesh", "cluster", "reshard", "slurm"] {
        let entries = fs::read_dir(folder.join(sub)).into_iter().flatten();
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let file = format!("{sub}/{name}");
            let claimed = topics.iter().any(|topic| topic.file == file);
            if !claimed && !name.ends_with(".md") && name != AUXILIARY {
                files.push(file);
            }
        }
    }
    files.sort();
    files
}

/// Pairs that other cases refer to, no topic of its own.
const AUXILIARY: &str = "relayout_wrong_pairs.json";

/// The cases of a file of JSON lines; none if it is not there.
pub(crate) fn cases(file: &str) -> Vec<Case> {
    let text = fs::read_to_string(Vectors::of_environment().folder().join(file));
    text.map(|text| json_lines(&text)).unwrap_or_default()
}

fn answered_lines(text: &str) -> Vec<Case> {
    let answered = |case: &Value| ["expect", "expect_error"].map(|key| case.get(key).is_some());
    let checked = json_lines(text).into_iter().map(|case| match case {
        Ok(case) if answered(&case) == [false; 2] => Err(format!(
            "neither an answer nor an error: {}",
            beginning(&case.to_string())
        )),
        case => case,
    });
    checked.collect()
}

fn json_lines(text: &str) -> Vec<Case> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read = lines.map(|line| {
        let read = serde_json::from_str::<Value>(line);
        read.map_err(|error| format!("no JSON ({error}): {}", beginning(line)))
    });
    let is_case = |case: &Case| !matches!(case, Ok(case) if case.get("meta").is_some() || case["case"] == "meta");
    read.filter(is_case).collect()
}

/// What a case is called, or how it begins.
pub(crate) fn id(case: &Case) -> String {
    match case {
        Ok(case) => match case["case"].as_str() {
            Some(name) => name.to_owned(),
            None => beginning(&case.to_string()),
        },
        Err(_) => "?".to_owned(),
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(80).collect()
}
