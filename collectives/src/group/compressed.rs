//! The compressed all-reduce: an all-to-all of compressed shards, exact sums, an all-gather.
//!
//! Before its shard each rank sends one byte: the format, or that it has a value which is not
//! finite. All ranks read the same bytes, so all return the same error, and the group goes on.
//!
//! Large buffers go in [pieces], so that the network and the processor work at the same time.

mod pieces;

use super::collect::length;
use super::{Group, Pending};
use crate::{Compression, OperationError};
use pieces::{Contribution, Exchange};

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
            let sum = exchange.sum(self, &mut Contribution::new(&exchange, buffer, None))?;
            return exchange.gather(self, &sum, buffer);
        };
        let (found, expected) = (residual.len(), buffer.len());
        length("all_reduce_compressed", "residual", found, expected)?;
        let mut contribution = Contribution::new(&exchange, buffer, Some(residual));
        let sum = exchange.sum(self, &mut contribution)?;
        let left_out = contribution.left_out;
        exchange.gather(self, &sum, buffer)?;
        residual.copy_from_slice(&left_out);
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
