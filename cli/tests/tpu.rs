//! `meshwork tpu` with libtpu where it can be fetched, and without.
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

#[path = "../../accel-tpu/tests/support/wheel.rs"]
mod wheel;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use wheel::LIBTPU;

fn compile(libtpu: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwork"));
    command
        .arg("tpu")
        .arg("compile")
        .args(args)
        .env("TPU_LIBRARY_PATH", libtpu);
    command
}

fn meshwork(libtpu: &Path, args: &[&str]) -> Output {
    compile(libtpu, args).output().unwrap()
}

#[track_caller]
fn check_refused(args: &[&str], complaint: &str) {
    let output = meshwork(Path::new("/nowhere/libtpu.so"), args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains(complaint),
        "{said}"
    );
}

#[test]
fn names_of_no_slice_are_refused_before_anything_is_loaded() {
    check_refused(
        &["--topology", "v4-8"],
        "is no TPU topology: write a generation",
    );
    check_refused(
        &["--topology", "v9:2x2"],
        "use one of v2, v3, v4, v5e, v5p, v6e, tpu7x",
    );
    check_refused(
        &["--topology", "v5e:2x3"],
        "give 2 sides, the first two even or 1",
    );
}

#[test]
fn steps_that_say_half_of_what_they_are_are_refused_in_a_line() {
    let topology = ["--topology", "v5e:2x4"];
    let with = |args: &[&'static str]| [&topology[..], args].concat();
    check_refused(
        &with(&["--program", "train-step"]),
        "--program train-step does not say what it trains: add --model tensor-parallel",
    );
    check_refused(
        &with(&["--model", "tensor-parallel"]),
        "--model and --parts say what a step trains: add --program train-step",
    );
    check_refused(
        &with(&["--program", "train-step", "--bytes", "1K"]),
        "--bytes says what a collective moves: leave it out of --program train-step",
    );
}

#[test]
fn who_is_ended_leaves_nobody_behind() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libtpu.so");
    let made = Command::new("mkfifo").arg(&library).status();
    assert!(made.unwrap().success());
    let mut compiling = compile(&library, &["--topology", "v5e:2x4"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Opens once somebody loads the library, who waits for it from then on.
    let (sender, opened) = channel();
    thread::spawn(move || sender.send(File::options().write(true).open(library)));
    let opened = opened.recv_timeout(Duration::from_secs(60));
    let mut writer = opened.expect("the library is loaded").unwrap();
    let process = rustix::process::Pid::from_child(&compiling);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(!compiling.wait().unwrap().success());
    let nobody = writer.write_all(b"?").map_err(|error| error.kind());
    assert_eq!(nobody, Err(ErrorKind::BrokenPipe));
}

#[test]
fn a_step_of_training_is_compiled_for_slices_that_are_not_there() {
    let Some(libtpu) = LIBTPU.file() else { return };
    let step = ["--program", "train-step", "--model", "tensor-parallel"];
    let output = meshwork(&libtpu, &[&["--topology", "v5e:2x4"], &step[..]].concat());
    let (said, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{complaint}");
    for part in [
        "on data 2 by model 4: ",
        " ops in one module",
        "all-reduce: each device receives ",
        "predicted: ",
        "memory of a device: arguments ",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let refused = meshwork(
        &libtpu,
        &[&["--topology", "v5e:2x4", "--parts", "3"], &step[..]].concat(),
    );
    let complaint = String::from_utf8_lossy(&refused.stderr);
    let line = "--parts 3 does not divide 8 devices and the 8 heads of the model: give 4";
    assert!(complaint.contains(line), "{complaint}");
}

#[test]
fn a_missing_plugin_is_named() {
    check_refused(
        &["--topology", "v5e:2x4"],
        "meshwork tpu: the plugin /nowhere/libtpu.so cannot be loaded: ",
    );
}

#[test]
fn an_all_reduce_is_compiled_and_its_strategy_told() {
    let Some(libtpu) = LIBTPU.file() else { return };
    let args = [
        "--topology",
        "v5e:2x4",
        "--program",
        "all-reduce",
        "--bytes",
        "4M",
    ];
    let output = meshwork(&libtpu, &args);
    let (said, complaint) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{complaint}");
    assert_eq!(complaint, "", "libtpu is quiet");
    for part in [
        "v5e:2x4: 8 devices of 8 chips on 2 hosts",
        "arguments 4.0 MiB",
        "AllReduce",
        "Ring",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let output = meshwork(&libtpu, &[&args[..], &["--json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["devices"].as_array().unwrap().len(), 8);
    assert_eq!(report["memory"]["arguments"], 4 << 20);
    assert_eq!(
        report["devices"][1]["location"],
        serde_json::json!([1, 0, 0, 0])
    );
    assert!(
        report["collectives"][0]["strategy"]
            .as_str()
            .unwrap()
            .contains("Strategy")
    );
}
