//! Steps of training and of validation, which all workers make or none. What of a step that has
//! failed is this worker's own is kept for the next attempt: a loader gives a batch once.

use burn_core::tensor::Device;
use burn_train::{InferenceStep, Interrupter, LearnerModel, TrainStep, TrainingItem};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank, ReplicaContext};

use super::super::Nonfinite;
use super::super::fields::GatherOutput;
use super::super::wire::{State, Told};
use super::deal::{Deal, Seen};
use super::feed::Feed;
use super::gradients::Batches;
use super::state::Stage;
use super::step::{Flow, Step};
use super::teller::{Split, progress};
use super::{Attempt, Membership, Run, Trained};
use crate::Error;

/// A step that all workers have made, or none.
struct Made {
    seen: Vec<Seen>,
    flow: Flow,
    /// Whose losses are why none has.
    not_finite: Vec<Rank>,
}

impl<M> Run<'_, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    pub(super) fn train_step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        self.attempt.trained.clear();
        let made = strategy.run(|replica| self.train_in(replica))?.into_first();
        if !made.not_finite.is_empty() {
            self.refuse(made.not_finite);
            return Ok(());
        }
        self.state.deal.count(&made.seen);
        self.deliver();
        self.gradients.forget();
        let flow = self.stopped(made.flow);
        if flow == Flow::Stop || self.state.deal.is_over() {
            if self.is_chief() {
                self.teller.end(self.state.epoch, Split::Train);
            }
            self.state.stage = match flow {
                Flow::On => Stage::Settle,
                Flow::Stop => Stage::Done,
            };
        }
        Ok(())
    }

    /// Ends the training behind the last step that all workers have made. An error of the step
    /// would be one worker's alone, without which the others go on where workers may be lost.
    fn refuse(&mut self, ranks: Vec<Rank>) {
        self.state.refused = ranks;
        self.attempt = Attempt::new();
        self.gradients.forget();
        self.state.stage = Stage::Done;
    }

    /// Batches until the gradients of a step are there, and the step.
    fn train_in(&mut self, replica: &mut ReplicaContext<'_>) -> Result<Made, Error> {
        let mut batches = Batches::default();
        let mut seen = Vec::new();
        let mut number = 0;
        loop {
            let step = self.train_batch(replica, number)?;
            if self.nonfinite == Nonfinite::Error && !step.not_finite.is_empty() {
                return Ok(Made {
                    seen: step.seen,
                    flow: Flow::Stop,
                    not_finite: step.not_finite,
                });
            }
            let is_due = self.gradients.are_due(&mut batches, &step);
            seen.extend(step.seen);
            if step.samples > 0 {
                // Before the sum, which others may have where this worker has not.
                self.attempt.trained.push(Trained {
                    samples: step.samples,
                    output: step.output,
                    rate: self.learner.lr_current(),
                });
            }
            if is_due {
                let model = self.learner.model();
                let mirrored = self.mirrored.as_mut().expect("the workers have met");
                let sum = self.gradients.reduce(replica, mirrored, &model, &batches)?;
                drop(model);
                self.step_rate();
                self.learner.optimizer_step(sum);
            }
            if is_due || step.samples == 0 || step.flow == Flow::Stop {
                return Ok(Made {
                    seen,
                    flow: step.flow,
                    not_finite: Vec::new(),
                });
            }
            number += 1;
        }
    }

    /// The scheduler makes its step, whose rate is told with the last batch.
    pub(super) fn step_rate(&mut self) {
        self.learner.lr_step();
        if let Some(last) = self.attempt.trained.last_mut() {
            last.rate = self.learner.lr_current();
        }
    }

    /// A batch of each worker, the first that is not kept from an attempt before.
    fn train_batch(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        number: usize,
    ) -> Result<Step<<M as TrainStep>::Output>, Error> {
        let mut output = None;
        if number == self.attempt.told.len() {
            let (rank, interrupter) = (self.worker.rank, &self.teller.interrupter);
            let taken = take(&mut self.train, &self.state.deal, rank, interrupter)?;
            let (mut told, item) = taken;
            if let Some(item) = item {
                let trained = self.learner.train_step(item);
                let samples = told.samples;
                self.gradients
                    .add(&self.learner.model(), trained.grads, samples);
                output = Some(trained.item);
            }
            if self.worker.workers > 1 {
                let output = output.take();
                told.fields = output.map_or(Ok(Vec::new()), GatherOutput::into_fields)?;
            }
            // Others wait for what is told in a second attempt.
            if let Some(before) = self.attempt.told.last_mut() {
                before.state = State::More;
            }
            self.attempt.told.push(told);
        }
        let told = &self.attempt.told[number];
        let step = exchange(replica, told, output, &self.metrics_device)?;
        self.state.deal.deal(&step.seen)?;
        Ok(step)
    }

    pub(super) fn validation_step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        if self.attempt.model.is_none() {
            self.attempt.model = Some(self.learner.model().valid());
        }
        let made = strategy.run(|replica| self.validate_in(replica))?;
        let Made { seen, flow, .. } = made.into_first();
        self.state.deal.count(&seen);
        self.deliver();
        let flow = self.stopped(flow);
        if flow == Flow::Stop || self.state.deal.is_over() {
            self.attempt.model = None;
            if self.is_chief() {
                self.teller.end(self.state.epoch, Split::Valid);
            }
            self.state.stage = match flow {
                Flow::On => Stage::End,
                Flow::Stop => Stage::Done,
            };
        }
        Ok(())
    }

    fn validate_in(&mut self, replica: &mut ReplicaContext<'_>) -> Result<Made, Error> {
        let mut output = None;
        if self.attempt.told.is_empty() {
            let (rank, interrupter) = (self.worker.rank, &self.teller.interrupter);
            let taken = take(&mut self.valid, &self.state.deal, rank, interrupter)?;
            let (mut told, item) = taken;
            let model = self.attempt.model.as_ref().expect("it was made before");
            output = item.map(|item| InferenceStep::step(model, item));
            if self.worker.workers > 1 {
                let output = output.take();
                told.fields = output.map_or(Ok(Vec::new()), GatherOutput::into_fields)?;
            }
            self.attempt.told.push(told);
        }
        let step = exchange(replica, &self.attempt.told[0], output, &self.metrics_device)?;
        self.state.deal.deal(&step.seen)?;
        (self.attempt.samples, self.attempt.validated) = (step.samples, step.output);
        if self.worker.membership == Membership::Elastic && self.worker.workers > 1 {
            // The step counts when all have heard of it, the chief among them.
            replica.all_gather_bytes(&[])?;
        }
        Ok(Made {
            seen: step.seen,
            flow: step.flow,
            not_finite: Vec::new(),
        })
    }

    /// The step is made: it counts, and the chief tells of it.
    pub(super) fn deliver(&mut self) {
        let (epoch, is_chief) = (self.state.epoch, self.is_chief());
        for trained in std::mem::take(&mut self.attempt.trained) {
            self.state.samples += trained.samples;
            self.state.batches += 1;
            let Some(output) = trained.output.filter(|_| is_chief) else {
                continue;
            };
            let progress = progress(self.state.samples, self.train.items);
            let number = Some(self.state.batches);
            let item = TrainingItem::new(output, progress, number, Some(trained.rate));
            self.teller.train(epoch, self.train.items, item);
        }
        let samples = std::mem::take(&mut self.attempt.samples);
        self.state.samples += samples;
        self.state.batches += usize::from(samples > 0);
        let output = self.attempt.validated.take();
        if let Some(output) = output.filter(|_| is_chief) {
            let progress = progress(self.state.samples, self.valid.items);
            let item = TrainingItem::new(output, progress, Some(self.state.batches), None);
            self.teller.valid(epoch, self.valid.items, item);
        }
        self.attempt.told.clear();
    }

    /// A stop that another worker was asked for is one of this worker's, too.
    fn stopped(&self, flow: Flow) -> Flow {
        let interrupter = &self.teller.interrupter;
        if flow == Flow::Stop && !interrupter.should_stop() {
            interrupter.stop(Some("another worker has stopped the training"));
        }
        flow
    }
}

/// This worker's next batch, and what it tells of it but for the output.
fn take<I>(
    feed: &mut Feed<'_, I>,
    deal: &Deal,
    rank: Rank,
    interrupter: &Interrupter,
) -> Result<(Told, Option<I>), Error> {
    let place = deal.next(rank);
    let taken = place.map(|place| feed.take(place, deal.used(place.part)));
    let taken = taken.transpose()?;
    let is_last = taken.as_ref().is_none_or(|taken| taken.is_last);
    let told = Told {
        samples: taken.as_ref().map_or(0, |taken| taken.samples),
        state: match (interrupter.should_stop(), is_last) {
            (true, _) => State::Stop,
            (false, true) => State::Last,
            (false, false) => State::More,
        },
        place: taken.as_ref().map(|taken| taken.place),
        fields: Vec::new(),
    };
    Ok((told, taken.and_then(|taken| taken.item)))
}

fn exchange<O: GatherOutput>(
    replica: &mut ReplicaContext<'_>,
    told: &Told,
    output: Option<O>,
    device: &Device,
) -> Result<Step<O>, Error> {
    // What is told in a second attempt may be all that is left of an output.
    if replica.num_replicas_in_sync() == 1 && told.fields.is_empty() {
        return Ok(Step::alone(told, output));
    }
    Step::exchange(replica, told, device)
}
