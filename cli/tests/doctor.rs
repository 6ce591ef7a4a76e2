//! `meshwork doctor` as it is called.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set the scene has failed"
)]

#[cfg(unix)]
#[path = "doctor/certificates.rs"]
mod certificates;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

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
    let subjects: Vec<_> = found["findings"].as_array().unwrap().iter().collect();
    let finding = |subject: &str| subjects.iter().find(|found| found["subject"] == subject);
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

/// What ranks with these secrets find about the secret, where each waits so long for the other.
fn about_secrets(secrets: [&str; 2], seconds: u32) -> Vec<Option<Value>> {
    let sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    let hosts = sockets.map(|socket| socket.local_addr().unwrap().to_string());
    let start = |rank: usize| {
        Command::new(env!("CARGO_BIN_EXE_meshwork"))
            .args(["doctor", "--json", &format!("--hosts={}", hosts.join(","))])
            .arg(format!("--rank={rank}"))
            .env("MESHWORK_JOB_SECRET", secrets[rank].repeat(64))
            .env("MESHWORK_JOIN_TIMEOUT", seconds.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let finding = |rank: Child| {
        let output = rank.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains(&secrets[0].repeat(9)), "{said}");
        let found = json(&output)["findings"].as_array().unwrap().clone();
        found.into_iter().find(|found| found["subject"] == "secret")
    };
    [0, 1].map(start).into_iter().map(finding).collect()
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

#[test]
fn a_file_that_is_no_dump_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rank-7.json"), "{").unwrap();
    let output = doctor(&["--dump", &folder.path().display().to_string()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("rank-7.json is no dump"), "{told}");
    assert!(!output.status.success());
}
