//! A training as one worker runs it: epochs of steps and of validation, as burn's learner has them,
//! with the other workers in each step.

mod batches;
mod gradients;
mod step;

use std::sync::Arc;

use burn_core::data::dataloader::{DataLoader, Progress};
use burn_core::tensor::Device;
use burn_train::metric::store::EventStoreClient;
use burn_train::{
    CloneEarlyStoppingStrategy, EventProcessorTraining, InferenceStep, Interrupter, Learner,
    LearnerEvent, LearnerModel, LearningCheckpointer, SupervisedTrainingEventProcessor,
    TrainLoader, TrainStep, TrainingComponents, TrainingItem, ValidLoader,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use super::fields::GatherOutput;
use crate::{Error, MirroredParams};
use batches::Batches;
use gradients::Gradients;
use step::{Flow, Step};

/// A training that is under way.
pub(super) struct Run<M: LearnerModel> {
    learner: Learner<M>,
    loaders: Loaders<M>,
    components: Components<M>,
    processor: SupervisedTrainingEventProcessor<M>,
    /// Where metrics are computed.
    metrics_device: Device,
}

/// This worker's part of the data, and how much there is for all.
struct Loaders<M: LearnerModel> {
    train: TrainLoader<M>,
    valid: ValidLoader<M>,
    train_items: usize,
    valid_items: usize,
}

/// The rest of burn's components, without the processor of events.
struct Components<M: LearnerModel> {
    epochs: usize,
    accumulation: Option<usize>,
    interrupter: Interrupter,
    checkpointer: Option<LearningCheckpointer<M>>,
    early_stopping: Option<Box<dyn CloneEarlyStoppingStrategy>>,
    store: Arc<EventStoreClient>,
}

impl<M> Run<M>
where
    M: LearnerModel,
    <M as TrainStep>::Output: GatherOutput,
    <M as InferenceStep>::Output: GatherOutput,
{
    pub(super) fn new(
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        components: TrainingComponents<M>,
    ) -> Self {
        let (train_items, valid_items) = (train.num_items(), valid.num_items());
        Self {
            learner,
            loaders: Loaders {
                train,
                valid,
                train_items,
                valid_items,
            },
            components: Components {
                epochs: components.num_epochs,
                accumulation: components.grad_accumulation,
                interrupter: components.interrupter,
                checkpointer: components.checkpointer,
                early_stopping: components.early_stopping,
                store: components.event_store,
            },
            processor: components.event_processor,
            metrics_device: Device::default(),
        }
    }

    pub(super) fn into_parts(self) -> (M, SupervisedTrainingEventProcessor<M>) {
        (self.learner.model(), self.processor)
    }

    pub(super) fn train(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        device: Option<&Device>,
        first_epoch: usize,
    ) -> Result<(), Error> {
        self.compare(strategy, first_epoch)?;
        let device = self.device(device);
        self.learner.fork(&device);
        self.metrics_device = device.clone().inner();
        self.split_data(strategy, &device);
        let (mut mirrored, model) = MirroredParams::new(strategy, self.learner.model())?;
        self.learner.load_model(model.into_record());
        let is_chief = strategy.is_chief();
        for epoch in first_epoch..=self.components.epochs {
            let flow = self.train_epoch(strategy, &mut mirrored, epoch)?;
            if flow == Flow::Stop {
                break;
            }
            let model = mirrored.broadcast_buffers(strategy, self.learner.model())?;
            self.learner.load_model(model.into_record());
            let mut flow = self.validate(strategy, epoch)?;
            if is_chief && flow == Flow::On {
                flow = self.end_epoch(epoch);
            }
            if agree(strategy, flow)? == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    /// Compares what each worker is to do.
    fn compare(
        &self,
        strategy: &mut MultiWorkerMirroredStrategy,
        first_epoch: usize,
    ) -> Result<(), Error> {
        let mine = [
            self.loaders.train_items,
            self.loaders.valid_items,
            self.components.epochs,
            first_epoch,
            self.components.accumulation.unwrap_or(0),
        ];
        let mine = mine.map(|number| number as u64);
        let compared = strategy.run(|replica| {
            let all = replica.all_gather_bytes(mine.map(u64::to_le_bytes).as_flattened())?;
            for (rank, theirs) in (0..).map(Rank::new).zip(&all) {
                let number = |place: usize, of: &[u8]| {
                    let bytes = of.as_chunks().0.get(place).copied();
                    bytes
                        .map(u64::from_le_bytes)
                        .ok_or(Error::OutputForm { rank })
                };
                for (place, what) in COMPARED.into_iter().enumerate() {
                    let (found, chiefs) = (number(place, theirs)?, number(place, &all[0])?);
                    if found != chiefs {
                        return Err(Error::LearnerDiffers {
                            rank,
                            what,
                            found,
                            chiefs,
                        });
                    }
                }
            }
            Ok(())
        });
        compared.map(drop)
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

    fn split_data(&mut self, strategy: &MultiWorkerMirroredStrategy, device: &Device) {
        let (worker, workers) = (strategy.rank().index(), strategy.num_replicas_in_sync());
        let Loaders {
            train,
            valid,
            train_items,
            valid_items,
        } = &mut self.loaders;
        *train = part(train, *train_items, worker, workers).to_device(device);
        *valid = part(valid, *valid_items, worker, workers).to_device(&device.clone().inner());
    }

    /// An epoch of training.
    fn train_epoch(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        mirrored: &mut MirroredParams,
        epoch: usize,
    ) -> Result<Flow, Error> {
        let mut count = Count::new(self.loaders.train_items);
        self.tell_train(strategy, count.start(epoch));
        let loader = self.loaders.train.clone();
        let mut batches = Batches::new(loader.iter());
        let mut gradients = Gradients::new(self.components.accumulation);
        loop {
            let (learner, device) = (&mut self.learner, &self.metrics_device);
            let interrupter = &self.components.interrupter;
            let step = strategy.run(|replica| {
                let (batch, item) = batches.next(interrupter)?;
                let mut output = None;
                if let Some(item) = item {
                    let trained = learner.train_step(item);
                    gradients.add(&learner.model(), trained.grads, batch.samples);
                    output = Some(trained.item);
                }
                let step = Step::exchange(replica, batch, output, device)?;
                if gradients.are_due(&step) {
                    let model = learner.model();
                    let sum = gradients.reduce(replica, mirrored, &model)?;
                    learner.lr_step();
                    learner.optimizer_step(sum);
                }
                Ok::<_, Error>(step)
            })?;
            let mut step = step.into_first();
            count.add(&step);
            if let Some(output) = step.output.take() {
                let rate = Some(self.learner.lr_current());
                let item = TrainingItem::new(output, count.progress(), Some(count.steps), rate);
                self.tell_train(strategy, LearnerEvent::ProcessedItem(item));
            }
            if let Some(flow) = step.ends() {
                self.tell_train(strategy, LearnerEvent::EndSplit(epoch));
                return Ok(self.stopped(flow));
            }
        }
    }

    /// Validation by all workers.
    fn validate(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        epoch: usize,
    ) -> Result<Flow, Error> {
        let mut count = Count::new(self.loaders.valid_items);
        self.tell_valid(strategy, count.start(epoch));
        let loader = self.loaders.valid.clone();
        let mut batches = Batches::new(loader.iter());
        let model = self.learner.model().valid();
        loop {
            let (interrupter, device) = (&self.components.interrupter, &self.metrics_device);
            let step = strategy.run(|replica| {
                let (batch, item) = batches.next(interrupter)?;
                let output = item.map(|item| InferenceStep::step(&model, item));
                Step::exchange(replica, batch, output, device)
            })?;
            let mut step = step.into_first();
            count.add(&step);
            if let Some(output) = step.output.take() {
                let item = TrainingItem::new(output, count.progress(), Some(count.steps), None);
                self.tell_valid(strategy, LearnerEvent::ProcessedItem(item));
            }
            if let Some(flow) = step.ends() {
                self.tell_valid(strategy, LearnerEvent::EndSplit(epoch));
                self.tell_train(strategy, LearnerEvent::EndEpoch(epoch));
                return Ok(self.stopped(flow));
            }
        }
    }

    /// What the chief does behind an epoch: it saves, and asks whether this was enough.
    fn end_epoch(&mut self, epoch: usize) -> Flow {
        let Components {
            interrupter,
            checkpointer,
            early_stopping,
            store,
            ..
        } = &mut self.components;
        if checkpointer.is_some() || early_stopping.is_some() {
            interrupter.fail_on_error(self.processor.flush());
        }
        if interrupter.should_stop() {
            return Flow::Stop;
        }
        if let Some(checkpointer) = checkpointer {
            checkpointer.checkpoint(&self.learner, epoch, store);
        }
        if let Some(early_stopping) = early_stopping
            && early_stopping.should_stop(epoch, store)
        {
            return Flow::Stop;
        }
        Flow::On
    }

    /// What happens is told on the chief alone. What metrics and loggers cannot do stops the
    /// training.
    fn tell_train(&mut self, strategy: &MultiWorkerMirroredStrategy, event: TrainEvent<M>) {
        if strategy.is_chief() {
            let told = self.processor.process_train(event);
            self.components.interrupter.fail_on_error(told);
        }
    }

    fn tell_valid(&mut self, strategy: &MultiWorkerMirroredStrategy, event: ValidEvent<M>) {
        if strategy.is_chief() {
            let told = self.processor.process_valid(event);
            self.components.interrupter.fail_on_error(told);
        }
    }

    /// A stop that another worker was asked for is one of this worker's, too.
    fn stopped(&self, flow: Flow) -> Flow {
        let interrupter = &self.components.interrupter;
        if flow == Flow::Stop && !interrupter.should_stop() {
            interrupter.stop(Some("another worker has stopped the training"));
        }
        flow
    }
}

type TrainEvent<M> = LearnerEvent<<M as TrainStep>::Output>;
type ValidEvent<M> = LearnerEvent<<M as InferenceStep>::Output>;

/// Whether training goes on behind an epoch, as the chief says.
fn agree(strategy: &mut MultiWorkerMirroredStrategy, flow: Flow) -> Result<Flow, Error> {
    let own = [u8::from(flow == Flow::Stop)];
    let all = strategy.run(|replica| Ok::<_, Error>(replica.all_gather_bytes(&own)?))?;
    match all.into_first().concat().contains(&1) {
        true => Ok(Flow::Stop),
        false => Ok(Flow::On),
    }
}

/// A worker's part of the data: as many items as any other's, or one more.
fn part<O>(
    loader: &Arc<dyn DataLoader<O>>,
    items: usize,
    worker: usize,
    workers: usize,
) -> Arc<dyn DataLoader<O>> {
    let start = |worker: usize| items / workers * worker + worker.min(items % workers);
    loader.slice(start(worker), start(worker + 1))
}

/// How far all workers are in an epoch.
struct Count {
    total: usize,
    samples: u64,
    steps: usize,
}

impl Count {
    fn new(total: usize) -> Self {
        Self {
            total,
            samples: 0,
            steps: 0,
        }
    }

    fn start<T>(&self, epoch_number: usize) -> LearnerEvent<T> {
        let total_items = self.total;
        LearnerEvent::StartSplit {
            epoch_number,
            total_items,
        }
    }

    fn add<O>(&mut self, step: &Step<O>) {
        self.samples += step.samples;
        self.steps += 1;
    }

    fn progress(&self) -> Progress {
        let samples = usize::try_from(self.samples).expect("data loaders count in usize");
        Progress::new(samples, self.total, Some("items".to_owned()))
    }
}

/// What workers compare before they train together.
const COMPARED: [&str; 5] = [
    "samples to train with",
    "samples to validate with",
    "epochs",
    "as its first epoch",
    "batches to accumulate",
];
