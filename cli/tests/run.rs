//! The `meshwork` command from outside: small shell programs as workers.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy.toml allows them in tests, and clippy does not take helpers for tests"
)]

#[cfg(target_os = "linux")]
#[path = "run/culprit.rs"]
mod culprit;
#[path = "run/harness.rs"]
mod harness;
#[path = "run/hosts.rs"]
mod hosts;
#[path = "run/live.rs"]
mod live;
#[path = "run/many.rs"]
mod many;
#[path = "run/page.rs"]
mod page;
#[path = "run/terminal.rs"]
mod terminal;
#[path = "run/trainer.rs"]
mod trainer;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{env, fs, io, process, thread};

use harness::{Running, meshwork, read_to_end, run, script};
use meshwork_collectives::{Error, Group, GroupConfig, JobSecret, OperationError, Rank};
use meshwork_launcher::{Launch, Outcome, Output};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A worker that prints the secret.
#[cfg(target_os = "linux")]
const READ: &str = "cat $MESHWORK_JOB_SECRET_FILE; echo";
#[cfg(not(target_os = "linux"))]
const READ: &str = "echo $MESHWORK_JOB_SECRET";

/// A worker that lives until it is ended, and says when it is ready for that.
const LIVE: &str = "echo ready; exec sleep 1000";

#[test]
fn workers_get_cluster_secret_and_launcher() {
    let text = format!("echo $TF_CONFIG; {READ}; echo $MESHWORK_LAUNCHER_PID; cat");
    let running = Running::start(&mut script(3, &[], &text));
    let launcher = running.id().to_string();
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stderr, "");
    let lines = ended.sorted();
    let of_rank = |rank: usize| {
        let prefix = format!("[{rank}] ");
        let own = lines
            .iter()
            .filter_map(move |line| line.strip_prefix(&prefix));
        own.map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut secrets, mut clusters) = (BTreeSet::new(), BTreeSet::new());
    for rank in 0..3 {
        let said = of_rank(rank);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said.contains(&launcher));
        let config = said.iter().find(|line| line.starts_with('{')).unwrap();
        let config: Value = serde_json::from_str(config).unwrap();
        assert_eq!(config["task"], json!({ "type": "worker", "index": rank }));
        assert_eq!(config["cluster"]["worker"].as_array().unwrap().len(), 3);
        clusters.insert(config["cluster"].to_string());
        secrets.extend(said.into_iter().filter(|line| line.len() == 64));
    }
    assert_eq!((clusters.len(), secrets.len()), (1, 1));
}

/// Under these limits on open files, the soft and the hard one.
fn with_open_files(soft: u32, hard: u32, workers: u32) -> Command {
    let mut command = Command::new("sh");
    let limited = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_meshwork")]);
    command.args(["run", "-n", &workers.to_string(), "--", "true"]);
    command
}

#[test]
fn as_many_files_are_opened_as_the_system_allows_and_no_more_workers_are_started() {
    let output = with_open_files(64, 512, 100).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let output = with_open_files(64, 128, 100).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert_eq!(said.lines().count(), 1, "{said}");
    let both = "100 workers take up to 232 open files and this process may have 128";
    let remedy = ", its hard limit: raise it where the session, service or container is started";
    assert!(said.contains(&format!("{both}{remedy}")), "{said}");
}

#[test]
fn a_secret_in_the_environment_is_handed_on() {
    let secret = "0123456789abcdef".repeat(4);
    let mut command = script(1, &[], READ);
    let ended = run(command.env("MESHWORK_JOB_SECRET", &secret));
    assert_eq!(ended.sorted(), [format!("[0] {secret}")]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_is_started_again_can_read_the_secret_as_the_first_did() {
    let secret = "fedcba9876543210".repeat(4);
    let text = format!("{READ}; exit $((1 - MESHWORK_RESTARTS))");
    let mut command = meshwork(&["run", "--elastic=1:1", "--", "sh", "-c", &text]);
    let ended = run(command.env("MESHWORK_JOB_SECRET", &secret));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), [(); 2].map(|()| format!("[0] {secret}")));
}

#[cfg(target_os = "linux")]
#[test]
fn no_environment_and_no_descriptor_of_what_a_worker_starts_has_the_secret() {
    let secret = "0f1e2d3c4b5a6978".repeat(4);
    // The shell has had the folder of descriptors open, and has not when they are read.
    let text = "sh -c 'env; cat /proc/self/environ; \
        for fd in /proc/self/fd/*; do readlink $fd || :; done'";
    let mut command = script(2, &[], text);
    let ended = run(command.env("MESHWORK_JOB_SECRET", &secret));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.contains("MESHWORK_JOB_SECRET_FILE=/proc/"), "{text}");
    assert!(!text.contains(&secret), "{text}");
    assert!(!text.contains("memfd:"), "{text}");
}

#[test]
fn a_secret_from_a_given_file_or_from_standard_input_comes_before_that_of_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let secret = "0123456789abcdef".repeat(4);
    fs::write(&file, format!("{secret}\n")).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let path = file.to_str().unwrap();
    let told = |given: &str| {
        let mut command = script(1, &["--secret-file", given], READ);
        let command = command.env("MESHWORK_JOB_SECRET", "a".repeat(64));
        let output = command.stdin(File::open(&file).unwrap()).output().unwrap();
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap())
    };
    for given in [path, "-"] {
        let [said, complaint] = told(given);
        assert!(said.contains(&secret), "{said}{complaint}");
    }
    fs::write(&file, "hunter2").unwrap();
    for given in [path, "-"] {
        let [said, refused] = told(given);
        assert!(refused.contains("7 characters"), "{refused}");
        assert!(!(said + &refused).contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_secret_in_a_file_is_handed_on_if_nobody_else_can_read_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    let secret = "00112233445566778899aabbccddeeff".repeat(2);
    fs::write(&file, format!("{secret}\n")).unwrap();
    let run_with = |mode: u32| {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        run(script(1, &[], READ).env("MESHWORK_JOB_SECRET_FILE", &file))
    };
    let ended = run_with(0o600);
    assert_eq!(ended.sorted(), [format!("[0] {secret}")]);
    let refused = run_with(0o644);
    assert_eq!((refused.status, &refused.stdout[..]), (Some(125), &b""[..]));
    for part in ["mode 0644", "chmod 600", &file.display().to_string()] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}

#[test]
fn a_malformed_secret_is_refused_and_not_shown() {
    let mut command = script(1, &[], "echo started");
    let ended = run(command.env("MESHWORK_JOB_SECRET", "hunter2"));
    assert_eq!((ended.status, &ended.stdout[..]), (Some(125), &b""[..]));
    assert!(ended.stderr.contains("7 characters"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
}

#[test]
fn every_new_secret_is_64_other_digits() {
    let [one, other] = [(); 2].map(|()| run(&mut meshwork(&["secret"])).sorted().concat());
    assert_eq!((one.len(), other.len()), (64, 64));
    assert!(
        (one.clone() + &other)
            .bytes()
            .all(|b| b.is_ascii_hexdigit())
    );
    assert_ne!(one, other);
}

#[test]
fn lines_keep_their_stream_and_get_aligned_ranks() {
    let ended = run(&mut script(11, &[], "echo out; echo err >&2"));
    let expected = |text: &str| (0..11).map(|r| format!("[{r:>2}] {text}\n")).collect();
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.split_inclusive('\n').collect();
        lines.sort_unstable();
        lines.concat()
    };
    let stdout: String = expected("out");
    let stderr: String = expected("err");
    assert_eq!(sorted(&String::from_utf8(ended.stdout).unwrap()), stdout);
    assert_eq!(sorted(&ended.stderr), stderr);
}

#[test]
fn bytes_that_are_not_utf8_and_missing_newlines_are_kept() {
    let ended = run(&mut script(1, &[], r"printf '\377\376\nend'"));
    assert_eq!(ended.stdout, b"[0] \xff\xfe\n[0] end\n");
}

#[test]
fn an_endless_line_arrives_whole_in_pieces() {
    let ended = run(&mut script(
        2,
        &[],
        r"head -c 300000 /dev/zero | tr '\0' $r",
    ));
    let lines = ended.sorted();
    for rank in ["0", "1"] {
        let prefix = format!("[{rank}] ");
        let pieces = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
        let pieces: Vec<_> = pieces.collect();
        assert!(pieces.iter().all(|piece| piece.len() <= 64 * 1024));
        assert_eq!(pieces.concat(), rank.repeat(300_000));
    }
}

#[test]
fn workers_go_on_when_nobody_reads_their_output() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut command = script(2, &[], "head -c 300000 /dev/zero; echo done >&2");
    let mut child = command
        .stdout(Stdio::from(OwnedFd::from(writer)))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = read_to_end(child.stderr.take().unwrap());
    assert!(child.wait().unwrap().success());
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(stderr.matches("done").count(), 2, "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn lines_that_a_full_disk_does_not_take_are_counted_and_a_failure() {
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let mut command = script(2, &[], "echo out; echo err >&2");
    let child = command.stdout(full()).stderr(Stdio::piped()).spawn();
    let output = child.unwrap().wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    let why = "No space left on device";
    let mut lines: Vec<&str> = said.lines().collect();
    let verdict = lines.pop().unwrap();
    let lost = "meshwork run: the workers succeeded, but 2 lines of their output could not";
    assert!(verdict.starts_with(lost) && verdict.contains(why), "{said}");
    let at_once = "meshwork run: lines of the workers cannot be written: ";
    let at_once: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with(at_once))
        .collect();
    assert!(
        matches!(at_once[..], [line] if line.contains(why)),
        "{said}"
    );
    assert_eq!(lines.len(), 3, "{said}");
    // What went wrong with a worker comes first.
    let mut command = script(1, &[], "echo out; exit 3");
    let status = command.stdout(full()).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(3));
}

#[test]
fn what_a_worker_leaves_behind_may_finish_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let text = "cat $FIFO & exec 3>$FIFO; echo late >&3; exit 0";
    let ended = run(script(1, &[], text).env("FIFO", fifo));
    assert_eq!(ended.sorted(), ["[0] late"]);
}

#[test]
fn the_first_failed_rank_gives_status_and_last_words() {
    let text = "if [ $r = 2 ]; then echo 'no such tensor' >&2; exit 3; fi; exec sleep 1000";
    let ended = run(&mut script(4, &[], text));
    assert_eq!(ended.status, Some(3));
    assert_eq!(
        ended.verdict(),
        r#"meshwork run: rank 2 failed first: exit status 3: "no such tensor"; the other 3 were ended"#
    );
}

#[test]
fn a_killed_rank_is_named_with_its_signal() {
    let running = Running::start(&mut script(2, &[], "echo $r $$; exec sleep 1000"));
    let pids = [running.line(), running.line()];
    let victim = pids.iter().find_map(|line| line.strip_prefix("[1] 1 "));
    let victim = Pid::from_raw(victim.unwrap().parse().unwrap()).unwrap();
    kill_process(victim, Signal::KILL).unwrap();
    let ended = running.end();
    assert_eq!(ended.status, Some(137));
    assert_eq!(
        ended.verdict(),
        "meshwork run: rank 1 failed first: killed by signal 9 (SIGKILL); the other one was ended"
    );
}

#[test]
fn a_survivor_that_ignores_sigterm_is_killed_after_the_grace_time() {
    let text = "if [ $r = 0 ]; then exit 1; fi; trap '' TERM; exec sleep 1000";
    let ended = run(&mut script(2, &["--grace", "0.1"], text));
    assert_eq!(ended.status, Some(1));
}

#[test]
fn signals_reach_every_worker() {
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::TERM, "TERM"),
    ] {
        let text = format!("trap 'echo got $r; exit 0' {name}; echo ready; sleep 1000 & wait");
        let running = Running::start(&mut script(2, &[], &text));
        running.skip_lines(2);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.sorted(), ["[0] got 0", "[1] got 1"]);
        assert_eq!((ended.status, &ended.stderr[..]), (Some(0), ""), "{name}");
    }
}

/// As `nohup` does.
#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_is_ignored_stays_so_in_the_launcher_and_in_workers() {
    // A worker that did not ignore it would end here.
    let text = "kill -HUP $$; trap 'echo told; exit 0' USR1; echo ready; sleep 1000 & wait";
    let launch = script(2, &[], text);
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
        .arg(launch.get_program())
        .args(launch.get_args());
    let running = Running::start(&mut command);
    running.skip_lines(2);
    // A lower number is handled first: that it was handed on would be seen.
    running.signal(Signal::HUP);
    running.signal(Signal::USR1);
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["[0] told", "[1] told"]);
}

#[test]
fn a_run_whose_workers_save_after_sigterm_ends_with_their_status() {
    let text = format!(
        "{} trap 'exit 75' TERM; echo ready; sleep 1000 & wait",
        harness::RANK
    );
    for how in ["--elastic=1:2", "-n=2"] {
        let running = Running::start(&mut meshwork(&["run", how, "--", "sh", "-c", &text]));
        running.skip_lines(2);
        running.signal(Signal::TERM);
        let ended = running.end();
        assert_eq!(ended.status, Some(75), "{}", ended.stderr);
        let said = "meshwork run: interrupted by signal 15 (SIGTERM); the job was saved";
        assert!(ended.verdict().starts_with(said), "{}", ended.stderr);
    }
}

#[test]
fn an_interrupted_run_says_so() {
    for (signal, status, name) in [
        (Signal::INT, 130, "signal 2 (SIGINT)"),
        (Signal::TERM, 143, "signal 15 (SIGTERM)"),
    ] {
        // A shell in the background starts its programs with SIGINT ignored: then killed.
        let running = Running::start(&mut script(2, &["--grace", "0.5"], LIVE));
        running.skip_lines(2);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.status, Some(status));
        let said = format!("meshwork run: interrupted by {name}");
        assert!(ended.verdict().starts_with(&said), "{}", ended.stderr);
    }
}

#[test]
fn a_second_sigterm_kills_at_once() {
    let text = format!("trap '' TERM INT; {LIVE}");
    let running = Running::start(&mut script(2, &["--grace", "1000"], &text));
    running.skip_lines(2);
    running.signal(Signal::TERM);
    // An interrupt of another number: two pending ones of the same number count as one.
    running.signal(Signal::INT);
    let ended = running.end();
    assert!([Some(130), Some(143)].contains(&ended.status));
    assert!(
        ended.verdict().contains("2 of 2 workers"),
        "{}",
        ended.stderr
    );
}

#[test]
fn no_process_outlives_the_launcher() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    // Every process holds the fifo open, those that no worker waits for and no SIGTERM ends too.
    let text = "exec 3>$FIFO; trap '' TERM; sleep 1000 & echo ready; \
        if [ $r = 1 ]; then exit 4; fi; sleep 1000";
    let mut command = script(3, &["--grace", "0.1"], text);
    let running = Running::start(command.env("FIFO", &fifo));
    let holders = File::open(fifo).unwrap();
    let ended = running.end();
    assert_eq!(ended.status, Some(4), "{}", ended.stderr);
    assert_eq!(read_to_end(holders), b"");
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    for (program, status) in [("/no/such/program", 127), (plain.to_str().unwrap(), 126)] {
        let ended = run(&mut meshwork(&["run", "-n", "3", "--", program]));
        assert_eq!(ended.status, Some(status));
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(program), "{}", ended.stderr);
    }
}

#[test]
fn a_taken_port_is_named_before_anything_starts() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = run(&mut script(1, &["--host-port-base", &port], "echo started"));
    assert_eq!((ended.status, &ended.stdout[..]), (Some(125), &b""[..]));
    assert!(ended.stderr.contains(&port), "{}", ended.stderr);
}

#[test]
fn numbers_that_do_not_fit_are_refused_with_the_range_that_does() {
    for (line, said) in [
        (&["-n", "0"][..], "1 to 1024"),
        (&["-n", "1025"], "1 to 1024"),
        (&["-n", "2", "--host-port-base", "65535"], "1 to 65534"),
        (&["-n", "2", "--host-port-base", "0"], "1 to 65534"),
    ] {
        let args = [&["run"], line, &["--", "true"]].concat();
        let ended = run(&mut meshwork(&args));
        assert_eq!(ended.status, Some(125));
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    assert_eq!(
        run(&mut meshwork(&["run", "-n", "2", "true"])).status,
        Some(2)
    );
}

#[test]
fn an_elastic_run_starts_a_failed_worker_again_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    // Rank 0 waits for the second life of rank 1, whose output is read like that of the first.
    let text = format!(
        "{} if [ $r = 0 ]; then exec cat $FIFO; fi; echo life $MESHWORK_RESTARTS; \
         [ $MESHWORK_RESTARTS = 1 ] || exit 3; echo back > $FIFO",
        harness::RANK
    );
    let mut command = meshwork(&["run", "--elastic=1:2", "--", "sh", "-c", &text]);
    let ended = run(command.env("FIFO", fifo(folder.path())));
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["[0] back", "[1] life 0", "[1] life 1"]);
    assert_eq!(
        ended.stderr,
        "meshwork run: rank 1 ended: exit status 3; it is started again in 100ms (1 of 10 times in a row)\n"
    );
}

#[test]
fn a_worker_that_cannot_be_started_again_is_tried_later_and_the_others_live() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sh");
    let link = || std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    link();
    // Rank 0 waits for another life of rank 1, which takes the program away in its first.
    let text = format!(
        "{} if [ $r = 0 ]; then exec cat $FIFO; fi; \
         if [ $MESHWORK_RESTARTS = 0 ]; then rm $PROGRAM; exit 3; fi; echo back > $FIFO",
        harness::RANK
    );
    let path = program.to_str().unwrap();
    let mut command = meshwork(&["run", "--elastic=1:2", "--restarts=1000000", "--"]);
    command.args([path, "-c", &text]).env("PROGRAM", path);
    let running = Running::start(command.env("FIFO", fifo(folder.path())));
    let said = running.says("was not started again");
    let why = format!("rank 1 was not started again: program {path} was not found");
    assert!(said.contains(&why), "{said}");
    running.says("rank 1 ended: exit status 127; it is started again in ");
    link();
    let ended = running.end();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(ended.sorted(), ["[0] back"]);
}

#[test]
fn an_elastic_run_goes_on_while_nobody_reads_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    // Prefixes make it more than a pipe holds, and what is left is less than that.
    let text = format!(
        "{} if [ $r = 0 ]; then exec sleep 1000; fi; \
         if [ $MESHWORK_RESTARTS = 0 ]; then yes | head -c 60000 >&2; exit 3; fi; \
         echo back > $FIFO; exec sleep 1000",
        harness::RANK
    );
    let mut command = meshwork(&["run", "--elastic=1:2", "--", "sh", "-c", &text]);
    command
        .env("FIFO", &fifo)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (sender, heard) = channel();
    thread::spawn(move || sender.send(fs::read_to_string(fifo)));
    let heard = heard.recv_timeout(Duration::from_secs(60));
    // From here on whatever is said is dropped, and the launcher ends in any case.
    drop(child.stderr.take());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(heard.unwrap().unwrap(), "back\n");
}

#[test]
fn an_elastic_run_of_which_too_few_have_succeeded_fails_and_each_failure_is_told() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = folders.each_ref().map(|folder| fifo(folder.path()));
    // Ranks 0 and 2 fail when rank 1 has succeeded: what they read has no end before.
    let text = format!(
        "{} if [ $r = 1 ]; then exec 3>$ONE 4>$OTHER; exit 0; fi; \
         if [ $r = 0 ]; then read x <$ONE; exit 4; fi; read x <$OTHER; kill -9 $$",
        harness::RANK
    );
    let mut command = meshwork(&["run", "--elastic=2:3", "--restarts=0", "--"]);
    command.args(["sh", "-c", &text]);
    let ended = run(command.env("ONE", one).env("OTHER", other));
    // Whichever is seen first.
    assert!(
        [Some(4), Some(137)].contains(&ended.status),
        "{}",
        ended.stderr
    );
    for told in [
        "rank 0 ended: exit status 4",
        "rank 2 ended: killed by signal 9",
    ] {
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

#[test]
fn an_elastic_run_gives_up_and_names_who_was_lost() {
    let text = format!(
        "{} if [ $r = 1 ]; then exit 4; fi; exec sleep 1000",
        harness::RANK
    );
    let ended = run(&mut meshwork(&[
        "run",
        "--elastic=2:2",
        "--restarts=2",
        "--",
        "sh",
        "-c",
        &text,
    ]));
    assert_eq!(ended.status, Some(4));
    assert_eq!(
        ended.verdict(),
        "meshwork run: 1 of at least 2 workers are left: lost rank 1 (exit status 4, after 2 restarts)"
    );
}

#[test]
fn a_signal_ends_an_elastic_run_and_all_that_is_to_be_started_again() {
    let text = format!("{} if [ $r = 1 ]; then exit 4; fi; {LIVE}", harness::RANK);
    let running = Running::start(&mut meshwork(&[
        "run",
        "--elastic=1:2",
        "--restarts=1000000",
        "--",
        "sh",
        "-c",
        &text,
    ]));
    running.skip_lines(1);
    running.signal(Signal::TERM);
    assert_eq!(running.end().status, Some(143));
}

#[test]
fn a_chief_that_inherits_writes_without_prefix() {
    let ended = run(&mut part("chief"));
    let lines = ended.sorted();
    assert!(lines.contains(&"rank 0".to_owned()), "{lines:?}");
    assert!(lines.contains(&"[1] rank 1".to_owned()), "{lines:?}");
}

#[test]
fn survivors_learn_from_the_launcher_whom_they_lost() {
    let this = env::current_exe().unwrap();
    let mut command = meshwork(&["run", "-n", "3", "--", this.to_str().unwrap()]);
    let ended = run(command
        .args(["--exact", "part_of_another_test", "--nocapture"])
        .env(PART, "join"));
    assert_eq!(ended.status, Some(9), "{}", ended.stderr);
    let lines = ended.sorted();
    for rank in [0, 1] {
        let said = format!("[{rank}] lost rank 2");
        assert!(lines.contains(&said), "{lines:?}, {}", ended.stderr);
    }
}

#[test]
fn after_a_run_signals_act_as_before() {
    let running = Running::start(&mut part("signal"));
    while running.line() != "[0] over" {}
    let ended = running.end();
    assert_eq!(ended.status, None, "killed by the signal it sent itself");
}

/// Not a test of its own: what the ones before start, in a process of its own.
#[test]
fn part_of_another_test() {
    let Ok(part) = env::var(PART) else { return };
    let text = format!("{} echo rank $r", harness::RANK);
    match &part[..] {
        "chief" => {
            let launch = Launch::new("sh").args(["-c", &text]).workers(2).unwrap();
            let launch = launch.output(Output::ChiefInherits);
            assert_eq!(launch.run().unwrap(), Outcome::Succeeded);
        }
        "join" => join(),
        _ => {
            let launch = Launch::new("echo").args(["over"]);
            assert_eq!(launch.run().unwrap(), Outcome::Succeeded);
            kill_process(rustix::process::getpid(), Signal::TERM).unwrap();
            // Whichever thread takes the signal, it ends this one too.
            loop {
                thread::park();
            }
        }
    }
}

/// A worker that joins the job's group; rank 2 ends when the others wait for it.
fn join() {
    let config: Value = serde_json::from_str(&env::var("TF_CONFIG").unwrap()).unwrap();
    let rank = config["task"]["index"]
        .as_u64()
        .unwrap()
        .try_into()
        .unwrap();
    let workers = config["cluster"]["worker"].as_array().unwrap();
    let addresses: Vec<_> = workers
        .iter()
        .map(|worker| worker.as_str().unwrap())
        .collect();
    if rank == 2 {
        addresses[..2].iter().for_each(await_listener);
        process::exit(9);
    }
    let secret = JobSecret::from_env().unwrap();
    let config = GroupConfig::new(addresses, Rank::new(rank), secret).unwrap();
    match Group::connect(&config).unwrap_err() {
        Error::Operation(OperationError::RankLost { peer, .. }) => {
            println!("\nlost {}", peer.rank());
        }
        other => println!("\n{other}"),
    }
}

/// Knocks until nobody answers that the port is closed.
fn await_listener(address: &&str) {
    let knocker = UdpSocket::bind("127.0.0.1:0").unwrap();
    knocker.connect(address).unwrap();
    knocker.set_nonblocking(true).unwrap();
    while knocker
        .send(b"?")
        .and_then(|_| knocker.recv(&mut [0]))
        .is_err_and(is_refusal)
    {
        thread::yield_now();
    }
}

fn is_refusal(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

const PART: &str = "MESHWORK_TEST_PART";

fn part(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "part_of_another_test", "--nocapture"])
        .env(PART, name);
    command
}

fn fifo(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

#[cfg(target_os = "linux")]
#[test]
fn pinned_workers_have_cores_of_their_own_and_share_them_where_there_are_too_few() {
    let shares = |workers: usize| {
        let output = script(
            workers,
            &["--pin"],
            "grep Cpus_allowed_list /proc/self/status",
        )
        .output()
        .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let shares: Vec<_> = text
            .lines()
            .filter_map(|line| line.split_whitespace().next_back())
            .collect();
        assert_eq!(shares.len(), workers, "{text}");
        shares
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>()
            .len()
    };
    let cores = rustix::thread::sched_getaffinity(None).unwrap().count() as usize;
    assert_eq!(shares(cores), cores);
    assert_eq!(shares(cores + 1), cores);
}
