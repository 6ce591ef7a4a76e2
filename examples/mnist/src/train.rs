//! The training loop: one global batch after the other, of which this worker computes its part.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use candle_nn::VarMap;
use meshwork_candle::MirroredVars;
use meshwork_strategy::{
    Batch, Cursor, MultiWorkerMirroredStrategy, ReduceOp, Snapshot, VariableSpec,
};

use crate::args::{Args, LearningRate};
use crate::data::{Dataset, Split};
use crate::error::Error;
use crate::keep::{Keep, SAVE_EVERY};
use crate::model::{Model, SIDE};
use crate::optimizer::Momentum;
use crate::report::{Report, Step};

/// What decides the result of a run; the number of workers is not among it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Passes over the training images.
    pub(crate) epochs: NonZeroUsize,
    /// Samples in a batch, over all workers.
    pub(crate) global_batch: NonZeroUsize,
    /// Decides initial variables and order.
    pub(crate) seed: u64,
    /// Learning rate at its highest.
    pub(crate) rate: LearningRate,
}

/// The images to learn from and those to be measured on.
#[derive(Debug)]
pub(crate) struct Images {
    train: Dataset,
    test: Dataset,
}

/// What a run came to, the same on all workers but for the time.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Mean loss of each global batch, before its update.
    pub(crate) losses: Vec<f32>,
    /// Fraction of the test images that are recognised.
    pub(crate) test_accuracy: f64,
    /// From the first step to the test accuracy.
    pub(crate) wall: Duration,
}

/// Trains a network from the chief's initial variables and measures it.
///
/// # Errors
///
/// [`Error::LossNotFinite`] if the learning rate is too high, [`Error::Write`] if the log cannot be written,
/// [`Error::Workers`] if a worker is lost or differs, [`Error::Preempted`] if it was asked to end, and is saved,
/// [`Error::OtherSettings`] if the checkpoint is of another run.
pub(crate) fn run(
    settings: Settings,
    images: &Images,
    (strategy, keep): (&mut MultiWorkerMirroredStrategy, Option<&Keep>),
    report: &mut Report,
) -> Result<Outcome, Error> {
    let vars = VarMap::new();
    let model = Model::seeded(&vars, settings.seed)?;
    // Two numbers are summed with the gradients: the loss, and how many workers are to end.
    let mirrored = MirroredVars::with_extra(strategy, &vars, 2)?;
    let steps = settings
        .epoch_steps(images.train_len())
        .saturating_mul(settings.epochs.get());
    let optimizer = Momentum::new(mirrored.named(), settings.rate, steps)?;
    let start = Instant::now();
    let mut run = Run {
        settings,
        model,
        mirrored,
        optimizer,
        strategy,
        keep,
        losses: Vec::new(),
    };
    let losses = run.fit(&images.train, report)?;
    let test_accuracy = run.accuracy(&images.test)?;
    Ok(Outcome {
        losses,
        test_accuracy,
        wall: start.elapsed(),
    })
}

impl Settings {
    /// The part of the command line that decides the result.
    pub(crate) fn new(args: &Args) -> Self {
        let Args {
            epochs,
            global_batch,
            seed,
            lr: rate,
            ..
        } = *args;
        Self {
            epochs,
            global_batch,
            seed,
            rate,
        }
    }

    /// The settings as a checkpoint has them.
    fn text(self) -> String {
        let Self {
            epochs,
            global_batch,
            seed,
            rate,
        } = self;
        format!("--epochs {epochs} --global-batch {global_batch} --seed {seed} --lr {rate}")
    }

    /// Steps of one epoch over `samples` samples, the last with what is left over.
    pub(crate) fn epoch_steps(self, samples: usize) -> usize {
        samples.div_ceil(self.global_batch.get())
    }
}

impl Images {
    /// Reads both parts of MNIST from `folder`.
    ///
    /// # Errors
    ///
    /// As [`Dataset::load`], and [`Error::DataImageSize`] for images of another size than MNIST's.
    pub(crate) fn load(folder: &std::path::Path) -> Result<Self, Error> {
        let train = Dataset::load(folder, Split::Train)?;
        let test = Dataset::load(folder, Split::Test)?;
        train.require_side(SIDE)?;
        test.require_side(SIDE)?;
        Ok(Self { train, test })
    }

    /// Number of training images.
    pub(crate) fn train_len(&self) -> usize {
        self.train.len()
    }
}

/// Everything that the steps of one run share.
struct Run<'a> {
    settings: Settings,
    model: Model,
    mirrored: MirroredVars,
    optimizer: Momentum,
    strategy: &'a mut MultiWorkerMirroredStrategy,
    keep: Option<&'a Keep>,
    /// The loss of each step so far.
    losses: Vec<f32>,
}

impl Run<'_> {
    /// Runs all epochs and returns the loss of each step.
    fn fit(&mut self, data: &Dataset, report: &mut Report) -> Result<Vec<f32>, Error> {
        let Settings {
            epochs,
            global_batch,
            seed,
            ..
        } = self.settings;
        let batches = self
            .strategy
            .distribute_dataset(data.len(), global_batch.get())?
            .shuffled(seed);
        let from = self.restore()?;
        for number in from.epoch()..epochs.get() as u64 {
            let mut epoch = if number == from.epoch() {
                batches.resume(from)?
            } else {
                batches.epoch(number)
            };
            while let Some(batch) = epoch.next() {
                let ending = self.reported_step(data, &batch, report)?;
                let saves =
                    ending || epoch.len() == 0 || self.losses.len().is_multiple_of(SAVE_EVERY);
                if let Some(keep) = self.keep.filter(|_| saves) {
                    self.save(keep, epoch.cursor())?;
                    if ending {
                        return Err(keep.preempted());
                    }
                }
            }
        }
        // Each step has checked what the steps before it made.
        self.mirrored.verify(self.strategy)?;
        Ok(std::mem::take(&mut self.losses))
    }

    /// Takes over the latest checkpoint, if there is one, and returns where in the data it was.
    fn restore(&mut self) -> Result<Cursor, Error> {
        let Some(keep) = self.keep else {
            return Ok(Cursor::start());
        };
        let restored = self.strategy.restore_checkpoint(keep.checkpoints())?;
        let Some(snapshot) = restored.snapshot() else {
            return Ok(Cursor::start());
        };
        let (saved, now) = (
            snapshot.text(SETTINGS).unwrap_or_default(),
            self.settings.text(),
        );
        if saved != now {
            return Err(Error::OtherSettings {
                saved: saved.to_owned(),
                now,
            });
        }
        self.mirrored.restore(snapshot)?;
        self.optimizer.restore(snapshot)?;
        self.losses = snapshot.array(&losses_of(snapshot.step())?)?.to_vec();
        Ok(snapshot.cursor())
    }

    /// All that decides the steps to come. What is random, order and initial values, follows from the settings.
    fn save(&mut self, keep: &Keep, cursor: Cursor) -> Result<(), Error> {
        let step = self.losses.len() as u64;
        let snapshot = Snapshot::new(step, cursor)
            .with_text(SETTINGS, self.settings.text())
            .with_array(&losses_of(step)?, &self.losses)?;
        let snapshot = self.mirrored.save(snapshot)?;
        let snapshot = self.optimizer.save(snapshot)?;
        Ok(self
            .strategy
            .save_checkpoint(keep.checkpoints(), &snapshot)?)
    }

    /// One step, and whether any worker was asked to end.
    fn reported_step(
        &mut self,
        data: &Dataset,
        batch: &Batch,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let (start, before) = (Instant::now(), self.strategy.traffic());
        let number = self.losses.len() + 1;
        let (loss, ending) = self.step(data, batch, number)?;
        self.losses.push(loss);
        report.step(&Step {
            number,
            loss,
            samples: batch.global_len(),
            elapsed: start.elapsed(),
            allreduce_gbps: self.strategy.traffic().since(before).gigabytes_per_second(),
        })?;
        Ok(ending)
    }

    /// One global batch: this worker's gradients, their sum over all workers, the same update everywhere.
    fn step(&mut self, data: &Dataset, batch: &Batch, number: usize) -> Result<(f32, bool), Error> {
        let asked = self.keep.map_or(0.0, Keep::asked_to_end);
        let rate = self.settings.rate.value();
        let Self {
            model,
            mirrored,
            optimizer,
            strategy,
            ..
        } = self;
        let step = strategy.run(|replica| {
            // A worker without samples in a short last batch takes part with any sample, at weight 0.
            let part = if batch.indices().is_empty() {
                &[0]
            } else {
                batch.indices()
            };
            #[expect(
                clippy::cast_possible_truncation,
                reason = "gradients are of this precision too"
            )]
            let weight = batch.weight() as f32;
            let loss = model.loss(data.gather(part))?;
            let mut gradients = loss.backward()?;
            let own = [loss.to_scalar::<f32>()? * weight, asked];
            mirrored.extra_mut()?.copy_from_slice(&own);
            mirrored.all_reduce(replica, &mut gradients, weight)?;
            let (loss, ending) = (mirrored.extra()[0], mirrored.extra()[1]);
            if !loss.is_finite() {
                return Err(Error::LossNotFinite {
                    step: number,
                    loss,
                    rate,
                });
            }
            optimizer.step(&gradients)?;
            Ok((loss, ending > 0.0))
        });
        Ok(step?.into_first())
    }

    /// Each worker looks at its own part of the images; the correct ones are counted over all.
    fn accuracy(&mut self, data: &Dataset) -> Result<f64, Error> {
        let workers = self.strategy.num_replicas_in_sync();
        let parts = self
            .strategy
            .distribute_dataset(data.len(), data.len().max(workers))?;
        let own: Vec<usize> = parts
            .epoch(0)
            .flat_map(|part| part.indices().to_vec())
            .collect();
        let model = &self.model;
        let counted = self.strategy.run(|_| {
            own.chunks(TEST_BATCH).try_fold(0.0, |correct, indices| {
                Ok::<_, Error>(correct + model.count_correct(data.gather(indices))?)
            })
        })?;
        let correct: f64 = self.strategy.reduce(ReduceOp::Sum, counted)?;
        Ok(correct / data.len() as f64)
    }
}

/// The losses of a run of `steps` steps, in a checkpoint.
fn losses_of(steps: u64) -> Result<VariableSpec, Error> {
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    Ok(VariableSpec::new("losses", &[steps])?)
}

/// What a checkpoint calls the settings of its run.
const SETTINGS: &str = "settings";

/// Small enough for the activations to stay in the cache.
const TEST_BATCH: usize = 100;
