//! Runs of dozens to hundreds of workers: limits of the system, losses, interrupts, and what is
//! shown of them. `MESHWORK_SOAK=N` kills one of 64 ranks N times instead of once.

use std::fs::{self, File};
use std::process::Command;
#[cfg(target_os = "linux")]
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

use super::fifo;
use super::harness::{Ended, Running, meshwork, read_to_end, run, script};

/// `meshwork` with these arguments, after this command of a shell.
fn limited(limit: &str, args: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    let program = meshwork(args);
    command
        .args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")])
        .arg(program.get_program())
        .args(program.get_args())
        .env("MESHWORK_JOB_SECRET", "0123456789abcdef".repeat(4));
    run(&mut command)
}

#[test]
fn too_few_open_files_for_512_workers_are_one_line_with_both_numbers_and_the_remedy() {
    let ended = limited("ulimit -n 256", &["run", "-n", "512", "--", "true"]);
    assert_eq!(ended.status, Some(78));
    assert_eq!(
        ended.stderr,
        "meshwork run: 512 workers take up to 1056 open files and this process may have 256, its \
         hard limit: raise it where the session, service or container is started, or start fewer \
         workers\n"
    );
    let ended = limited("ulimit -n 256", &["bench", "-n", "512"]);
    assert_eq!(ended.status, Some(78));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}

#[test]
fn too_few_open_files_for_workers_on_other_hosts_are_told_before_any_is_reached() {
    let args = ["run", "--hosts", "unreachable.invalid:100", "--", "true"];
    let ended = limited("ulimit -n 256", &args);
    assert_eq!(ended.status, Some(78), "{}", ended.stderr);
    let both = "100 workers take up to 332 open files and this process may have 256";
    assert!(ended.stderr.contains(both), "{}", ended.stderr);
}

#[test]
fn a_soft_limit_of_open_files_is_raised_as_far_as_it_takes() {
    let args = ["run", "-n", "48", "--", "sh", "-c", "ulimit -Sn"];
    let ended = limited("ulimit -Sn 64", &args);
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    let lines = ended.sorted();
    assert_eq!(lines.len(), 48);
    assert!(
        lines.iter().all(|line| line.ends_with("] 128")),
        "{lines:?}"
    );
}

#[test]
fn a_rank_with_too_few_open_files_says_so_in_one_line() {
    let hosts = "--hosts=127.0.0.1:0,127.0.0.1:9";
    let ended = limited("ulimit -n 25", &["bench", hosts, "--rank=0"]);
    assert_eq!(ended.status, Some(1));
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    for part in ["a rank of 2 takes up to", "may have 25, its hard limit"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
}

#[test]
fn the_lines_of_the_first_ranks_are_shown_where_a_number_is_given() {
    let text = "echo out; echo err >&2; [ $r != 5 ]";
    let ended = run(&mut script(6, &["--ranks-shown", "2"], text));
    assert_eq!(ended.sorted(), ["[0] out", "[1] out"]);
    let mut lines: Vec<&str> = ended.stderr.lines().collect();
    let verdict = lines.pop().unwrap();
    assert!(
        verdict.starts_with("meshwork run: rank 5 failed"),
        "{verdict}"
    );
    assert!(verdict.contains(r#"exit status 1: "err""#), "{verdict}");
    assert!(
        lines
            .iter()
            .all(|line| ["[0] err", "[1] err"].contains(line))
    );
}

#[test]
fn of_what_many_survivors_say_a_few_lines_are_shown_and_the_rest_counted() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let text = "trap 'echo lost >&2; exit 1' TERM; \
        if [ $r = 7 ]; then read x < $FIFO; echo here >&2; exit 3; fi; \
        echo ready; sleep 1000 & wait";
    let running = Running::start(script(24, &[], text).env("FIFO", &fifo));
    running.skip_lines(23);
    drop(File::options().write(true).open(fifo).unwrap());
    let ended = running.end();
    assert_eq!(ended.status, Some(3));
    let lost = ended.stderr.lines().filter(|line| line.ends_with("] lost"));
    assert_eq!(lost.count(), 8, "{}", ended.stderr);
    assert_eq!(
        ended.verdict(),
        r#"meshwork run: rank 7 failed first: exit status 3: "here"; the other 23 were ended, and 15 of their lines not shown"#
    );
}

#[test]
fn an_interrupt_leaves_no_process_of_64_workers() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = fifo(folder.path());
    let text = "exec 3>$FIFO; sleep 1000 & echo ready; wait";
    let running = Running::start(script(64, &["--grace", "0.5"], text).env("FIFO", &fifo));
    let holders = File::open(fifo).unwrap();
    running.skip_lines(64);
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.status, Some(130), "{}", ended.stderr);
    assert_eq!(read_to_end(holders), b"");
}

/// The process of this rank among those that the launcher has started.
#[cfg(target_os = "linux")]
fn process_of(launcher: u32, rank: usize) -> Pid {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
    let index = format!("\"index\":{rank}}}");
    let children = children.unwrap();
    let is_rank = |id: &&str| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap();
        String::from_utf8_lossy(&environment).contains(&index)
    };
    let found = children.split_whitespace().find(is_rank).unwrap();
    Pid::from_raw(found.parse().unwrap()).unwrap()
}

/// Ten times what is promised: the machine may be busy.
#[cfg(target_os = "linux")]
const TOLD: Duration = Duration::from_secs(10);

/// When each rank was told since the kill: then it writes its dump. The launcher is heard by nobody,
/// and its patience is longer than anything here.
#[cfg(target_os = "linux")]
#[test]
fn when_one_of_64_ranks_is_killed_each_of_the_others_is_told_soon() {
    let (victim, folder) = (23, tempfile::tempdir().unwrap());
    let mut command = meshwork(&["run", "-n", "64", "--grace", "50", "--", "sh", "-c"]);
    command
        .args([
            "trap '' TERM; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_meshwork"),
        ])
        .args(["bench", "--worker", "--transport=quic", "--bytes=1K"])
        .arg("--seconds=1000")
        .env("MESHWORK_DUMP", folder.path());
    let running = Running::start(&mut command);
    // The head of the table: all have met.
    running.skip_lines(2);
    let process = process_of(running.id(), victim);
    let killed = SystemTime::now();
    kill_process(process, Signal::KILL).unwrap();
    let ended = running.end();
    let named = format!("meshwork run: rank {victim} failed first: killed by signal 9");
    assert!(ended.verdict().starts_with(&named), "{}", ended.stderr);
    let told = |rank: &usize| {
        let dump = folder.path().join(format!("rank-{rank}.json"));
        let written = fs::metadata(dump).and_then(|dump| dump.modified());
        let written = written.unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        // The clock of files is behind by some milliseconds.
        written.duration_since(killed).unwrap_or_default()
    };
    let survivors: Vec<usize> = (0..64).filter(|rank| *rank != victim).collect();
    let times: Vec<Duration> = survivors.iter().map(told).collect();
    let last = times.iter().max().unwrap();
    eprintln!("all were told within {last:.2?} of the kill");
    assert!(*last <= TOLD, "{times:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn one_of_64_ranks_that_is_killed_is_named_by_the_launcher_and_by_whoever_speaks() {
    let rounds = std::env::var("MESHWORK_SOAK").map_or(1, |rounds| rounds.parse().unwrap());
    let program = env!("CARGO_BIN_EXE_meshwork");
    let bench = [
        "bench",
        "--worker",
        "--transport=quic",
        "--bytes=1K",
        "--seconds=1000",
    ];
    for round in 0..rounds {
        let victim = (round * 29 + 23) % 64;
        let run = ["run", "-n", "64", "--", program];
        let running = Running::start(&mut meshwork(&[&run[..], &bench].concat()));
        // The head of the table: all have met.
        running.skip_lines(2);
        kill_process(process_of(running.id(), victim), Signal::KILL).unwrap();
        let ended = running.end();
        assert_eq!(ended.status, Some(137), "{}", ended.stderr);
        let (said, verdict) = ended.stderr.trim_end().rsplit_once('\n').unwrap();
        let expected = format!("meshwork run: rank {victim} failed first: killed by signal 9");
        assert!(verdict.starts_with(&expected), "{verdict}");
        let named = format!("rank {victim} (127.0.0.1:");
        assert!(said.lines().all(|line| line.contains(&named)), "{said}");
        assert!((1..=9).contains(&said.lines().count()), "{said}");
    }
}
