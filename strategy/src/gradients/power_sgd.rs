//! `PowerSgd`: gradients of matrices as products of two thin ones. Which bytes travel is decided
//! here; how a matrix is compressed is in `low_rank`.

mod low_rank;
mod state;

use std::num::NonZeroUsize;

use crate::{Error, GradientBuckets, ReplicaContext, ReplicaReduceOp, VariableSpec};
use low_rank::LowRank;

pub(super) use state::check_rank;

/// The state of all variables' gradients, in the order of the variables.
#[derive(Debug)]
pub(super) struct PowerSgd {
    /// Of the products.
    rank: NonZeroUsize,
    /// `None` for those that travel whole.
    matrices: Vec<Option<LowRank>>,
}

impl PowerSgd {
    pub(super) fn new(specs: &[VariableSpec], rank: NonZeroUsize) -> Self {
        let matrix = |(number, spec): (u64, &VariableSpec)| {
            let (rows, columns) = match spec.shape() {
                [rows, rest @ ..] if !rest.is_empty() => (*rows, rest.iter().product::<usize>()),
                _ => return None,
            };
            // Below that the product has more elements than its factors together.
            let thin = rows.saturating_add(columns).saturating_mul(rank.get());
            (thin < spec.len()).then(|| LowRank::new(rows, columns, rank, number))
        };
        Self {
            rank,
            matrices: (0..).zip(specs).map(matrix).collect(),
        }
    }

    /// Makes all gradients about the sums over all workers, and `extra` numbers exactly: by two
    /// operations, the first with everything that travels whole.
    #[track_caller]
    pub(super) fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradientBuckets,
    ) -> Result<(), Error> {
        let mut first = Vec::new();
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            let gradient = gradients.gradient_mut(index)?;
            match matrix {
                Some(matrix) => matrix.project(gradient, &mut first),
                None => first.extend_from_slice(gradient),
            }
        }
        first.extend_from_slice(gradients.extra());
        replica.all_reduce(ReplicaReduceOp::Sum, &mut first)?;
        let (mut rest, mut second) = (first.as_slice(), Vec::new());
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            rest = match matrix {
                Some(matrix) => matrix.project_back(rest, &mut second),
                None => copy_front(rest, gradients.gradient_mut(index)?),
            };
        }
        copy_front(rest, gradients.extra_mut()?);
        replica.all_reduce(ReplicaReduceOp::Sum, &mut second)?;
        let mut rest = second.as_slice();
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            if let Some(matrix) = matrix {
                rest = matrix.expand(rest, gradients.gradient_mut(index)?);
            }
        }
        Ok(())
    }
}

/// Fills `to` from the front, and returns what is behind.
fn copy_front<'a>(from: &'a [f32], to: &mut [f32]) -> &'a [f32] {
    let (own, rest) = from.split_at(to.len());
    to.copy_from_slice(own);
    rest
}
