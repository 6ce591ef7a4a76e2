//! `kill -9` of any worker at any moment: all others end with an error that names it, soon.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use meshwork_collectives::Timeouts;
use meshwork_testing::in_threads;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::worker::{Dice, Job, Worker, mlp};

/// From the death to the end of the last survivor.
const LIMIT: Duration = Duration::from_secs(2);

/// Kills `victim` when it holds at `point`, with everybody else wherever they are by then.
fn dies_at(victim: usize, point: &str, transport: &'static str) {
    let job = Job::new(4).over(transport);
    let hold = format!("--hold={victim}:{point}");
    let mut workers = job.start_all(&[&hold, "--epochs=1"]);
    workers[victim].reaches("holding");
    let died = workers[victim].kill();
    survivors_name(victim, died, workers);
}

#[track_caller]
fn survivors_name(victim: usize, died: Instant, workers: Vec<Worker>) {
    for (rank, worker) in workers
        .into_iter()
        .enumerate()
        .filter(|(rank, _)| *rank != victim)
    {
        let ended = worker.end();
        let took = ended.at.saturating_duration_since(died);
        assert!(took <= LIMIT, "rank {rank} ended after {took:?}");
        ended.failed_naming(&[&format!("rank {victim} (127.0.0.1:"), "was lost"]);
    }
}

#[test]
fn any_worker_that_dies_in_the_middle_of_a_step_is_named() {
    for transport in ["auto", "tls"] {
        for victim in 0..4 {
            dies_at(victim, "7", transport);
        }
    }
}

#[test]
fn any_worker_that_dies_at_the_end_of_training_is_named() {
    for victim in 0..4 {
        dies_at(victim, "end", "auto");
    }
}

/// Workers that train for long, of which number 1 is stopped after some steps, and its process.
fn stopped(transport: &'static str, patience: Option<&str>) -> (Vec<Worker>, Pid) {
    let job = Job::new(3).over(transport);
    let start = |rank| {
        let mut command = job.command(rank, &["--epochs=1000000"]);
        command.envs(patience.map(|seconds| (Timeouts::SILENCE_ENV, seconds)));
        Worker::start_merged(command)
    };
    let mut workers: Vec<_> = (0..3).map(start).collect();
    let started = workers[1].reaches("started as process ");
    let process = started.rsplit(' ').next().unwrap().parse().unwrap();
    for worker in &mut workers {
        worker.reaches("step 3 ");
    }
    let process = Pid::from_raw(process).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    (workers, process)
}

#[test]
fn a_worker_that_is_stopped_for_longer_than_the_others_wait_is_named() {
    let (mut workers, _) = stopped("auto", Some("1"));
    let stopped = workers.remove(1);
    for worker in workers {
        let ended = worker.end();
        assert!(!ended.status.success());
        let named = "rank 1 (127.0.0.1:";
        let line = ended.lines.iter().rfind(|line| line.contains(named));
        let cause = "was lost: its process is stopped";
        assert!(line.is_some_and(|line| line.contains(cause)), "{ended:?}");
    }
    drop(stopped);
}

/// Losses and parameters after it are those of a job that nobody disturbs.
#[test]
fn a_worker_that_is_stopped_for_seconds_is_waited_for_and_nobody_is_lost() {
    in_threads(["auto", "quic"], |transport| {
        let (mut workers, process) = stopped(transport, None);
        for seconds in ["2.", "4."] {
            let line = workers[0].reaches("waiting for rank 1 (127.0.0.1:");
            let said = format!(
                "process {}), stopped for {seconds}",
                process.as_raw_nonzero()
            );
            assert!(line.contains(&said), "{line}");
        }
        kill_process(process, Signal::CONT).unwrap();
        let first = workers[0].reaches("step ");
        let number = first.split(' ').nth(1).unwrap();
        let later = format!("step {} ", number.parse::<u64>().unwrap() + 2);
        let mut undisturbed = Job::new(3).over(transport).start_all(&["--epochs=1000000"]);
        for (worker, undisturbed) in workers.iter_mut().zip(&mut undisturbed) {
            let line = worker.reaches(&later);
            assert!(line.contains(" loss ") && line.contains(" hash "), "{line}");
            assert_eq!(undisturbed.reaches(&later), line);
        }
    });
}

#[test]
fn a_slow_worker_is_named_in_the_log_long_before_it_is_given_up() {
    in_threads(["auto", "quic", "tls"], |transport| {
        let job = Job::new(2).over(transport);
        let more = ["--verbose", "--hold=1:7", "--epochs=1"];
        let commands = [0, 1].map(|rank| job.command(rank, &more));
        let mut workers = commands.map(Worker::start_merged);
        workers[1].reaches("holding");
        let line = workers[0].reaches("rank 0 waits for rank 1 since ");
        assert!(line.contains("all_reduce #"), "{line}");
    });
}

#[test]
fn a_worker_that_dies_while_others_still_wait_for_one_that_has_not_come_is_named() {
    for victim in [0, 1, 2] {
        let job = Job::new(4);
        // Rank 3 never starts: the others meet, and cannot be complete.
        let mut commands: Vec<_> = (0..3)
            .map(|rank| job.command(rank, &["--verbose"]))
            .collect();
        commands.iter_mut().for_each(|command| {
            command.env("MESHWORK_JOIN_TIMEOUT", "50");
        });
        let mut workers: Vec<_> = commands.into_iter().map(Worker::start_merged).collect();
        for (rank, worker) in workers.iter_mut().enumerate() {
            let others = (0..3).filter(|other| *other != rank);
            worker.reaches_all(
                &others
                    .map(|other| format!("connected to rank {other}"))
                    .collect::<Vec<_>>(),
            );
        }
        let died = workers[victim].kill();
        for (_, worker) in workers
            .into_iter()
            .enumerate()
            .filter(|(rank, _)| *rank != victim)
        {
            let ended = worker.end();
            assert!(ended.at.saturating_duration_since(died) <= LIMIT);
            let last = ended
                .lines
                .iter()
                .rfind(|line| line.starts_with("mlp: error: "));
            let named = format!("rank {victim} (127.0.0.1:");
            assert!(last.is_some_and(|line| line.contains(&named)), "{ended:?}");
        }
    }
}

#[test]
fn under_the_launcher_a_worker_that_dies_before_it_joins_is_named_by_all() {
    for victim in [0, 3] {
        let hold = format!("--hold={victim}:start");
        let mut launcher = Worker::start(mlp(&["--launch=4", &hold]));
        let started = launcher.reaches(&format!("[{victim}] started as process "));
        let process = started.rsplit(' ').next().unwrap().parse().unwrap();
        let died = kill(process);
        let ended = launcher.end();
        assert!(ended.at.saturating_duration_since(died) <= LIMIT + Duration::from_secs(1));
        assert_eq!(ended.status.code(), Some(137), "{ended:?}");
        let named = format!("rank {victim} (127.0.0.1:");
        for rank in (0..4).filter(|rank| *rank != victim) {
            let prefix = format!("[{rank}] mlp: error: ");
            let line = ended.stderr.lines().find(|line| line.starts_with(&prefix));
            assert!(
                line.is_some_and(|line| line.contains(&named)),
                "rank {rank}: {ended:?}"
            );
        }
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(
            last.contains(&format!("rank {victim} failed first")),
            "{ended:?}"
        );
    }
}

#[test]
fn a_death_at_a_random_moment_is_named_by_all_who_had_met() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let kills = number("MESHWORK_SOAK").unwrap_or(9);
    let seed = number("MESHWORK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let mut dice = Dice(seed);
    for (turn, transport) in (0..kills).zip(["auto", "quic", "tls"].into_iter().cycle()) {
        let victim = dice.pick(4);
        let step = 1 + dice.roll(30);
        let delay = Duration::from_micros(dice.roll(3000));
        eprintln!("seed {seed}, turn {turn}: rank {victim} after step {step}, over {transport}");
        let job = Job::new(4).over(transport);
        let mut workers = job.start_all(&["--epochs=20"]);
        workers.iter_mut().for_each(|worker| {
            worker.reaches("joined");
        });
        workers[victim].reaches(&format!("step {step} "));
        // Somewhere in the steps that follow; nobody holds.
        let spin = Instant::now() + delay;
        while Instant::now() < spin {
            std::hint::spin_loop();
        }
        let died = workers[victim].kill();
        survivors_name(victim, died, workers);
    }
}

#[test]
fn workers_end_when_their_launcher_is_killed() {
    let mut launcher = Worker::start(mlp(&["--launch=3", "--epochs=1000000"]));
    let mut processes = Vec::new();
    while processes.len() < 3 {
        let line = launcher.reaches("] started as process ");
        processes.push(watch(line.rsplit(' ').next().unwrap().parse().unwrap()));
    }
    launcher.reaches("[2] step 3 ");
    launcher.kill();
    for process in &processes {
        let mut ended = [PollFd::new(process, PollFlags::IN)];
        let hang = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        assert_eq!(
            poll(&mut ended, Some(&hang)).unwrap(),
            1,
            "a worker is left behind"
        );
    }
}

/// A handle that can be read from when the process has ended.
fn watch(process: i32) -> OwnedFd {
    pidfd_open(Pid::from_raw(process).unwrap(), PidfdFlags::empty()).unwrap()
}

fn kill(process: i32) -> Instant {
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    Instant::now()
}
