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
    standing: Standing,
}

/// How far a step has come.
#[derive(Debug, Default)]
enum Standing {
    #[default]
    Between,
    /// This worker has given all that the others need to make it, and does not know whether they
    /// have. What it then leaves out is where the gradients were.
    Given,
    /// The same, with what it then leaves out of each matrix.
    Kept(Vec<Vec<f32>>),
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
            standing: Standing::Between,
        }
    }

    /// Makes all gradients about the sums over all workers, and `extra` numbers exactly: by two
    /// operations, the first with everything that travels whole. After an error no step was made,
    /// unless [others have made it](Self::restore_shared).
    #[track_caller]
    pub(super) fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradientBuckets,
    ) -> Result<(), Error> {
        let mut first = self.project(gradients)?;
        replica.all_reduce(ReplicaReduceOp::Sum, &mut first)?;
        let mut second = self.project_back(gradients, &first)?;
        replica.all_reduce(ReplicaReduceOp::Sum, &mut second)?;
        self.expand(gradients, &second)
    }

    /// What the first operation sums.
    fn project(&mut self, gradients: &mut GradientBuckets) -> Result<Vec<f32>, Error> {
        self.standing = Standing::Between;
        let mut first = Vec::new();
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            let gradient = gradients.gradient_mut(index)?;
            match matrix {
                Some(matrix) => matrix.project(gradient, &mut first),
                None => first.extend_from_slice(gradient),
            }
        }
        first.extend_from_slice(gradients.extra());
        Ok(first)
    }

    /// What the second one sums.
    fn project_back(
        &mut self,
        gradients: &mut GradientBuckets,
        sums: &[f32],
    ) -> Result<Vec<f32>, Error> {
        let (mut rest, mut second) = (sums, Vec::new());
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            let gradient = gradients.gradient_mut(index)?;
            rest = match matrix {
                Some(matrix) => matrix.project_back(rest, gradient, &mut second),
                None => copy_front(rest, gradient),
            };
        }
        copy_front(rest, gradients.extra_mut()?);
        self.standing = Standing::Given;
        Ok(second)
    }

    fn expand(&mut self, gradients: &mut GradientBuckets, sums: &[f32]) -> Result<(), Error> {
        let mut rest = sums;
        for (index, matrix) in self.matrices.iter_mut().enumerate() {
            if let Some(matrix) = matrix {
                rest = matrix.expand(rest, gradients.gradient_mut(index)?);
            }
        }
        self.standing = Standing::Between;
        Ok(())
    }

    /// Keeps what the memory of these gradients has of a step that has failed, before it is given
    /// back.
    pub(super) fn keep(&mut self, gradients: &GradientBuckets) {
        if matches!(self.standing, Standing::Given) {
            let left_out = self.matrices.iter().enumerate().map(|(index, matrix)| {
                let gradient = matrix.as_ref().map(|_| gradients.gradient(index));
                gradient.map_or_else(Vec::new, <[f32]>::to_vec)
            });
            self.standing = Standing::Kept(left_out.collect());
        }
    }
}

/// Fills `to` from the front, and returns what is behind.
fn copy_front<'a>(from: &'a [f32], to: &mut [f32]) -> &'a [f32] {
    let (own, rest) = from.split_at(to.len());
    to.copy_from_slice(own);
    rest
}

#[cfg(test)]
mod tests;
