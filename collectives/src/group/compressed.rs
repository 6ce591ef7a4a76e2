//! The compressed all-reduce: an all-to-all of compressed shards, exact sums, an all-gather.
//!
//! Before its shard each rank sends one byte: the format, or that it has a value which is not
//! finite. All ranks read the same bytes, so all return the same error, and the group goes on.

use std::ops::Range;

use super::collect::length;
use super::{Group, Pending};
use crate::compression::{Noise, shard};
use crate::{Compression, OperationError, Rank};

/// Stands before a shard whose rank has a value that is not finite.
const NOT_FINITE: u8 = 0;

impl Group {
    /// Replaces `buffer`, on every rank, by about the sum of all ranks' buffers and residuals, for
    /// a fraction of the bytes of [`all_reduce`](Self::all_reduce).
    ///
    /// Each contribution is compressed once. The rank that sums a shard up does so in `f32` in the
    /// order of the ranks, and compresses the sum once: [`Compression::error_bound`] says how far
    /// off that is. All ranks end with the same bits.
    ///
    /// `residual` is the error feedback: what compressing left out, here of this rank's
    /// contribution and of the sums that it made, is kept there, and is added to the next call's
    /// buffer. Begin with zeros. Without one, what is left out is lost.
    ///
    /// ```
    /// use meshwork_collectives::{Compression, Group, Rounding};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let (mut buffer, mut residual) = ([1.0, 0.3], [0.0; 2]);
    /// let int4 = Compression::Int4(Rounding::Nearest);
    /// group.all_reduce_compressed(&mut buffer, Some(&mut residual), int4)?;
    /// assert!((buffer[1] - 0.3).abs() <= 1.0 / 14.0);
    /// assert!((buffer[1] + residual[1] - 0.3).abs() < 1e-6);
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Shapes
    /// `buffer` has the same length on every rank, and `residual` that of `buffer`.
    ///
    /// # Errors
    /// [`OperationError::NotFinite`], [`OperationError::SumNotFinite`] and
    /// [`OperationError::CompressionDiffers`] on all ranks: the group goes on, `buffer` and
    /// `residual` are as before. [`OperationError::Length`],
    /// and those of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    #[doc(alias("quantized_all_reduce", "error feedback"))]
    pub fn all_reduce_compressed(
        &mut self,
        buffer: &mut [f32],
        residual: Option<&mut [f32]>,
        compression: Compression,
    ) -> Result<(), OperationError> {
        let exchange = Exchange::new(self, buffer.len(), compression);
        let Some(residual) = residual else {
            let outgoing = exchange.compress_contribution(buffer);
            let sum = exchange.sum(self, &outgoing)?;
            return exchange.gather(self, &exchange.compress_sum(&sum), buffer);
        };
        let (found, expected) = (residual.len(), buffer.len());
        length("all_reduce_compressed", "residual", found, expected)?;
        let mut contribution = buffer.to_vec();
        for (one, left_out) in contribution.iter_mut().zip(residual.iter()) {
            *one += left_out;
        }
        let outgoing = exchange.compress_contribution(&contribution);
        let sum = exchange.sum(self, &outgoing)?;
        exchange.gather(self, &exchange.compress_sum(&sum), buffer)?;
        exchange.read_shards(self, &outgoing, residual)?;
        for (left_out, contributed) in residual.iter_mut().zip(&contribution) {
            *left_out = contributed - *left_out;
        }
        let shard = exchange.shard(self.rank().index());
        let own = residual[shard.clone()].iter_mut();
        for ((left_out, sum), told) in own.zip(&sum).zip(&buffer[shard]) {
            *left_out += sum - told;
        }
        Ok(())
    }

    /// Starts [`all_reduce_compressed`](Self::all_reduce_compressed) with a residual, and returns
    /// at once; see [`start_all_reduce`](Self::start_all_reduce). Buffer and residual come back.
    ///
    /// # Errors
    /// [`OperationError::System`] when no thread can be started; what goes wrong later is told by
    /// [`Pending::wait`].
    pub fn start_all_reduce_compressed(
        &mut self,
        buffer: Vec<f32>,
        residual: Vec<f32>,
        compression: Compression,
    ) -> Result<Pending<ErrorFeedback>, OperationError> {
        let buffers = ErrorFeedback { buffer, residual };
        self.start_operations(buffers, move |group, ErrorFeedback { buffer, residual }| {
            group.all_reduce_compressed(buffer, Some(residual), compression)
        })
    }
}

/// The buffers of a compressed all-reduce that goes on by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorFeedback {
    /// The values, and then their sum over all ranks.
    pub buffer: Vec<f32>,
    /// What compression has left out so far.
    pub residual: Vec<f32>,
}

/// The sizes of one compressed all-reduce, and what each rank does in it.
struct Exchange {
    compression: Compression,
    elements: usize,
    world: usize,
    rank: usize,
    /// Bytes of each rank's shard, with what stands before it.
    lengths: Vec<usize>,
}

impl Exchange {
    fn new(group: &Group, elements: usize, compression: Compression) -> Self {
        let (world, rank) = (group.world() as usize, group.rank().index());
        let bytes = |rank| 1 + compression.compressed_len(shard(elements, world, rank).len());
        Self {
            compression,
            elements,
            world,
            rank,
            lengths: (0..world).map(bytes).collect(),
        }
    }

    fn shard(&self, rank: usize) -> Range<usize> {
        shard(self.elements, self.world, rank)
    }

    /// This rank's part in every shard, one after the other.
    fn compress_contribution(&self, values: &[f32]) -> Vec<u8> {
        let finite = is_finite(values);
        let mut bytes = vec![NOT_FINITE; self.lengths.iter().sum()];
        let mut rest = bytes.as_mut_slice();
        for (to, length) in self.lengths.iter().enumerate() {
            let (own, behind) = rest.split_at_mut(*length);
            rest = behind;
            if finite {
                let shard = self.shard(to);
                // Elements of different shards have different numbers.
                let noise = self.noise(0, shard.start);
                self.compress(&values[shard], own, noise);
            }
        }
        bytes
    }

    /// Sends each rank its shard, and adds up what all have for this one's.
    fn sum(&self, group: &mut Group, outgoing: &[u8]) -> Result<Vec<f32>, OperationError> {
        let own = self.lengths[self.rank];
        let mut incoming = vec![0; own * self.world];
        let received = vec![own; self.world];
        group.all_to_all_uneven(outgoing, &self.lengths, &mut incoming, &received)?;
        let flag = |from: usize| incoming[from * own];
        self.check_flags(flag, |rank| OperationError::NotFinite { rank })?;
        let mut sum = vec![0.0; self.shard(self.rank).len()];
        for (from, bytes) in Rank::all(group.world()).zip(incoming.chunks_exact(own)) {
            let added = self.compression.add(&bytes[1..], &mut sum);
            added.map_err(|_| self.malformed(group, from))?;
        }
        Ok(sum)
    }

    fn compress_sum(&self, sum: &[f32]) -> Vec<u8> {
        let mut bytes = vec![NOT_FINITE; self.lengths[self.rank]];
        if is_finite(sum) {
            self.compress(sum, &mut bytes, self.noise(1, 0));
        }
        bytes
    }

    /// Replaces `result` by the sums of all shards.
    fn gather(
        &self,
        group: &mut Group,
        reduced: &[u8],
        result: &mut [f32],
    ) -> Result<(), OperationError> {
        let mut all = vec![0; self.lengths.iter().sum()];
        group.all_gather_uneven(reduced, &mut all, &self.lengths)?;
        let flag = |from: usize| all[self.lengths[..from].iter().sum::<usize>()];
        self.check_flags(flag, |rank| OperationError::SumNotFinite { rank })?;
        self.read_shards(group, &all, result)
    }

    /// Replaces `values` by those of all shards.
    fn read_shards(
        &self,
        group: &mut Group,
        bytes: &[u8],
        values: &mut [f32],
    ) -> Result<(), OperationError> {
        let mut rest = bytes;
        for rank in Rank::all(group.world()) {
            let (own, behind) = rest.split_at(self.lengths[rank.index()]);
            rest = behind;
            let shard = self.shard(rank.index());
            let read = self.compression.expand(&own[1..], &mut values[shard]);
            read.map_err(|_| self.malformed(group, rank))?;
        }
        Ok(())
    }

    /// Ends the group because of what `from` sent.
    fn malformed(&self, group: &mut Group, from: Rank) -> OperationError {
        group.abort(format!(
            "{from} sent a shard that is not compressed as {:?}",
            self.compression
        ))
    }

    fn check_flags(
        &self,
        flag: impl Fn(usize) -> u8,
        not_finite: impl Fn(Rank) -> OperationError,
    ) -> Result<(), OperationError> {
        let ranks = || (0_u32..).map(Rank::new).take(self.world);
        if let Some(rank) = ranks().find(|rank| flag(rank.index()) == NOT_FINITE) {
            return Err(not_finite(rank));
        }
        match ranks().find(|rank| flag(rank.index()) != flag(0)) {
            Some(peer) => Err(OperationError::CompressionDiffers { peer }),
            None => Ok(()),
        }
    }

    fn compress(&self, values: &[f32], bytes: &mut [u8], noise: Noise) {
        let (flag, bytes) = bytes.split_at_mut(1);
        flag[0] = self.compression.code();
        self.compression.compress(values, bytes, noise);
    }

    fn noise(&self, stage: u64, first: usize) -> Noise {
        Noise::new([
            self.compression.seed(),
            self.rank as u64,
            stage,
            first as u64,
        ])
    }
}

fn is_finite(values: &[f32]) -> bool {
    // To the end, several at a time: nearly always all are.
    values
        .iter()
        .fold(true, |all, value| all & value.is_finite())
}
