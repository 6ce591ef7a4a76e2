//! burn's learner with workers that are threads of one process, against one process that has the
//! batches of all: parts of the data that are uneven, accumulation, stops of every kind, metrics,
//! and workers that disagree.

use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::{fs, process};

use burn_core::data::dataloader::batcher::Batcher;
use burn_core::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn_core::data::dataset::{Dataset, DatasetError};
use burn_core::module::{Module, Param, RunningState};
use burn_core::tensor::{Device, Tensor, TensorData};
use burn_core::{self as burn};
use burn_optim::SgdConfig;
use burn_optim::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn_train::logger::InMemoryMetricLogger;
use burn_train::metric::LossMetric;
use burn_train::metric::store::{Aggregate, EventStoreClient, Split};
use burn_train::{
    EarlyStoppingStrategy, InferenceStep, Interrupter, Learner, RegressionOutput,
    SupervisedTraining, TrainOutput, TrainStep,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use super::Distributed;
use crate::Error;
use crate::testing::each;
use seen::Seen;

mod ahead;
mod held_back;
mod not_finite;
mod restarts;
mod seen;
mod survivors;

/// A line, and what it has seen, as a layer that normalises batches remembers it.
#[derive(Module, Debug)]
struct Line {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    seen: RunningState<Tensor<1>>,
}

#[derive(Clone, Debug)]
struct Points {
    inputs: Tensor<2>,
    targets: Tensor<2>,
}

#[derive(Clone)]
struct PointBatcher;

impl Batcher<usize, Points> for PointBatcher {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Points {
        let count = items.len();
        let values = |of: fn(f32) -> [f32; 2]| {
            let values = items.iter().flat_map(|item| of(*item as f32)).collect();
            Tensor::from_data(TensorData::new(values, [count, 2]), device)
        };
        Points {
            inputs: values(|item| match item == NO_NUMBER as f32 {
                true => [f32::NAN; 2],
                false => [(item * 0.7).sin(), (item * 0.3).cos()],
            }),
            targets: values(targets_of),
        }
    }
}

/// An item whose inputs are NaN.
const NO_NUMBER: usize = 199;

fn targets_of(item: f32) -> [f32; 2] {
    [(item * 0.7).sin() * 2.0 - 1.0, (item * 0.3).cos()]
}

impl Line {
    fn new(own: f32) -> Self {
        let device = Device::flex().autodiff();
        Self {
            weight: Param::from_data([[0.1 + own, 0.2], [-0.3, 0.4]], &device),
            bias: Param::from_data([own, 0.5], &device),
            seen: RunningState::new(Tensor::from_data([own], &device)),
        }
    }

    fn forward(&self, points: Points) -> RegressionOutput {
        let seen = self.seen.value().mean();
        let outputs = points.inputs.matmul(self.weight.val()) + self.bias.val().unsqueeze();
        let loss = (outputs.clone() - points.targets.clone()).square().mean() + seen;
        RegressionOutput::new(loss, outputs, points.targets)
    }

    fn values(&self) -> Vec<u32> {
        let mut values = self.weight.val().into_data().try_into_vec::<f32>().unwrap();
        values.extend(self.bias.val().into_data().try_into_vec::<f32>().unwrap());
        values.into_iter().map(f32::to_bits).collect()
    }
}

impl TrainStep for Line {
    type Input = Points;
    type Output = RegressionOutput;

    fn step(&self, points: Points) -> TrainOutput<RegressionOutput> {
        let output = self.forward(points);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Line {
    type Input = Points;
    type Output = RegressionOutput;

    fn step(&self, points: Points) -> RegressionOutput {
        self.forward(points)
    }
}

/// Items in some order; one of them may not be read, and one may be the end of the process.
#[derive(Clone, Debug)]
struct Items {
    order: Vec<usize>,
    damaged: Option<usize>,
    /// How often that one is read before it is damaged.
    sound: Arc<AtomicUsize>,
    fatal: Option<usize>,
    /// A file that is there once any was read.
    note: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[error("item {0} is damaged")]
struct Damaged(usize);

impl Dataset<usize> for Items {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        let item = self.order[index];
        if let Some(note) = &self.note {
            fs::write(note, b"").unwrap();
        }
        if self.fatal == Some(item) {
            process::abort();
        }
        match self.damaged == Some(item) && self.is_damaged_now() {
            true => Err(DatasetError::new(Damaged(item))),
            false => Ok(item),
        }
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

impl Items {
    fn is_damaged_now(&self) -> bool {
        let left = |sound: usize| sound.checked_sub(1);
        let sound = (self.sound).fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        sound.is_err()
    }
}

/// A training, the same on all workers but for what a test changes.
#[derive(Clone)]
struct Job {
    train: Items,
    valid: Items,
    batch: usize,
    shuffle: Option<u64>,
    /// Whether a loader hands the largest items out first.
    is_sorted: bool,
    epochs: usize,
    accumulation: Option<usize>,
    /// Numbers that the model makes of a sample.
    outputs: usize,
    enough: Option<usize>,
    agreement: String,
    /// Where checkpoints are written, and the epoch that one is gone on behind.
    kept: Option<PathBuf>,
    behind: Option<usize>,
    /// Ends the training behind an epoch once it is there.
    until: Option<PathBuf>,
    interrupter: Interrupter,
}

/// What a worker is left with.
#[derive(Debug)]
struct Ran {
    values: Vec<u32>,
    /// Losses of each epoch, of training and of validation, where they are known.
    losses: Vec<[f64; 2]>,
    /// Items of each epoch, of training and of validation, in the order of the chief's metrics.
    seen: [Vec<Vec<usize>>; 2],
    /// The learning rate of each batch that the chief's metrics were told of in training.
    rates: Vec<f64>,
    interrupted: Option<String>,
    error: Option<String>,
    left: Result<(), Error>,
}

/// Remembers losses, and says when it is enough.
#[derive(Clone)]
struct Stop {
    behind: Option<usize>,
    until: Option<PathBuf>,
    losses: Arc<Mutex<Vec<[f64; 2]>>>,
}

impl EarlyStoppingStrategy for Stop {
    fn should_stop(&mut self, epoch: usize, store: &EventStoreClient) -> bool {
        let loss = |split| {
            let found = store.find_metric("Loss", epoch, Aggregate::Mean, &split);
            // A worker that became chief behind the epoch's training knows no loss of it.
            found.unwrap_or(f64::NAN)
        };
        let both = [loss(Split::Train), loss(Split::Valid)];
        self.losses.lock().unwrap().push(both);
        self.behind == Some(epoch) || self.until.as_ref().is_some_and(|until| until.exists())
    }
}

impl Job {
    fn new(train: usize, valid: usize) -> Self {
        let items = |order: std::ops::Range<usize>| Items {
            order: order.collect(),
            damaged: None,
            sound: Arc::default(),
            fatal: None,
            note: None,
        };
        Self {
            train: items(0..train),
            valid: items(100..100 + valid),
            batch: 4,
            shuffle: None,
            is_sorted: false,
            epochs: 3,
            accumulation: None,
            outputs: 2,
            enough: None,
            agreement: String::new(),
            kept: None,
            behind: None,
            until: None,
            interrupter: Interrupter::new(),
        }
    }

    /// The same for one process, whose batches are those of `workers`, one behind the other.
    fn for_one(mut self, workers: usize) -> Self {
        for items in [&mut self.train, &mut self.valid] {
            items.order = together(&items.order, workers, self.batch);
        }
        self.batch *= workers;
        self.interrupter = Interrupter::new();
        self
    }

    fn run(self, strategy: MultiWorkerMirroredStrategy) -> Ran {
        let own = strategy.rank().index() as f32;
        self.run_by(Distributed::new(strategy), own)
    }

    /// Trains a model that is like no other worker's where it begins.
    fn run_by(self, distributed: Distributed, own: f32) -> Ran {
        let distributed = distributed.with_agreement(self.agreement.clone());
        let ran = self.launch(own, |training| {
            training.with_training_strategy(distributed.clone().into())
        });
        Ran {
            left: distributed.leave(),
            ..ran
        }
    }

    /// As burn does without this crate.
    fn run_by_burn(self) -> Ran {
        self.launch(0.0, |training| training)
    }

    fn launch(
        self,
        own: f32,
        how: impl FnOnce(SupervisedTraining<Line>) -> SupervisedTraining<Line>,
    ) -> Ran {
        let folder = tempfile::tempdir().unwrap();
        let seen = [Seen::new(), Seen::new()];
        let optimizer = SgdConfig::new().init();
        let rates = ExponentialLrSchedulerConfig::new(0.2, 0.9).init().unwrap();
        let mut line = Line::new(own);
        if self.outputs != 2 {
            let weight = TensorData::new(vec![0.5_f32; 2 * self.outputs], [2, self.outputs]);
            line.weight = Param::from_data(weight, &Device::flex().autodiff());
        }
        let learner = Learner::new(line, optimizer, rates);
        let losses = Arc::default();
        let stop = Stop {
            behind: self.enough,
            until: self.until.clone(),
            losses: Arc::clone(&losses),
        };
        let mut training = SupervisedTraining::new(
            self.kept.as_deref().unwrap_or_else(|| folder.path()),
            self.loader(&self.train),
            self.loader(&self.valid),
        )
        .metrics((LossMetric::new(),))
        .metric_train(seen[0].clone())
        .metric_valid(seen[1].clone())
        .num_epochs(self.epochs)
        .early_stopping(stop)
        .with_interrupter(self.interrupter)
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None);
        if let Some(batches) = self.accumulation {
            training = training.grads_accumulation(batches);
        }
        if self.kept.is_some() {
            training = training.with_default_checkpointers();
        }
        if let Some(epoch) = self.behind {
            training = training.checkpoint(epoch);
        }
        let result = how(training).launch(learner);
        Ran {
            values: result.model.values(),
            losses: losses.lock().unwrap().clone(),
            rates: seen[0].rates(),
            seen: seen.map(|seen| seen.epochs()),
            interrupted: result.interrupted.and_then(|stop| stop.reason),
            error: result.error.map(|error| error.to_string()),
            left: Ok(()),
        }
    }

    fn loader(&self, items: &Items) -> Arc<dyn DataLoader<Points>> {
        if self.is_sorted {
            return held_back::largest_first(items.clone(), self.batch);
        }
        let loader = DataLoaderBuilder::new(PointBatcher).batch_size(self.batch);
        match self.shuffle {
            Some(seed) => loader.shuffle(seed).build(items.clone()),
            None => loader.build(items.clone()),
        }
    }
}

/// Items of contiguous parts of `order`, as the workers take them: a batch each, then the next.
fn together(order: &[usize], workers: usize, batch: usize) -> Vec<usize> {
    let start = |worker: usize| order.len() / workers * worker + worker.min(order.len() % workers);
    let parts = (0..workers).map(|worker| &order[start(worker)..start(worker + 1)]);
    let mut parts: Vec<_> = parts.map(|part| part.chunks(batch)).collect();
    let mut taken = Vec::new();
    while taken.len() < order.len() {
        for part in &mut parts {
            taken.extend(part.next().into_iter().flatten());
        }
    }
    taken
}

/// Runs a job on workers that are threads, each with what `change` makes of it.
fn run(job: &Job, workers: u32, change: impl Fn(Rank, &mut Job) + Sync) -> Vec<Ran> {
    each(workers, |strategy| {
        let mut job = job.clone();
        change(strategy.rank(), &mut job);
        job.run(strategy)
    })
}

fn alone(job: Job) -> Ran {
    job.run(MultiWorkerMirroredStrategy::alone().unwrap())
}

#[track_caller]
fn assert_near(found: &Ran, expected: &Ran) {
    let near = |a: f64, b: f64| (a - b).abs() <= 2e-5 * a.abs().max(1.0);
    for (found, expected) in found.values.iter().zip(&expected.values) {
        let [found, expected] = [found, expected].map(|bits| f32::from_bits(*bits));
        assert!(near(found.into(), expected.into()), "{found} {expected}");
    }
    assert_eq!(found.losses.len(), expected.losses.len());
    for (found, expected) in found.losses.iter().zip(&expected.losses) {
        for (found, expected) in found.iter().zip(expected) {
            assert!(near(*found, *expected), "{found} {expected}");
        }
    }
}

#[test]
fn workers_train_as_one_process_that_has_the_batches_of_all() {
    // Parts of one length, of two, with fewer batches on some workers, and with none.
    for (train, valid) in [(24, 8), (21, 7), (9, 9), (2, 1)] {
        for accumulation in [None, Some(1), Some(2), Some(5)] {
            let mut job = Job::new(train, valid);
            job.accumulation = accumulation;
            for workers in [2, 3] {
                let ran = run(&job, workers, |_, _| {});
                let one = alone(job.clone().for_one(workers as usize));
                assert_near(&ran[0], &one);
                for other in &ran {
                    assert_eq!(other.values, ran[0].values);
                    assert!(other.error.is_none() && other.left.is_ok(), "{other:?}");
                }
                assert!(
                    ran[1].losses.is_empty(),
                    "only the chief asks whether to stop"
                );
            }
        }
    }
}

#[test]
fn one_process_trains_as_in_burns_own_loop() {
    // Six batches of one size.
    for accumulation in [None, Some(2), Some(4)] {
        let mut job = Job::new(24, 8);
        job.accumulation = accumulation;
        assert_near(&alone(job.clone()), &job.run_by_burn());
    }
}

#[test]
fn the_chief_stops_all_workers_when_it_is_enough() {
    let mut job = Job::new(21, 7);
    job.enough = Some(2);
    let ran = run(&job, 3, |_, _| {});
    assert_eq!(ran[0].losses.len(), 2);
    assert_near(&ran[0], &alone(job.for_one(3)));
    assert!(ran.iter().all(|other| other.values == ran[0].values));
}

#[test]
fn an_interrupt_on_one_worker_stops_all_behind_the_same_step() {
    for interrupted in [Rank::CHIEF, Rank::new(2)] {
        let ran = run(&Job::new(21, 7), 3, |rank, job| {
            job.interrupter = Interrupter::new();
            if rank == interrupted {
                job.interrupter.stop(Some("that will do"));
            }
        });
        for (worker, other) in ran.iter().enumerate() {
            let reason = other.interrupted.as_deref().unwrap();
            let own = worker == interrupted.index();
            assert_eq!(reason == "that will do", own, "{reason}");
            assert_eq!(other.values, ran[0].values);
            assert!(other.left.is_ok(), "{other:?}");
        }
    }
}

#[test]
fn a_worker_whose_data_is_damaged_is_named_on_all() {
    let ran = run(&Job::new(21, 7), 3, |rank, job| {
        job.interrupter = Interrupter::new();
        if rank == Rank::new(1) {
            job.train.damaged = Some(10);
        }
    });
    assert!(
        ran[1].error.as_deref().unwrap().contains("loader"),
        "{ran:?}"
    );
    assert!(matches!(ran[1].left, Err(Error::Dataset(_))), "{ran:?}");
    for other in [&ran[0], &ran[2]] {
        let error = other.error.as_deref().unwrap();
        assert!(
            error.contains("device 1") && error.contains("loader"),
            "{error}"
        );
        let Err(Error::Strategy(left)) = &other.left else {
            panic!("{other:?}");
        };
        assert_eq!(left.rank_at_fault(), Some(Rank::new(1)));
    }
}

#[test]
fn workers_that_are_to_train_in_different_ways_are_told_apart() {
    for what in ["train", "validate", "epochs", "accumulate"] {
        let ran = run(&Job::new(21, 7), 3, |rank, job| {
            job.interrupter = Interrupter::new();
            if rank != Rank::new(2) {
                return;
            }
            match what {
                "train" => job.train.order.truncate(20),
                "validate" => job.valid.order.truncate(6),
                "epochs" => job.epochs += 1,
                _ => job.accumulation = Some(3),
            }
        });
        for worker in ran {
            let error = worker.error.unwrap();
            assert!(error.contains(what) && error.contains("rank 2"), "{error}");
        }
    }
}

#[test]
fn workers_of_another_agreement_are_named_with_both_texts() {
    let mut job = Job::new(21, 7);
    job.agreement = "checksum 5a\nof the data".to_owned();
    let ran = run(&job, 3, |rank, job| {
        job.interrupter = Interrupter::new();
        if rank == Rank::new(2) {
            job.agreement = job.agreement.replace("5a", "3c");
        }
    });
    let both = r#"rank 2 has "checksum 3c\nof the data", and the chief "checksum 5a\nof the data""#;
    for worker in ran {
        let error = worker.error.unwrap();
        assert!(error.contains(both), "{error}");
    }
    let alike = run(&job, 2, |_, _| {});
    assert!(alike.iter().all(|worker| worker.left.is_ok()), "{alike:?}");
}

#[test]
fn workers_whose_models_differ_are_told_apart() {
    let ran = run(&Job::new(21, 7), 3, |rank, job| {
        job.interrupter = Interrupter::new();
        job.outputs += usize::from(rank == Rank::new(1));
    });
    for worker in ran {
        let error = worker.error.unwrap();
        assert!(
            error.contains("weight of shape [2, 3] on rank 1"),
            "{error}"
        );
    }
}

#[test]
fn who_has_left_trains_no_more() {
    let distributed = Distributed::new(MultiWorkerMirroredStrategy::alone().unwrap());
    assert!(distributed.is_chief());
    distributed.clone().leave().unwrap();
    assert!(!distributed.is_chief());
    assert_eq!(distributed.worker(), 0);
    distributed.leave().unwrap();
}

#[test]
fn who_panics_is_lost_at_once() {
    let ended = each(2, |strategy| {
        let distributed = Distributed::new(strategy);
        if distributed.is_chief() {
            return distributed.leave().err();
        }
        let panicked = panic::catch_unwind(AssertUnwindSafe(move || {
            let _distributed = distributed;
            panic!("on purpose");
        }));
        panicked.unwrap_err();
        None
    });
    let Some(Error::Strategy(chiefs)) = &ended[0] else {
        panic!("{ended:?}");
    };
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
}

#[test]
fn who_is_dropped_before_its_training_is_lost_at_once() {
    let ended = each(2, |strategy| {
        let distributed = Distributed::new(strategy);
        // The other worker's program has failed, as where its data cannot be read.
        distributed.is_chief().then(|| distributed.leave().err())
    });
    let Some(Some(Error::Strategy(chiefs))) = &ended[0] else {
        panic!("{ended:?}");
    };
    assert_eq!(chiefs.rank_at_fault(), Some(Rank::new(1)), "{chiefs}");
}

#[test]
fn who_is_dropped_behind_its_training_leaves_with_the_others() {
    let ended = each(2, |strategy| {
        let mut job = Job::new(8, 4);
        job.epochs = 1;
        let distributed = Distributed::new(strategy);
        if distributed.is_chief() {
            return job.run_by(distributed, 0.0);
        }
        job.launch(1.0, |training| {
            training.with_training_strategy(distributed.into())
        })
    });
    assert!(ended.iter().all(|worker| worker.left.is_ok()), "{ended:?}");
}

#[test]
fn each_worker_knows_its_number() {
    let numbers = each(3, |strategy| {
        let rank = strategy.rank();
        let distributed = Distributed::new(strategy);
        assert_eq!(distributed.worker(), rank.index());
        assert_eq!(distributed.is_chief(), distributed.worker() == 0);
        let number = distributed.worker();
        distributed.leave().unwrap();
        number
    });
    assert_eq!(numbers, [0, 1, 2]);
}
