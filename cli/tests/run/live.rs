//! A job that runs, as `meshwork top` and `meshwork doctor --live` see it.

use std::env;
use std::path::Path;

use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{DEADLINE, Running, look_until, meshwork};

/// Tells this program that it is a worker.
const WORKER: &str = "MESHWORK_TEST_LIVE_WORKER";

/// What each rank of the job runs: this program itself, until it is ended.
#[test]
fn worker() {
    if env::var_os(WORKER).is_none() {
        return;
    }
    let mut strategy = MultiWorkerMirroredStrategy::from_env().unwrap();
    strategy.distribute_dataset(64, 8).unwrap();
    loop {
        let step = strategy.run(|replica| {
            replica.all_reduce(ReplicaReduceOp::Sum, &mut [1.0_f32; 256])?;
            Ok::<_, Error>(())
        });
        step.unwrap();
    }
}

/// Two workers that say in this folder where they are asked.
pub(crate) fn job(folder: &Path) -> Running {
    let program = env::current_exe().unwrap().display().to_string();
    let args = [
        "run",
        "-n",
        "2",
        "--",
        &program,
        "live::worker",
        "--exact",
        "--nocapture",
    ];
    let mut command = meshwork(&args);
    command
        .env(WORKER, "1")
        .env("MESHWORK_STATUS", "127.0.0.1:0")
        .env("MESHWORK_STATUS_FOLDER", folder)
        // One that is stopped is waited for.
        .env("MESHWORK_PEER_TIMEOUT", "600");
    Running::start(&mut command)
}

fn ask(args: &[&str], folder: &Path) -> Option<Value> {
    let output = meshwork(args).arg(folder).output().unwrap();
    let found = output.status.success().then_some(output.stdout)?;
    Some(serde_json::from_slice(&found).unwrap())
}

/// Looks until the job is as wished.
#[track_caller]
pub(crate) fn until(folder: &Path, wished: impl Fn(&Value) -> bool) -> Value {
    let look = || ask(&["top", "--once", "--json"], folder);
    let found = look_until(DEADLINE, look, |found| found.as_ref().is_some_and(&wished));
    found.expect("not as wished").unwrap()
}

fn states(job: &Value) -> Vec<&str> {
    let ranks = job["ranks"].as_array().unwrap().iter();
    ranks.map(|rank| rank["state"].as_str().unwrap()).collect()
}

pub(crate) fn process(job: &Value, rank: usize) -> Pid {
    let process = job["ranks"][rank]["process"].as_i64().unwrap();
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}

#[test]
fn a_rank_that_stops_is_named_by_top_and_doctor_and_goes_on_as_if_nothing_had_been() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let _job = job(folder);
    let steps = |job: &Value| job["steps"].as_f64().unwrap_or_default();
    let running = until(folder, |job| {
        let all = job["ranks"]
            .as_array()
            .is_some_and(|ranks| ranks.len() == 2);
        all && job["unanswered"] == Value::Array(Vec::new()) && steps(job) > 32.0
    });
    assert!(
        running["samples_per_second"].as_f64().unwrap() > 0.0,
        "{running}"
    );
    assert!(
        running["ranks"][1]["bytes"].as_u64().unwrap() > 1024,
        "{running}"
    );
    let stopped = process(&running, 1);
    kill_process(stopped, Signal::STOP).unwrap();
    let found = until(folder, |job| job["slowest"]["now"] == true);
    assert_eq!(found["slowest"]["rank"], 1, "{found}");
    assert_eq!(states(&found), ["waiting", "no answer"], "{found}");
    let call = &found["ranks"][0]["current"];
    assert_eq!(call["awaited"], 1, "{found}");
    let what = call["what"].as_str().unwrap();
    assert!(what.starts_with("all_reduce of 256 f32"), "{found}");
    assert!(
        call["site"].as_str().unwrap().contains("live.rs:"),
        "{found}"
    );

    let diagnosis = ask(&["doctor", "--live", "--json"], folder).unwrap();
    assert_eq!(diagnosis["class"], "dead rank", "{diagnosis}");
    assert_eq!(diagnosis["ranks"], serde_json::json!([1]));
    let evidence = diagnosis["evidence"][0].as_str().unwrap();
    assert!(evidence.contains("live.rs:") && evidence.contains("waiting for rank 1"));
    assert!(
        diagnosis["unanswered"][0]
            .as_str()
            .unwrap()
            .contains("not answered")
    );

    kill_process(stopped, Signal::CONT).unwrap();
    let going_on = until(folder, |job| {
        job["unanswered"] == Value::Array(Vec::new()) && steps(job) > steps(&found)
    });
    assert!(!states(&going_on).contains(&"no answer"), "{going_on}");
}

#[test]
fn nobody_to_ask_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["top", "--once"][..], &["doctor", "--live"]] {
        let output = meshwork(args).arg(folder.path()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && told.contains("MESHWORK_STATUS_FOLDER"),
            "{told}"
        );
        let gone = meshwork(args).arg("127.0.0.1:1").output().unwrap();
        let told = String::from_utf8_lossy(&gone.stderr);
        assert!(told.contains("127.0.0.1:1 cannot be reached"), "{told}");
    }
    let whom = meshwork(&["doctor", "--live"]).output().unwrap();
    assert!(String::from_utf8_lossy(&whom.stderr).contains("HOST:PORT"));
}
