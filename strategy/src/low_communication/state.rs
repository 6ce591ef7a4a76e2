//! What a training with little communication goes on from after a restart.

use meshwork_collectives::Rank;

use super::LowCommunication;
use super::outer::OuterOptimizer;
use super::rounds::Rounds;
use super::standing::Progress;
use crate::{Error, LowCommunicationError, MultiWorkerMirroredStrategy, Snapshot, VariableSpec};

const PACKAGE: &str = "outer.common";
const RESIDUAL: &str = "outer.residual";
const MADE: &str = "outer.made";
const EXCLUDED: &str = "outer.excluded";
const SAVED_BY: &str = "outer.rank";

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
    /// let snapshot = outer.save(&mut strategy, snapshot)?;
    /// let again = OuterOptimizer::restore(&mut strategy, settings, &[2], &snapshot)?;
    /// assert_eq!((again.steps(), again.agreed()), (1, outer.agreed()));
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`LowCommunicationError::SnapshotStep`] for a snapshot of another step,
    /// [`Error::DuplicateVariable`], [`Error::Group`].
    pub fn save(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        if snapshot.step() != self.rounds.step {
            return Err(LowCommunicationError::SnapshotStep {
                snapshot: snapshot.step(),
                made: self.rounds.step,
            }
            .into());
        }
        self.arrive_all(strategy)?;
        let residual = self.rounds.residuals.concat();
        let made = self.rounds.made.iter().map(u64::to_string);
        let excluded = self.rounds.exchanges.iter();
        let excluded = excluded.map(|one| u8::from(one.is_excluded).to_string());
        snapshot
            .with_bytes(PACKAGE, self.rounds.package())?
            .with_text(MADE, made.collect::<Vec<_>>().join(" "))
            .with_text(EXCLUDED, excluded.collect::<Vec<_>>().join(" "))
            .with_text(SAVED_BY, strategy.rank().number().to_string())
            .with_array(&residual_of(residual.len())?, &residual)
    }

    /// The outer optimizer that was [saved](Self::save), with the same settings, tensors and number
    /// of workers. It goes on with the same bits.
    ///
    /// In a job that is elastic, those whose snapshot is of an earlier step than others' take over
    /// what is common from there; see [`new`](Self::new). Where it
    /// [has done so](Self::has_taken_over), the program's parameters must be set to
    /// [`agreed`](Self::agreed) before the next inner step: those of its snapshot would pull all
    /// workers back.
    ///
    /// # Errors
    /// [`LowCommunicationError::Package`] and [`Error::NotInCheckpoint`] where the snapshot has no
    /// such state; [`LowCommunicationError::SnapshotOfOther`] for another worker's, but not in a
    /// job that is elastic, whose ranks change; those of [`new`](Self::new), of which
    /// [`LowCommunicationError::Differs`] tells that workers have states of different steps.
    #[track_caller]
    pub fn restore(
        strategy: &mut MultiWorkerMirroredStrategy,
        settings: LowCommunication,
        lengths: &[usize],
        snapshot: &Snapshot,
    ) -> Result<Self, Error> {
        if !strategy.is_elastic() {
            check_saved_by(snapshot, strategy.rank())?;
        }
        let elements = super::fragments::elements(lengths)?;
        let residual = snapshot.array(&residual_of(elements)?)?;
        let mut rounds = Rounds::new(settings, lengths, residual)?;
        let package = snapshot.bytes(PACKAGE);
        rounds.take_over(package.ok_or(LowCommunicationError::Package { bytes: 0 })?)?;
        for (own, range) in rounds.residuals.iter_mut().zip(&rounds.ranges) {
            own.copy_from_slice(&residual[range.clone()]);
        }
        for (own, made) in rounds.made.iter_mut().zip(numbers(snapshot, MADE)?) {
            *own = made;
        }
        let excluded = numbers(snapshot, EXCLUDED)?;
        for (exchange, excluded) in rounds.exchanges.iter_mut().zip(excluded) {
            exchange.is_excluded = excluded != 0;
        }
        Self::joined(strategy, rounds, Progress::Restored, lengths)
    }
}

fn residual_of(elements: usize) -> Result<VariableSpec, Error> {
    VariableSpec::new(RESIDUAL, &[elements])
}

/// Refuses what another worker has of its own, where the snapshot says whose it is: earlier ones do
/// not.
fn check_saved_by(snapshot: &Snapshot, rank: Rank) -> Result<(), LowCommunicationError> {
    let damaged = LowCommunicationError::SnapshotText { name: SAVED_BY };
    match snapshot.text(SAVED_BY).map(str::parse::<u32>) {
        None => Ok(()),
        Some(Ok(saved)) if saved == rank.number() => Ok(()),
        Some(Ok(saved)) => {
            let saved = Rank::new(saved);
            Err(LowCommunicationError::SnapshotOfOther { saved, rank })
        }
        Some(Err(_)) => Err(damaged),
    }
}

fn numbers(snapshot: &Snapshot, name: &'static str) -> Result<Vec<u64>, LowCommunicationError> {
    let damaged = LowCommunicationError::SnapshotText { name };
    let Some(text) = snapshot.text(name) else {
        return Err(damaged);
    };
    let numbers = text.split_whitespace().map(str::parse);
    numbers.collect::<Result<_, _>>().map_err(|_| damaged)
}
