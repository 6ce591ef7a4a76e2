//! What the chief tells burn's processor of events: metrics, loggers and the terminal.

use burn_core::data::dataloader::Progress;
use burn_train::{
    EventProcessorTraining, InferenceStep, Interrupter, LearnerEvent, LearnerModel,
    LearnerSummaryConfig, SupervisedTrainingEventProcessor, TrainStep, TrainingItem,
};

/// A worker that becomes chief in the middle of an epoch tells of what comes from then on.
pub(super) struct Teller<M: LearnerModel> {
    pub(super) processor: SupervisedTrainingEventProcessor<M>,
    pub(super) interrupter: Interrupter,
    pub(super) label: Option<String>,
    pub(super) epochs: usize,
    pub(super) summary: Option<LearnerSummaryConfig>,
    /// Whether the beginning of the training was told, by burn or here.
    pub(super) has_begun: bool,
    /// Whether it was told here, so that its end is, too.
    pub(super) has_taken_over: bool,
    /// Which epoch and part of the data is under way, as told.
    pub(super) split: Option<(usize, Split)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Split {
    Train,
    Valid,
}

impl<M: LearnerModel> Teller<M> {
    pub(super) fn train(
        &mut self,
        epoch: usize,
        items: usize,
        item: TrainingItem<<M as TrainStep>::Output>,
    ) {
        self.begin(epoch, Split::Train, items);
        let told = self
            .processor
            .process_train(LearnerEvent::ProcessedItem(item));
        self.interrupter.fail_on_error(told);
    }

    pub(super) fn valid(
        &mut self,
        epoch: usize,
        items: usize,
        item: TrainingItem<<M as InferenceStep>::Output>,
    ) {
        self.begin(epoch, Split::Valid, items);
        let told = self
            .processor
            .process_valid(LearnerEvent::ProcessedItem(item));
        self.interrupter.fail_on_error(told);
    }

    /// The split begins, if that was not told yet.
    pub(super) fn begin(&mut self, epoch: usize, split: Split, items: usize) {
        if !self.has_begun {
            (self.has_begun, self.has_taken_over) = (true, true);
            let told = self.processor.process_train(LearnerEvent::Start {
                total_epochs: self.epochs,
                starting_epoch: epoch,
                label: self.label.clone(),
            });
            self.interrupter.fail_on_error(told);
        }
        if self.split == Some((epoch, split)) {
            return;
        }
        self.split = Some((epoch, split));
        let (epoch_number, total_items) = (epoch, items);
        let told = match split {
            Split::Train => self.processor.process_train(LearnerEvent::StartSplit {
                epoch_number,
                total_items,
            }),
            Split::Valid => self.processor.process_valid(LearnerEvent::StartSplit {
                epoch_number,
                total_items,
            }),
        };
        self.interrupter.fail_on_error(told);
    }

    /// The split has ended, if it was told that it had begun.
    pub(super) fn end(&mut self, epoch: usize, split: Split) {
        if self.split != Some((epoch, split)) {
            return;
        }
        self.split = None;
        let told = match split {
            Split::Train => self.processor.process_train(LearnerEvent::EndSplit(epoch)),
            Split::Valid => self.processor.process_valid(LearnerEvent::EndSplit(epoch)),
        };
        self.interrupter.fail_on_error(told);
        if split == Split::Valid {
            let told = self.processor.process_train(LearnerEvent::EndEpoch(epoch));
            self.interrupter.fail_on_error(told);
        }
    }

    /// The end of the training, where burn does not tell it of the chief. The summary is without
    /// the model, which only burn adds.
    pub(super) fn finish(&mut self) {
        if !self.has_taken_over {
            return;
        }
        let summary = self.summary.as_ref().and_then(|summary| {
            let made = summary.init().inspect_err(|error| {
                tracing::warn!(error, "there is no summary of the training");
            });
            made.ok()
        });
        let told = self.processor.process_train(LearnerEvent::End(summary));
        self.interrupter.fail_on_error(told);
        self.interrupter.fail_on_error(self.processor.flush());
    }
}

/// How far all workers are in an epoch, and no further than its end: a batch that nothing was read
/// for, as a strategy had held it back, counts as one more sample.
pub(super) fn progress(samples: u64, items: usize) -> Progress {
    let samples = usize::try_from(samples).map_or(items, |samples| samples.min(items));
    Progress::new(samples, items, Some("items".to_owned()))
}
