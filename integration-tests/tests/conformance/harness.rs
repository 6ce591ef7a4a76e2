//! Reads the files of recorded cases, asks the topic that claims each, and adds up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::deviations::Deviation;

/// One recorded file and the function that judges its cases.
#[derive(Clone, Copy)]
pub(crate) struct Topic {
    /// The name under which it is reported.
    pub(crate) name: &'static str,
    /// The file, from the folder of vectors.
    pub(crate) file: &'static str,
    /// Cuts the file into cases.
    pub(crate) cases: fn(&str) -> Vec<Value>,
    /// Judges one case.
    pub(crate) judge: fn(&Value) -> Verdict,
}

/// What came of one case.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The answer is the recorded one.
    Passed,
    /// The answer is another, on purpose.
    Deviates(Deviation),
    /// The answer is wrong, and this is how.
    Failed(String),
}

impl Topic {
    /// A file with one JSON object a line, those of metadata left out.
    pub(crate) const fn lines(
        name: &'static str,
        file: &'static str,
        judge: fn(&Value) -> Verdict,
    ) -> Self {
        Self {
            name,
            file,
            cases: json_lines,
            judge,
        }
    }
}

/// Runs every claimed topic that has a file, prints the table, and fails on any failure.
pub(crate) fn run(topics: &[Topic]) {
    let folder = folder();
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    let mut deviations: BTreeMap<Deviation, usize> = BTreeMap::new();
    for topic in topics {
        let Ok(text) = fs::read_to_string(folder.join(topic.file)) else {
            lines.push(format!("{}: skipped, no {}", topic.name, topic.file));
            continue;
        };
        let (mut passed, mut deviated, before) = (0_usize, 0_usize, failed.len());
        for case in (topic.cases)(&text) {
            match (topic.judge)(&case) {
                Verdict::Passed => passed += 1,
                Verdict::Deviates(deviation) => {
                    deviated += 1;
                    *deviations.entry(deviation).or_default() += 1;
                }
                Verdict::Failed(how) => failed.push(format!("{} {}: {how}", topic.name, id(&case))),
            }
        }
        let wrong = failed.len() - before;
        lines.push(format!(
            "{}: {passed} passed, {wrong} failed, {deviated} deviations",
            topic.name
        ));
        if passed + wrong + deviated == 0 {
            failed.push(format!("{}: {} has no case", topic.name, topic.file));
        }
    }
    report(&lines, &deviations, &unclaimed(&folder, topics));
    assert!(
        failed.is_empty(),
        "{} cases failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[expect(
    clippy::print_stdout,
    reason = "the table is what --nocapture asks for"
)]
fn report(lines: &[String], deviations: &BTreeMap<Deviation, usize>, unclaimed: &[String]) {
    println!();
    for line in lines {
        println!("{line}");
    }
    for topic in unclaimed {
        println!("{topic}: unclaimed");
    }
    for (Deviation { rule, reason }, times) in deviations {
        println!("deviation ({times} cases): {rule}: {reason}");
    }
}

fn unclaimed(folder: &Path, topics: &[Topic]) -> Vec<String> {
    let mut names = Vec::new();
    for sub in ["mesh", "cluster", "reshard", "slurm"] {
        let Ok(entries) = fs::read_dir(folder.join(sub)) else {
            continue;
        };
        for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
            let file = format!("{sub}/{name}");
            let claimed = topics.iter().any(|topic| topic.file == file);
            if !claimed && !name.ends_with(".md") && name != AUXILIARY {
                let stem = name
                    .rsplit_once('.')
                    .map_or(name.as_str(), |(stem, _)| stem);
                names.push(stem.to_owned());
            }
        }
    }
    names.sort();
    names
}

/// Pairs that other cases refer to, no topic of its own.
const AUXILIARY: &str = "relayout_wrong_pairs.json";

fn folder() -> PathBuf {
    std::env::var_os("MESHWORK_VECTORS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors"),
        PathBuf::from,
    )
}

/// The cases of a file of JSON lines; none if it is not there.
pub(crate) fn cases(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(file));
    text.map(|text| json_lines(&text)).unwrap_or_default()
}

fn json_lines(text: &str) -> Vec<Value> {
    let parsed = text.lines().filter(|line| !line.trim().is_empty());
    parsed
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .filter(|case: &Value| case.get("meta").is_none() && case["case"] != "meta")
        .collect()
}

fn id(case: &Value) -> String {
    case.get("case").map_or_else(
        || case.to_string().chars().take(80).collect(),
        |case| case.as_str().unwrap_or("?").to_owned(),
    )
}
