//! `meshwork bench` from outside: what it prints, and that wrong values make it fail.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwork"));
    command.arg("bench").args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_operation_is_measured_by_every_transport_and_is_right() {
    let operations = [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "broadcast",
        "all-to-all",
        "send-recv",
    ];
    for transport in ["local", "shm", "quic"] {
        for operation in operations {
            let mut command = bench(&[operation, "--transport", transport]);
            command.args([
                "-n",
                "2",
                "--bytes",
                "4K,256K",
                "--seconds",
                "0.01",
                "--csv",
            ]);
            let Output {
                status,
                stdout,
                stderr,
            } = command.output().unwrap();
            assert!(status.success(), "{}", text(&stderr));
            let (stdout, name) = (text(&stdout), operation.replace('-', ""));
            let mut lines = stdout
                .lines()
                .map(|line| line.split(',').collect::<Vec<_>>());
            let head = lines.next().unwrap();
            assert_eq!(head[..4], ["peer", "op", "ranks", "bytes"]);
            for bytes in ["4096", "262144"] {
                let row = lines.next().unwrap();
                assert_eq!(row[1..4], [&name, "2", bytes], "{stdout}");
                let figures = row[4..].iter().map(|text| text.parse::<f64>().unwrap());
                assert!(figures.clone().count() == 3 && figures.clone().all(|figure| figure > 0.0));
            }
            assert_eq!(lines.next(), None);
        }
    }
}

#[test]
fn links_are_measured_first_where_there_are_any_and_the_ring_is_shown() {
    for (transport, expected) in [
        ("quic", "links: ring 0 > "),
        ("local", "links: none, as all ranks share memory"),
    ] {
        let line = ["-n", "3", "--bytes", "1K", "--seconds", "0.01"];
        let mut command = bench(&line);
        command.args([
            "--measure-links",
            "--algorithm",
            "ring",
            "--transport",
            transport,
        ]);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        assert!(status.success(), "{}", text(&stderr));
        let stdout = text(&stdout);
        assert!(stdout.starts_with(expected), "{stdout}");
    }
}

#[test]
fn threads_of_one_process_have_no_hosts() {
    let hosts = "--hosts=127.0.0.1:1,127.0.0.1:2";
    let mut command = bench(&["--transport", "local", hosts, "--rank", "0"]);
    let output = command.output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success(), "{told}");
    assert!(told.contains("leave out --hosts"), "{told}");
}

#[track_caller]
fn check_refused(line: &[&str], complaint: &str) {
    let mut bench = bench(&[line, &["--bytes=1K", "--seconds=0.01"]].concat());
    let output = bench.output().unwrap();
    let told = text(&output.stderr);
    assert!(
        !output.status.success() && told.contains(complaint),
        "{line:?}: {told}"
    );
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let hosts = ["--hosts=127.0.0.1:1,127.0.0.1:2", "--rank=0"];
    let beside_hosts = |more: &[&'static str]| [&hosts[..], more].concat();
    check_refused(&beside_hosts(&["--pin"]), "cannot be used with '--pin'");
    check_refused(&beside_hosts(&["-n", "3"]), "cannot be used with '--ranks");
    for how in ["--transport=local", "--explain"] {
        check_refused(&[how, "--mtu", "5"], "packets of up to 5 bytes cannot be");
        check_refused(&[how, "--connections", "255"], "255 connections between");
    }
    check_refused(&["--transport=local", "--pin"], "leave out --pin");
}

#[test]
fn a_word_for_two_ranks_that_is_none_is_named() {
    let mut command = bench(&["--hosts=127.0.0.1:1,127.0.0.1:2", "--rank=0"]);
    command.env("MESHWORK_JOB_SECRET", "a".repeat(64));
    let output = command.env("MESHWORK_PAIR", "Chief").output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success(), "{told}");
    let named = "MESHWORK_PAIR is \"Chief\": it takes proven, chief or stop";
    assert!(told.contains(named), "{told}");
}

#[test]
fn nothing_is_measured_of_a_transfer_that_has_no_other_end() {
    for transport in ["--transport=local", "--transport=shm"] {
        let line = ["send-recv", "-n", "1", transport];
        check_refused(&line, "send-recv takes 2 ranks and there is 1: give -n 2");
    }
}

#[test]
fn the_bytes_of_a_row_are_those_that_were_exchanged() {
    for (operation, expected) in [
        ("all-reduce", "4096"),
        ("all-gather", "4104"),
        ("reduce-scatter", "4104"),
        ("all-to-all", "4104"),
    ] {
        let mut command = bench(&[operation, "-n", "3", "--transport", "local", "--csv"]);
        let output = command.args(["--bytes=4K", "--seconds=0.01"]).output();
        let said = text(&output.unwrap().stdout);
        let row = said.lines().nth(1).unwrap();
        assert_eq!(row.split(',').nth(3), Some(expected), "{said}");
    }
}

#[test]
fn an_operation_behind_dashes_is_measured() {
    let mut command = bench(&["--bytes=1K", "--seconds=0.01", "--", "broadcast"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("broadcast of f32"));
}

#[test]
fn ranks_that_a_signal_ends_say_so_by_the_status() {
    let mut command = bench(&["--bytes=1K", "--seconds=60"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut measuring = command.spawn().unwrap();
    let mut said = BufReader::new(measuring.stdout.take().unwrap());
    let mut head = String::new();
    said.read_line(&mut head).unwrap();
    assert!(head.starts_with("allreduce of f32"), "{head}");
    kill_process(Pid::from_child(&measuring), Signal::TERM).unwrap();
    assert_eq!(measuring.wait().unwrap().code(), Some(143));
}

/// Of 16 ranks each begins with 7 neighbours: at distances of 1, 2, 4 and 8.
#[test]
fn the_ranks_that_one_is_connected_with_are_counted() {
    let line = [
        "-n",
        "16",
        "--bytes",
        "1K",
        "--seconds",
        "0.01",
        "--transport",
        "quic",
    ];
    let Output {
        status,
        stdout,
        stderr,
    } = bench(&line).output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    let stdout = text(&stdout);
    let last = stdout.lines().last().unwrap();
    let connected = last
        .strip_prefix("each rank is connected with at most ")
        .and_then(|rest| rest.strip_suffix(" others"))
        .unwrap();
    let connected: u32 = connected.parse().unwrap();
    assert!((7..=15).contains(&connected), "{last}");
}

/// Memory of the ranks is written to from outside while they run: what nothing of the program
/// itself can cause, and what it has to find.
#[cfg(target_os = "linux")]
mod corruption {
    use std::fs::{self, File, OpenOptions};
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::process::Child;

    use super::*;

    const BYTES: u64 = 8 << 20;

    /// The files in memory that the processes which this one has started reduce in.
    fn buffers(launcher: &Child) -> Vec<File> {
        let id = launcher.id();
        let ranks = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let mut found = Vec::new();
        for rank in ranks.unwrap_or_default().split_whitespace() {
            let Ok(open) = fs::read_dir(format!("/proc/{rank}/fd")) else {
                continue;
            };
            let paths: Vec<PathBuf> = open.flatten().map(|entry| entry.path()).collect();
            found.extend(paths.iter().filter_map(|path| {
                let target = fs::read_link(path).ok()?;
                let is_memory = target.to_string_lossy().starts_with("/memfd:meshwork (");
                if !is_memory || fs::metadata(path).ok()?.len() < BYTES {
                    return None;
                }
                OpenOptions::new().write(true).open(path).ok()
            }));
        }
        found
    }

    #[test]
    fn values_that_are_wrong_make_it_fail_and_say_so() {
        let bytes = [BYTES.to_string(), BYTES.to_string(), BYTES.to_string()].join(",");
        let mut command = bench(&["-n", "2", "--seconds", "0.1", "--bytes", &bytes]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        // Again and again, so that it happens between an operation and the look at its values too.
        while launcher.try_wait().unwrap().is_none() {
            for buffer in buffers(&launcher) {
                for _ in 0..100 {
                    let _ = buffer.write_all_at(&f32::NAN.to_ne_bytes(), BYTES / 2);
                }
            }
        }
        let output = launcher.wait_with_output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(!output.status.success(), "{stdout}{stderr}");
        let line = stderr
            .lines()
            .find(|line| line.contains("were wrong after allreduce"));
        assert!(
            line.is_some_and(|line| line.contains("meshwork bench: ")),
            "{stderr}"
        );
    }
}
