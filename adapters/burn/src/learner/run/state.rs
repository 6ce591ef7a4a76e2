//! The state of a training, as one worker gives it to another: trained parameters, burn's optimizer
//! and scheduler, and how far the data is used.

use std::sync::mpsc::{self, Sender};

use burn_core::store::{ModuleRecord, RecordError};
use burn_core::tensor::Bytes;
use burn_optim::OptimizerRecord;
use burn_optim::lr_scheduler::LrSchedulerRecord;
use burn_train::checkpoint::{
    AsyncCheckpointer, Checkpoint, Checkpointer, CheckpointerError, CheckpointingAction,
    CheckpointingStrategy,
};
use burn_train::metric::store::EventStoreClient;
use burn_train::{Learner, LearnerModel, LearningCheckpointer};
use meshwork_strategy::{Rank, Snapshot};

use super::deal::{Deal, Part};
use super::feed::Cuts;
use crate::optimizer::in_order;
use crate::snapshot::save_trained;
use crate::{Error, MirroredParams};

/// Where a training is; the same on all workers between two steps.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Since the training began: changes of all that is here.
    pub(super) steps: u64,
    pub(super) epoch: usize,
    pub(super) stage: Stage,
    /// Of all workers in this pass.
    pub(super) samples: u64,
    pub(super) batches: usize,
    pub(super) deal: Deal,
    /// Whose losses have ended the training before a step, by their ranks in that step.
    pub(super) refused: Vec<Rank>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// An epoch.
    Begin,
    Train,
    /// Values that are not trained become rank 0's.
    Settle,
    Validate,
    /// The chief saves, and asks whether this was enough.
    End,
    Done,
}

const STAGES: [Stage; 6] = [
    Stage::Begin,
    Stage::Train,
    Stage::Settle,
    Stage::Validate,
    Stage::End,
    Stage::Done,
];

impl State {
    pub(super) fn new(epoch: usize) -> Self {
        Self {
            steps: 0,
            epoch,
            stage: Stage::Begin,
            samples: 0,
            batches: 0,
            deal: Deal::default(),
            refused: Vec::new(),
        }
    }

    /// How many epochs were before this one, before a checkpoint too: in each of them all data was
    /// gone through once.
    pub(super) fn epochs_before(&self) -> usize {
        self.epoch.saturating_sub(1)
    }

    /// A pass through data begins, with a part for each worker.
    pub(super) fn begin(&mut self, stage: Stage, workers: usize) {
        (self.samples, self.batches) = (0, 0);
        self.deal = Deal::new(workers);
        self.stage = stage;
    }

    /// In words, with what the order of the data follows from.
    fn to_words(&self, cuts: [&Cuts; 2]) -> Vec<u64> {
        let stage = STAGES.iter().position(|stage| *stage == self.stage);
        let mut words = vec![
            self.epoch as u64,
            stage.expect("it is one of them") as u64,
            self.samples,
            self.batches as u64,
        ];
        let mut list = |numbers: &mut dyn ExactSizeIterator<Item = usize>| {
            words.push(numbers.len() as u64);
            words.extend(numbers.map(|number| number as u64));
        };
        list(&mut self.refused.iter().map(|rank| rank.index()));
        for cuts in cuts {
            list(&mut cuts.parts.iter().copied());
            list(&mut [cuts.passes].into_iter());
        }
        for part in &self.deal.parts {
            list(
                &mut [part.used]
                    .into_iter()
                    .chain(part.end)
                    .collect::<Vec<_>>()
                    .into_iter(),
            );
            list(&mut part.ahead.iter().copied());
        }
        words
    }

    fn of_words(words: &[u64], steps: u64) -> Option<(Self, [Cuts; 2])> {
        // What another worker says is counted on from, and told in 32 bits.
        let number = |word: &u64| usize::try_from(*word).ok().filter(|word| *word <= FAR);
        let (head, mut rest) = words.split_first_chunk::<4>()?;
        let mut list = || {
            let (len, behind) = rest.split_first()?;
            let (list, behind) = behind.split_at_checked(number(len)?)?;
            rest = behind;
            let numbers: Option<Vec<usize>> = list.iter().map(number).collect();
            Some((numbers?, rest.is_empty()))
        };
        let (refused, _) = list()?;
        let mut cuts = || {
            let ((parts, _), (passes, is_over)) = (list()?, list()?);
            let [passes] = passes.try_into().ok()?;
            let is_cut = parts.iter().all(|parts| (1..=MOST_PARTS).contains(parts));
            is_cut.then_some((Cuts { parts, passes }, is_over))
        };
        let ((train, _), (valid, mut is_over)) = (cuts()?, cuts()?);
        let mut parts = Vec::new();
        while !is_over {
            let ((used, _), (ahead, last)) = (list()?, list()?);
            parts.push(Part::new(*used.first()?, used.get(1).copied(), ahead));
            is_over = last;
        }
        let [epoch, stage, samples, batches] = head;
        let stage = *STAGES.get(number(stage)?)?;
        let most = match stage {
            Stage::Train => *train.parts.last()?,
            Stage::Validate => *valid.parts.last()?,
            Stage::Begin | Stage::Settle | Stage::End | Stage::Done => MOST_PARTS,
        };
        let is_refused = stage == Stage::Done && refused.iter().all(|rank| *rank < MOST_PARTS);
        let is_sane = parts.len() <= most
            && steps.max(*samples) <= u64::MAX / 2
            && (is_refused || refused.is_empty());
        let state = Self {
            steps,
            epoch: number(epoch)?,
            stage,
            samples: *samples,
            batches: number(batches)?,
            deal: Deal::of(parts),
            refused: refused.into_iter().map(Rank::at).collect(),
        };
        is_sane.then_some((state, [train, valid]))
    }

    pub(super) fn save(&self, cuts: [&Cuts; 2], snapshot: Snapshot) -> Result<Snapshot, Error> {
        let words = self.to_words(cuts).into_iter();
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        Ok(snapshot.with_bytes(STATE, bytes)?)
    }

    pub(super) fn restore(snapshot: &Snapshot) -> Result<(Self, [Cuts; 2]), Error> {
        let rank = Rank::CHIEF;
        let bytes = snapshot.bytes(STATE).ok_or(Error::OutputForm { rank })?;
        let words: Vec<u64> = (bytes.as_chunks().0.iter())
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        Self::of_words(&words, snapshot.step()).ok_or(Error::OutputForm { rank })
    }
}

/// Adds parameters, optimizer and scheduler.
pub(super) fn save_learner<M: LearnerModel>(
    learner: &Learner<M>,
    store: &EventStoreClient,
    snapshot: Snapshot,
) -> Result<Snapshot, Error> {
    let [optimizer, scheduler] = records(learner, store);
    let optimizer = in_order(optimizer?)?;
    let snapshot = save_trained(&learner.model(), snapshot)?;
    let snapshot = snapshot.with_bytes(OPTIMIZER, optimizer.to_vec())?;
    Ok(snapshot.with_bytes(SCHEDULER, scheduler?.to_vec())?)
}

pub(super) fn restore_learner<M: LearnerModel>(
    learner: &mut Learner<M>,
    mirrored: &mut MirroredParams,
    snapshot: &Snapshot,
) -> Result<(), Error> {
    let model = mirrored.restore_trained(learner.model(), snapshot)?;
    learner.load_model(model.into_record());
    let step = snapshot.step();
    let bytes = |name| {
        let bytes = snapshot
            .bytes(name)
            .ok_or(Error::NoOptimizerState { step })?;
        Ok::<_, Error>(Bytes::from_bytes_vec(bytes.to_vec()))
    };
    learner.load_optim(OptimizerRecord::from_bytes(bytes(OPTIMIZER)?)?);
    learner.load_scheduler(LrSchedulerRecord::from_bytes(bytes(SCHEDULER)?)?);
    Ok(())
}

/// The records of optimizer and scheduler, which a learner gives to checkpointers alone.
fn records<M: LearnerModel>(
    learner: &Learner<M>,
    store: &EventStoreClient,
) -> [Result<Bytes, RecordError>; 2] {
    let (optimizer, optimizers) = mpsc::channel();
    let (scheduler, schedulers) = mpsc::channel();
    let mut checkpointer = LearningCheckpointer::new(
        AsyncCheckpointer::<ModuleRecord>::new(Aside),
        AsyncCheckpointer::new(Hand(optimizer)),
        AsyncCheckpointer::new(Hand(scheduler)),
        Box::new(Always),
    );
    checkpointer.checkpoint(learner, 0, store);
    [optimizers, schedulers].map(|given| given.recv().expect("a checkpointer hands over"))
}

/// Hands records over as bytes.
struct Hand(Sender<Result<Bytes, RecordError>>);

impl<R: Checkpoint> Checkpointer<R> for Hand {
    fn save(&self, _: usize, record: R) -> Result<(), CheckpointerError> {
        let handed = self.0.send(record.checkpoint_into_bytes());
        handed.map_err(|error| CheckpointerError::Unknown(error.to_string()))
    }

    fn delete(&self, _: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        Err(CheckpointerError::Unknown(format!("{epoch} was not kept")))
    }
}

/// Takes a record that is not needed.
struct Aside;

impl<R: Checkpoint> Checkpointer<R> for Aside {
    fn save(&self, _: usize, _: R) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn delete(&self, _: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        Err(CheckpointerError::Unknown(format!("{epoch} was not kept")))
    }
}

struct Always;

impl CheckpointingStrategy for Always {
    fn checkpointing(&mut self, _: usize, _: &EventStoreClient) -> Vec<CheckpointingAction> {
        vec![CheckpointingAction::Save]
    }
}

/// Parts of the data, as many as a group has ranks.
const MOST_PARTS: usize = 4096;

/// A number of batches that no epoch has, and behind which some still fit in 32 bits.
const FAR: usize = u32::MAX as usize / 2;

const STATE: &str = "burn.learner.state";
const OPTIMIZER: &str = "burn.learner.optimizer";
const SCHEDULER: &str = "burn.learner.scheduler";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_training_is_is_read_back_and_nothing_that_is_cut_off() {
        let cuts = [&[3, 2][..], &[3]].map(|parts| Cuts {
            parts: parts.to_vec(),
            passes: 2,
        });
        let mut state = State::new(4);
        let parts = vec![
            Part::new(3, None, vec![5, 7]),
            Part::new(0, Some(9), Vec::new()),
        ];
        state.deal = Deal::of(parts);
        (state.stage, state.samples, state.batches) = (Stage::Validate, 17, 4);
        let words = state.to_words([&cuts[0], &cuts[1]]);
        let (read, read_cuts) = State::of_words(&words, 0).unwrap();
        assert_eq!(read_cuts, cuts);
        assert_eq!((read.stage, &read.deal), (state.stage, &state.deal));
        assert_eq!(read.to_words([&cuts[0], &cuts[1]]), words);
        // Into no parts at all, more than there can be, and fewer than are dealt; and numbers that
        // none comes to: of passes, samples and batches.
        let parts = [(6, 0), (6, 4097), (6, 1 << 62), (11, 1)];
        let far = [(9, 1 << 62), (2, u64::MAX), (3, u64::MAX), (15, 1 << 32)];
        for (place, word) in parts.into_iter().chain(far) {
            let mut changed = words.clone();
            changed[place] = word;
            assert!(State::of_words(&changed, 0).is_none(), "{place}: {word}");
        }
        assert!(State::of_words(&words, u64::MAX).is_none());
        for len in 0..words.len() {
            let cut = State::of_words(&words[..len], 0);
            assert!(cut.is_none_or(|(cut, _)| cut.deal.parts.len() < 2), "{len}");
        }
    }

    #[test]
    fn whose_losses_have_ended_a_training_is_read_back() {
        let cuts = [&[2][..], &[2]].map(|parts| Cuts {
            parts: parts.to_vec(),
            passes: 1,
        });
        let mut state = State::new(1);
        (state.stage, state.refused) = (Stage::Done, vec![Rank::CHIEF, Rank::new(2)]);
        let words = state.to_words([&cuts[0], &cuts[1]]);
        let (read, read_cuts) = State::of_words(&words, 5).unwrap();
        assert_eq!((read.stage, read.refused), (Stage::Done, state.refused));
        assert_eq!(read_cuts, cuts);
        // In a training that goes on, a rank that no group has, and more of them than are sent.
        for (place, word) in [(1, 1), (6, MOST_PARTS as u64), (4, u64::MAX), (4, 1 << 20)] {
            let mut changed = words.clone();
            changed[place] = word;
            assert!(State::of_words(&changed, 5).is_none(), "{place}: {word}");
        }
    }
}
