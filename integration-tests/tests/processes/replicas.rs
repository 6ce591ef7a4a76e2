//! Replicas are replicas, whether they are threads of one worker or of several processes.

use std::process::Command;

use crate::worker::{Ended, Job, Worker, outside_jobs};

fn command(args: &[&str]) -> Command {
    let mut command = outside_jobs(env!("CARGO_BIN_EXE_replicas"));
    command.args(args);
    command
}

fn run(workers: usize, transport: &'static str, args: &[&str]) -> Vec<Ended> {
    let job = Job::new(workers).over(transport);
    let worker = |index| {
        let mut command = command(args);
        job.configure(&mut command, index);
        Worker::start(command)
    };
    let started: Vec<Worker> = (0..workers).map(worker).collect();
    started.into_iter().map(Worker::end).collect()
}

#[test]
fn replicas_spread_over_processes_compute_what_those_of_one_process_do() {
    for (workers, replicas, transport) in [
        (2, 1, "auto"),
        (2, 2, "auto"),
        (2, 2, "quic"),
        (4, 1, "auto"),
        (4, 2, "auto"),
    ] {
        let all = (workers * replicas).to_string();
        let one = Worker::start(command(&["--replicas", &all])).end();
        assert!(one.status.success(), "{one:?}");
        assert!(one.lines.len() > 10, "{one:?}");
        for worker in run(workers, transport, &["--replicas", &replicas.to_string()]) {
            assert!(worker.status.success(), "{worker:?}");
            assert_eq!(
                worker.lines, one.lines,
                "{workers} workers of {replicas} by {transport}"
            );
        }
    }
}

#[test]
fn processes_with_different_numbers_of_replicas_are_told_whose_differs() {
    for worker in run(2, "auto", &["--replicas", "2", "--odd-one-out"]) {
        assert!(!worker.status.success(), "{worker:?}");
        let line = worker.stderr.trim_end();
        assert!(
            line.contains("rank 1 has 3 replicas, but rank 0 has 2"),
            "{line}"
        );
    }
}
