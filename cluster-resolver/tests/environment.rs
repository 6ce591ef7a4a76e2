//! Reading the `TF_CONFIG` variable, in child processes because a variable belongs to a whole
//! process.

use std::ffi::OsStr;

use meshwork_cluster_resolver::{ClusterResolver, Error, JsonProblem, TfConfigResolver};
use meshwork_testing::{child, passed, this_test};

/// Runs this test in a process whose `TF_CONFIG` is `value`.
#[track_caller]
fn run_child(value: Option<&OsStr>) {
    let mut child = child(&this_test());
    child.env(IN_CHILD, "1").env_remove("TF_CONFIG");
    child.envs(value.map(|value| ("TF_CONFIG", value)));
    let ended = child.output().expect("the test can run itself again");
    drop(passed(&ended));
}

fn in_child() -> bool {
    std::env::var_os(IN_CHILD).is_some()
}

#[test]
fn an_unset_variable_is_an_empty_cluster() {
    if !in_child() {
        return run_child(None);
    }
    let resolver = TfConfigResolver::from_env();
    assert!(resolver.cluster_spec().unwrap().is_empty());
    assert_eq!(resolver.master(None, None, None).as_deref(), Ok(""));
}

#[test]
fn an_empty_variable_is_an_error() {
    if !in_child() {
        return run_child(Some(OsStr::new("")));
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
        return run_child(Some(OsStr::new(value)));
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
        return run_child(Some(OsStr::from_bytes(b"\xff")));
    }
    let variable = "TF_CONFIG".to_owned();
    assert_eq!(
        TfConfigResolver::from_env().task_id(),
        Err(Error::NotUnicode { variable })
    );
}

/// Set in the processes that look at their environment, so that they do not start children in turn.
const IN_CHILD: &str = "MESHWORK_TEST_CHILD";
