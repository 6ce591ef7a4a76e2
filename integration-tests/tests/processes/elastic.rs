//! Groups of real processes that go on when one is killed, and take another in its place.

use std::time::Duration;

use meshwork_collectives::{JobSecret, Rank, Timeouts, TwoMemberPolicy, announce_loss};
use meshwork_testing::in_threads;

use crate::worker::{Worker, free_addresses, outside_jobs, over};

/// From the death to the first result without the dead rank, on every survivor. Far above what that
/// takes, which the soak measures, as these tests share a machine with others; below every patience
/// but that of joining.
const LIMIT: Duration = Duration::from_secs(10);

struct Job {
    members: String,
    secret: JobSecret,
    transport: &'static str,
    /// Of every worker.
    environment: Vec<(&'static str, &'static str)>,
}

impl Job {
    fn new(workers: usize, transport: &'static str) -> Self {
        Self {
            members: free_addresses(workers).join(","),
            secret: JobSecret::generate().unwrap(),
            transport,
            environment: vec![(Timeouts::JOIN_ENV, "30")],
        }
    }

    fn with(mut self, variable: &'static str, value: &'static str) -> Self {
        self.environment.push((variable, value));
        self
    }

    fn start(&self, rank: usize, until_epoch: u64, more: &[&str]) -> Worker {
        let mut command = outside_jobs(env!("CARGO_BIN_EXE_elastic"));
        command
            .arg(format!("--members={}", self.members))
            .arg(format!("--rank={rank}"))
            .arg(format!("--until-epoch={until_epoch}"))
            .args(more)
            .envs(self.environment.iter().copied())
            .env(JobSecret::ENV, self.secret.to_hex().as_str());
        over(&mut command, self.transport);
        Worker::start(command)
    }

    fn start_all(&self, workers: usize, until_epoch: u64) -> Vec<Option<Worker>> {
        let start = |rank| Some(self.start(rank, until_epoch, &[]));
        let mut all: Vec<_> = (0..workers).map(start).collect();
        for worker in all.iter_mut().flatten() {
            worker.reaches("works");
        }
        all
    }
}

/// Kills one, waits until all others have a result without it, and checks how long that took.
#[track_caller]
fn dies(workers: &mut [Option<Worker>], victim: usize) {
    let died = workers[victim].take().unwrap().kill();
    let left = workers.iter().flatten().count();
    for worker in workers.iter_mut().flatten() {
        worker.reaches("was lost");
        worker.reaches(&format!("of {left}, step"));
        let line = worker.reaches("goes on");
        let took = died.elapsed();
        assert!(took <= LIMIT, "{took:?}: {line}");
        worker.reaches("works");
    }
}

#[track_caller]
fn all_leave(workers: Vec<Option<Worker>>) {
    for worker in workers.into_iter().flatten() {
        let ended = worker.end();
        let lost = ended.lines.iter().any(|line| line.contains("lost"));
        assert!(ended.status.success() && !lost, "{ended:?}");
    }
}

/// One of four dies, its survivors go on, and a new process takes its place.
fn shrinks_and_grows(transport: &'static str, victim: usize) {
    let job = Job::new(4, transport);
    let mut workers = job.start_all(4, 3);
    dies(&mut workers, victim);
    let mut newcomer = job.start(victim, 3, &["--rejoin"]);
    // Behind all survivors, who keep their order.
    newcomer.reaches("epoch 3: rank 3 of 4");
    for worker in workers.iter_mut().flatten() {
        worker.reaches("of 4, step");
    }
    workers[victim] = Some(newcomer);
    all_leave(workers);
}

#[test]
fn a_group_over_shared_memory_goes_on_without_a_dead_rank_and_takes_a_new_one_in() {
    shrinks_and_grows("auto", 2);
}

#[test]
fn a_group_over_quic_goes_on_without_a_dead_rank_and_takes_a_new_one_in() {
    shrinks_and_grows("quic", 2);
}

#[test]
fn a_group_over_tls_goes_on_without_a_dead_rank_and_takes_a_new_one_in() {
    shrinks_and_grows("tls", 2);
}

#[test]
fn rank_0_is_no_more_special_than_any_other() {
    for transport in ["auto", "quic"] {
        shrinks_and_grows(transport, 0);
    }
}

#[test]
fn of_four_that_die_one_after_the_other_the_last_goes_on_alone() {
    for transport in ["auto", "quic", "tls"] {
        let job = Job::new(4, transport);
        let mut workers = job.start_all(4, 4);
        for victim in [0, 3, 1] {
            dies(&mut workers, victim);
        }
        all_leave(workers);
    }
}

/// Rank 1 does not, though its kernel proves that rank 0 has ended.
#[test]
fn of_two_the_chief_alone_goes_on_without_the_other_where_the_environment_says_so() {
    in_threads(["auto", "quic"], |transport| {
        let start_both = || {
            let job = Job::new(2, transport).with(TwoMemberPolicy::ENV, "chief");
            // So long rank 1 waits for most of the ranks.
            job.with(Timeouts::JOIN_ENV, "5").start_all(2, 2)
        };
        let mut workers = start_both();
        dies(&mut workers, 1);
        all_leave(workers);
        let [chief, other] = start_both().try_into().ok().unwrap();
        chief.unwrap().kill();
        let left = other.unwrap().end();
        left.failed_naming(&["1 of the 2 ranks of epoch 1", "no majority"]);
    });
}

#[test]
fn of_sixteen_all_go_on_but_the_one_that_died_though_others_counted_votes_through_it() {
    let job = Job::new(16, "quic");
    let mut workers = job.start_all(16, 2);
    dies(&mut workers, 8);
    all_leave(workers);
}

#[test]
fn whoever_takes_the_place_of_a_member_that_never_came_is_let_in_by_most_of_the_others() {
    for (transport, late) in [("auto", 2), ("quic", 0)] {
        let job = Job::new(3, transport);
        let others = (0..3).filter(|rank| *rank != late);
        let mut workers: Vec<_> = others
            .map(|rank| job.start(rank, 3, &["--majority"]))
            .collect();
        // Long before anybody's patience is over.
        let mut newcomer = job.start(late, 3, &["--rejoin"]);
        for (rank, worker) in workers.iter_mut().enumerate() {
            worker.reaches(&format!("epoch 2: rank {rank} of 2"));
        }
        newcomer.reaches("epoch 3: rank 2 of 3");
        all_leave(workers.into_iter().chain([newcomer]).map(Some).collect());
    }
}

#[test]
fn most_members_begin_without_one_whose_end_the_launcher_tells() {
    let job = Job::new(3, "auto");
    let start = |rank| job.start(rank, 2, &["--majority"]);
    let mut workers = [start(0), start(2)];
    let members: Vec<String> = job.members.split(',').map(str::to_owned).collect();
    announce_loss(&members, &job.secret, Rank::new(1), Duration::from_secs(20)).unwrap();
    for worker in &mut workers {
        worker.reaches("epoch 2: ");
    }
    all_leave(workers.map(Some).into());
}

#[test]
fn most_members_begin_without_one_that_does_not_come_in_time_and_fewer_do_not() {
    let job = Job::new(3, "auto").with(Timeouts::JOIN_ENV, "1.5");
    let start = |rank| job.start(rank, 2, &["--majority"]);
    let mut workers = [start(1), start(2)];
    for worker in &mut workers {
        worker.reaches("epoch 2: ");
    }
    all_leave(workers.map(Some).into());
    let job = Job::new(3, "auto").with(Timeouts::JOIN_ENV, "1");
    let alone = job.start(1, 2, &["--majority"]).end();
    alone.failed_naming(&["1 of the 3 ranks of epoch 1"]);
}

#[test]
fn a_process_that_nobody_answers_says_whom_it_asked() {
    let job = Job::new(2, "auto").with(Timeouts::JOIN_ENV, "0.5");
    let ended = job.start(1, 1, &["--rejoin"]).end();
    let (asked, _) = job.members.split_once(',').unwrap();
    let nobody = format!("none of {asked} answered as a member of this job within 500.0ms");
    ended.failed_naming(&[&nobody]);
    assert!(!ended.stderr.contains("grow"), "{ended:?}");
}
