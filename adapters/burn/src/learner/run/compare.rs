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
        let mine = self.to_do();
        let own = strategy.rank();
        let is_judge = !self.worker.has_begun;
        let compared = strategy.run(|replica| {
            let all = replica.all_gather_bytes(mine.as_bytes())?;
            for (rank, theirs) in (0..).map(Rank::new).zip(&all) {
                if is_judge || rank == own {
                    compare(rank, theirs, &all[0])?;
                }
            }
            Ok(())
        });
        compared.map(drop)
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

/// Compares what a worker has told with what the chief has.
fn compare(rank: Rank, theirs: &[u8], chiefs: &[u8]) -> Result<(), Error> {
    if theirs == chiefs {
        return Ok(());
    }
    let [theirs, chiefs] = [theirs, chiefs].map(String::from_utf8_lossy);
    let mut lines = theirs.lines().zip(chiefs.lines());
    let differing = lines.find(|(theirs, chiefs)| theirs != chiefs);
    // Another program may tell more, or what is no text.
    let (found, chiefs) = differing.unwrap_or((&*theirs, &*chiefs));
    Err(Error::LearnerDiffers {
        rank,
        found: found.to_owned(),
        chiefs: chiefs.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_tells_is_compared_too() {
        let refused = |theirs: &[u8]| {
            let compared = compare(Rank::new(1), theirs, b"8 epochs\n\"\"");
            compared.unwrap_err().to_string()
        };
        for (theirs, found) in [
            (
                &b"9 epochs\n\"\""[..],
                "rank 1 has 9 epochs, and the chief 8 epochs:",
            ),
            (
                b"8 epochs",
                "rank 1 has 8 epochs, and the chief 8 epochs\n\"\":",
            ),
            (b"\xff", "rank 1 has \u{fffd}, and the chief 8 epochs:"),
            (b"", "rank 1 has , and the chief 8 epochs\n\"\":"),
        ] {
            let told = refused(theirs);
            assert!(told.starts_with(found), "{told}");
        }
    }
}
