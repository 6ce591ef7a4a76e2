//! The training loop: one global batch after the other, of which this worker computes its share.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use crate::args::{Args, LearningRate};
use crate::data::{Dataset, Split};
use crate::error::Error;
use crate::model::{Contribution, Model, SIDE};
use crate::optimizer::Momentum;
use crate::replica::Replica;
use crate::report::{Report, Step};
use crate::shard;

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

/// Trains a network from its initial variables and measures it.
///
/// # Errors
///
/// [`Error::LossNotFinite`] if the learning rate is too high, [`Error::Write`] if the log cannot be written.
pub(crate) fn run(
    settings: Settings,
    images: &Images,
    replica: &mut Replica,
    report: &mut Report,
) -> Result<Outcome, Error> {
    let model = Model::seeded(settings.seed)?;
    let mut elements = model.variables().to_vec()?;
    replica.broadcast(&mut elements)?;
    model.variables().set(&elements)?;

    let start = Instant::now();
    let losses = fit(settings, &images.train, &model, replica, report)?;
    replica.require_equal(&model.variables().to_vec()?)?;
    let test_accuracy = accuracy(&model, &images.test, replica)?;
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

/// Runs all epochs and returns the loss of each step.
fn fit(
    settings: Settings,
    data: &Dataset,
    model: &Model,
    replica: &mut Replica,
    report: &mut Report,
) -> Result<Vec<f32>, Error> {
    let steps = settings
        .epoch_steps(data.len())
        .saturating_mul(settings.epochs.get());
    let mut elements = model.variables().to_vec()?;
    let mut optimizer = Momentum::new(elements.len(), settings.rate, steps);
    let mut contribution = Contribution::zeros(model.variables());
    let mut losses = Vec::new();
    for epoch in 0..settings.epochs.get() as u64 {
        let order = shard::epoch_order(data.len(), settings.seed, epoch);
        for batch in order.chunks(settings.global_batch.get()) {
            let start = Instant::now();
            let part = &batch[replica.share(batch.len())];
            let weight = part.len() as f64 / batch.len() as f64;
            model.contribute(data.gather(part), weight, &mut contribution)?;
            let traffic = replica.all_reduce(contribution.as_mut_slice())?;
            let (loss, gradients) = contribution.split();
            let number = losses.len() + 1;
            if !loss.is_finite() {
                return Err(Error::LossNotFinite {
                    step: number,
                    loss,
                    rate: settings.rate.value(),
                });
            }
            optimizer.step(&mut elements, gradients);
            model.variables().set(&elements)?;
            losses.push(loss);
            let (samples, elapsed) = (batch.len(), start.elapsed());
            report.step(&Step {
                number,
                loss,
                samples,
                elapsed,
                traffic,
            })?;
        }
    }
    Ok(losses)
}

/// Each worker looks at its own share of the images; the correct ones are counted over all.
fn accuracy(model: &Model, data: &Dataset, replica: &mut Replica) -> Result<f64, Error> {
    let share: Vec<usize> = replica.share(data.len()).collect();
    let mut correct = 0;
    for indices in share.chunks(TEST_BATCH) {
        correct += model.count_correct(data.gather(indices))?;
    }
    Ok(replica.sum(correct)? as f64 / data.len() as f64)
}

/// Small enough for the activations to stay in the cache.
const TEST_BATCH: usize = 100;
