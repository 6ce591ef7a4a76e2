//! A training as one worker runs it: epochs of steps and of validation, as burn's learner has them,
//! with the other workers in each step. They may change between two steps.

mod compare;
mod deal;
mod feed;
mod gradients;
mod passes;
mod state;
mod step;
mod steps;
mod teller;

use std::sync::Arc;

use burn_core::tensor::Device;
use burn_optim::lr_scheduler::module_lr_scheduler::ModuleLearningRate;
use burn_train::metric::store::EventStoreClient;
use burn_train::{
    CloneEarlyStoppingStrategy, InferenceStep, Learner, LearnerModel, LearningCheckpointer,
    SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents, ValidLoader,
};
use meshwork_strategy::{
    Change, Cursor, MultiWorkerMirroredStrategy, Progress, Rank, Snapshot, Training,
};

use super::Nonfinite;
use super::fields::GatherOutput;
use super::wire::Told;
use crate::{Error, MirroredParams};
use feed::{Feed, Parts};
use gradients::Gradients;
use state::{Stage, State};
use step::Flow;
use teller::{Split, Teller};

/// A training that is under way.
pub(super) struct Run<'a, M: LearnerModel> {
    learner: Learner<M>,
    train: Feed<'a, <M as TrainStep>::Input>,
    valid: Feed<'a, <M as InferenceStep>::Input>,
    components: Components<M>,
    teller: Teller<M>,
    /// Where metrics are computed.
    metrics_device: Device,
    state: State,
    gradients: Gradients<M>,
    attempt: Attempt<M>,
    worker: Worker,
    /// `None` until the workers have met.
    mirrored: Option<MirroredParams>,
    pub(super) nonfinite: Nonfinite,
}

/// Where the parts of the data are kept, for as long as the training is under way.
pub(super) struct Data<M: LearnerModel> {
    train: Parts<<M as TrainStep>::Input>,
    valid: Parts<<M as InferenceStep>::Input>,
}

/// The rest of burn's components.
struct Components<M: LearnerModel> {
    accumulation: Option<usize>,
    checkpointer: Option<LearningCheckpointer<M>>,
    early_stopping: Option<Box<dyn CloneEarlyStoppingStrategy>>,
    store: Arc<EventStoreClient>,
}

/// A step in flight: what this worker has contributed, for a second attempt, and what is told of it
/// when it is made.
struct Attempt<M: LearnerModel> {
    told: Vec<Told>,
    trained: Vec<Trained<<M as TrainStep>::Output>>,
    validated: Option<<M as InferenceStep>::Output>,
    samples: u64,
    /// The model that is validated.
    model: Option<M>,
}

/// A batch of all workers.
struct Trained<O> {
    samples: u64,
    /// On the chief.
    output: Option<O>,
    rate: ModuleLearningRate,
}

/// Whether the others go on without a worker that is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Membership {
    Fixed,
    Elastic,
}

/// This worker among the others.
struct Worker {
    rank: Rank,
    workers: usize,
    membership: Membership,
    /// What else has to be the same on all workers.
    agreement: String,
    /// The part of the data that it has for itself in this pass.
    part: Option<usize>,
    /// Whether the workers have changed since the last step.
    has_changed: bool,
    /// Whether it has been in a step.
    has_begun: bool,
    /// What the chief has come to behind this epoch.
    flow: Option<Flow>,
}

impl<M: LearnerModel> Default for Data<M> {
    fn default() -> Self {
        Self {
            train: Parts::default(),
            valid: Parts::default(),
        }
    }
}

impl<'a, M> Run<'a, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    pub(super) fn new(
        learner: Learner<M>,
        loaders: (TrainLoader<M>, ValidLoader<M>),
        components: TrainingComponents<M>,
        first_epoch: usize,
        data: &'a Data<M>,
    ) -> Self {
        let accumulation = components.grad_accumulation;
        Self {
            learner,
            train: Feed::new(loaders.0, &data.train),
            valid: Feed::new(loaders.1, &data.valid),
            teller: Teller {
                processor: components.event_processor,
                interrupter: components.interrupter,
                label: components.label,
                epochs: components.num_epochs,
                summary: components.summary,
                has_begun: false,
                has_taken_over: false,
                split: None,
            },
            components: Components {
                accumulation,
                checkpointer: components.checkpointer,
                early_stopping: components.early_stopping,
                store: components.event_store,
            },
            metrics_device: Device::default(),
            state: State::new(first_epoch),
            gradients: Gradients::new(accumulation),
            attempt: Attempt::new(),
            worker: Worker::new(),
            mirrored: None,
            nonfinite: Nonfinite::Error,
        }
    }

    pub(super) fn into_parts(self) -> (M, SupervisedTrainingEventProcessor<M>) {
        (self.learner.model(), self.teller.processor)
    }

    pub(super) fn train(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        device: Option<&Device>,
        agreement: &str,
    ) -> Result<(), Error> {
        self.prepare(strategy, device, agreement);
        strategy.train(self)?;
        // Of the state, so that whoever has only taken it over ends so, too.
        if !self.state.refused.is_empty() {
            let ranks = self.state.refused.clone();
            return Err(Error::NotFinite { ranks });
        }
        if strategy.is_chief() {
            self.teller.finish();
        }
        Ok(())
    }

    /// What comes before the first step.
    pub(super) fn prepare(
        &mut self,
        strategy: &MultiWorkerMirroredStrategy,
        device: Option<&Device>,
        agreement: &str,
    ) {
        let device = self.device(device);
        self.learner.fork(&device);
        self.metrics_device = device.clone().inner();
        let membership = match strategy.is_elastic() {
            true => Membership::Elastic,
            false => Membership::Fixed,
        };
        self.worker.membership = membership;
        agreement.clone_into(&mut self.worker.agreement);
        self.train.prepare(&device, membership);
        self.valid.prepare(&self.metrics_device, membership);
        self.gradients.keep(membership);
        // burn has told it of the first chief.
        self.teller.has_begun = strategy.is_chief();
    }

    fn device(&self, asked: Option<&Device>) -> Device {
        let device = match asked {
            Some(device) => device.clone(),
            None => self
                .learner
                .model()
                .devices()
                .first()
                .cloned()
                .unwrap_or_default(),
        };
        match device.is_autodiff() {
            true => device,
            false => device.autodiff(),
        }
    }

    fn is_chief(&self) -> bool {
        self.worker.rank == Rank::CHIEF
    }

    fn mirrored(&mut self) -> &mut MirroredParams {
        self.mirrored.as_mut().expect("the workers have met")
    }
}

impl<M> Training for Run<'_, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    type Error = Error;

    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        _: &Change,
    ) -> Result<(), Error> {
        self.worker.rank = strategy.rank();
        self.worker.workers = strategy.num_replicas_in_sync();
        self.worker.has_changed = true;
        self.compare(strategy)?;
        let (mirrored, model) = MirroredParams::new(strategy, self.learner.model())?;
        self.mirrored = Some(mirrored);
        if !self.worker.has_begun {
            self.learner.load_model(model.into_record());
        }
        Ok(())
    }

    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
        self.worker.has_begun = true;
        if self.worker.has_changed {
            self.settle(strategy)?;
        }
        match self.state.stage {
            Stage::Begin => self.begin_epoch(),
            Stage::Train => self.train_step(strategy)?,
            Stage::Settle => self.begin_validation(strategy)?,
            Stage::Validate => self.validation_step(strategy)?,
            Stage::End => self.end_epoch(strategy)?,
            Stage::Done => return Ok(Progress::Done),
        }
        self.state.steps += 1;
        Ok(Progress::Step)
    }

    fn steps(&self) -> u64 {
        self.state.steps
    }

    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let snapshot = Snapshot::new(self.state.steps, Cursor::start());
        let cuts = [self.train.cuts(), self.valid.cuts()];
        let snapshot = self.state.save(cuts, snapshot)?;
        state::save_learner(&self.learner, &self.components.store, snapshot)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let (state, [train, valid]) = State::restore(snapshot)?;
        let own = &self.state;
        let is_made = state.steps == own.steps + 1 && state.refused.is_empty();
        if self.worker.has_begun && is_made {
            // The others have made the step in flight, in which this worker's batches are.
            if !self.attempt.trained.is_empty() {
                // A scheduler that is restored does not say what its last rate was.
                self.step_rate();
            }
            self.deliver();
        }
        let (epoch, stage) = (self.state.epoch, self.state.stage);
        if (epoch, stage) != (state.epoch, state.stage) {
            self.worker.part = None;
            if self.is_chief() {
                self.teller.end(epoch, Split::Train);
                self.teller.end(epoch, Split::Valid);
            }
        }
        self.attempt = Attempt::new();
        self.gradients.forget();
        self.worker.flow = None;
        self.train.follow(train, self.worker.rank)?;
        self.valid.follow(valid, self.worker.rank)?;
        let mirrored = self.mirrored.as_mut().expect("the workers have met");
        state::restore_learner(&mut self.learner, mirrored, snapshot)?;
        self.state = state;
        Ok(())
    }
}

impl<M: LearnerModel> Attempt<M> {
    fn new() -> Self {
        Self {
            told: Vec::new(),
            trained: Vec::new(),
            validated: None,
            samples: 0,
            model: None,
        }
    }
}

impl Worker {
    fn new() -> Self {
        Self {
            rank: Rank::CHIEF,
            workers: 1,
            membership: Membership::Fixed,
            agreement: String::new(),
            part: None,
            has_changed: false,
            has_begun: false,
            flow: None,
        }
    }
}
