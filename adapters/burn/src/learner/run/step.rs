//! A step as all workers know it: how many samples it had, and who wants to stop.

use burn_core::tensor::Device;
use meshwork_strategy::{Rank, ReplicaContext};

use super::super::fields::{Field, Fields, GatherOutput};
use super::super::wire::{State, Told};
use super::deal::Seen;
use crate::Error;

/// Whether training goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flow {
    On,
    Stop,
}

#[derive(Debug)]
pub(super) struct Step<O> {
    /// Of all workers; 0 when all have had all of their batches.
    pub(super) samples: u64,
    /// Whether this was the last batch of every worker.
    pub(super) is_last: bool,
    pub(super) flow: Flow,
    /// What each worker has told, in the order of their ranks.
    pub(super) seen: Vec<Seen>,
    /// Whose outputs have means, such as losses, that are not finite.
    pub(super) not_finite: Vec<Rank>,
    /// Of all workers together, on the chief.
    pub(super) output: Option<O>,
}

impl<O: GatherOutput> Step<O> {
    /// Tells the other workers of this one's batch, and hears of theirs. The chief puts their
    /// outputs together on `device`.
    pub(super) fn exchange(
        replica: &mut ReplicaContext<'_>,
        told: &Told,
        device: &Device,
    ) -> Result<Self, Error> {
        let all = tell_all(replica, told)?;
        let mut step = Self::of(all.iter().map(Seen::of).collect());
        let ranks = (0..).map(Rank::new).zip(&all);
        let not_finite = ranks.filter(|(_, told)| !told.fields.iter().all(Field::is_sound));
        step.not_finite = not_finite.map(|(rank, _)| rank).collect();
        if replica.replica_id() == Rank::CHIEF && step.samples > 0 {
            let mut fields = Fields::join(all, device)?;
            step.output = Some(O::from_fields(&mut fields)?);
        }
        Ok(step)
    }
}

impl<O> Step<O> {
    /// The step of a worker that has no others.
    pub(super) fn alone(told: &Told, output: Option<O>) -> Self {
        let output = output.filter(|_| told.samples > 0);
        Self {
            output,
            ..Self::of(vec![Seen::of(told)])
        }
    }

    fn of(seen: Vec<Seen>) -> Self {
        let is_stopped = seen.iter().any(|seen| seen.state == State::Stop);
        Self {
            samples: seen.iter().map(|seen| u64::from(seen.samples)).sum(),
            is_last: seen.iter().all(|seen| seen.state == State::Last),
            flow: if is_stopped { Flow::Stop } else { Flow::On },
            seen,
            not_finite: Vec::new(),
            output: None,
        }
    }
}

impl Seen {
    fn of(told: &Told) -> Self {
        Self {
            place: told.place,
            samples: told.samples,
            state: told.state,
        }
    }
}

/// What each worker tells, in the order of their ranks.
fn tell_all(replica: &mut ReplicaContext<'_>, told: &Told) -> Result<Vec<Told>, Error> {
    let all = replica.all_gather_bytes(&told.to_bytes())?;
    let ranks = (0..).map(Rank::new);
    let parsed = ranks
        .zip(&all)
        .map(|(rank, bytes)| Told::parse(bytes, rank));
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use burn_core::tensor::{Int, Tensor};
    use burn_train::SequenceOutput;

    use super::*;
    use crate::testing::each;

    /// The output of one token, with what was guessed or without.
    fn output(has_predictions: &[i64]) -> SequenceOutput {
        let device = Device::flex();
        let tokens = |values| Tensor::<2, Int>::from_data([values], &device);
        SequenceOutput {
            loss: Tensor::from_data([0.5], &device),
            logits: Tensor::from_data([[[0.1, 0.9]]], &device),
            targets: tokens([1]),
            predictions: has_predictions.first().map(|guess| tokens([*guess])),
        }
    }

    #[test]
    fn sequences_of_other_lengths_are_told_with_what_helps() {
        let told = |tokens: usize| {
            let device = Device::flex();
            let output = SequenceOutput {
                loss: Tensor::from_data([0.5], &device),
                logits: Tensor::zeros([1, tokens, 2], &device),
                targets: Tensor::zeros([1, tokens], &device),
                predictions: None,
            };
            Told {
                samples: 1,
                state: State::More,
                place: None,
                fields: output.into_fields().unwrap(),
            }
        };
        let joined = Fields::join(vec![told(2), told(3)], &Device::flex());
        let error = joined.unwrap_err().to_string();
        for part in ["rank 1", "[1, 3, 2]", "[1, 2, 2]", "so pad sequences"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_metric_that_only_one_worker_has_is_named_on_all() {
        let errors = each(3, |mut strategy| {
            let rank = strategy.rank();
            let guesses: &[i64] = if rank == Rank::new(1) { &[1] } else { &[] };
            let told = Told {
                samples: 1,
                state: State::More,
                place: None,
                fields: output(guesses).into_fields().unwrap(),
            };
            let mut step = || {
                let step = strategy.run(|replica| {
                    Step::<SequenceOutput>::exchange(replica, &told, &Device::flex())
                });
                step.map(drop)
            };
            // Those who are not the chief learn of it when they exchange something again.
            step().and_then(|()| step()).unwrap_err().to_string()
        });
        for error in errors {
            let named = "the output of rank 1 has 4 tensors, where others have 3";
            assert!(error.contains(named), "{error}");
        }
    }
}
