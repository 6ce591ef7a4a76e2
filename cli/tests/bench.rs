//! `meshwork bench` from outside: what it prints, and that wrong values make it fail.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and clippy does not take helpers for tests"
)]

use std::process::{Command, Output};

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
    use std::process::{Child, Stdio};

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
