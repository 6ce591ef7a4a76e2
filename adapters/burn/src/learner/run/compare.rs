//! What workers compare before they train together.

use burn_train::{InferenceStep, LearnerModel, TrainStep};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

use super::super::fields::GatherOutput;
use super::{Membership, Run};
use crate::Error;

impl<M> Run<'_, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    /// Compares what each worker is to do. Those who train already go on without a newcomer that
    /// differs.
    pub(super) fn compare(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let mine = [
            self.train.items,
            self.valid.items,
            self.teller.epochs,
            self.components.accumulation.unwrap_or(0),
            // The state of an elastic training says where it goes on.
            match self.worker.membership {
                Membership::Elastic => 0,
                Membership::Fixed => self.state.epoch,
            },
        ];
        let mine = mine.map(|number| number as u64);
        let own = strategy.rank();
        let is_judge = !self.worker.has_begun;
        let compared = strategy.run(|replica| {
            let all = replica.all_gather_bytes(mine.map(u64::to_le_bytes).as_flattened())?;
            for (rank, theirs) in (0..).map(Rank::new).zip(&all) {
                if is_judge || rank == own {
                    compare(rank, theirs, &all[0])?;
                }
            }
            Ok(())
        });
        compared.map(drop)
    }
}

/// Compares what a worker has told with what the chief has.
fn compare(rank: Rank, theirs: &[u8], chiefs: &[u8]) -> Result<(), Error> {
    let number = |place: usize, of: &[u8]| {
        let bytes = of.as_chunks().0.get(place).copied();
        bytes
            .map(u64::from_le_bytes)
            .ok_or(Error::OutputForm { rank })
    };
    for (place, what) in COMPARED.into_iter().enumerate() {
        let (found, chiefs) = (number(place, theirs)?, number(place, chiefs)?);
        if found != chiefs {
            return Err(Error::LearnerDiffers {
                rank,
                what,
                found,
                chiefs,
            });
        }
    }
    Ok(())
}

const COMPARED: [&str; 5] = [
    "samples to train with",
    "samples to validate with",
    "epochs",
    "batches to accumulate",
    "as its first epoch",
];
