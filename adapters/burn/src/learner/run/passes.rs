//! What comes between the batches: who has which part of the data, beginnings and ends of epochs.

use burn_train::{EventProcessorTraining, InferenceStep, LearnerModel, TrainStep};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use super::super::fields::GatherOutput;
use super::super::wire::{Place, parse_places};
use super::state::Stage;
use super::step::Flow;
use super::teller::Split;
use super::{Components, Run, Worker};
use crate::Error;

impl<M> Run<'_, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    /// Tells each other who has which part of the data, and which batches are held for the step
    /// that has failed.
    pub(super) fn settle(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let own = self.worker.part.map(|part| Place { part, batch: 0 });
        let held = self.attempt.told.iter().filter(|told| told.samples > 0);
        let told = [own].into_iter().chain(held.map(|told| told.place));
        let told: Vec<u8> = told.flat_map(Place::to_bytes).collect();
        let all = strategy.run(|replica| Ok::<_, Error>(replica.all_gather_bytes(&told)?))?;
        let (mut owners, mut held) = (Vec::new(), Vec::new());
        for (rank, told) in (0..).map(Rank::new).zip(all.into_first()) {
            let (own, of_rank) = parse_places(&told, self.state.deal.parts.len(), rank)?;
            owners.push(own);
            held.extend(of_rank);
        }
        self.state.deal.regroup(owners, &held);
        self.worker.part = self.state.deal.part_of(self.worker.rank);
        if self.state.stage == Stage::Validate {
            // Some may not have had them yet.
            self.broadcast_buffers(strategy)?;
        }
        self.worker.has_changed = false;
        Ok(())
    }

    fn broadcast_buffers(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        let model = self.learner.model();
        let model = self.mirrored().broadcast_buffers(strategy, model)?;
        self.learner.load_model(model.into_record());
        self.attempt.model = None;
        Ok(())
    }

    /// Begins an epoch, if one is left.
    pub(super) fn begin_epoch(&mut self) {
        if self.state.epoch > self.teller.epochs {
            self.state.stage = Stage::Done;
            return;
        }
        let Worker { rank, workers, .. } = self.worker;
        self.train.begin(self.state.epochs_before(), workers, rank);
        self.state.begin(Stage::Train, workers);
        self.worker.part = Some(rank.index());
        if self.is_chief() {
            let (epoch, items) = (self.state.epoch, self.train.items);
            self.teller.begin(epoch, Split::Train, items);
        }
    }

    pub(super) fn begin_validation(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        self.broadcast_buffers(strategy)?;
        let Worker { rank, workers, .. } = self.worker;
        self.valid.begin(self.state.epochs_before(), workers, rank);
        self.state.begin(Stage::Validate, workers);
        self.worker.part = Some(rank.index());
        if self.is_chief() {
            let (epoch, items) = (self.state.epoch, self.valid.items);
            self.teller.begin(epoch, Split::Valid, items);
        }
        Ok(())
    }

    /// The chief saves, and says whether this was enough.
    pub(super) fn end_epoch(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(), Error> {
        if self.is_chief() && self.worker.flow.is_none() {
            self.worker.flow = Some(self.save_and_judge());
        }
        let flow = agree(strategy, self.worker.flow)?;
        self.worker.flow = None;
        self.state.stage = match flow {
            Flow::On => Stage::Begin,
            Flow::Stop => Stage::Done,
        };
        self.state.epoch += 1;
        Ok(())
    }

    fn save_and_judge(&mut self) -> Flow {
        let epoch = self.state.epoch;
        let interrupter = &self.teller.interrupter;
        let Components {
            checkpointer,
            early_stopping,
            store,
            ..
        } = &mut self.components;
        if checkpointer.is_some() || early_stopping.is_some() {
            interrupter.fail_on_error(self.teller.processor.flush());
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
}

/// Whether training goes on behind an epoch, as the chief says.
fn agree(strategy: &mut MultiWorkerMirroredStrategy, chiefs: Option<Flow>) -> Result<Flow, Error> {
    let own = [u8::from(chiefs == Some(Flow::Stop))];
    let all = strategy.run(|replica| Ok::<_, Error>(replica.all_gather_bytes(&own)?))?;
    match all.into_first().concat().contains(&1) {
        true => Ok(Flow::Stop),
        false => Ok(Flow::On),
    }
}
