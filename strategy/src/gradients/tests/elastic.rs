//! Gradients of low rank in trainings whose workers change: of what is left out nothing is lost or
//! counts twice, but for what a lost worker had; and all go on from snapshots with equal bits.

use meshwork_collectives::{Group, JobSecret, Rank};
use meshwork_testing::{free_addresses, in_threads};

use super::*;
use crate::{
    Change, CommunicationOptions, Cursor, JoinMode, Progress, Snapshot, TfConfigResolver, Training,
};

const ROWS: usize = 12;
const COLUMNS: usize = 20;
const RANK: NonZeroUsize = NonZeroUsize::new(2).unwrap();
/// The step in whose middle a worker is lost.
const LOST_IN: u64 = 5;
/// Steps that all make together once another has come in its place.
const MORE: u64 = 4;

/// A step as one worker has made it.
#[derive(Clone, Debug)]
struct Made {
    step: u64,
    right: Vec<f32>,
    before: Vec<f32>,
    gradient: Vec<f32>,
    told: Vec<f32>,
    after: Vec<f32>,
}

/// Adds up gradients, and takes note of what is left out of them.
struct Sums {
    worker: u64,
    gradients: GradientBuckets,
    sums: Vec<f32>,
    steps: u64,
    last: Option<u64>,
    /// When all are there again, it ends so many steps later.
    begins_to_end: bool,
    is_lost: bool,
    made: Vec<Made>,
    /// What the chief begins with.
    found: Option<Snapshot>,
    saved: Option<Vec<u8>>,
}

fn matrix(name: &str, shape: &[usize]) -> VariableSpec {
    VariableSpec::new(name, shape).unwrap()
}

fn sums() -> VariableSpec {
    matrix("sums", &[ROWS * COLUMNS])
}

impl Sums {
    fn new(strategy: &mut MultiWorkerMirroredStrategy, worker: u64) -> Self {
        let specs = [matrix("w", &[ROWS, COLUMNS]), matrix("bias", &[COLUMNS])];
        let gradients = GradientBuckets::new(strategy, &specs, 0).unwrap();
        Self {
            worker,
            gradients: gradients.with_power_sgd(RANK),
            sums: vec![0.0; ROWS * COLUMNS],
            steps: 0,
            last: None,
            begins_to_end: false,
            is_lost: false,
            made: Vec::new(),
            found: None,
            saved: None,
        }
    }

    /// What is left out, and the right factors.
    fn kept(&self, strategy: &MultiWorkerMirroredStrategy) -> [Vec<f32>; 2] {
        let kept = self
            .gradients
            .save(strategy, Snapshot::new(0, Cursor::start()));
        let kept = kept.unwrap();
        let array = |name: &str, rows| {
            let spec = matrix(&format!("power_sgd.{name}.w"), &[rows, COLUMNS]);
            kept.array(&spec).unwrap().to_vec()
        };
        [array("residual", ROWS), array("right", RANK.get())]
    }

    /// Takes part in the first of two operations, and ends.
    fn ends(strategy: &mut MultiWorkerMirroredStrategy) -> Error {
        let mut first = vec![0.5_f32; RANK.get() * ROWS + COLUMNS];
        let reduced = strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut first));
        reduced.map_or_else(|error| error, |_| Error::CheckpointForm)
    }

    fn saves(&mut self, strategy: &MultiWorkerMirroredStrategy) {
        let snapshot = self.snapshot().unwrap();
        let snapshot = self.gradients.save(strategy, snapshot).unwrap();
        self.saved = Some(snapshot.to_bytes().unwrap());
    }
}

impl Training for Sums {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        self.begins_to_end = change.epoch() > 1 && strategy.num_replicas_in_sync() == 3;
        if self.begins_to_end {
            self.last = Some(self.steps + MORE);
        }
        self.gradients.regroup(strategy, 0)
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.last == Some(self.steps) {
            return Ok(Progress::Done);
        }
        if self.is_lost && self.steps == LOST_IN {
            return Err(Self::ends(strategy));
        }
        let [before, right] = self.kept(strategy);
        let phase = (self.steps * 5 + self.worker) as f32;
        for index in 0..2 {
            for (at, one) in (0_u16..).zip(self.gradients.gradient_mut(index)?) {
                *one = (f32::from(at) * 0.7 + phase).sin();
            }
        }
        let gradient = self.gradients.gradient(0).to_vec();
        strategy.run(|replica| self.gradients.finish(replica))?;
        let told = self.gradients.gradient(0).to_vec();
        self.sums
            .iter_mut()
            .zip(&told)
            .for_each(|(sum, one)| *sum += one);
        let [after, _] = self.kept(strategy);
        self.made.push(Made {
            step: self.steps,
            right,
            before,
            gradient,
            told,
            after,
        });
        self.steps += 1;
        if self.steps == LOST_IN {
            self.saves(strategy);
        }
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let snapshot =
            Snapshot::new(self.steps, Cursor::start()).with_array(&sums(), &self.sums)?;
        self.gradients.save_shared(snapshot)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.sums.copy_from_slice(snapshot.array(&sums())?);
        self.steps = snapshot.step();
        if self.begins_to_end {
            self.last = Some(self.steps + MORE);
        }
        self.gradients.restore_shared(snapshot)
    }

    fn begin(&mut self) -> Result<(), Error> {
        match self.found.take() {
            Some(found) => self.restore(&found),
            None => Ok(()),
        }
    }
}

/// Trains as one of three, of which the last is lost once, and comes again as another process.
fn one_of_three(worker: u64, join: impl Fn(JoinMode) -> MultiWorkerMirroredStrategy) -> Vec<Made> {
    let mut strategy = join(JoinMode::Founding);
    let mut training = Sums::new(&mut strategy, worker);
    training.is_lost = worker == 2;
    let trained = strategy.train(&mut training);
    assert_eq!(trained.is_err(), training.is_lost);
    if !training.is_lost {
        strategy.leave().unwrap();
        return training.made;
    }
    drop(strategy);
    let mut strategy = join(JoinMode::Late);
    let mut again = Sums::new(&mut strategy, worker);
    strategy.train(&mut again).unwrap();
    strategy.leave().unwrap();
    [training.made, again.made].concat()
}

fn total(matrices: impl Iterator<Item = Vec<f32>>) -> Vec<f64> {
    let mut total = vec![0.0; ROWS * COLUMNS];
    for matrix in matrices {
        let each = total.iter_mut().zip(matrix);
        each.for_each(|(sum, one)| *sum += f64::from(one));
    }
    total
}

/// All that went into a step is in what it told, or left out by those who made it.
#[track_caller]
fn lose_nothing(these: &[&Made]) {
    let given = total(
        these
            .iter()
            .flat_map(|one| [one.before.clone(), one.gradient.clone()]),
    );
    let told = total(std::iter::once(these[0].told.clone()));
    let left_out = total(these.iter().map(|one| one.after.clone()));
    for (at, given) in given.iter().enumerate() {
        let off = (given - told[at] - left_out[at]).abs();
        assert!(off < 1e-4, "{off} at {at} of step {}", these[0].step);
    }
}

#[test]
fn who_stays_keeps_what_it_has_left_out_and_who_comes_begins_with_nothing() {
    let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let made = in_threads(0..3_u64, |worker| {
        one_of_three(worker, |entry| {
            let resolver = TfConfigResolver::from_json(format!(
                r#"{{"cluster":{{"worker":{addresses:?}}},"task":{{"type":"worker","index":{worker}}}}}"#
            ));
            let (options, secret) = (CommunicationOptions::new(), secret.clone());
            MultiWorkerMirroredStrategy::elastic(&resolver, secret, options, entry).unwrap()
        })
    });
    let last = made[0].last().unwrap().step;
    for step in 0..=last {
        let of_step = |made: &'_ Vec<Made>| made.iter().find(|one| one.step == step).cloned();
        let these: Vec<Made> = made.iter().filter_map(of_step).collect();
        let these: Vec<&Made> = these.iter().collect();
        let is_whole = step < LOST_IN || step + MORE > last;
        assert!(
            these.len() == 3 || !is_whole,
            "{} in step {step}",
            these.len()
        );
        for one in &these {
            assert_eq!((&one.right, &one.told), (&these[0].right, &these[0].told));
        }
        lose_nothing(&these);
    }
    for survivor in &made[..2] {
        for pair in survivor.windows(2) {
            assert_eq!(
                (pair[0].step + 1, &pair[0].after),
                (pair[1].step, &pair[1].before)
            );
        }
    }
    let came = made[2].iter().position(|one| one.step >= LOST_IN);
    let (before, since) = made[2].split_at(came.unwrap());
    let newcomer = &since[0];
    assert_eq!(newcomer.step, last + 1 - MORE);
    assert_eq!(newcomer.before, vec![0.0; ROWS * COLUMNS]);
    let left_out = &before.last().unwrap().after;
    assert!(left_out.iter().any(|one| *one != 0.0));
}

/// What three workers come to in ten steps, if each begins with what it has saved before.
fn trained(
    saved: impl Fn(Rank) -> Option<Snapshot> + Sync,
    keeps: fn(&mut Sums, &MultiWorkerMirroredStrategy, &Snapshot),
) -> Vec<(Vec<u32>, Option<Vec<u8>>)> {
    in_threads(Group::local(3).unwrap(), |group| {
        let strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
        let mut strategy = strategy.made_elastic();
        let rank = strategy.rank();
        let mut training = Sums::new(&mut strategy, rank.number().into());
        training.last = Some(2 * LOST_IN);
        if let Some(own) = saved(rank) {
            keeps(&mut training, &strategy, &own);
            training.found = Some(own);
        }
        strategy.train(&mut training).unwrap();
        strategy.leave().unwrap();
        let bits = training.sums.iter().map(|one| one.to_bits());
        (bits.collect(), training.saved)
    })
}

#[test]
fn a_training_of_which_each_worker_has_saved_its_own_goes_on_with_equal_bits() {
    let once = trained(|_| None, |_, _, _| {});
    let saved = |rank: Rank| {
        let (_, saved) = &once[rank.index()];
        saved
            .as_ref()
            .map(|bytes| Snapshot::from_bytes(bytes).unwrap())
    };
    let again = trained(saved, |training, strategy, own| {
        training.gradients.restore(strategy, own).unwrap();
    });
    // The chief's alone has no part of the others'.
    let without = trained(saved, |_, _, _| {});
    for ((once, again), without) in once.iter().zip(&again).zip(&without) {
        assert_eq!(once.0, again.0);
        assert_ne!(once.0, without.0);
    }
}
