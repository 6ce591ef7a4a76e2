//! What a training with little communication goes on from after a restart.

use super::LowCommunication;
use super::fragments::{self, UnderWay};
use super::outer::{Arrived, Exchange, OuterOptimizer, State};
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy, Snapshot, VariableSpec};

const AGREED: &str = "outer.agreed";
const VELOCITY: &str = "outer.velocity";
const RESIDUAL: &str = "outer.residual";

impl OuterOptimizer {
    /// Adds the state of the outer optimizer to the snapshot of this worker's step: parameters,
    /// momentum, residuals, and exchanges under way, for which it waits.
    ///
    /// Own parameters and residuals differ from worker to worker: each saves a snapshot of its own,
    /// with its own parameters, in a folder of its own.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
    /// use meshwork_strategy::{Cursor, MultiWorkerMirroredStrategy, Snapshot, VariableSpec};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let mut own = [1.0, 2.0];
    /// let settings = LowCommunication::new(NonZeroU32::MIN);
    /// let mut outer = OuterOptimizer::new(&mut strategy, settings, &[2], &own)?;
    /// outer.step(&mut strategy, &mut own)?;
    ///
    /// let spec = VariableSpec::new("own", &[2])?;
    /// let snapshot = Snapshot::new(outer.steps(), Cursor::start()).with_array(&spec, &own)?;
    /// let snapshot = outer.save(snapshot)?;
    /// let again = OuterOptimizer::restore(&mut strategy, settings, &[2], &snapshot)?;
    /// assert_eq!((again.steps(), again.agreed()), (1, outer.agreed()));
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LowCommunicationError::SnapshotStep`] for a snapshot of another step,
    /// [`Error::DuplicateVariable`], [`Error::Group`].
    pub fn save(&mut self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        if snapshot.step() != self.step {
            return Err(LowCommunicationError::SnapshotStep {
                snapshot: snapshot.step(),
                made: self.step,
            }
            .into());
        }
        let mut snapshot = with(snapshot, AGREED, &self.agreed)?;
        snapshot = with(snapshot, VELOCITY, &self.velocity)?;
        for exchange in std::mem::take(&mut self.exchanges) {
            let arrived = self.arrive(exchange.fragment, exchange.state)?;
            snapshot = with(snapshot, &sum_of(exchange.fragment), &arrived.sum)?;
            let excluded = excluded_of(exchange.fragment);
            snapshot = with(snapshot, &excluded, &arrived.excluded)?;
            self.exchanges.push(Exchange {
                state: State::Arrived(arrived),
                ..exchange
            });
        }
        with(snapshot, RESIDUAL, &self.residuals.concat())
    }

    /// The outer optimizer that was [saved](Self::save), with the same settings, tensors and number
    /// of workers. It goes on with the same bits.
    ///
    /// # Errors
    /// [`Error::NotInCheckpoint`] where the snapshot has no such state; those of
    /// [`new`](Self::new), of which [`Error::ReplicasDiverged`] tells that workers have states of
    /// different steps.
    #[track_caller]
    pub fn restore(
        strategy: &mut MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        lengths: &[usize],
        snapshot: &Snapshot,
    ) -> Result<Self, Error> {
        let elements = fragments::elements(lengths)?;
        let mut outer = Self::beginning(settings, lengths, array(snapshot, AGREED, elements)?)?;
        outer.step = snapshot.step();
        outer.velocity = array(snapshot, VELOCITY, elements)?.to_vec();
        let residual = array(snapshot, RESIDUAL, elements)?;
        for (own, range) in outer.residuals.iter_mut().zip(&outer.ranges) {
            own.copy_from_slice(&residual[range.clone()]);
        }
        for under_way in settings.under_way(outer.step) {
            let UnderWay {
                fragment,
                applied_after,
            } = under_way;
            let (sum, excluded) = (sum_of(fragment), excluded_of(fragment));
            let world = strategy.group_mut().world() as usize;
            let arrived = Arrived {
                sum: array(snapshot, &sum, outer.ranges[fragment].len())?.to_vec(),
                excluded: array(snapshot, &excluded, world)?.to_vec(),
            };
            outer.exchanges.push(Exchange {
                fragment,
                applied_after,
                state: State::Arrived(arrived),
            });
        }
        outer.verify(strategy, lengths)?;
        Ok(outer)
    }
}

fn sum_of(fragment: usize) -> String {
    format!("outer.sum.{fragment}")
}

fn excluded_of(fragment: usize) -> String {
    format!("outer.excluded.{fragment}")
}

fn with(snapshot: Snapshot, name: &str, values: &[f32]) -> Result<Snapshot, Error> {
    snapshot.with_array(&VariableSpec::new(name, &[values.len()])?, values)
}

fn array<'a>(snapshot: &'a Snapshot, name: &str, elements: usize) -> Result<&'a [f32], Error> {
    snapshot.array(&VariableSpec::new(name, &[elements])?)
}
