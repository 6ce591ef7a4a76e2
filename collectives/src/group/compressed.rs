//! The compressed all-reduce: an all-to-all of compressed shards, exact sums, an all-gather.
//!
//! Before its shard each rank sends one byte: the format, or that it has a value which is not
//! finite. All ranks read the same bytes, so all return the same error, and the group goes on.

use std::ops::Range;

use super::collect::length;
use super::{Group, Pending};
use crate::compression::{Contributions, Noise, Shard, Sum, shard};
use crate::{Compression, OperationError, Rank};

/// Stands before a shard whose rank has a value that is not finite.
const NOT_FINITE: u8 = 0;
/// Stands before a sum that is not finite, though all of its contributions are.
const SUM_NOT_FINITE: u8 = u8::MAX;

impl Group {
    /// Replaces `buffer`, on every rank, by about the sum of all ranks' buffers and residuals, for
    /// a fraction of the bytes of [`all_reduce`](Self::all_reduce).
    ///
    /// Each contribution is compressed once, to be sent: that of the rank that sums a shard up is
    /// taken as it is. It does so in `f32` in the order of the ranks, and compresses the sum once:
    /// [`Compression::error_bound`] says how far off that is. All ranks end with the same bits.
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
    /// [`OperationError::NotFinite`] and [`OperationError::SumNotFinite`] on all ranks: the group
    /// goes on, `buffer` and `residual` are as before. Ranks that compress in different formats get
    /// [`OperationError::CompressionDiffers`] where both make as many bytes, on the same terms, and
    /// else [`OperationError::Uneven`], which ends the group. [`OperationError::Length`], and those
    /// of [`all_reduce`](Self::all_reduce).
    #[track_caller]
    #[doc(alias("quantized_all_reduce", "error feedback"))]
    pub fn all_reduce_compressed(
        &mut self,
        buffer: &mut [f32],
        residual: Option<&mut [f32]>,
        compression: Compression,
    ) -> Result<(), OperationError> {
        let exchange = Exchange::new(self, buffer.len(), compression);
        let shard = exchange.shard(exchange.rank);
        let Some(residual) = residual else {
            let mut parts = exchange.contribute(self, buffer)?;
            exchange.reduce(self, &buffer[shard], &mut parts, None)?;
            return exchange.gather(self, parts, buffer);
        };
        let (found, expected) = (residual.len(), buffer.len());
        length("all_reduce_compressed", "residual", found, expected)?;
        let mut contribution = buffer.to_vec();
        for (one, left_out) in contribution.iter_mut().zip(residual.iter()) {
            *one += left_out;
        }
        let mut parts = exchange.contribute(self, &contribution)?;
        exchange.subtract_sent(self, &parts.sent, &mut contribution)?;
        let (own, mut sum) = (&contribution[shard.clone()], vec![0.0; shard.len()]);
        exchange.reduce(self, own, &mut parts, Some(&mut sum))?;
        exchange.gather(self, parts, buffer)?;
        let own = contribution[shard.clone()].iter_mut();
        for ((left_out, sum), told) in own.zip(&sum).zip(&buffer[shard]) {
            *left_out = sum - told;
        }
        residual.copy_from_slice(&contribution);
        Ok(())
    }

    /// Starts [`all_reduce_compressed`](Self::all_reduce_compressed) with a residual, and returns
    /// at once unless [the line is full](Self::start_operations); see
    /// [`start_all_reduce`](Self::start_all_reduce). Buffer and residual come back.
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

/// What has gone to the others and come from them; later the sums, of this rank's shard and of all.
struct Parts {
    sent: Vec<u8>,
    received: Vec<u8>,
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

    /// Sends each other rank this one's part in its shard, and takes theirs in this one's.
    fn contribute(&self, group: &mut Group, values: &[f32]) -> Result<Parts, OperationError> {
        let own = self.lengths[self.rank];
        let total: usize = self.lengths.iter().sum();
        let (outgoing, incoming) = (total - own, own * (self.world - 1));
        // Long enough for what they hold later, the sum of this rank's shard and those of all.
        let (mut sent, mut received) = (vec![0; total], vec![0; total.max(incoming)]);
        let flag = self.compress_contribution(values, &mut sent);
        let mut lengths = self.lengths.clone();
        lengths[self.rank] = 0;
        let mut taken = vec![own; self.world];
        taken[self.rank] = 0;
        let (to_others, from_others) = (&sent[..outgoing], &mut received[..incoming]);
        group.all_to_all_uneven(to_others, &lengths, from_others, &taken)?;
        let mut flags: Vec<u8> = from_others
            .chunks_exact(own)
            .map(|bytes| bytes[0])
            .collect();
        flags.insert(self.rank, flag);
        self.check_flags(&flags)?;
        Ok(Parts { sent, received })
    }

    /// This rank's part in every other shard, one after the other, and the flag of all.
    fn compress_contribution(&self, values: &[f32], bytes: &mut [u8]) -> u8 {
        let (mut finite, mut rest) = (true, &mut *bytes);
        for to in self.others() {
            let (own, behind) = rest.split_at_mut(self.lengths[to]);
            rest = behind;
            let shard = self.shard(to);
            // Elements of different shards have different numbers.
            let noise = self.noise(0, shard.start);
            finite &= self
                .compression
                .compress(&values[shard], &mut own[1..], noise);
        }
        let flag = if finite {
            self.compression.code()
        } else {
            NOT_FINITE
        };
        let mut start = 0;
        for to in self.others() {
            bytes[start] = flag;
            start += self.lengths[to];
        }
        flag
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.rank;
        (0..self.world).filter(move |rank| *rank != own)
    }

    /// Leaves of `values` what this rank's part in the other shards does not tell.
    fn subtract_sent(
        &self,
        group: &mut Group,
        sent: &[u8],
        values: &mut [f32],
    ) -> Result<(), OperationError> {
        let mut rest = sent;
        for to in self.others() {
            let (own, behind) = rest.split_at(self.lengths[to]);
            rest = behind;
            let read = self
                .compression
                .subtract(&own[1..], &mut values[self.shard(to)]);
            read.map_err(|_| self.malformed(group, group.rank()))?;
        }
        Ok(())
    }

    /// Adds up what all have for this rank's shard, `own` among them, and compresses the sum to
    /// where that which was sent was.
    fn reduce(
        &self,
        group: &mut Group,
        own: &[f32],
        parts: &mut Parts,
        kept: Option<&mut [f32]>,
    ) -> Result<(), OperationError> {
        let length = self.lengths[self.rank];
        let from_others = &parts.received[..length * (self.world - 1)];
        let shards = Rank::all(group.world()).filter(|rank| *rank != group.rank());
        let mut shards = shards
            .zip(from_others.chunks_exact(length))
            .map(|(from, bytes)| Shard {
                from,
                bytes: &bytes[1..],
            });
        let contributions = Contributions {
            before: shards.by_ref().take(self.rank).collect(),
            own,
            behind: shards.collect(),
        };
        let (flag, bytes) = parts.sent[..length].split_at_mut(1);
        let noise = self.noise(1, 0);
        let sum = self
            .compression
            .compress_sum(&contributions, bytes, noise, kept);
        flag[0] = match sum.map_err(|from| self.malformed(group, from))? {
            Sum::Finite => self.compression.code(),
            Sum::OwnNotFinite => NOT_FINITE,
            Sum::NotFinite => SUM_NOT_FINITE,
        };
        Ok(())
    }

    /// Replaces `result` by the sums of all shards.
    fn gather(
        &self,
        group: &mut Group,
        parts: Parts,
        result: &mut [f32],
    ) -> Result<(), OperationError> {
        let total = self.lengths.iter().sum();
        let (sum, mut all) = (&parts.sent[..self.lengths[self.rank]], parts.received);
        all.truncate(total);
        group.all_gather_uneven(sum, &mut all, &self.lengths)?;
        let mut shards = Vec::with_capacity(self.world);
        let mut rest = all.as_slice();
        for length in &self.lengths {
            let (own, behind) = rest.split_at(*length);
            rest = behind;
            shards.push(own);
        }
        let flags: Vec<u8> = shards.iter().map(|bytes| bytes[0]).collect();
        self.check_flags(&flags)?;
        for (rank, bytes) in Rank::all(group.world()).zip(shards) {
            let shard = self.shard(rank.index());
            let read = self.compression.expand(&bytes[1..], &mut result[shard]);
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

    /// What the ranks' flags, one each, say is wrong: the same on all ranks.
    fn check_flags(&self, flags: &[u8]) -> Result<(), OperationError> {
        let first = |wrong: &dyn Fn(u8) -> bool| {
            let mut ranks = (0_u32..).map(Rank::new).zip(flags);
            ranks.find(|(_, flag)| wrong(**flag)).map(|(rank, _)| rank)
        };
        if let Some(rank) = first(&|flag| flag == NOT_FINITE) {
            return Err(OperationError::NotFinite { rank });
        }
        if let Some(rank) = first(&|flag| flag == SUM_NOT_FINITE) {
            return Err(OperationError::SumNotFinite { rank });
        }
        match first(&|flag| flag != flags[0]) {
            Some(peer) => Err(OperationError::CompressionDiffers { peer }),
            None => Ok(()),
        }
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
