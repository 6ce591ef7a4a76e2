//! What workers compare before they train together.

use burn_train::{InferenceStep, LearnerModel, TrainStep};
use meshwork_strategy::MultiWorkerMirroredStrategy;

use super::super::fields::GatherOutput;
use super::{Membership, Run};
use crate::Error;

impl<M> Run<'_, M>
where
    M: LearnerModel + TrainStep<Output: GatherOutput> + InferenceStep<Output: GatherOutput>,
{
    /// Compares what each worker is to do. In an elastic job the others go on without one that
    /// differs.
    pub(super) fn compare(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        Ok(strategy.agree(&self.to_do())?)
    }

    /// What this worker is to do, each on a line.
    fn to_do(&self) -> String {
        let accumulated = self.components.accumulation.unwrap_or(0);
        // The state of an elastic training says where it goes on.
        let first = match self.worker.membership {
            Membership::Elastic => 0,
            Membership::Fixed => self.state.epoch,
        };
        let numbers = [
            (self.train.items, "samples to train with"),
            (self.valid.items, "samples to validate with"),
            (self.teller.epochs, "epochs"),
            (accumulated, "batches to accumulate"),
            (first, "as its first epoch"),
        ];
        let lines = numbers.map(|(number, what)| format!("{number} {what}"));
        // In quotes it is one line, whatever is in it.
        let agreement = format!("{:?}", self.worker.agreement);
        let lines = lines.into_iter().chain([agreement]);
        lines.collect::<Vec<_>>().join("\n")
    }
}
