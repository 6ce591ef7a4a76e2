//! `meshwork resolve` from outside.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "resolve/services.rs"]
mod services;

use std::process::{Command, Output};

use serde_json::{Value, json};

fn resolve(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwork"))
        .arg("resolve")
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"))
}

const SLURM: [(&str, &str); 4] = [
    ("SLURM_PROCID", "2"),
    ("SLURM_STEP_NUM_TASKS", "3"),
    ("SLURM_STEP_NODELIST", "n[8-9]"),
    ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
];

#[test]
fn a_named_source_is_asked() {
    let output = resolve(&["slurm", "--json"], &SLURM);
    assert!(output.status.success());
    let answers = json_of(&output);
    assert_eq!(
        answers["cluster"],
        json!({"worker": ["n8:8888", "n8:8889", "n9:8888"]})
    );
    assert_eq!(answers["task"], json!({"type": "worker", "index": 2}));
    assert_eq!(
        (&answers["rank"], &answers["world"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(answers["signs"], json!([]));
}

#[test]
fn seeds_of_the_job_do_not_hide_the_step() {
    let variables = [
        &SLURM[..],
        &[("SLURM_JOB_ID", "7"), ("MESHWORK_SEEDS", "a:1")],
    ]
    .concat();
    let answers = json_of(&resolve(&["--json"], &variables));
    assert_eq!(answers["world"], json!(3));
}

#[test]
fn without_a_name_the_environment_decides() {
    let variables = [("TF_CONFIG", r#"{"cluster": {"worker": ["a:1"]}}"#)];
    let output = resolve(&[], &variables);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.starts_with("source        tf-config, because TF_CONFIG is set\n"),
        "{shown}"
    );
    assert!(output.status.success());
}

#[test]
fn an_environment_that_shows_nothing_is_said_with_what_was_looked_for() {
    let output = resolve(&["--json"], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message
            .starts_with("meshwork resolve: nothing here describes a cluster: none of TF_CONFIG, "),
        "{message}"
    );
}

#[test]
fn a_failure_is_explained_and_still_fails() {
    let output = resolve(&["slurm", "--explain"], &[("SLURM_JOB_ID", "7")]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("nothing in variable SLURM_PROCID"),
        "{shown}"
    );
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "meshwork resolve: SLURM_PROCID is not set, though job 7 runs here: start this \
                    process as a task, by srun\n";
    assert_eq!(message, expected);
}
