//! `meshwork doctor` as it is called.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[cfg(unix)]
#[path = "doctor/certificates.rs"]
mod certificates;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use meshwork_testing::free_addresses;
use serde_json::Value;

fn doctor(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwork"))
        .arg("doctor")
        .args(args)
        .env_remove("TF_CONFIG")
        .env_remove("MESHWORK_JOB_SECRET")
        .env_remove("MESHWORK_JOB_SECRET_FILE")
        .output()
        .unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn ranks_on_this_machine_are_brought_together_and_every_pair_measured() {
    let output = doctor(&["-n", "3", "--json"]);
    let found = json(&output);
    let pairs = found["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 3, "{found}");
    for pair in pairs {
        assert!(pair["latency_seconds"].as_f64().unwrap() > 0.0, "{pair}");
        assert!(pair["bytes_per_second"].as_f64().unwrap() > 1e6, "{pair}");
        // All have the same clock; what is left is the time that an answer takes.
        assert!(
            pair["clock_seconds"].as_f64().unwrap().abs() < 1.0,
            "{pair}"
        );
    }
    let finding = |subject| finding(&output, subject);
    assert_eq!(finding("join").unwrap()["level"], "fine", "{found}");
    for subject in [
        "names",
        "address family",
        "addresses",
        "port",
        "cores",
        "clocks",
    ] {
        assert!(finding(subject).is_some(), "{subject}: {found}");
    }
    assert!(output.status.success(), "{output:?}");
}

/// What two ranks in these environments say, where each waits so long for the other.
fn of_two_ranks(environments: [Vec<(&str, PathBuf)>; 2], seconds: u32) -> [Output; 2] {
    let hosts = free_addresses(2).join(",");
    of_two([0, 1].map(|rank| (&*hosts, rank)), environments, seconds)
}

/// The same of two that are told such hosts and ranks.
fn of_two(
    told: [(&str, u32); 2],
    environments: [Vec<(&str, PathBuf)>; 2],
    seconds: u32,
) -> [Output; 2] {
    let start = |process: usize| {
        let (hosts, rank) = told[process];
        Command::new(env!("CARGO_BIN_EXE_meshwork"))
            .args(["doctor", "--json"])
            .args([format!("--hosts={hosts}"), format!("--rank={rank}")])
            .env("MESHWORK_JOIN_TIMEOUT", seconds.to_string())
            .envs(environments[process].iter().cloned())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [0, 1].map(start);
    both.map(|process| process.wait_with_output().unwrap())
}

/// What a rank has found about a subject.
fn finding(output: &Output, subject: &str) -> Option<Value> {
    let found = json(output)["findings"].as_array().unwrap().clone();
    found.into_iter().find(|found| found["subject"] == subject)
}

/// What ranks with these secrets find about the secret.
fn about_secrets(secrets: [&str; 2], seconds: u32) -> [Option<Value>; 2] {
    let environment = |digit: &str| vec![("MESHWORK_JOB_SECRET", digit.repeat(64).into())];
    of_two_ranks(secrets.map(environment), seconds).map(|output| {
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains(&secrets[0].repeat(9)), "{said}");
        finding(&output, "secret")
    })
}

#[test]
fn ranks_with_different_secrets_are_told_so_and_shown_none() {
    let same = about_secrets(["a", "a"], 60);
    for found in same {
        let found = found.unwrap();
        assert_eq!(found["level"], "fine", "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(
            what.contains("all 2 ranks have the same job secret"),
            "{what}"
        );
    }
    // On a machine whose cores are taken one may give up before the other has come.
    let all = [1, 4, 16].map(|seconds| move || about_secrets(["a", "b"], seconds));
    let mut all = all.into_iter().map(|look| look());
    let found = all.find(|found| found.iter().all(Option::is_some)).unwrap();
    for (found, other) in found.into_iter().flatten().zip([1, 0]) {
        assert_eq!(found["level"], "problem", "{found}");
        let what = found["what"].as_str().unwrap();
        assert!(
            what.starts_with(&format!("rank {other} (127.0.0.1:")),
            "{what}"
        );
        assert!(
            what.contains("which has it from MESHWORK_JOB_SECRET"),
            "{what}"
        );
    }
}

/// Each looks for rank 0 where the other is; who does so first may be gone when the other does.
#[test]
fn ranks_with_one_list_in_two_orders_are_told_so_and_nothing_of_secrets() {
    let members = free_addresses(2);
    let lists = [[0, 1], [1, 0]].map(|order| order.map(|place| &*members[place]).join(","));
    let secret = || vec![("MESHWORK_JOB_SECRET", "a".repeat(64).into())];
    let of_both = |seconds| {
        let told = [(&*lists[0], 1), (&*lists[1], 1)];
        of_two(told, [secret(), secret()], seconds)
    };
    let is_told = |output: &Output| {
        let join = finding(output, "join").unwrap();
        join["what"]
            .as_str()
            .unwrap()
            .contains("same list of members")
    };
    // On a machine whose cores are taken one may give up before the other has come.
    let mut all = [1, 4, 16].into_iter().map(of_both);
    let outputs = all.find(|outputs| outputs.iter().any(is_told)).unwrap();
    for output in &outputs {
        assert_eq!(finding(output, "secret"), None, "{output:?}");
    }
}

#[test]
fn a_name_that_nobody_knows_is_a_problem_with_a_remedy() {
    let hosts = "--hosts=127.0.0.1:0,no-such-host.invalid:4000";
    let output = doctor(&[hosts, "--rank=0", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found = json(&output);
    let names = &found["findings"][0];
    assert_eq!(
        (&names["level"], &names["subject"]),
        (&"problem".into(), &"names".into())
    );
    assert!(
        names["what"]
            .as_str()
            .unwrap()
            .contains("no-such-host.invalid")
    );
    assert!(names["remedy"].is_string());

    let own = json(&doctor(&[hosts, "--rank=1", "--json"]));
    let findings = own["findings"].as_array().unwrap();
    let join = findings.iter().find(|found| found["subject"] == "join");
    // The name is to be corrected: no port is in the way.
    assert!(
        !join.unwrap()["remedy"].to_string().contains("UDP"),
        "{own}"
    );
}

#[test]
fn without_members_and_without_dumps_it_says_what_it_takes() {
    let output = doctor(&[]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("--hosts") && told.contains("TF_CONFIG"),
        "{told}"
    );
    let empty = tempfile::tempdir().unwrap();
    let output = doctor(&["--dump", &empty.path().display().to_string()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("no rank-N.json") && told.contains("MESHWORK_DUMP"),
        "{told}"
    );
}

#[test]
fn a_folder_without_a_word_on_what_to_do_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    left_behind(folder.path());
    let path = folder.path().to_str().unwrap();
    for args in [&[path][..], &["--dump", path, path], &["-n=2", path]] {
        let output = doctor(args);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(told.contains("--live") && told.contains("--dump"), "{told}");
    }
}

/// Rank 0 saw rank 1 die, which left nothing.
fn left_behind(folder: &Path) {
    let dump = r#"{ "version": 1, "rank": 0, "world": 2, "address": "a:1", "written": 900,
        "failure": { "kind": "lost", "peer": 1, "cause": "died", "text": "rank 1 (b:1) was lost" },
        "operations": [ { "group": "0000000000000000", "epoch": 0, "sequence": 1, "site": "t.rs:1",
        "what": "barrier", "began": 100, "ended": null, "well": null, "carrier": "quic",
        "waits": [ { "rank": 1, "micros": 5 } ] } ] }"#;
    std::fs::write(folder.join("rank-0.json"), dump).unwrap();
}

#[test]
fn dumps_lead_to_a_cause_a_remedy_evidence_and_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    left_behind(folder.path());
    let path = folder.path().display().to_string();
    let trace = folder.path().join("trace.json");
    let output = doctor(&["--dump", &path, "--trace", &trace.display().to_string()]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        told.starts_with("dead rank: the process of rank 1 ended\n"),
        "{told}"
    );
    assert!(
        told.contains("rank 0 (a:1) was in barrier (#1) at t.rs:1"),
        "{told}"
    );
    assert!(told.contains("rank 1 left no dump"), "{told}");
    let trace: Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() >= 3);
    let found = json(&doctor(&["--dump", &path, "--json"]));
    assert_eq!(found["class"], "dead rank");
    assert_eq!(found["ranks"], serde_json::json!([1]));
}

/// A rank that waits in vain for another, in this folder and with dumps to go to that one.
fn in_vain(folder: &Path, dumps: &str) {
    let hosts = format!("--hosts={}", free_addresses(2).join(","));
    let output = Command::new(env!("CARGO_BIN_EXE_meshwork"))
        .args(["bench", &hosts, "--rank=0"])
        .env("MESHWORK_JOB_SECRET", "a".repeat(64))
        .env("MESHWORK_JOIN_TIMEOUT", "1")
        .env("MESHWORK_DUMP", dumps)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_rank_that_began_alone_leaves_a_dump_and_with_an_empty_variable_none() {
    let folder = tempfile::tempdir().unwrap();
    in_vain(folder.path(), "");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    in_vain(folder.path(), "dumps");
    let path = folder.path().join("dumps").display().to_string();
    let found = json(&doctor(&["--dump", &path, "--json"]));
    assert_eq!(found["folder"], path);
    assert_eq!(found["passed_over"], serde_json::json!([]));
}

#[test]
fn a_file_that_is_no_dump_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rank-7.json"), "{").unwrap();
    let output = doctor(&["--dump", &folder.path().display().to_string()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("rank-7.json is no dump"), "{told}");
    assert!(!output.status.success());
}
