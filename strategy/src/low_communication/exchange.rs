//! An exchange on its way: the operations that sum contributions up, and the small one behind them
//! by which every worker knows that all have the sum.

use std::time::{Duration, Instant};

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
    /// How long the sum took from when this worker began.
    pub(super) took: Duration,
}

#[derive(Debug)]
struct Buffers {
    sum: Sum,
    compression: Option<Compression>,
    is_summed: bool,
    took: Duration,
    limit: Option<Duration>,
    seal: Vec<f32>,
    /// Kept here, as an operation that fails does not give its buffers back.
    failure: Option<OperationError>,
}

/// Bytes of exchanges, as far as they are compressed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Traffic {
    /// Of what is exchanged.
    pub(super) bytes: u64,
    /// That a worker sends for it, in the mean of all.
    pub(super) sent: u64,
}

impl Traffic {
    /// Counts an exchange of so many values among so many workers.
    pub(super) fn count(&mut self, length: usize, how: Option<Compression>, workers: u32) {
        let bytes = match how {
            None => length * size_of::<f32>(),
            Some(compression) => compression.compressed_len(length),
        } as u64;
        self.bytes += bytes;
        // All but its own part, to be summed; then the sum of its part to each of the others.
        let workers = u64::from(workers);
        self.sent += 2 * bytes * workers.saturating_sub(1) / workers.max(1);
    }
}

/// Behind the weights and marks of a seal: how many know of newcomers, and how many were slow.
const COUNTS: usize = 2;

/// How a contribution is exchanged.
#[derive(Clone, Copy, Debug)]
pub(super) struct How<'a> {
    /// What compressing left out before.
    pub(super) residual: &'a [f32],
    pub(super) compression: Option<Compression>,
    /// A sum that takes longer on all workers is slow.
    pub(super) limit: Option<Duration>,
}

/// Starts to exchange a copy of the contribution.
pub(super) fn start(
    group: &mut Group,
    contribution: &Contribution,
    how: How<'_>,
) -> Result<Started, Error> {
    let buffers = Buffers::new(group, contribution, how);
    let pending = group.start_operations(buffers, |group, buffers| {
        buffers.failure = buffers.carry_out(group).err();
        Ok(())
    })?;
    Ok(Started(pending))
}

/// Exchanges a copy of the contribution, and returns when that is done.
pub(super) fn carry_out(group: &mut Group, contribution: &Contribution, how: How<'_>) -> Outcome {
    let mut buffers = Buffers::new(group, contribution, how);
    buffers.failure = buffers.carry_out(group).err();
    buffers.outcome()
}

impl Buffers {
    fn new(group: &Group, contribution: &Contribution, how: How<'_>) -> Self {
        let (world, rank) = (group.world() as usize, group.rank().index());
        // Weights, ones for those whose difference is not finite, and the counts.
        let mut seal = vec![0.0; 2 * world + COUNTS];
        seal[rank] = contribution.weight;
        seal[world + rank] = f32::from(u8::from(!contribution.is_finite));
        Self {
            sum: Sum {
                values: contribution.values.clone(),
                left_out: match how.compression {
                    Some(_) => how.residual.to_vec(),
                    None => Vec::new(),
                },
            },
            compression: how.compression,
            is_summed: false,
            took: Duration::ZERO,
            limit: how.limit,
            seal,
            failure: None,
        }
    }

    fn carry_out(&mut self, group: &mut Group) -> Result<(), OperationError> {
        let Sum { values, left_out } = &mut self.sum;
        let began = Instant::now();
        match self.compression {
            None => group.all_reduce(values, ReduceOp::Sum)?,
            Some(compression) => {
                group.all_reduce_compressed(values, Some(left_out), compression)?;
            }
        }
        (self.is_summed, self.took) = (true, began.elapsed());
        let is_slow = self.limit.is_some_and(|limit| self.took > limit);
        if let [.., newcomers, slow] = self.seal.as_mut_slice() {
            *newcomers = f32::from(u8::from(group.waiting() > 0));
            *slow = f32::from(u8::from(is_slow));
        }
        group.all_reduce(&mut self.seal, ReduceOp::Sum)
    }

    fn outcome(self) -> Outcome {
        Outcome {
            sum: self.is_summed.then_some(self.sum),
            took: self.took,
            sealed: match self.failure {
                None => Ok(read_seal(&self.seal)),
                Some(failure) => Err(failure),
            },
        }
    }
}

impl Started {
    /// Waits for it.
    pub(super) fn wait(self) -> Result<Outcome, Error> {
        Ok(self.0.wait()?.outcome())
    }
}

fn read_seal(seal: &[f32]) -> Seal {
    let (of_workers, counts) = seal.split_at(seal.len() - COUNTS);
    let (weights, marks) = of_workers.split_at(of_workers.len() / 2);
    let mut ranks = (0_u32..).map(Rank::new).zip(marks);
    Seal {
        weight: weights.iter().sum(),
        not_finite: ranks.find_map(|(rank, mark)| (*mark != 0.0).then_some(rank)),
        has_newcomers: counts[0] != 0.0,
        is_slow: counts[1] == weights.len() as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sends_all_but_its_own_part_and_its_part_of_the_sum_to_all_others() {
        for (workers, sent) in [(1, 0), (2, 4_000), (3, 5_333), (4, 6_000), (16, 7_500)] {
            let mut traffic = Traffic::default();
            traffic.count(1_000, None, workers);
            let expected = Traffic { bytes: 4_000, sent };
            assert_eq!(traffic, expected, "{workers} workers");
        }
        let int8 = Compression::Int8(meshwork_collectives::Rounding::Nearest);
        let mut traffic = Traffic::default();
        (0..2).for_each(|_| traffic.count(1_280, Some(int8), 4));
        let bytes = 2 * int8.compressed_len(1_280) as u64;
        assert_eq!((traffic.bytes, traffic.sent), (bytes, bytes * 3 / 2));
    }
}
