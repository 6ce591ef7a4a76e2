//! The training loop: one global batch after the other, of which this worker computes its part.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use candle_nn::VarMap;
use meshwork_candle::MirroredVars;
use meshwork_strategy::{Batch, MultiWorkerMirroredStrategy, ReduceOp};

use crate::args::{Args, LearningRate};
use crate::data::{Dataset, Split};
use crate::error::Error;
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
/// [`Error::Workers`] if a worker is lost or differs.
pub(crate) fn run(
    settings: Settings,
    images: &Images,
    strategy: &mut MultiWorkerMirroredStrategy,
    report: &mut Report,
) -> Result<Outcome, Error> {
    let vars = VarMap::new();
    let model = Model::seeded(&vars, settings.seed)?;
    // One number is summed with the gradients: the loss.
    let mirrored = MirroredVars::with_extra(strategy, &vars, 1)?;
    let steps = settings
        .epoch_steps(images.train_len())
        .saturating_mul(settings.epochs.get());
    let optimizer = Momentum::new(vars.all_vars(), settings.rate, steps)?;
    let start = Instant::now();
    let mut run = Run {
        settings,
        model,
        mirrored,
        optimizer,
        strategy,
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
        let mut losses = Vec::new();
        for batch in (0..epochs.get() as u64).flat_map(|epoch| batches.epoch(epoch)) {
            let (start, before) = (Instant::now(), self.strategy.traffic());
            let number = losses.len() + 1;
            let loss = self.step(data, &batch, number)?;
            losses.push(loss);
            report.step(&Step {
                number,
                loss,
                samples: batch.global_len(),
                elapsed: start.elapsed(),
                allreduce_gbps: self.strategy.traffic().since(before).gigabytes_per_second(),
            })?;
        }
        // Each step has checked what the steps before it made.
        self.mirrored.verify(self.strategy)?;
        Ok(losses)
    }

    /// One global batch: this worker's gradients, their sum over all workers, the same update everywhere.
    fn step(&mut self, data: &Dataset, batch: &Batch, number: usize) -> Result<f32, Error> {
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
            mirrored.extra_mut()[0] = loss.to_scalar::<f32>()? * weight;
            mirrored.all_reduce(replica, &mut gradients, weight)?;
            let loss = mirrored.extra_mut()[0];
            if !loss.is_finite() {
                return Err(Error::LossNotFinite {
                    step: number,
                    loss,
                    rate,
                });
            }
            optimizer.step(&gradients)?;
            Ok(loss)
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

/// Small enough for the activations to stay in the cache.
const TEST_BATCH: usize = 100;
