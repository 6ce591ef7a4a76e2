//! Training loops of workers as threads: the common initial state, a worker alone, and errors that
//! end the job. Losses of whole processes are tested in the integration tests.

use std::sync::Barrier;
use std::time::Duration;

use meshwork_collectives::JobSecret;
use meshwork_testing::{free_addresses, in_threads, tf_config};

use super::*;
use crate::testing::each;
use crate::{Change, Cursor, Progress, ReplicaReduceOp, Snapshot, TfConfigResolver, VariableSpec};

/// Adds up the ranks of all workers, so many times.
struct Count {
    sum: f32,
    steps: u64,
    last: u64,
    told: Vec<&'static str>,
    /// What it does where no step is left.
    at_end: fn(&mut MultiWorkerMirroredStrategy),
}

impl Count {
    fn new(sum: f32, last: u64) -> Self {
        Self {
            sum,
            steps: 0,
            last,
            told: Vec::new(),
            at_end: |_| {},
        }
    }
}

impl Training for Count {
    type Error = Error;

    fn regroup(&mut self, _: &mut MultiWorkerMirroredStrategy, _: &Change) -> Result<(), Error> {
        self.told.push("regroup");
        Ok(())
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.steps == self.last {
            (self.at_end)(strategy);
            return Ok(Progress::Done);
        }
        let mut own = [strategy.rank().number() as f32];
        strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut own))?;
        self.sum += own[0];
        self.steps += 1;
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.told.push("snapshot");
        Snapshot::new(self.steps, Cursor::start())
            .with_array(&VariableSpec::new("sum", &[1])?, &[self.sum])
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.told.push("restore");
        self.sum = snapshot.array(&VariableSpec::new("sum", &[1])?)?[0];
        self.steps = snapshot.step();
        Ok(())
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.told.push("begin");
        self.steps = 2;
        Ok(())
    }
}

#[test]
fn all_begin_with_the_state_that_the_chief_found() {
    let ended = each(3, |mut strategy| {
        let rank = strategy.rank();
        let mut count = Count::new(10.0 * (rank.number() + 1) as f32, 5);
        strategy.train(&mut count).unwrap();
        strategy.leave().unwrap();
        (rank, count)
    });
    for (rank, count) in ended {
        // Three steps, from the two that the chief had found.
        assert_eq!((count.sum, count.steps), (10.0 + 3.0 * 3.0, 5), "{rank}");
        let expected = match rank.number() {
            0 => &["regroup", "begin", "snapshot"][..],
            _ => &["regroup", "restore"],
        };
        assert_eq!(count.told, expected, "{rank}");
    }
}

#[test]
fn a_process_alone_needs_no_snapshot_and_lets_nobody_in() {
    let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap().made_elastic();
    let mut count = Count::new(1.0, 9);
    strategy.train(&mut count).unwrap();
    assert_eq!((count.sum, count.steps), (1.0, 9));
    assert_eq!(count.told, ["regroup", "begin"]);
    strategy.leave().unwrap();
}

#[test]
fn an_error_of_ones_own_ends_a_job_that_is_not_elastic_for_all() {
    let errors = each(2, |mut strategy| {
        // Another shape than the chief's.
        let mut count = Wrong(Count::new(0.0, 5), strategy.rank().index() + 1);
        strategy.train(&mut count).unwrap_err().to_string()
    });
    for error in errors {
        assert!(
            error.contains("sum [2]") && error.contains("[1]"),
            "{error}"
        );
    }
}

/// Those of a job that may go on without some, each with its number.
fn elastic<R: Send>(
    workers: usize,
    timeouts: Timeouts,
    program: impl Fn(usize, MultiWorkerMirroredStrategy) -> R + Sync,
) -> Vec<R> {
    let (addresses, secret) = (free_addresses(workers), JobSecret::generate().unwrap());
    in_threads(0..workers, |worker| {
        let resolver = TfConfigResolver::from_json(tf_config(&addresses, worker));
        let options = CommunicationOptions::new().with_timeouts(timeouts);
        let secret = secret.clone();
        let entry = JoinMode::Founding;
        let made = MultiWorkerMirroredStrategy::elastic(&resolver, secret, options, entry);
        program(worker, made.unwrap())
    })
}

#[test]
fn copies_that_differ_end_a_job_that_is_elastic_on_all_workers() {
    let ended = elastic(3, Timeouts::default(), |worker, mut strategy| {
        let mut copies = Copies {
            count: Count::new(0.0, 5),
            is_other: worker == 2,
        };
        strategy.train(&mut copies)
    });
    let ranks = vec![Rank::new(2)];
    let expected: Result<(), Error> = Err(Error::ReplicasDiverged { ranks });
    assert_eq!(ended, [expected.clone(), expected.clone(), expected]);
}

#[test]
fn whoever_has_made_the_last_step_ends_well_where_the_others_have_gone_already() {
    static ALL_HAVE_MADE_IT: Barrier = Barrier::new(3);
    // It looks for them for half of this.
    let timeouts = Timeouts::default().with_join(Duration::from_secs(10));
    let ended = elastic(3, timeouts, |worker, mut strategy| {
        let mut count = Count::new(0.0, 2);
        count.at_end = match worker {
            2 => |_| {
                ALL_HAVE_MADE_IT.wait();
            },
            // As if the look for newcomers had ended here, and not on the last worker.
            _ => |strategy| {
                ALL_HAVE_MADE_IT.wait();
                strategy.group = Group::local(1).unwrap().remove(0);
            },
        };
        let trained = strategy.train(&mut count);
        strategy.leave().unwrap();
        trained
    });
    assert_eq!(ended, [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn who_says_that_copies_differ_is_not_lost() {
    let ranks = vec![Rank::new(2)];
    let differ = Error::ReplicasDiverged { ranks };
    let cases = [
        (format!("a step: {differ}"), false),
        (Error::NoSamples.to_string(), true),
    ];
    for (reason, goes_on) in cases {
        let [mut one, mut other] = Group::local(2).unwrap().try_into().ok().unwrap();
        one.abort(reason);
        let heard = other.barrier().unwrap_err();
        assert_eq!(others_can_go_on(&heard, other.rank()), goes_on, "{heard}");
    }
}

/// Compares copies after three steps; whoever is not the chief then hears that this ends it before
/// it can say so.
struct Copies {
    count: Count,
    is_other: bool,
}

impl Training for Copies {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        self.count.regroup(strategy, change)
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.steps() == 3 {
            let copy = [if self.is_other { 2.0 } else { 1.0 }];
            let verified = strategy.verify_replicas(&copy);
            if verified.is_err() && !strategy.is_chief() {
                assert!(strategy.group.barrier().is_err());
            }
            verified?;
        }
        self.count.step(strategy)
    }

    fn steps(&self) -> u64 {
        self.count.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.count.snapshot()
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.count.restore(snapshot)
    }
}

/// Wants a state of another shape.
struct Wrong(Count, usize);

impl Training for Wrong {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        self.0.regroup(strategy, change)
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        self.0.step(strategy)
    }

    fn steps(&self) -> u64 {
        self.0.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        self.0.snapshot()
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        snapshot
            .array(&VariableSpec::new("sum", &[self.1])?)
            .map(drop)
    }
}

#[test]
fn restarts_are_a_whole_number() {
    assert_eq!(JoinMode::after("0"), Ok(JoinMode::Founding));
    assert_eq!(JoinMode::after("1"), Ok(JoinMode::Late));
    for wrong in ["", "-1", "often"] {
        let value = wrong.to_owned();
        assert_eq!(
            JoinMode::after(wrong),
            Err(Error::from(ConfigError::Restarts { value }))
        );
    }
}
