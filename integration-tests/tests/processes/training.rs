//! A training of real processes that are killed again and again, and started anew: it ends as if
//! nothing had happened, with each sample used once in each epoch.
//!
//! `MESHWORK_SOAK=N` kills N times instead of a few.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;
use std::time::Duration;

use meshwork_collectives::Transport;
use rustix::process::{Pid, Signal, kill_process};

use crate::worker::{Calm, Dice, Ended, Worker, outside_jobs};

const WORKERS: usize = 3;
const SAMPLES: usize = 480;
const STEPS_PER_EPOCH: u64 = 10;
/// Far above what an interruption takes, as these tests share a machine with others.
const LIMIT: Duration = Duration::from_secs(10);

/// The launcher of a training, which is watched through the lines of its workers.
struct Job {
    launcher: Worker,
    /// By member id.
    workers: Vec<Seen>,
    story: Story,
    dice: Dice,
    calm: Calm,
}

/// What is known of the worker with a member id.
#[derive(Clone, Debug, Default)]
struct Seen {
    process: Option<i32>,
    /// Rank, number of workers and number of the membership.
    place: (u32, usize, u64),
    made: u64,
}

/// What all workers together have said of their steps.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// By step and membership, the epoch of the data and the samples of each worker that tried.
    tried: BTreeMap<(u64, u64), (u64, Vec<usize>)>,
    made: BTreeSet<(u64, u64)>,
    interruptions: Vec<u128>,
}

impl Job {
    fn start(epochs: u64, transport: &str, more: &[&str]) -> Self {
        let mut command = trainer(epochs);
        command
            .arg(format!("--elastic=2:{WORKERS}"))
            .arg("--restarts=1000")
            .args(more)
            .env(Transport::ENV, transport);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let calm = Calm::new();
        command.args(calm.awaited());
        Self {
            launcher: Worker::start_merged(command),
            workers: vec![Seen::default(); WORKERS],
            story: Story::default(),
            dice: Dice(7),
            calm,
        }
    }

    /// Reads one line of the launcher's.
    #[track_caller]
    fn read(&mut self) -> String {
        let line = self.launcher.reaches("");
        self.hear(&line);
        line
    }

    #[track_caller]
    fn read_until(&mut self, enough: impl Fn(&Self) -> bool) {
        while !enough(self) {
            self.read();
        }
    }

    fn hear(&mut self, line: &str) {
        let Some((seat, said)) = line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        else {
            return;
        };
        let seat: usize = seat.parse().unwrap();
        let words: Vec<&str> = said
            .split([' ', ':'])
            .filter(|word| !word.is_empty())
            .collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "process" => {
                self.workers[seat] = Seen {
                    process: Some(i32::try_from(number(1)).unwrap()),
                    ..Seen::default()
                }
            }
            "membership" => {
                let rank = u32::try_from(number(2)).unwrap();
                self.workers[seat].place = (rank, usize::try_from(number(4)).unwrap(), number(1));
            }
            "made" => self.workers[seat].made = number(1),
            _ => {}
        }
        self.story.hear(said);
    }

    /// All are in one membership of full size, and have made a step there.
    fn is_whole(&self) -> bool {
        let memberships: BTreeSet<_> = self.workers.iter().map(|seen| seen.place.2).collect();
        memberships.len() == 1
            && self
                .workers
                .iter()
                .all(|seen| seen.place.1 == WORKERS && seen.made > 0)
    }

    /// Kills the worker with a member id with `kill -9`.
    fn kill(&mut self, seat: usize) {
        let process = self.workers[seat].process.take().unwrap();
        let _ = kill_process(Pid::from_raw(process).unwrap(), Signal::KILL);
        self.workers[seat] = Seen::default();
    }

    fn member_id_of_the_chief(&self) -> usize {
        self.workers
            .iter()
            .position(|seen| seen.place.0 == 0)
            .unwrap()
    }

    /// Kills the chief first, then any, each at a random step of a whole group, and waits until the
    /// group is whole again.
    #[track_caller]
    fn suffer(&mut self, kills: usize) {
        self.read_until(Self::is_whole);
        for turn in 0..kills {
            let seat = match turn {
                0 => self.member_id_of_the_chief(),
                _ => self.dice.pick(WORKERS),
            };
            let at = self.workers[seat].made + self.dice.roll(20);
            self.read_until(|job| job.workers[seat].made >= at);
            self.kill(seat);
            self.read_until(Self::is_whole);
        }
    }

    /// Reads to the end: all workers end equal, and everything adds up.
    #[track_caller]
    fn end(mut self, epochs: u64) -> (f64, Story) {
        self.calm.comes();
        let ended = self.launcher.ended();
        ended.lines.iter().for_each(|line| self.hear(line));
        assert!(ended.status.success(), "{:?}", ended.lines.last());
        self.story.check(epochs);
        (result(&ended), self.story)
    }
}

impl Story {
    /// Takes in a line of a worker, if it is about a step.
    pub(crate) fn hear(&mut self, said: &str) {
        let words: Vec<&str> = said
            .split([' ', ':'])
            .filter(|word| !word.is_empty())
            .collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words.first() {
            Some(&"tries") => self.tries((number(1), number(5)), number(3), said),
            Some(&"made") => drop(self.made.insert((number(1), number(3)))),
            Some(&"goes") => self.interruptions.push(u128::from(number(2))),
            _ => {}
        }
    }

    fn tries(&mut self, place: (u64, u64), epoch: u64, said: &str) {
        let (_, list) = said.split_once('[').unwrap();
        let numbers = list.trim_end_matches(']').split(", ");
        let samples = numbers.filter(|text| !text.is_empty());
        let (known, all) = self.tried.entry(place).or_insert((epoch, Vec::new()));
        assert_eq!(
            *known, epoch,
            "workers differ about the epoch of step {}",
            place.0
        );
        all.extend(samples.map(|text| text.parse::<usize>().unwrap()));
    }

    /// A step counts in the last membership in which it was made: whoever made it before has been
    /// lost with what it had. The samples of those that count are each sample once in each epoch.
    #[track_caller]
    pub(crate) fn check(&self, epochs: u64) {
        let last: BTreeMap<u64, u64> = self.made.iter().copied().collect();
        let steps: Vec<u64> = last.keys().copied().collect();
        assert_eq!(steps, (1..=epochs * STEPS_PER_EPOCH).collect::<Vec<_>>());
        let mut used: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for place in last {
            let (epoch, samples) = &self.tried[&place];
            used.entry(*epoch).or_default().extend(samples);
        }
        assert_eq!(used.len() as u64, epochs);
        for (epoch, mut samples) in used {
            samples.sort_unstable();
            assert!(
                samples.iter().copied().eq(0..SAMPLES),
                "epoch {epoch} used {samples:?}"
            );
        }
    }
}

pub(crate) fn trainer(epochs: u64) -> Command {
    let mut command = outside_jobs(env!("CARGO_BIN_EXE_trainer"));
    command
        .arg(format!("--epochs={epochs}"))
        .arg(format!("--samples={SAMPLES}"));
    command
}

/// The accuracy that all workers have reached with equal copies.
#[track_caller]
pub(crate) fn result(ended: &Ended) -> f64 {
    let said = ended.lines.iter().filter_map(|line| {
        let (_, said) = line.split_once("trained ")?;
        Some(said.to_owned())
    });
    let said: BTreeSet<String> = said.collect();
    assert_eq!(said.len(), 1, "{said:?}");
    let words = said.first().unwrap().split(", ").nth(1).unwrap().to_owned();
    words.trim_start_matches("accuracy ").parse().unwrap()
}

/// The accuracy of one worker that nobody kills.
pub(crate) fn undisturbed(epochs: u64) -> f64 {
    result(&Worker::start(trainer(epochs)).end())
}

#[track_caller]
#[expect(
    clippy::print_stderr,
    reason = "how long interruptions were is for people"
)]
fn survives(transport: &str, kills: usize, epochs: u64, more: &[&str]) {
    let mut job = Job::start(epochs, transport, more);
    job.suffer(kills);
    let (accuracy, story) = job.end(epochs);
    let expected = undisturbed(epochs);
    // Sums of other numbers of workers differ in their last bits, and so do the models.
    assert!(
        (accuracy - expected).abs() <= 0.01,
        "{accuracy} and not {expected}"
    );
    let most = story.interruptions.iter().max().unwrap();
    eprintln!(
        "{kills} kills: interrupted {:?} ms, accuracy {accuracy}, undisturbed {expected}",
        story.interruptions
    );
    assert!(*most < LIMIT.as_millis(), "{story:?}");
}

#[test]
fn workers_are_killed_and_come_back_and_the_training_ends_as_without_faults() {
    let kills = env::var("MESHWORK_SOAK").map_or(4, |kills| kills.parse().unwrap());
    survives("auto", kills, 50 * kills as u64, &[]);
}

#[test]
fn the_same_over_quic_and_with_two_replicas_in_each_worker() {
    survives("quic", 2, 100, &["--replicas=2"]);
}

#[test]
fn a_newcomer_with_another_model_is_refused_by_name_and_the_others_train_on() {
    let mut job = Job::start(60, "auto", &["--odd-once"]);
    job.read_until(Job::is_whole);
    job.kill(1);
    while !job.read().contains("weight of shape [17, 10]") {}
    // Its next life is like the others.
    job.read_until(Job::is_whole);
    job.end(60);
}

#[test]
fn a_worker_that_fails_by_itself_costs_its_step_only() {
    let mut job = Job::start(60, "auto", &["--fails-before=50"]);
    while !job
        .read()
        .contains("ended the group: its data cannot be read")
    {}
    job.read_until(Job::is_whole);
    job.end(60);
}

#[test]
fn a_worker_that_is_lost_before_all_have_met_comes_in_later() {
    for (place, transport) in [("0", "auto"), ("2", "quic")] {
        let mut job = Job::start(40, transport, &["--fails-first", place]);
        job.read_until(Job::is_whole);
        job.end(40);
    }
}

#[test]
fn a_run_with_too_few_workers_left_ends_and_names_those_that_are_lost() {
    let mut command = trainer(100_000);
    command.args(["--elastic=3:3", "--restarts=2", "--fail-again"]);
    let mut job = Job::of(command);
    job.read_until(Job::is_whole);
    job.kill(1);
    let ended = job.launcher.end();
    let verdict = ended
        .lines
        .iter()
        .find(|line| line.contains("at least"))
        .unwrap();
    assert_eq!(
        verdict,
        "2 of at least 3 workers are left: lost rank 1 (exit status 3, after 2 restarts)"
    );
    assert_eq!(ended.status.code(), Some(3));
}
