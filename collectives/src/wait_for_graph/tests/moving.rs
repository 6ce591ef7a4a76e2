//! Ranks that get on while probes travel.

use proptest::prelude::*;

use super::model::{LOOK, Model};
use super::oracle::deadlocks;
use super::*;

/// Numbers that follow from a seed.
struct Lot(u64);

impl Lot {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as u32 % limit
    }

    fn millis(&mut self, limit: u32) -> Duration {
        Duration::from_millis(self.below(limit).into())
    }
}

/// Two ranks meet in the next operation of their group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Meeting {
    ranks: [u32; 2],
    sequence: u64,
}

/// Where a rank is in its program.
#[derive(Clone, Debug)]
struct Worker {
    program: Vec<Meeting>,
    done: usize,
    /// It computes until then, or the operation that both have called is over then.
    busy: Duration,
    called: bool,
}

struct Job {
    workers: BTreeMap<u32, Worker>,
    lot: Lot,
}

impl Meeting {
    fn group(self) -> u64 {
        (self.ranks[0] * 10 + self.ranks[1]).into()
    }
}

impl Job {
    /// Every rank makes its calls in one order of all.
    fn new(seed: u64, world: u32) -> Self {
        let mut lot = Lot(seed);
        let mut all: Vec<Meeting> = Vec::new();
        for _ in 0..12 {
            let one = lot.below(world);
            let other = (one + 1 + lot.below(world - 1)) % world;
            let ranks = [one.min(other), one.max(other)];
            let before = all.iter().filter(|meeting| meeting.ranks == ranks).count();
            let sequence = before as u64 + 1;
            all.push(Meeting { ranks, sequence });
        }
        let mut workers = BTreeMap::new();
        for rank in 0..world {
            let mut program = all.clone();
            program.retain(|meeting| meeting.ranks.contains(&rank));
            let busy = lot.millis(300);
            let worker = Worker {
                program,
                done: 0,
                busy,
                called: false,
            };
            workers.insert(rank, worker);
        }
        Self { workers, lot }
    }

    /// As above, but each rank may make two calls in the other order.
    fn shuffled(seed: u64, world: u32) -> Self {
        let mut job = Self::new(seed, world);
        for worker in job.workers.values_mut() {
            let at = job.lot.below(8) as usize;
            if let Some([one, other]) = worker.program.get_mut(at..at + 2)
                && one.ranks != other.ranks
            {
                std::mem::swap(one, other);
            }
        }
        job
    }

    /// Whom a rank meets next.
    fn meets(&self, rank: u32) -> Option<Meeting> {
        let worker = &self.workers[&rank];
        worker.program.get(worker.done).copied()
    }

    /// All that can happen by now does.
    fn advance(&mut self, now: Duration) {
        for rank in self.workers.keys().copied().collect::<Vec<_>>() {
            if let Some(meeting) = self.meets(rank)
                && self.workers[&rank].busy <= now
            {
                match (self.workers[&rank].called, self.is_under_way(meeting)) {
                    (false, _) => self.call(rank, meeting, now),
                    (true, true) => self.end(meeting, now),
                    (true, false) => {}
                }
            }
        }
    }

    /// A rank makes its call; once both have, the operation takes some time.
    fn call(&mut self, rank: u32, meeting: Meeting, now: Duration) {
        self.workers.get_mut(&rank).unwrap().called = true;
        if self.is_under_way(meeting) {
            let end = now + LOOK + self.lot.millis(200);
            for rank in meeting.ranks {
                self.workers.get_mut(&rank).unwrap().busy = end;
            }
        }
    }

    /// An operation is over, and its ranks compute.
    fn end(&mut self, meeting: Meeting, now: Duration) {
        for rank in meeting.ranks {
            let busy = now + self.lot.millis(300);
            let worker = self.workers.get_mut(&rank).unwrap();
            (worker.done, worker.called, worker.busy) = (worker.done + 1, false, busy);
        }
    }

    /// Whether both ranks have made their calls.
    fn is_under_way(&self, meeting: Meeting) -> bool {
        let mut ranks = meeting.ranks.iter();
        ranks.all(|rank| self.workers[rank].called && self.meets(*rank) == Some(meeting))
    }

    /// Who waits now.
    fn waits(&self) -> Vec<WaitEdge> {
        let called = self.workers.iter().filter(|(_, worker)| worker.called);
        called.filter_map(|(rank, _)| self.wait_of(*rank)).collect()
    }

    fn wait_of(&self, rank: u32) -> Option<WaitEdge> {
        let meeting = self.meets(rank)?;
        let worker = &self.workers[&rank];
        let mut held = BTreeMap::new();
        for meeting in &worker.program {
            held.entry(meeting.group()).or_insert(0);
        }
        for meeting in &worker.program[..worker.done] {
            held.insert(meeting.group(), meeting.sequence);
        }
        let own = held.remove(&meeting.group());
        assert_eq!(own, Some(meeting.sequence - 1));
        let held: Vec<_> = held.into_iter().collect();
        let other = meeting.ranks.iter().find(|other| **other != rank)?;
        let operation = (meeting.group(), meeting.sequence);
        let wait = wait(rank, *other, operation, &held);
        Some(WaitEdge {
            serial: worker.done as u64,
            ..wait
        })
    }

    fn is_done(&self) -> bool {
        let mut workers = self.workers.values();
        workers.all(|worker| worker.done == worker.program.len())
    }
}

/// Runs a job to its end, while so many percent of the probes are lost. Returns whether a deadlock
/// was found, which is one, and asserts that it is found if there is one.
fn deadlocks_in(mut job: Job, losses: u32) -> bool {
    let mut model = Model::new(Duration::ZERO);
    while !job.is_done() {
        assert!(model.now() < Duration::from_secs(60), "nothing is found");
        job.advance(model.now());
        let delay = job.lot.millis(60);
        let arrives = job.lot.below(100) >= losses;
        model.set_delay(arrives.then_some(delay));
        let waits = job.waits();
        if let Some((now, deadlock)) = model.step(&waits).pop() {
            let expected = deadlocks(&waits);
            assert!(
                expected.contains(&deadlock),
                "{deadlock:?} at {now:?}: {waits:?}"
            );
            return true;
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(meshwork_testing::cases(60)))]

    #[test]
    fn ranks_that_get_on_are_never_said_to_be_in_a_deadlock(seed: u64, world in 2_u32..6) {
        prop_assert!(!deadlocks_in(Job::new(seed, world), 10));
    }

    #[test]
    fn a_job_ends_or_its_deadlock_is_found(seed: u64, world in 2_u32..6) {
        deadlocks_in(Job::shuffled(seed, world), 10);
    }
}

#[test]
fn jobs_in_which_ranks_change_the_order_of_their_calls_often_end_in_a_deadlock() {
    let deadlocked = (0..100)
        .filter(|seed| deadlocks_in(Job::shuffled(*seed, 4), 0))
        .count();
    assert!((20..100).contains(&deadlocked), "{deadlocked} of 100");
}
