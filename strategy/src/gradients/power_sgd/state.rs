//! What gradients of low rank go on from after a restart. The left factors are made anew in each
//! step from the right ones.

use meshwork_collectives::Rank;

use super::PowerSgd;
use super::low_rank::{Kept, LowRank};
use crate::{Error, LowCommunicationError, Snapshot, VariableSpec};

/// The worker's rank, the rank of the products and the steps made, in a text; then the arrays of
/// each matrix, before its name.
const TEXT: &str = "power_sgd";
const RESIDUAL: &str = "power_sgd.residual";
const RIGHT: &str = "power_sgd.right";

/// Whose state a snapshot has, and of which products.
struct Head {
    worker: Rank,
    rank: usize,
    steps: u64,
}

impl PowerSgd {
    pub(in super::super) fn save(
        &self,
        specs: &[VariableSpec],
        worker: Rank,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        let mut matrices = self.matrices.iter().flatten();
        let steps = matrices.next().map_or(0, LowRank::steps);
        let head = format!("{} {} {steps}", worker.number(), self.rank);
        let mut snapshot = snapshot.with_text(TEXT, head);
        for (matrix, spec) in self.matrices.iter().zip(specs) {
            if let Some(matrix) = matrix {
                let kept = matrix.kept();
                let [residual, right] = arrays(matrix, spec)?;
                snapshot = snapshot.with_array(&residual, kept.residual)?;
                snapshot = snapshot.with_array(&right, kept.right)?;
            }
        }
        Ok(snapshot)
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
        let head = head(snapshot)?.ok_or(LowCommunicationError::SnapshotText { name: TEXT })?;
        if let Some(rank) = worker.filter(|rank| *rank != head.worker) {
            let saved = head.worker;
            return Err(LowCommunicationError::SnapshotOfOther { saved, rank }.into());
        }
        let mut restored = self.matrices.clone();
        for (matrix, spec) in restored.iter_mut().zip(specs) {
            if let Some(matrix) = matrix {
                let [residual, right] = arrays(matrix, spec)?;
                matrix.go_on_from(
                    head.steps,
                    Kept {
                        residual: snapshot.array(&residual)?,
                        right: snapshot.array(&right)?,
                    },
                );
            }
        }
        self.matrices = restored;
        Ok(())
    }
}

/// Whether the snapshot was saved with products of this rank; 0 stands for gradients that travel
/// whole.
pub(in super::super) fn check_rank(
    snapshot: &Snapshot,
    rank: usize,
) -> Result<(), LowCommunicationError> {
    let saved = head(snapshot)?.map_or(0, |head| head.rank);
    (saved == rank)
        .then_some(())
        .ok_or(LowCommunicationError::PowerSgdRank { saved, rank })
}

fn head(snapshot: &Snapshot) -> Result<Option<Head>, LowCommunicationError> {
    let Some(text) = snapshot.text(TEXT) else {
        return Ok(None);
    };
    let read = || {
        let mut words = text.split(' ');
        let head = Head {
            worker: Rank::new(words.next()?.parse().ok()?),
            rank: words.next()?.parse().ok()?,
            steps: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(head)
    };
    match read() {
        Some(head) => Ok(Some(head)),
        None => Err(LowCommunicationError::SnapshotText { name: TEXT }),
    }
}

fn arrays(matrix: &LowRank, spec: &VariableSpec) -> Result<[VariableSpec; 2], Error> {
    let name = spec.name();
    Ok([
        VariableSpec::new(format!("{RESIDUAL}.{name}"), &matrix.shape())?,
        VariableSpec::new(format!("{RIGHT}.{name}"), &matrix.right_shape())?,
    ])
}
