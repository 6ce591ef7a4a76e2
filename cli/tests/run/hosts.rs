//! Workers on other hosts, which are this one: `ssh` has a server of its own for each connection,
//! on no port.

use std::iter::once;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use meshwork_testing::Ssh;
use rustix::process::Signal;

use crate::harness::{DEADLINE, RANK, Running, look_until, meshwork};

const MESHWORK: &str = env!("CARGO_BIN_EXE_meshwork");

/// `meshwork run` on these hosts.
fn run(ssh: &Ssh, hosts: &str, options: &[&str], program: &[&str]) -> Command {
    let mut command = meshwork(&["run", "--hosts", hosts, "--ssh-config"]);
    command.arg(ssh.configuration());
    command.args(options).arg("--").args(program);
    command.current_dir(ssh.folder());
    command
}

fn script(ssh: &Ssh, hosts: &str, options: &[&str], text: &str) -> Command {
    let text = format!("{RANK} {text}");
    run(ssh, hosts, options, &["sh", "-c", &text])
}

/// `meshwork run` by an `ssh` that does this, and then reads nothing for longer than a test waits
/// for anything, though its orders are longer than a pipe holds.
fn stuck(folder: &Path, ssh: &str, options: &[&str]) -> Command {
    let program = folder.join("ssh");
    fs::write(&program, format!("#!/bin/sh\n{ssh}\nexec sleep 100\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = once(folder.to_owned()).chain(env::split_paths(&path));
    let mut command = meshwork(&["run", "--hosts", "127.0.0.1:1,127.0.0.2:1"]);
    command.args(options);
    command.args(["--", "true", &"x".repeat(100_000)]);
    command.env("PATH", env::join_paths(folders).unwrap());
    command
}

#[test]
fn workers_of_two_hosts_find_each_other() {
    let Some(ssh) = Ssh::or_skip() else { return };
    let worker = [
        MESHWORK,
        "bench",
        "all-reduce",
        "--worker",
        "--bytes",
        "4K",
        "--csv",
        "--seconds=0.01",
    ];
    let ended = Running::start(&mut run(&ssh, "127.0.0.1:1,127.0.0.2:2", &[], &worker)).end();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let said = String::from_utf8(ended.stdout).unwrap();
    let rows: Vec<_> = said
        .lines()
        .filter(|line| line.contains(",4096,"))
        .collect();
    assert!(
        matches!(rows[..], [row] if row.starts_with("[0] ") && row.contains(",allreduce,3,4096,")),
        "{said}"
    );
}

#[test]
fn a_worker_gets_cluster_secret_and_folder_and_no_command_line_shows_them() {
    let Some(ssh) = Ssh::or_skip() else { return };
    // Of each process above this one, up to the launcher, and of this one's own shell.
    let lines = "p=$$; while [ $p -gt 1 ]; do tr '\\0' ' ' <\"/proc/$p/cmdline\"; \
                 p=$(sed 's/.*) . //' \"/proc/$p/stat\" | cut -d' ' -f1); done";
    let text = format!(
        "echo \"$r ${{#MESHWORK_JOB_SECRET}} $PWD $MESHWORK_NOTE $MESHWORK_LAUNCHER_PID\"; \
         ({lines}) | grep -c \"$MESHWORK_JOB_SECRET\""
    );
    let mut command = script(
        &ssh,
        "127.0.0.1,127.0.0.2",
        &["--host-port-base", "7001"],
        &text,
    );
    command.env("MESHWORK_NOTE", "it's so");
    let ended = Running::start(&mut command).end();
    let folder = ssh.folder().canonicalize().unwrap();
    let own = |rank: usize| format!("[{rank}] {rank} 64 {} it's so ", folder.display());
    // `grep` ends with status 1, as it finds nothing.
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    let expected = ["[0] 0".to_owned(), own(0), "[1] 0".to_owned(), own(1)];
    assert_eq!(ended.sorted(), expected);
}

#[test]
fn the_first_failure_on_another_host_ends_all_workers() {
    let Some(ssh) = Ssh::or_skip() else { return };
    let text = "if [ $r = 1 ]; then echo no data >&2; kill -9 $$; fi; exec sleep 1000";
    let command = &mut script(&ssh, "127.0.0.1:3", &["--grace", "1"], text);
    let ended = Running::start(command).end();
    assert_eq!(ended.status, Some(137), "{}", ended.stderr);
    let expected = "rank 1 failed first: killed by signal 9 (SIGKILL): \"no data\"; the other 2";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn signals_reach_workers_on_other_hosts() {
    let Some(ssh) = Ssh::or_skip() else { return };
    let text = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.1; done";
    let running = Running::start(&mut script(&ssh, "127.0.0.1,127.0.0.2", &[], text));
    running.skip_lines(2);
    running.signal(Signal::TERM);
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["[0] told", "[1] told"]);
}

#[test]
fn workers_do_not_outlive_a_launcher_that_is_killed() {
    let Some(ssh) = Ssh::or_skip() else { return };
    let witness = ssh.folder().join("witness");
    // The lock is free once the worker that has it is gone.
    let text = "exec 9>witness; flock 9; echo ready; trap '' TERM; while :; do sleep 0.1; done";
    let running = Running::start(&mut script(&ssh, "127.0.0.1", &["--grace", "0"], text));
    assert_eq!(running.line(), "[0] ready");
    running.signal(Signal::KILL);
    let mut locked = Command::new("flock");
    locked.args(["--timeout", "60"]).arg(witness).arg("true");
    assert!(locked.status().unwrap().success());
}

#[test]
fn a_host_that_cannot_be_reached_is_told_by_ssh() {
    let Some(ssh) = Ssh::or_skip() else { return };
    let ended = Running::start(&mut script(&ssh, "unreachable", &[], "true")).end();
    assert_eq!(ended.status, Some(255), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("rank 0 failed: exit status 255"),
        "{}",
        ended.stderr
    );
}

#[test]
fn two_interrupts_end_a_run_whose_ssh_reads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // As one that waits for an agent does.
    let running = Running::start(&mut stuck(folder.path(), "echo waits", &["--grace=1000"]));
    running.skip_lines(2);
    running.signal(Signal::TERM);
    // Of another number: two pending ones of the same number count as one.
    running.signal(Signal::INT);
    let ended = running.end();
    assert!([Some(130), Some(143)].contains(&ended.status));
    let killed = "2 of 2 workers";
    assert!(ended.verdict().contains(killed), "{}", ended.stderr);
}

#[cfg(target_os = "linux")]
#[test]
fn a_launcher_that_waits_for_ssh_has_no_digits_of_the_secret_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    let digits = "91c5d2e7a04b36f8".repeat(4);
    fs::write(&secret, &digits).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let options = ["--grace=0", "--secret-file", secret.to_str().unwrap()];
    // Whoever has the line to its end has taken all digits from the launcher.
    let ssh = "while read -r line; do case $line in *JOB_SECRET=*) break ;; esac; done; echo waits";
    let running = Running::start(&mut stuck(folder.path(), ssh, &options));
    running.skip_lines(2);
    // Memory that is freed keeps the end of what was there. Whoever wrote the line may be about to
    // wipe its buffer.
    let look = || remembers(running.id(), &digits.as_bytes()[32..]);
    assert_eq!(look_until(DEADLINE, look, |found| !found), Ok(false));
    // An argument is found.
    assert!(remembers(running.id(), &[b'x'; 32]));
}

/// Whether this is anywhere in memory that a process can write to.
#[cfg(target_os = "linux")]
fn remembers(process: u32, text: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    const PART: usize = 1 << 16;
    let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let writable = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        rest.starts_with("rw").then_some((start, end))
    });
    // Each part has the beginning of the next, where the text may end.
    let mut part = vec![0; PART + text.len()];
    let unused = part.clone();
    let mut is_in = |start: usize, end: usize| {
        let len = part.len().min(end - start);
        let part = &mut part[..len];
        // It cannot be read if it was given back meanwhile.
        memory.read_exact_at(part, start as u64).is_ok()
            && *part != unused[..len]
            && part.windows(text.len()).any(|window| window == text)
    };
    let mut parts = writable.flat_map(|(start, end)| {
        let starts = (start..end).step_by(PART);
        starts.map(move |start| (start, end))
    });
    parts.any(|(start, end)| is_in(start, end))
}

#[test]
fn lists_of_hosts_that_make_no_sense_are_refused() {
    for (options, expected) in [
        (&["--hosts", "a,,b"][..], "\"\" is no host"),
        (
            &["--hosts", "a,localhost"],
            "host localhost is another machine for a than here",
        ),
        (&["--hosts", "a,b", "--pin"], "--pin"),
        (
            &["--hosts", "a:2,b:2", "-n", "3"],
            "listed with 4 workers in all, and 3 are asked for",
        ),
    ] {
        let ended = Running::start(meshwork(&["run"]).args(options).args(["--", "true"])).end();
        assert_ne!(ended.status, Some(0));
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}
