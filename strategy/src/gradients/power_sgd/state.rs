//! What gradients of low rank go on from, after a restart and when workers have changed: the right
//! factors and the number of steps, which all workers have in common, and what each has left out.
//! The left factors are made anew in each step from the right ones.

use meshwork_collectives::Rank;

use super::low_rank::{Kept, LowRank};
use super::{PowerSgd, Standing};
use crate::{Error, LowCommunicationError, Snapshot, VariableSpec};

/// The worker's rank, the rank of the products and the steps made, in a text; then an array of each
/// matrix, before its name.
const TEXT: &str = "power_sgd";
const RESIDUAL: &str = "power_sgd.residual";
/// The rank of the products and the steps made, and an array of each matrix.
const SHARED: &str = "power_sgd.shared";
const RIGHT: &str = "power_sgd.right";

/// Of which products a snapshot is.
#[derive(Clone, Copy)]
struct Head {
    rank: usize,
    steps: u64,
}

impl PowerSgd {
    /// Adds what all workers have in common.
    pub(in super::super) fn save_shared(
        &self,
        specs: &[VariableSpec],
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        let head = format!("{} {}", self.rank, self.steps());
        let mut snapshot = snapshot.with_text(SHARED, head);
        for (matrix, spec) in self.compressed(specs) {
            snapshot = snapshot.with_array(&right_of(matrix, spec)?, matrix.kept().right)?;
        }
        Ok(snapshot)
    }

    /// Adds all of it, but for what the snapshot has in common already.
    pub(in super::super) fn save(
        &self,
        specs: &[VariableSpec],
        worker: Rank,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        let mut snapshot = match snapshot.text(SHARED) {
            Some(_) => snapshot,
            None => self.save_shared(specs, snapshot)?,
        };
        let head = format!("{} {} {}", worker.number(), self.rank, self.steps());
        snapshot = snapshot.with_text(TEXT, head);
        for (matrix, spec) in self.compressed(specs) {
            snapshot = snapshot.with_array(&residual_of(matrix, spec)?, matrix.kept().residual)?;
        }
        Ok(snapshot)
    }

    /// Takes over what all workers have in common, or after an error nothing; nothing either where
    /// it is of products of another rank, or of none.
    ///
    /// What this worker has left out stays where the steps are those that it has made itself, one
    /// more included of which it only missed the end. Otherwise it is no part of what the others go
    /// on from.
    pub(in super::super) fn restore_shared(
        &mut self,
        specs: &[VariableSpec],
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        let Some(head) = shared_head(snapshot)?.filter(|head| head.rank == self.rank.get()) else {
            return Ok(());
        };
        let more = head.steps.checked_sub(self.steps());
        let (is_own, is_next) = (more == Some(0), more == Some(1));
        let mut restored = self.matrices.clone();
        for (index, (matrix, spec)) in restored.iter_mut().zip(specs).enumerate() {
            let Some(matrix) = matrix else { continue };
            let right = snapshot.array(&right_of(matrix, spec)?)?;
            let left_out = match &self.standing {
                Standing::Kept(left_out) if is_next => left_out[index].clone(),
                Standing::Between | Standing::Given | Standing::Kept(_) => match is_own {
                    true => matrix.kept().residual.to_vec(),
                    false => vec![0.0; spec.len()],
                },
            };
            let residual = &left_out;
            matrix.go_on_from(head.steps, Kept { residual, right });
        }
        (self.matrices, self.standing) = (restored, Standing::Between);
        Ok(())
    }

    /// Takes over all of it, or after an error nothing. A worker that may be any of those who saved
    /// is `None`.
    pub(in super::super) fn restore(
        &mut self,
        specs: &[VariableSpec],
        worker: Option<Rank>,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        check_rank(snapshot, self.rank.get())?;
        let (saved, head) =
            own_head(snapshot)?.ok_or(LowCommunicationError::SnapshotText { name: TEXT })?;
        if let Some(rank) = worker.filter(|rank| *rank != saved) {
            return Err(LowCommunicationError::SnapshotOfOther { saved, rank }.into());
        }
        let mut restored = self.matrices.clone();
        for (matrix, spec) in restored.iter_mut().zip(specs) {
            if let Some(matrix) = matrix {
                let residual = snapshot.array(&residual_of(matrix, spec)?)?;
                let right = snapshot.array(&right_of(matrix, spec)?)?;
                matrix.go_on_from(head.steps, Kept { residual, right });
            }
        }
        (self.matrices, self.standing) = (restored, Standing::Between);
        Ok(())
    }

    fn compressed<'a>(
        &'a self,
        specs: &'a [VariableSpec],
    ) -> impl Iterator<Item = (&'a LowRank, &'a VariableSpec)> {
        let each = self.matrices.iter().zip(specs);
        each.filter_map(|(matrix, spec)| Some((matrix.as_ref()?, spec)))
    }

    /// That were made of all matrices.
    fn steps(&self) -> u64 {
        let mut matrices = self.matrices.iter().flatten();
        matrices.next().map_or(0, LowRank::steps)
    }
}

/// Whether the snapshot was saved with products of this rank; 0 stands for gradients that travel
/// whole.
pub(in super::super) fn check_rank(
    snapshot: &Snapshot,
    rank: usize,
) -> Result<(), LowCommunicationError> {
    let saved = own_head(snapshot)?.map_or(0, |(_, head)| head.rank);
    (saved == rank)
        .then_some(())
        .ok_or(LowCommunicationError::PowerSgdRank { saved, rank })
}

/// Whose snapshot it is, if it has what a worker has left out.
fn own_head(snapshot: &Snapshot) -> Result<Option<(Rank, Head)>, LowCommunicationError> {
    let Some(text) = snapshot.text(TEXT) else {
        return Ok(None);
    };
    let read = || {
        let (worker, head) = text.split_once(' ')?;
        Some((Rank::new(worker.parse().ok()?), Head::read(head)?))
    };
    let damaged = LowCommunicationError::SnapshotText { name: TEXT };
    read().ok_or(damaged).map(Some)
}

fn shared_head(snapshot: &Snapshot) -> Result<Option<Head>, LowCommunicationError> {
    let Some(text) = snapshot.text(SHARED) else {
        return Ok(None);
    };
    let damaged = LowCommunicationError::SnapshotText { name: SHARED };
    Head::read(text).ok_or(damaged).map(Some)
}

impl Head {
    fn read(text: &str) -> Option<Self> {
        let (rank, steps) = text.split_once(' ')?;
        Some(Self {
            rank: rank.parse().ok()?,
            steps: steps.parse().ok()?,
        })
    }
}

fn residual_of(matrix: &LowRank, spec: &VariableSpec) -> Result<VariableSpec, Error> {
    VariableSpec::new(format!("{RESIDUAL}.{}", spec.name()), &matrix.shape())
}

fn right_of(matrix: &LowRank, spec: &VariableSpec) -> Result<VariableSpec, Error> {
    VariableSpec::new(format!("{RIGHT}.{}", spec.name()), &matrix.right_shape())
}
