//! The training loop: one global batch after the other, of which this worker computes its part.

use std::io;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use candle_nn::VarMap;
use meshwork_candle::{Inputs, MirroredVars};
use meshwork_strategy::{
    Batch, Change, Cursor, DataEpoch, DistributedDataset, MultiWorkerMirroredStrategy, Progress,
    ReplicaReduceOp, Snapshot, Training, VariableSpec,
};

use crate::error::Error;
use crate::images::Images;
use crate::keep::{Keep, SAVE_EVERY};
use crate::model::Model;
use crate::optimizer::Momentum;
use crate::report::{self, Reporter, Step};
use crate::settings::{Normalized, Settings};

/// The outcome of a run, the same on all workers but for the time.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Mean loss of each global batch, before its update.
    pub(crate) losses: Vec<f32>,
    /// Fraction of the test images that are recognised.
    pub(crate) test_accuracy: f64,
    /// From the first step to the test accuracy.
    pub(crate) wall: Duration,
}

/// Trains a network from the chief's initial variables, or from its checkpoint, and measures it.
///
/// # Errors
///
/// [`Error::LossNotFinite`] if the learning rate is too high, [`Error::Write`] if the log cannot be
/// written, [`Error::Workers`] if a worker is lost or differs, [`Error::Preempted`] if it was asked
/// to end, and is saved, [`Error::OtherSettings`] and [`Error::OtherImages`] if the checkpoint is
/// of another run.
pub(crate) fn run(
    settings: Settings,
    images: &Images,
    strategy: &mut MultiWorkerMirroredStrategy,
    keep: Option<&Keep>,
    reporter: &mut Reporter,
) -> Result<Outcome, Error> {
    let mut run = Run::new(settings, images, strategy, keep, reporter)?;
    let start = Instant::now();
    strategy.expect_steps(settings.steps(images.train_len()) as u64);
    strategy.train(&mut run)?;
    match (run.ending, keep) {
        (Ending::Asked, Some(keep)) => Err(keep.preempted()),
        _ => Ok(Outcome {
            losses: run.losses,
            test_accuracy: run.test_accuracy,
            wall: start.elapsed(),
        }),
    }
}

/// Everything that the steps of one run share.
struct Run<'a> {
    settings: Settings,
    images: &'a Images,
    /// The options that all workers have to be given.
    options: String,
    /// What their images have to be.
    data: String,
    model: Model,
    mirrored: MirroredVars,
    optimizer: Momentum,
    batches: Batches,
    keep: Option<&'a Keep>,
    reporter: &'a mut Reporter,
    /// The loss of each step so far.
    losses: Vec<f32>,
    ending: Ending,
    test_accuracy: f64,
}

/// Whether a run ends before its last step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    None,
    /// A worker was asked to end, which is done once all is saved.
    Asked,
}

/// This worker's parts of the global batches.
#[derive(Debug)]
struct Batches {
    epochs: NonZeroUsize,
    data: DistributedDataset,
    /// Behind the last step that was made.
    cursor: Cursor,
    /// The rest of the epoch; `None` until it is resumed from the cursor.
    epoch: Option<DataEpoch>,
}

impl Training for Run<'_> {
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Error> {
        strategy.agree(&format!("{}\n{}", self.options, self.data))?;
        self.mirrored.regroup(strategy)?;
        // A step that failed is made again.
        self.model.norms().roll_back();
        if self.settings.normalized == Normalized::Together {
            self.model.norms().synchronize(strategy)?;
        }
        let cursor = self.batches.cursor;
        self.batches = Batches::new(self.settings, self.images, strategy)?;
        self.batches.cursor = cursor;
        self.reporter.changed(strategy, change);
        Ok(())
    }

    /// A step of training; behind the last one, the measurement.
    ///
    /// A step is not made again once it is counted, even where a worker is lost in the save behind
    /// it. So a run that ends saves when it has no step to make: that is done again.
    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        if self.ending == Ending::None {
            let Some((batch, cursor)) = self.batches.next()? else {
                self.finish(strategy)?;
                return Ok(Progress::Done);
            };
            self.reported_step(strategy, &batch, cursor)?;
        }
        if self.ending == Ending::Asked {
            self.save(strategy)?;
            return Ok(Progress::Done);
        }
        let is_due = self.batches.is_at_an_end() || self.losses.len().is_multiple_of(SAVE_EVERY);
        if is_due && self.losses.len() < self.settings.steps(self.images.train_len()) {
            self.save(strategy)?;
        }
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.losses.len() as u64
    }

    /// What is saved, and whether the run is to end.
    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let snapshot = self.saved()?;
        Ok(match self.ending {
            Ending::Asked => snapshot.with_text(ENDING, "asked"),
            Ending::None => snapshot,
        })
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
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
        let (saved, now) = (snapshot.text(DATA).unwrap_or("unknown images"), &*self.data);
        if saved != now {
            return Err(Error::OtherImages {
                saved: saved.to_owned(),
                now: now.to_owned(),
            });
        }
        self.mirrored.restore(snapshot)?;
        self.model.norms().restore(snapshot)?;
        self.optimizer.restore(snapshot)?;
        self.losses = snapshot.array(&losses_of(snapshot.step())?)?.to_vec();
        self.ending = match snapshot.text(ENDING) {
            Some(_) => Ending::Asked,
            None => Ending::None,
        };
        self.batches.go_to(snapshot.cursor());
        Ok(())
    }

    /// Takes over the latest checkpoint, if there is one.
    fn begin(&mut self) -> Result<(), Error> {
        let Some(keep) = self.keep else {
            return Ok(());
        };
        let restored = keep.checkpoints().load()?;
        for (path, damage) in restored.damaged() {
            let line = format!("{} is passed over: {damage}", path.display());
            report::print_line(io::stderr(), &line);
        }
        match restored.snapshot() {
            Some(snapshot) => {
                self.reporter.goes_on();
                self.restore(snapshot)
            }
            None => Ok(()),
        }
    }
}

impl<'a> Run<'a> {
    fn new(
        settings: Settings,
        images: &'a Images,
        strategy: &mut MultiWorkerMirroredStrategy,
        keep: Option<&'a Keep>,
        reporter: &'a mut Reporter,
    ) -> Result<Self, Error> {
        let vars = VarMap::new();
        let model = Model::seeded(settings.model, images.train.shape(), &vars, settings.seed)?;
        // Two numbers are summed with the gradients: the loss, and how many workers are to end.
        let mirrored = MirroredVars::apart(strategy, &vars, 2)?;
        let steps = settings.steps(images.train_len());
        Ok(Self {
            settings,
            images,
            options: options(settings, strategy, keep),
            data: images.text(),
            model,
            optimizer: Momentum::new(mirrored.named(), settings.rate, steps)?,
            mirrored,
            batches: Batches::new(settings, images, strategy)?,
            keep,
            reporter,
            losses: Vec::new(),
            ending: Ending::None,
            test_accuracy: 0.0,
        })
    }

    /// One step, in which any worker may be asked to end.
    fn reported_step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        batch: &Batch,
        cursor: Cursor,
    ) -> Result<(), Error> {
        let (start, before) = (Instant::now(), strategy.communication_stats());
        let number = self.losses.len() + 1;
        let (loss, is_asked) = self.descend(strategy, batch)?;
        self.model.norms().commit();
        self.losses.push(loss);
        if is_asked {
            // With the step: workers of equal steps make the same calls.
            self.ending = Ending::Asked;
        }
        strategy.report_loss(f64::from(loss));
        self.batches.cursor = cursor;
        if strategy.is_chief() {
            let reduced = strategy.communication_stats().since(before);
            let step = Step {
                number,
                loss,
                samples: batch.global_len(),
                elapsed: start.elapsed(),
                allreduce_gbps: Some(reduced.gigabytes_per_second()),
            };
            self.reporter.step(&step)?;
        }
        Ok(())
    }

    /// Checks what the last step made, saves it and measures it.
    fn finish(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        // Each step has checked what the steps before it made.
        self.mirrored.verify(strategy)?;
        match self.settings.normalized {
            Normalized::ByWorker => self.model.norms().broadcast(strategy)?,
            Normalized::Together => drop(self.model.norms().verify(strategy)?),
        }
        self.save(strategy)?;
        self.test_accuracy = self.accuracy(strategy)?;
        Ok(())
    }

    fn save(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        if let Some(keep) = self.keep {
            strategy.save_checkpoint(keep.checkpoints(), &self.saved()?)?;
        }
        Ok(())
    }

    /// All that decides the steps to come. What is random, order and initial values, follows from
    /// the settings.
    fn saved(&mut self) -> Result<Snapshot, Error> {
        let step = self.steps();
        let snapshot = Snapshot::new(step, self.batches.cursor)
            .with_text(SETTINGS, self.settings.text())
            .with_text(DATA, &*self.data)
            .with_array(&losses_of(step)?, &self.losses)?;
        let snapshot = self.mirrored.save(snapshot)?;
        let snapshot = self.model.norms().save(snapshot)?;
        self.optimizer.save(snapshot)
    }

    /// One global batch: this worker's gradients, their sum over all workers, the same update
    /// everywhere.
    fn descend(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        batch: &Batch,
    ) -> Result<(f32, bool), Error> {
        let asked = self.keep.map_or(0.0, Keep::asked_to_end);
        let (rate, step) = (self.settings.rate.value(), self.losses.len() + 1);
        let data = &self.images.train;
        // One bucket is reduced behind the backward pass anyway.
        let overlaps = strategy.options().bytes_per_bucket() > 0;
        let Self {
            model,
            mirrored,
            optimizer,
            ..
        } = self;
        let made = strategy.run(|replica| {
            // A worker without samples in a short last batch takes part with any, at weight 0.
            let (part, inputs) = match batch.indices() {
                [] => (&[0][..], Inputs::Padding),
                indices => (indices, Inputs::Samples),
            };
            model.norms().set_inputs(inputs);
            // Before the backward pass, as what is normalised together has gradients of all losses.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "losses are of this precision"
            )]
            let weight = batch.weight() as f32;
            let loss = match overlaps {
                true => model
                    .over(&mirrored.hooked()?)?
                    .loss(data.gather(part), weight),
                false => model.loss(data.gather(part), weight),
            }?;
            let own = [loss.to_scalar::<f32>()?, asked];
            mirrored.extra_mut()?.copy_from_slice(&own);
            let gradients = if overlaps {
                mirrored.backward(replica, &loss, 1.0)?
            } else {
                let mut gradients = loss.backward()?;
                mirrored.all_reduce(replica, &mut gradients, 1.0)?;
                gradients
            };
            let (loss, ending) = (mirrored.extra()[0], mirrored.extra()[1]);
            if !loss.is_finite() {
                return Err(Error::LossNotFinite { step, loss, rate });
            }
            optimizer.step(&gradients)?;
            Ok((loss, ending > 0.0))
        });
        Ok(made?.into_first())
    }

    /// Each worker looks at its own part of the images; the correct ones are counted over all.
    fn accuracy(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<f64, Error> {
        let data = &self.images.test;
        let workers = strategy.num_replicas_in_sync();
        let parts = strategy.distribute_dataset(data.len(), data.len().max(workers))?;
        let own: Vec<usize> = parts
            .epoch(0)
            .flat_map(|part| part.indices().to_vec())
            .collect();
        let model = &self.model;
        let counted = strategy.run(|_| {
            own.chunks(TEST_BATCH).try_fold(0.0, |correct, indices| {
                Ok::<_, Error>(correct + model.count_correct(data.gather(indices))?)
            })
        })?;
        let correct: f64 = strategy.reduce(ReplicaReduceOp::Sum, counted)?;
        Ok(correct / data.len() as f64)
    }
}

impl Batches {
    fn new(
        settings: Settings,
        images: &Images,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Self, Error> {
        let data = strategy.distribute_dataset(images.train_len(), settings.global_batch.get())?;
        Ok(Self {
            epochs: settings.epochs,
            data: data.shuffled(settings.seed),
            cursor: Cursor::start(),
            epoch: None,
        })
    }

    fn go_to(&mut self, cursor: Cursor) {
        (self.cursor, self.epoch) = (cursor, None);
    }

    /// The next batch, and where the data stand behind it; `None` behind the last epoch.
    fn next(&mut self) -> Result<Option<(Batch, Cursor)>, Error> {
        let mut epoch = match self.epoch.take() {
            Some(epoch) => epoch,
            None => self.data.resume(self.cursor)?,
        };
        let following = epoch.cursor().epoch() + 1;
        if epoch.len() == 0 && following < self.epochs.get() as u64 {
            epoch = self.data.epoch(following);
        }
        let next = epoch.next().map(|batch| (batch, epoch.cursor()));
        self.epoch = Some(epoch);
        Ok(next)
    }

    /// Whether the epoch has no batch left.
    fn is_at_an_end(&self) -> bool {
        self.epoch.as_ref().is_some_and(|epoch| epoch.len() == 0)
    }
}

/// The options that all workers have to be given: those that decide the result, and those that
/// decide which calls workers make together.
fn options(
    settings: Settings,
    strategy: &MultiWorkerMirroredStrategy,
    keep: Option<&Keep>,
) -> String {
    let buckets = match strategy.options().bytes_per_bucket() {
        0 => String::new(),
        bytes => format!(" --bytes-per-bucket {bytes}"),
    };
    // Each may reach the folder by a path of its own.
    let saves = if keep.is_some() { " --checkpoint" } else { "" };
    format!("{}{buckets}{saves}", settings.text())
}

/// The losses of a run of `steps` steps, in a checkpoint.
fn losses_of(steps: u64) -> Result<VariableSpec, Error> {
    let steps = usize::try_from(steps).unwrap_or(usize::MAX);
    Ok(VariableSpec::new("losses", &[steps])?)
}

/// The key of a run's settings in a checkpoint.
const SETTINGS: &str = "settings";

/// The key of what its images are.
const DATA: &str = "data";

/// The key by which a newcomer learns that a run ends before its last step.
const ENDING: &str = "ending";

/// Small enough for the activations to stay in the cache.
pub(crate) const TEST_BATCH: usize = 100;

#[cfg(test)]
mod tests;
