//! Sharded trainings of real processes, of which some are killed, and others come later: all go on
//! with parts from memory, with the bits of a checkpoint; of two neighbours, from the last one.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot set the scene has failed; what a worker prints is read"
)]

use std::env;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use meshwork_collectives::{Group, GroupConfig, JobSecret};
use meshwork_strategy::sharded::{
    AdamW, Regrouped, Shard, ShardedCheckpoints, ShardedModel, Sharding, UnitSpec,
};
use meshwork_strategy::{
    Change, Cursor, Error, Fingerprint, MultiWorkerMirroredStrategy, Progress, Snapshot, Training,
    VariableSpec,
};
use meshwork_testing::{free_addresses, in_threads, tf_config};

/// Says to a process that it is a worker, and where checkpoints are.
const FOLDER: &str = "MESHWORK_TEST_SURVIVORS_IN";
/// And what is sharded.
const SHARD: &str = "MESHWORK_TEST_SHARD";
const SAMPLES: usize = 120;
const BATCH: usize = 12;
/// Steps from one checkpoint to the next.
const SAVED: u64 = 4;
/// Steps that are made after workers have changed.
const MORE: u64 = 10;

/// A model of three units, whose gradients say which samples they are of.
struct Fit {
    model: ShardedModel<AdamW>,
    cursor: Cursor,
    /// The last step, once workers have changed.
    last: Option<u64>,
    checkpoints: ShardedCheckpoints,
}

fn units() -> Vec<UnitSpec> {
    let unit = |name: &str, shape: &[usize]| {
        UnitSpec::new(name, [VariableSpec::new(name, shape).unwrap()])
    };
    vec![unit("a", &[5, 3]), unit("b", &[7]), unit("c", &[2, 9])]
}

fn sharding(shard: Shard) -> Sharding {
    let sharding = Sharding::new(shard).with_max_norm(0.9);
    sharding.with_neighbour_copies()
}

fn initial(_: &VariableSpec, elements: Range<usize>, rows: &mut [f32]) {
    elements
        .zip(rows)
        .for_each(|(at, value)| *value = (at as f32).cos());
}

/// Where the data are after so many steps.
fn cursor_after(strategy: &mut MultiWorkerMirroredStrategy, steps: u64) -> Result<Cursor, Error> {
    let in_epoch = (SAMPLES / BATCH) as u64;
    let numbers = strategy.distribute_dataset(SAMPLES, BATCH)?;
    let mut epoch = numbers.epoch(steps / in_epoch);
    for _ in 0..steps % in_epoch {
        epoch.next();
    }
    Ok(epoch.cursor())
}

impl Fit {
    fn new(strategy: &MultiWorkerMirroredStrategy, shard: Shard, folder: &Path) -> Self {
        let optimizer = AdamW::new(0.01);
        Self {
            model: ShardedModel::elastic(strategy, sharding(shard), &units(), optimizer),
            cursor: Cursor::start(),
            last: None,
            checkpoints: ShardedCheckpoints::new(folder),
        }
    }

    /// Workers were lost, or others came.
    fn goes_on(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        regrouped: &Regrouped,
    ) -> Result<(), Error> {
        let steps = self.model.steps();
        self.cursor = cursor_after(strategy, steps)?;
        println!("after {steps} {regrouped:?}");
        self.last = Some(steps + MORE);
        Ok(())
    }

    fn hash(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<u64, Error> {
        let mut hash = Fingerprint::of(&[]);
        let model = &mut self.model;
        strategy.run(|replica| {
            (0..3).try_for_each(|unit| model.forward(replica, unit, |values| hash.add(&values[0])))
        })?;
        Ok(hash.value())
    }
}

impl Training for Fit {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        let regrouped = self.model.regroup(strategy)?;
        if regrouped != Regrouped::Kept {
            let (model, checkpoints) = (&mut self.model, &self.checkpoints);
            let loaded = strategy.run(|replica| model.load(replica, checkpoints))?;
            if loaded.into_first().is_none() {
                strategy.run(|replica| model.initialize(replica, initial))?;
            }
        }
        match change.survivors() {
            0 => {
                self.cursor = cursor_after(strategy, self.model.steps())?;
                Ok(())
            }
            1.. => self.goes_on(strategy, &regrouped),
        }
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.last.is_some_and(|last| self.model.steps() >= last) {
            return Ok(Progress::Done);
        }
        let numbers = strategy.distribute_dataset(SAMPLES, BATCH)?;
        let mut epoch = numbers.resume(self.cursor)?;
        let Some(batch) = epoch.next() else {
            self.cursor = numbers.epoch(self.cursor.epoch() + 1).cursor();
            return Ok(Progress::Step);
        };
        let (model, checkpoints) = (&mut self.model, &self.checkpoints);
        strategy.run(|replica| {
            for unit in 0..3 {
                model.forward(replica, unit, |_| ())?;
            }
            for unit in (0..3).rev() {
                model.backward(replica, unit, |values, gradients| {
                    let elements = gradients[0].iter_mut().zip(values[0].iter());
                    for (at, (gradient, value)) in elements.enumerate() {
                        let of = |sample: &usize| (value * 3.0 + (sample + at) as f32).sin();
                        *gradient = batch.indices().iter().map(of).sum();
                    }
                })?;
            }
            model.step(replica)
        })?;
        self.cursor = epoch.cursor();
        let steps = model.steps();
        if steps % SAVED == 0 && self.last.is_none() {
            strategy.run(|replica| model.save(replica, checkpoints))?;
        }
        println!("step {steps}");
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.model.steps()
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        Ok(Snapshot::new(self.model.steps(), self.cursor))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        // The parameters came in `regroup`.
        assert_eq!(snapshot.step(), self.model.steps());
        self.cursor = snapshot.cursor();
        Ok(())
    }
}

fn shard_of(name: &str) -> Shard {
    match name {
        "Optimizer" => Shard::Optimizer,
        "Gradients" => Shard::Gradients,
        "Parameters" => Shard::Parameters,
        other => panic!("{other} is no shard"),
    }
}

/// How a worker makes its steps.
type Train = fn(&mut MultiWorkerMirroredStrategy, &mut Fit) -> Result<(), Error>;

/// Without `train`: by a loop of its own.
fn by_hand(strategy: &mut MultiWorkerMirroredStrategy, fit: &mut Fit) -> Result<(), Error> {
    match fit.model.regroup(strategy)? {
        Regrouped::New => {
            let model = &mut fit.model;
            strategy.run(|replica| model.initialize(replica, initial))?;
        }
        // It has come later.
        kept @ (Regrouped::Kept | Regrouped::Lost { .. }) => fit.goes_on(strategy, &kept)?,
    }
    loop {
        let admitted = match fit.step(strategy) {
            Ok(Progress::Step) => fit.model.admit(strategy),
            Ok(Progress::Done) => return Ok(()),
            Err(error) => Err(error),
        };
        let regrouped = match admitted {
            Ok(None) => continue,
            Ok(Some(regrouped)) => regrouped,
            Err(error) => fit.model.go_on(strategy, error)?,
        };
        fit.goes_on(strategy, &regrouped)?;
    }
}

fn work(folder: &Path, train: Train) {
    let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env().unwrap();
    let shard = shard_of(&env::var(SHARD).unwrap());
    let mut fit = Fit::new(&strategy, shard, folder);
    train(&mut strategy, &mut fit).unwrap();
    let hash = fit.hash(&mut strategy).unwrap();
    println!("ended {} {hash:016x}", fit.model.steps());
    strategy.leave().unwrap();
}

/// The same by threads: so many steps of some workers, a checkpoint, and more steps of others.
fn expected(shard: Shard, steps: u64, workers: u32, left: u32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let run = |workers: u32, until: u64| {
        let train = |group: Group| {
            let mut strategy = MultiWorkerMirroredStrategy::from_group(group).unwrap();
            // None is saved but by this.
            let mut fit = Fit::new(&strategy, shard, &folder.path().join("none"));
            fit.last = Some(until);
            fit.checkpoints = ShardedCheckpoints::new(folder.path());
            strategy.train(&mut fit).unwrap();
            let (model, checkpoints) = (&mut fit.model, &fit.checkpoints);
            let saved = strategy.run(|replica| {
                model.save(replica, checkpoints)?;
                model.finish_save(replica)
            });
            saved.unwrap();
            let hash = fit.hash(&mut strategy).unwrap();
            strategy.leave().unwrap();
            hash
        };
        let mut hashes = in_threads(Group::local(workers).unwrap(), train);
        hashes.pop().unwrap()
    };
    run(workers, steps);
    format!("{:016x}", run(left, steps + MORE))
}

type Worker = (Child, BufReader<ChildStdout>);

struct Job {
    workers: Vec<Option<Worker>>,
    folder: tempfile::TempDir,
    addresses: Vec<String>,
    secret: JobSecret,
    test: &'static str,
    shard: Shard,
    /// How many begin it, and how many there may be.
    sizes: String,
}

impl Job {
    fn start(test: &'static str, shard: Shard, workers: usize) -> Self {
        let mut job = Self {
            workers: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            addresses: free_addresses(workers),
            secret: JobSecret::generate().unwrap(),
            test,
            shard,
            sizes: format!("{workers}:{}", workers + 1),
        };
        for rank in 0..workers {
            job.start_worker("TF_CONFIG", &tf_config(&job.addresses, rank));
        }
        job
    }

    /// Starts one more, which asks the others to let it in.
    fn grow(&mut self) {
        let seeds = self.addresses.join(",");
        self.start_worker(GroupConfig::SEEDS_ENV, &seeds);
    }

    fn start_worker(&mut self, variable: &str, value: &str) {
        let mut worker = Command::new(env::current_exe().unwrap())
            .args(["--exact", self.test, "--test-threads=1", "--nocapture"])
            .env(FOLDER, self.folder.path())
            .env(SHARD, format!("{:?}", self.shard))
            .env(variable, value)
            .env(GroupConfig::WORKERS_ENV, &self.sizes)
            .env(JobSecret::ENV, self.secret.to_hex().as_str())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(worker.stdout.take().unwrap());
        self.workers.push(Some((worker, lines)));
    }

    /// Reads what a worker prints up to a line that begins so, and returns the rest of it.
    #[track_caller]
    fn reaches(&mut self, rank: usize, begin: &str) -> String {
        let (_, lines) = self.workers[rank].as_mut().unwrap();
        let found = lines.lines().map(|line| line.unwrap());
        let mut found = found.filter_map(|line| Some(line.split_once(begin)?.1.to_owned()));
        found
            .next()
            .unwrap_or_else(|| panic!("worker {rank} ended without {begin}"))
    }

    fn kill(&mut self, ranks: &[usize]) {
        let take = |rank: &usize| self.workers[*rank].take().unwrap().0;
        let mut victims: Vec<Child> = ranks.iter().map(take).collect();
        victims.iter_mut().for_each(|victim| victim.kill().unwrap());
        for mut victim in victims {
            victim.wait().unwrap();
        }
    }

    /// The first number and the rest of what each worker says at such a line: the same.
    #[track_caller]
    fn all_reach(&mut self, begin: &str) -> (u64, String) {
        let ranks = (0..self.workers.len()).filter(|rank| self.workers[*rank].is_some());
        let ranks: Vec<usize> = ranks.collect();
        let mut said: Vec<_> = ranks
            .iter()
            .map(|rank| self.reaches(*rank, begin))
            .collect();
        said.dedup();
        assert_eq!(said.len(), 1, "{said:?}");
        let (number, rest) = said[0].split_once(' ').unwrap();
        (number.parse().unwrap(), rest.to_owned())
    }

    #[track_caller]
    fn ends_as(mut self, expected: &str) {
        let (_, hash) = self.all_reach("ended ");
        assert_eq!(hash, expected);
        for (mut worker, mut lines) in self.workers.drain(..).flatten() {
            // What it prints behind has to go somewhere.
            std::io::copy(&mut lines, &mut std::io::sink()).unwrap();
            assert!(worker.wait().unwrap().success());
        }
    }
}

/// Whether this process is a worker, which has trained then.
fn has_trained(train: Train) -> bool {
    let folder = env::var_os(FOLDER).map(PathBuf::from);
    folder.map(|folder| work(&folder, train)).is_some()
}

#[test]
fn a_training_goes_on_from_copies_whichever_process_is_killed() {
    if has_trained(|strategy, fit| strategy.train(fit)) {
        return;
    }
    let test = "a_training_goes_on_from_copies_whichever_process_is_killed";
    for (victim, shard) in [
        (0, "Parameters"),
        (1, "Gradients"),
        (2, "Optimizer"),
        (2, "Parameters"),
    ] {
        let shard = shard_of(shard);
        let mut job = Job::start(test, shard, 3);
        job.reaches(victim, "step 5");
        job.kill(&[victim]);
        let (steps, regrouped) = job.all_reach("after ");
        assert_eq!(regrouped, "Kept");
        assert!(steps >= 5, "{steps}");
        job.ends_as(&expected(shard, steps, 3, 2));
    }
}

#[test]
fn a_program_with_a_loop_of_its_own_goes_on_too() {
    if has_trained(by_hand) {
        return;
    }
    let test = "a_program_with_a_loop_of_its_own_goes_on_too";
    let mut job = Job::start(test, Shard::Gradients, 3);
    job.reaches(0, "step 5");
    job.kill(&[0]);
    let (steps, regrouped) = job.all_reach("after ");
    assert_eq!(regrouped, "Kept");
    job.ends_as(&expected(Shard::Gradients, steps, 3, 2));
}

#[test]
fn when_two_neighbours_are_killed_the_last_checkpoint_is_what_remains() {
    if has_trained(|strategy, fit| strategy.train(fit)) {
        return;
    }
    let test = "when_two_neighbours_are_killed_the_last_checkpoint_is_what_remains";
    let shard = Shard::Parameters;
    let mut job = Job::start(test, shard, 5);
    job.reaches(1, "step 9");
    job.kill(&[1, 2]);
    let (steps, regrouped) = job.all_reach("after ");
    assert_eq!(regrouped, "Lost { parts: [1] }");
    assert!(steps >= SAVED && steps.is_multiple_of(SAVED), "{steps}");
    assert!(job.folder.path().read_dir().unwrap().next().is_some());
    job.ends_as(&expected(shard, steps, 5, 3));
}

#[test]
fn a_newcomer_gets_its_part_of_a_training_that_goes_on() {
    if has_trained(|strategy, fit| strategy.train(fit)) {
        return;
    }
    let test = "a_newcomer_gets_its_part_of_a_training_that_goes_on";
    for shard in [Shard::Optimizer, Shard::Gradients, Shard::Parameters] {
        let mut job = Job::start(test, shard, 2);
        job.reaches(0, "step 5");
        job.grow();
        let (steps, regrouped) = job.all_reach("after ");
        assert_eq!(regrouped, "Kept");
        assert!(steps >= 5, "{steps}");
        job.ends_as(&expected(shard, steps, 2, 3));
    }
}

#[test]
fn a_program_with_a_loop_of_its_own_takes_a_newcomer_in() {
    if has_trained(by_hand) {
        return;
    }
    let test = "a_program_with_a_loop_of_its_own_takes_a_newcomer_in";
    let shard = Shard::Parameters;
    let mut job = Job::start(test, shard, 2);
    job.reaches(1, "step 5");
    job.grow();
    let (steps, regrouped) = job.all_reach("after ");
    assert_eq!(regrouped, "Kept");
    job.ends_as(&expected(shard, steps, 2, 3));
}
