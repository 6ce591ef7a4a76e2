//! Who makes the others wait in a job that runs: named with its cause, and nobody else.

use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::harness::meshwork;
use crate::trainer::{DEADLINE, Job};

/// What `meshwork top` and `meshwork doctor --live` name.
fn named(job: &Job, args: &[&str]) -> Value {
    let output = meshwork(args).arg(job.folder()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["culprit"].clone()
}

/// Looks until somebody is named, who must be the one.
#[track_caller]
fn assert_named(job: &Job, rank: u32, cause: &str) {
    for args in [
        &["top", "--once", "--json"][..],
        &["doctor", "--live", "--json"],
    ] {
        let began = Instant::now();
        loop {
            let found = named(job, args);
            if !found.is_null() {
                let name = (found["rank"].as_u64(), found["cause"].as_str());
                assert_eq!(name, (Some(rank.into()), Some(cause)), "{found}");
                break;
            }
            assert!(began.elapsed() < DEADLINE, "nobody is named by {args:?}");
        }
    }
}

#[test]
fn a_rank_whose_data_come_late_and_one_that_is_stopped_are_named() {
    let job = Job::start();
    let processes = job.processes();
    job.order(processes[1], "sleep");
    assert_named(&job, 1, "late");
    job.order(processes[2], "nothing");
    kill_process(processes[0], Signal::STOP).unwrap();
    assert_named(&job, 0, "stopped");
    kill_process(processes[0], Signal::CONT).unwrap();
}
