//! `meshwork devices` from outside.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

use std::process::{Command, Output};

use serde_json::Value;

fn devices(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwork"));
    command.arg("devices").args(args).output().unwrap()
}

#[test]
fn the_cpu_is_always_there_with_its_memory() {
    let output = devices(&[]);
    let (told, complaints) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!((complaints.as_str(), output.status.code()), ("", Some(0)));
    assert!(told.starts_with("cpu   CPU:0"), "{told}");
    assert!(told.lines().next().unwrap().contains(" free"), "{told}");
}

#[test]
fn every_backend_has_devices_or_a_reason_and_a_remedy() {
    let output = devices(&["--json"]);
    assert!(output.status.success());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let backends = told["backends"].as_array().unwrap();
    assert_eq!(backends[0]["backend"], "cpu");
    assert_eq!(backends[0]["devices"][0]["id"], 0);
    assert!(backends[0]["devices"][0]["memory"]["total"].as_u64() > Some(0));
    for backend in backends {
        let seen = !backend["devices"].as_array().unwrap().is_empty();
        let reason = &backend["unavailable"];
        assert_eq!(seen, reason.is_null(), "{backend}");
        if !seen {
            assert!(reason["reason"].is_string(), "{backend}");
            assert!(reason["remedy"].is_string(), "{backend}");
        }
    }
}

#[test]
fn what_it_does_not_know_is_refused() {
    for wrong in [["--yaml"].as_slice(), &["cuda"], &["--json", "--json"]] {
        let output = devices(wrong);
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(complaints.contains(wrong[wrong.len() - 1]), "{complaints}");
        assert!(output.stdout.is_empty());
    }
}
