//! `Distributed`: burn's learner on many workers, by one argument.

mod checkpoints;
mod fields;
mod outputs;
mod run;
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, thread};

use burn_core::tensor::Device;
use burn_train::{
    EventProcessorTraining, InferenceStep, Learner, LearnerModel, LearningResult,
    SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainStep,
    TrainingComponents, TrainingError, TrainingStrategy, ValidLoader, train::WorkerFailure,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use crate::Error;
pub use fields::{Field, Fields, GatherOutput};
use run::{Data, Run};

/// Trains by burn's learner on all workers of a job: each on its part of the data, with the
/// gradient of the mean over all of them, so that the models stay equal.
///
/// Data loaders are split by worker, gradients are summed in buckets, and the outputs of all
/// workers go into the metrics of the chief, who alone draws, logs and writes checkpoints. Learning
/// rate schedulers, gradient accumulation, early stopping and interrupts work as on one process; a
/// stop on any worker stops all of them behind the same step. A batch has as many samples on each
/// worker as the data loader says, so all together have that many times the workers. Of batches
/// whose gradients are accumulated each sample counts the same, where burn counts a shorter batch
/// as much as a full one.
///
/// The samples of a batch are those that the loader has read for it, as its progress says. With a
/// `BatchStrategy` that holds more back than one batch, as to sort by length, each sample is used
/// once, but batches of one step count by what was read, not by what they have. Sequences have one
/// length on all workers: see [`GatherOutput`].
///
/// Every worker runs the same program, up to this one argument:
///
/// ```no_run
/// # use burn_core::tensor::Device;
/// # use burn_train::{Learner, LearnerModel, SupervisedTraining, TrainStep, InferenceStep};
/// # use burn_train::{TrainLoader, ValidLoader};
/// # use meshwork_burn::{Distributed, Error, GatherOutput};
/// # fn train<M: LearnerModel>(
/// #     train: TrainLoader<M>, valid: ValidLoader<M>, learner: Learner<M>,
/// # ) -> Result<(), Error>
/// # where <M as TrainStep>::Output: GatherOutput, <M as InferenceStep>::Output: GatherOutput {
/// let training = SupervisedTraining::new("/tmp/mnist", train, valid)
///     .with_training_strategy(Distributed::from_env()?.into())
///     .num_epochs(10);
/// let result = training.launch(learner);
/// # Ok(()) }
/// ```
///
/// In an [elastic](Self::elastic_from_env) job the others go on when a worker is lost: they make
/// the step in flight again, and use what is left of its part of the epoch once they are done with
/// their own. Newcomers get the state of the others, and a lost worker's part or one of the next
/// epoch. For that all read a part in one order, as they do where data loaders have one thread.
///
/// In other jobs the loss of a worker ends the training on all. Where all are started again, they
/// go on from their [`last_checkpoint`](Self::last_checkpoint), which every worker reads, so its
/// folder has to be one that all of them see. Where they are as many as before, each epoch has its
/// samples in the order that it would have had.
///
/// The seed of the data loaders is the same on all workers, as they take their parts out of one
/// order. That of a device is not: workers of one seed would drop the same neurons.
/// [`worker`](Self::worker) tells them apart; the values that a model begins with are the chief's
/// anyway.
///
/// A loss that is a NaN or an infinity on one of several workers would make all parameters so on
/// all of them, and the checkpoints behind: the training ends before that step on all workers, with
/// an error that says whose it is. A worker alone trains as burn does.
///
/// Clones are the same worker. When the last of them is dropped behind a training that has ended on
/// all workers, this one leaves its job, which waits for the others. In a panic, before a training,
/// and where it has failed on this worker, the others hear that it is lost.
/// [`leave`](Self::leave) leaves and tells whether training went well.
#[derive(Clone)]
#[doc(alias("ExecutionStrategy", "DistributedDataParallel", "ddp"))]
pub struct Distributed {
    shared: Arc<Shared>,
    device: Option<Device>,
    agreement: String,
    nonfinite: Nonfinite,
}

/// What follows where the mean of an output, such as a loss, is a NaN or an infinity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Nonfinite {
    Error,
    Step,
}

struct Shared {
    /// `None` once this worker has left.
    strategy: Mutex<Option<MultiWorkerMirroredStrategy>>,
    /// What has ended the training, until somebody asks.
    failed: Mutex<Option<Error>>,
    /// Whether the last training has ended on all workers.
    has_ended: AtomicBool,
}

impl Distributed {
    /// The worker that the environment says this process is: see
    /// [`MultiWorkerMirroredStrategy::from_env`].
    ///
    /// # Errors
    /// Those of [`MultiWorkerMirroredStrategy::from_env`].
    pub fn from_env() -> Result<Self, Error> {
        Ok(Self::new(MultiWorkerMirroredStrategy::from_env()?))
    }

    /// The same for a job that goes on without workers that are lost, and takes new ones in: see
    /// [`MultiWorkerMirroredStrategy::elastic_from_env`].
    ///
    /// # Errors
    /// Those of [`MultiWorkerMirroredStrategy::elastic_from_env`].
    pub fn elastic_from_env() -> Result<Self, Error> {
        Ok(Self::new(MultiWorkerMirroredStrategy::elastic_from_env()?))
    }

    /// A worker of this strategy, which has one replica.
    #[must_use]
    pub fn new(strategy: MultiWorkerMirroredStrategy) -> Self {
        let shared = Shared {
            strategy: Mutex::new(Some(strategy)),
            failed: Mutex::new(None),
            has_ended: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            device: None,
            agreement: String::new(),
            nonfinite: Nonfinite::Error,
        }
    }

    /// Trains on this device instead of the one that the model is on.
    #[must_use]
    pub fn with_device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// What else has to be the same on all workers, in place of what was given before: a text, such
    /// as one with a checksum of the data, of which otherwise only the lengths are compared.
    ///
    /// The workers compare it when they meet, by [`MultiWorkerMirroredStrategy::agree`]. One with
    /// another text than the chief ends the training on all, with both texts in the error; of an
    /// [elastic](Self::elastic_from_env) job it ends alone.
    ///
    /// ```
    /// use meshwork_burn::{Distributed, Error};
    ///
    /// let data = "60000 images with checksum 1f4f8e62";
    /// let distributed = Distributed::from_env()?.with_agreement(data);
    /// # distributed.leave()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn with_agreement(mut self, text: impl Into<String>) -> Self {
        self.agreement = text.into();
        self
    }

    /// Makes steps with losses, and other means in outputs, that are a NaN or an infinity too, as
    /// burn does, in the same way on every worker.
    #[must_use]
    #[doc(alias("error_if_nonfinite", "detect_anomaly", "terminate_on_nan"))]
    pub fn without_error_if_nonfinite(mut self) -> Self {
        self.nonfinite = Nonfinite::Step;
        self
    }

    /// Whether this worker is the one that draws, logs and writes; nobody is once it has left.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        let strategy = self.shared.strategy();
        strategy
            .as_ref()
            .is_some_and(|strategy| strategy.is_chief())
    }

    /// This worker's number, from 0: the chief's; 0 once this one has left. In an elastic job it
    /// may be another after a training in which workers have changed.
    ///
    /// Not to be asked while a learner trains, as in a batcher or a metric: it waits for the end.
    ///
    /// ```
    /// use burn_core::tensor::Device;
    /// use meshwork_burn::{Distributed, Error};
    ///
    /// let distributed = Distributed::from_env()?;
    /// // So that each worker drops neurons of its own.
    /// Device::flex().seed(42 + distributed.worker() as u64);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "rank")]
    pub fn worker(&self) -> usize {
        let strategy = self.shared.strategy();
        strategy
            .as_ref()
            .map_or(0, |strategy| strategy.rank().index())
    }

    /// Leaves the job: returns when all workers have finished.
    ///
    /// # Errors
    /// What has ended the training on this worker, else [`Error::Strategy`] when a worker was lost.
    #[track_caller]
    pub fn leave(self) -> Result<(), Error> {
        let strategy = self.shared.strategy().take();
        let failed = lock(&self.shared.failed).take();
        match (failed, strategy) {
            (None, Some(strategy)) => Ok(strategy.leave()?),
            (None, None) => Ok(()),
            (Some(error), Some(strategy)) if error.is_of_all() => {
                leave_at_last(strategy);
                Err(error)
            }
            (Some(error), _) => Err(error),
        }
    }
}

impl Shared {
    fn strategy(&self) -> MutexGuard<'_, Option<MultiWorkerMirroredStrategy>> {
        lock(&self.strategy)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let strategy = self.strategy().take();
        // Whatever else drops a worker, such as an error of its program before a training, is none
        // of the others', who would wait for it or take this for a call that differs.
        let ends_together = *self.has_ended.get_mut() && !thread::panicking();
        if let Some(strategy) = strategy.filter(|_| ends_together) {
            leave_at_last(strategy);
        }
    }
}

/// Leaves with all others. An error that comes now is the loss of a worker that nobody needs any
/// more.
fn leave_at_last(strategy: MultiWorkerMirroredStrategy) {
    if let Err(error) = strategy.leave() {
        tracing::warn!(%error, "a worker was lost behind the last step");
    }
}

impl<M> SupervisedLearningStrategy<M> for Distributed
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    fn train(
        &self,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        components: TrainingComponents<M>,
    ) -> LearningResult<M> {
        if self.is_chief() {
            return Chief(self).train(learner, train, valid, components);
        }
        let interrupter = components.interrupter.clone();
        let first = components.checkpoint.unwrap_or(0) + 1;
        let (model, processor) = self.fit(components, learner, train, valid, first);
        LearningResult {
            model: model.valid(),
            renderer: processor.renderer(),
            interrupted: interrupter.interruption(),
            error: interrupter.error(),
        }
    }

    fn fit(
        &self,
        components: TrainingComponents<M>,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        first_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let interrupter = components.interrupter.clone();
        let mut strategy = self.shared.strategy();
        let data = Data::default();
        let mut run = Run::new(learner, (train, valid), components, first_epoch, &data);
        run.nonfinite = self.nonfinite;
        let has_ended = &self.shared.has_ended;
        has_ended.store(false, Ordering::Relaxed);
        let ended = match strategy.as_mut() {
            Some(strategy) => run.train(strategy, self.device.as_ref(), &self.agreement),
            None => Err(Error::Left),
        };
        let ends_together = ended.as_ref().err().is_none_or(Error::is_of_all);
        has_ended.store(ends_together, Ordering::Relaxed);
        if let Err(error) = ended {
            let own = strategy
                .as_ref()
                .map_or(Rank::CHIEF, |strategy| strategy.rank());
            interrupter.fail(training_error(&error, own));
            *lock(&self.shared.failed) = Some(error);
        }
        run.into_parts()
    }
}

/// The chief trains as burn does, with events before and after.
struct Chief<'a>(&'a Distributed);

impl<M> SupervisedLearningStrategy<M> for Chief<'_>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    fn fit(
        &self,
        components: TrainingComponents<M>,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        first_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        self.0.fit(components, learner, train, valid, first_epoch)
    }
}

impl<M> From<Distributed> for TrainingStrategy<M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    fn from(distributed: Distributed) -> Self {
        Self::Custom(Arc::new(distributed))
    }
}

impl fmt::Debug for Distributed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distributed")
            .field("device", &self.device)
            .field("agreement", &self.agreement)
            .finish_non_exhaustive()
    }
}

/// The error as burn's learner tells it: of the worker at fault, which may be this one.
fn training_error(error: &Error, own: Rank) -> TrainingError {
    let at_fault = match error {
        Error::Strategy(error) => error.rank_at_fault(),
        Error::NotFinite { ranks } => ranks.first().copied(),
        Error::OutputForm { rank }
        | Error::OutputFields { rank, .. }
        | Error::OutputsDiffer { rank, .. } => Some(*rank),
        _ => Some(own),
    };
    let failure = WorkerFailure {
        device_id: at_fault.unwrap_or(own).index(),
        message: with_causes(error),
    };
    TrainingError::Workers(vec![failure])
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a thread that panicked has left is whole: it is replaced at once.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
