//! Workers on other hosts, which are this one: `ssh` has a server of its own for each connection,
//! on no port.

use std::process::Command;

use meshwork_testing::Ssh;
use rustix::process::Signal;

use crate::harness::{RANK, Running, meshwork};

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
