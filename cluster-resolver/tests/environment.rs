//! Reading the `TF_CONFIG` variable, in child processes because a variable belongs to a whole process.

use std::ffi::OsStr;
use std::process::Command;

use meshwork_cluster_resolver::{ClusterResolver, Error, JsonProblem, TfConfigResolver};

/// Runs the test `name` of this file in a process whose `TF_CONFIG` is `value`.
fn run_child(name: &str, value: Option<&OsStr>) {
    let mut command = Command::new(std::env::current_exe().expect("a test runs from a file"));
    command
        .args(["--exact", name])
        .env(IN_CHILD, "1")
        .env_remove("TF_CONFIG");
    if let Some(value) = value {
        command.env("TF_CONFIG", value);
    }
    let output = command.output().expect("the test can run itself again");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

fn in_child() -> bool {
    std::env::var_os(IN_CHILD).is_some()
}

#[test]
fn an_unset_variable_is_an_empty_cluster() {
    if !in_child() {
        return run_child("an_unset_variable_is_an_empty_cluster", None);
    }
    let resolver = TfConfigResolver::from_env();
    assert!(resolver.cluster_spec().unwrap().is_empty());
    assert_eq!(resolver.master(None, None, None).as_deref(), Ok(""));
}

#[test]
fn an_empty_variable_is_an_error() {
    if !in_child() {
        return run_child("an_empty_variable_is_an_error", Some(OsStr::new("")));
    }
    let expected = Error::Json {
        line: 1,
        column: 0,
        snippet: String::new(),
        problem: JsonProblem::Empty,
    };
    assert_eq!(TfConfigResolver::from_env().task_id(), Err(expected));
}

#[test]
fn the_variable_says_which_task_the_process_is() {
    if !in_child() {
        let value =
            r#"{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}"#;
        return run_child(
            "the_variable_says_which_task_the_process_is",
            Some(OsStr::new(value)),
        );
    }
    let resolver = TfConfigResolver::from_env();
    assert_eq!(resolver.task_id(), Ok(Some(1)));
    assert_eq!(resolver.master(None, None, None).as_deref(), Ok("b:1"));
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_an_error() {
    use std::os::unix::ffi::OsStrExt;

    if !in_child() {
        return run_child(
            "bytes_that_are_no_text_are_an_error",
            Some(OsStr::from_bytes(b"\xff")),
        );
    }
    let variable = "TF_CONFIG".to_owned();
    assert_eq!(
        TfConfigResolver::from_env().task_id(),
        Err(Error::NotUnicode { variable })
    );
}

/// Set in the processes that look at their environment, so that they do not start children in turn.
const IN_CHILD: &str = "MESHWORK_TEST_CHILD";
