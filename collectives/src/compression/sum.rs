//! Sums of what all ranks have for a shard, compressed for all of them.

use std::ops::Range;

use multiversion::multiversion;

use super::{Compression, Malformed, Noise, is_finite};
use crate::Rank;

/// What all ranks have for one shard.
#[derive(Clone, Debug)]
pub(crate) struct Contributions<'a> {
    /// Those of the ranks before the one that sums up.
    pub(crate) before: Vec<Shard<'a>>,
    /// Of the rank that sums up, which nobody else has to know.
    pub(crate) own: &'a [f32],
    /// Those of the ranks behind it.
    pub(crate) behind: Vec<Shard<'a>>,
}

/// What a rank has sent for one shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard<'a> {
    pub(crate) from: Rank,
    pub(crate) bytes: &'a [u8],
}

/// Whether a shard and its sum can be told to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sum {
    Finite,
    /// The contribution of the rank that sums up has a value that is not finite.
    OwnNotFinite,
    /// All contributions are finite, but not their sum.
    NotFinite,
}

impl Compression {
    /// Compresses the sum of all contributions, which is made in the order of the ranks, and keeps
    /// it in `kept` too. Bytes of a sum that is not finite stand for nothing. The error is the rank
    /// whose shard is no compressed one.
    pub(crate) fn compress_sum(
        self,
        contributions: &Contributions<'_>,
        bytes: &mut [u8],
        noise: Noise,
        kept: Option<&mut [f32]>,
    ) -> Result<Sum, Rank> {
        compress_sum(self, contributions, bytes, noise, kept)
    }
}

/// By the widest instructions that the processor has, with the same bits by all. A block at a time,
/// so that sums need no memory of their own.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn compress_sum(
    compression: Compression,
    contributions: &Contributions<'_>,
    bytes: &mut [u8],
    noise: Noise,
    mut kept: Option<&mut [f32]>,
) -> Result<Sum, Rank> {
    let (mut own_finite, mut sum_finite) = (true, true);
    for (number, own) in contributions.own.chunks(Compression::BLOCK).enumerate() {
        let first = number * Compression::BLOCK;
        let start = number * compression.block_len(Compression::BLOCK);
        let place = start..start + compression.block_len(own.len());
        let mut sum = [0.0; Compression::BLOCK];
        let sum = &mut sum[..own.len()];
        add_blocks(compression, &contributions.before, &place, sum)?;
        for (sum, value) in sum.iter_mut().zip(own) {
            *sum += value;
        }
        add_blocks(compression, &contributions.behind, &place, sum)?;
        if let Some(kept) = kept.as_deref_mut() {
            kept[first..][..sum.len()].copy_from_slice(sum);
        }
        own_finite &= is_finite(own);
        sum_finite &= compression.compress_block(sum, &mut bytes[place], noise, first);
    }
    Ok(match (own_finite, sum_finite) {
        (true, true) => Sum::Finite,
        (true, false) => Sum::NotFinite,
        (false, true | false) => Sum::OwnNotFinite,
    })
}

#[inline(always)]
fn add_blocks(
    compression: Compression,
    shards: &[Shard<'_>],
    place: &Range<usize>,
    sum: &mut [f32],
) -> Result<(), Rank> {
    for shard in shards {
        let block = shard.bytes.get(place.clone()).ok_or(shard.from)?;
        let read = compression.read_block(block, sum, |sum, value| *sum += value);
        read.map_err(|Malformed| shard.from)?;
    }
    Ok(())
}
