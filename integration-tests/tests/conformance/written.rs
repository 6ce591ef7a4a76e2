//! Cases of the recorded forms that were written here: forms that no record of the project's own
//! has, and what a record may get wrong. Each says in `verdict` what has to come of it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Vectors, Verdict, judge_all, judge_alone};
use crate::report::Tally;
use crate::topics;

/// Where they are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/written")
}

#[test]
fn each_case_comes_to_what_it_says() {
    let mut wrong = Vec::new();
    for topic in topics() {
        let Ok(text) = fs::read_to_string(folder().join(topic.file)) else {
            continue;
        };
        for case in (topic.cases)(&text) {
            let verdict = judge_alone(&case, topic.judge);
            let case = case.unwrap();
            if case["verdict"] != word(&verdict) {
                wrong.push(format!("{}: {verdict:?}", case["case"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Deviates(_) => "deviates",
        Verdict::NotAskable(_) => "not askable",
        Verdict::Failed(_) => "failed",
    }
}

/// A folder with these files.
fn with_files(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let path = folder.path().join(file);
        let parent = path.parent().expect("the folder itself at least");
        fs::create_dir_all(parent).expect("a writable folder");
        fs::write(path, text).expect("a writable folder");
    }
    folder
}

const GOOD: &str = r#"{"case":"a","input":{"from_string":"/job:w"},"expect":{"job":"w"}}"#;

#[test]
fn what_cannot_be_read_fails_alone() {
    let strange = [
        r#"{"meta":true}"#,
        r#"{"case":"no text","input":{"from_string":7},"expect":{"job":"w"}}"#,
        r#"{"case":"no input","expect":{"job":"w"}}"#,
        r#"{"case":"no answer","input":{"from_string":"/job:w"}}"#,
        r#"{"case":"unknown field","input":{"from_string":"/job:w"},"expect":{"colour":"red"}}"#,
        r#"{"case":"cut off","input":{"from"#,
        "[7]",
        GOOD,
    ];
    let folder = with_files(&[
        ("mesh/device_string.jsonl", &strange.join("\n")),
        ("mesh/mesh_coords.jsonl", "not JSON"),
        ("slurm/environments.json", "[]"),
    ]);
    let report = judge_all(folder.path(), &topics());
    let tally = |passed, failed| {
        Some(Tally {
            passed,
            failed,
            ..Tally::default()
        })
    };
    assert_eq!(report.tally("device_string"), tally(1, 6));
    assert_eq!(report.tally("mesh_coords"), tally(0, 1));
    assert_eq!(report.tally("slurm_environments"), tally(0, 1));
    assert_eq!(report.tally("config"), None);
    let given = Vectors::Given(folder.path().to_owned());
    assert_eq!(report.problems(&given, &report).len(), 8);
}

#[test]
fn another_folder_may_lack_files_and_the_own_may_not() {
    let folder = with_files(&[
        ("mesh/device_string.jsonl", GOOD),
        ("cluster/unheard_of.jsonl", GOOD),
    ]);
    let report = judge_all(folder.path(), &topics());
    let folder = folder.path().to_owned();
    assert_eq!(
        report.problems(&Vectors::Given(folder.clone()), &report),
        Vec::<String>::new()
    );
    let problems = report.problems(&Vectors::Own(folder), &report).join("\n");
    for problem in [
        "missing: mesh/config.jsonl",
        "no topic claims cluster/unheard_of.jsonl",
        "no case fits the rule: a job has a name that can stand in that of a device",
        "+ device_string: 1 passed, 0 failed, 0 deviations, 0 not askable",
    ] {
        assert!(problems.contains(problem), "{problem} in {problems}");
    }
}

#[test]
fn a_folder_without_any_file_is_none() {
    let folder = with_files(&[]);
    let report = judge_all(folder.path(), &topics());
    let given = Vectors::Given(folder.path().to_owned());
    assert_eq!(report.problems(&given, &report).len(), 1);
    let empty = with_files(&[("mesh/config.jsonl", r#"{"meta":true}"#)]);
    let report = judge_all(empty.path(), &topics());
    assert_eq!(report.problems(&given, &report).len(), 1);
}

#[test]
fn cases_are_told_apart_by_their_verdicts() {
    let verdicts = [
        Verdict::Passed,
        Verdict::Failed("so".to_owned()),
        Verdict::NotAskable("so"),
        Verdict::unsayable(&Value::Null, "so"),
    ];
    let tally = Tally::of(&verdicts).to_string();
    assert_eq!(tally, "1 passed, 1 failed, 0 deviations, 2 not askable");
}
