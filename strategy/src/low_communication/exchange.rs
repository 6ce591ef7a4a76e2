//! An exchange on its way: the operations that sum contributions up, and the small one behind them
//! by which every worker knows that all have the sum.

use meshwork_collectives::{Compression, Group, OperationError, Pending, Rank, ReduceOp};

use super::rounds::{Contribution, Seal, Sum};
use crate::Error;

/// An exchange that goes on by itself.
#[derive(Debug)]
pub(super) struct Started(Pending<Buffers>);

/// What came of it, as far as it came.
#[derive(Debug)]
pub(super) struct Outcome {
    /// `None` where contributions were not summed up.
    pub(super) sum: Option<Sum>,
    /// That all workers have the sum, or why that is not known.
    pub(super) sealed: Result<Seal, OperationError>,
}

#[derive(Debug)]
struct Buffers {
    sum: Sum,
    compression: Option<Compression>,
    is_summed: bool,
    seal: Vec<f32>,
    /// Kept here, as an operation that fails does not give its buffers back.
    failure: Option<OperationError>,
}

/// Starts to exchange a copy of the contribution, and of what compressing left out before.
pub(super) fn start(
    group: &mut Group,
    contribution: &Contribution,
    residual: &[f32],
    compression: Option<Compression>,
) -> Result<Started, Error> {
    let (world, rank) = (group.world() as usize, group.rank().index());
    // Weights, ones for those whose difference is not finite, and how many know of newcomers.
    let mut seal = vec![0.0; 2 * world + 1];
    seal[rank] = contribution.weight;
    seal[world + rank] = f32::from(u8::from(!contribution.is_finite));
    let buffers = Buffers {
        sum: Sum {
            values: contribution.values.clone(),
            left_out: match compression {
                Some(_) => residual.to_vec(),
                None => Vec::new(),
            },
        },
        compression,
        is_summed: false,
        seal,
        failure: None,
    };
    let pending = group.start_operations(buffers, |group, buffers| {
        buffers.failure = buffers.carry_out(group).err();
        Ok(())
    })?;
    Ok(Started(pending))
}

impl Buffers {
    fn carry_out(&mut self, group: &mut Group) -> Result<(), OperationError> {
        let Sum { values, left_out } = &mut self.sum;
        match self.compression {
            None => group.all_reduce(values, ReduceOp::Sum)?,
            Some(compression) => {
                group.all_reduce_compressed(values, Some(left_out), compression)?;
            }
        }
        self.is_summed = true;
        if let Some(newcomers) = self.seal.last_mut() {
            *newcomers = f32::from(u8::from(group.waiting() > 0));
        }
        group.all_reduce(&mut self.seal, ReduceOp::Sum)
    }
}

impl Started {
    /// Waits for it.
    pub(super) fn wait(self) -> Result<Outcome, Error> {
        let buffers = self.0.wait()?;
        Ok(Outcome {
            sum: buffers.is_summed.then_some(buffers.sum),
            sealed: match buffers.failure {
                None => Ok(read_seal(&buffers.seal)),
                Some(failure) => Err(failure),
            },
        })
    }
}

fn read_seal(seal: &[f32]) -> Seal {
    let (weights, rest) = seal.split_at(seal.len() / 2);
    let (marks, newcomers) = rest.split_at(weights.len());
    let mut ranks = (0_u32..).map(Rank::new).zip(marks);
    Seal {
        weight: weights.iter().sum(),
        not_finite: ranks.find_map(|(rank, mark)| (*mark != 0.0).then_some(rank)),
        has_newcomers: newcomers.iter().any(|count| *count != 0.0),
    }
}
