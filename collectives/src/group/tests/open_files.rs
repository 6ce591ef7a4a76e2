//! Ranks whose process may open no more files. The limit is one of all threads, so the test runs
//! itself in a process of its own.

use std::env;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Set in the process that runs out of files.
const ALONE: &str = "MESHWORK_TEST_WITHOUT_FILES";

#[test]
fn ranks_without_a_file_for_a_connection_end_their_group_with_the_limit_and_the_remedy() {
    const NAME: &str =
        "ranks_without_a_file_for_a_connection_end_their_group_with_the_limit_and_the_remedy";
    if env::var_os(ALONE).is_some() {
        return split_without_files();
    }
    let (_, module) = module_path!().split_once("::").unwrap();
    let ended = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{NAME}"), "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{ended:?}");
    let told = "cannot open a file for a TLS connection with another rank: its process has 3 open";
    assert!(
        said.contains(told) && said.contains("tries again for"),
        "{said}"
    );
}

/// The group that is split off needs connections of its own over TCP.
fn split_without_files() {
    let groups = each(Over::Tls.groups(2), |mut group| {
        group.set_operation_timeout(PATIENCE);
        group.barrier().unwrap();
        group
    });
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(3),
        maximum,
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let errors = each(groups, |mut group| {
        let mut split = group.split(Some(0), 0).unwrap().unwrap();
        split.barrier().unwrap_err()
    });
    for error in errors {
        let error = error.to_string();
        assert!(
            error.contains("rank 1 ") && error.contains("cannot open a file for a TLS connection"),
            "{error}"
        );
        assert!(
            error.contains("3 open files") && error.contains("'ulimit -n'"),
            "{error}"
        );
    }
}
