//! A step as all workers know it: how many samples it had, and who wants to stop.

use burn_core::tensor::Device;
use meshwork_strategy::{Rank, ReplicaContext};

use super::super::fields::{Fields, GatherOutput};
use super::super::wire::{State, Told};
use super::batches::Batch;
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
    is_stopped: bool,
    /// Of all workers together, on the chief.
    pub(super) output: Option<O>,
}

impl<O: GatherOutput> Step<O> {
    /// Tells the other workers of this one's batch, and hears of theirs. The chief puts their
    /// outputs together on `device`.
    pub(super) fn exchange(
        replica: &mut ReplicaContext<'_>,
        batch: Batch,
        output: Option<O>,
        device: &Device,
    ) -> Result<Self, Error> {
        if replica.num_replicas_in_sync() == 1 {
            return Ok(Self {
                samples: batch.samples.into(),
                is_last: batch.state == State::Last,
                is_stopped: batch.state == State::Stop,
                output,
            });
        }
        let fields = output.map_or(Ok(Vec::new()), GatherOutput::into_fields)?;
        let told = Told {
            samples: batch.samples,
            state: batch.state,
            fields,
        };
        let all = tell_all(replica, &told)?;
        let mut step = Self {
            samples: all.iter().map(|told| u64::from(told.samples)).sum(),
            is_last: all.iter().all(|told| told.state == State::Last),
            is_stopped: all.iter().any(|told| told.state == State::Stop),
            output: None,
        };
        if replica.replica_id() == Rank::CHIEF && step.samples > 0 {
            let mut fields = Fields::join(all, device)?;
            step.output = Some(O::from_fields(&mut fields)?);
        }
        Ok(step)
    }
}

impl<O> Step<O> {
    /// How training goes on where this was the last step of an epoch.
    pub(super) fn ends(&self) -> Option<Flow> {
        match (self.is_stopped, self.samples) {
            (true, _) => Some(Flow::Stop),
            (false, 0) => Some(Flow::On),
            (false, 1..) => None,
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
