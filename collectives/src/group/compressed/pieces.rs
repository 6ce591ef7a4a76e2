//! A compressed all-reduce in pieces: while one is on its way, the next is compressed, and what
//! came of the one before is added up or read.
//!
//! Nothing is written to the caller's buffer before all sums are known to be finite: that is what
//! the first piece of the all-gather tells.

use std::io;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread::{self, Builder};

use super::Group;
use crate::compression::{Noise, shard};
use crate::{Compression, OperationError, Rank};

/// Stands before a part whose rank has a value that is not finite.
const NOT_FINITE: u8 = 0;

/// Elements of a rank's shard that make a piece: a few milliseconds of a fast link, many times the
/// round trip that each piece costs. Tests have several pieces of little.
const PIECE: usize = if cfg!(test) { 256 } else { 1 << 20 };

/// One compressed all-reduce, and what each rank does in it.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    compression: Compression,
    elements: usize,
    world: usize,
    rank: usize,
    pieces: usize,
}

/// A part of every rank's shard.
struct Piece {
    parts: Vec<Range<usize>>,
    /// Bytes of each, with what stands before them.
    lengths: Vec<usize>,
}

/// What a rank adds, as far as it is compressed.
pub(super) struct Contribution<'a> {
    exchange: &'a Exchange,
    values: &'a [f32],
    residual: Option<&'a [f32]>,
    /// Where there is a residual, what it is to be.
    pub(super) left_out: Vec<f32>,
}

/// Bytes that are not what this rank told all others to send.
struct Malformed(Rank);

impl Exchange {
    pub(super) fn new(group: &Group, elements: usize, compression: Compression) -> Self {
        let world = group.world() as usize;
        Self {
            compression,
            elements,
            world,
            rank: group.rank().index(),
            pieces: (elements / world / PIECE).max(1),
        }
    }

    pub(super) fn shard(&self, rank: usize) -> Range<usize> {
        shard(self.elements, self.world, rank)
    }

    fn piece(&self, number: usize) -> Piece {
        let part = |rank| {
            let whole = self.shard(rank);
            let part = shard(whole.len(), self.pieces, number);
            whole.start + part.start..whole.start + part.end
        };
        let parts: Vec<_> = (0..self.world).map(part).collect();
        let bytes = |part: &Range<usize>| 1 + self.compression.compressed_len(part.len());
        Piece {
            lengths: parts.iter().map(bytes).collect(),
            parts,
        }
    }

    /// Sends each rank its shard, and adds up what all have for this one's.
    pub(super) fn sum(
        &self,
        group: &mut Group,
        contribution: &mut Contribution<'_>,
    ) -> Result<Vec<f32>, OperationError> {
        let mut sum = vec![0.0; self.shard(self.rank).len()];
        let mut next = Some(contribution.compress(&self.piece(0)));
        let mut arrived = None;
        for number in 0..self.pieces {
            let piece = self.piece(number);
            let outgoing = next
                .take()
                .expect("compressed while the one before was sent");
            let before = arrived.take();
            let mut aside = || {
                let added = self.add(number, before.as_deref(), &mut sum);
                let behind = number + 1;
                (
                    added,
                    (behind < self.pieces).then(|| contribution.compress(&self.piece(behind))),
                )
            };
            let meanwhile = |group: &mut Group| self.all_to_all(group, &piece, &outgoing);
            let (incoming, (added, compressed)) = self.beside(group, meanwhile, &mut aside)?;
            (arrived, next) = (Some(incoming?), compressed);
            added.map_err(|wrong| self.abort(group, &wrong))?;
        }
        let added = self.add(self.pieces, arrived.as_deref(), &mut sum);
        added.map_err(|wrong| self.abort(group, &wrong))?;
        Ok(sum)
    }

    /// Replaces `result` by the sums of all shards.
    pub(super) fn gather(
        &self,
        group: &mut Group,
        sum: &[f32],
        result: &mut [f32],
    ) -> Result<(), OperationError> {
        let finite = is_finite(sum);
        let compress = |number: usize| {
            let piece = self.piece(number);
            let mut bytes = vec![NOT_FINITE; piece.lengths[self.rank]];
            if finite {
                let part = self.within_own(&piece);
                self.compress(
                    &sum[part],
                    &mut bytes,
                    self.noise(1, piece.parts[self.rank].start),
                );
            }
            bytes
        };
        let mut next = Some(compress(0));
        let mut arrived: Option<Vec<u8>> = None;
        for number in 0..self.pieces {
            let piece = self.piece(number);
            let reduced = next
                .take()
                .expect("compressed while the one before was sent");
            let before = arrived.take();
            let mut aside = || {
                let read = self.read(number, before.as_deref(), result);
                let behind = number + 1;
                (read, (behind < self.pieces).then(|| compress(behind)))
            };
            let meanwhile = |group: &mut Group| self.all_gather(group, &piece, &reduced);
            let (all, (read, compressed)) = self.beside(group, meanwhile, &mut aside)?;
            (arrived, next) = (Some(all?), compressed);
            read.map_err(|wrong| self.abort(group, &wrong))?;
        }
        let read = self.read(self.pieces, arrived.as_deref(), result);
        read.map_err(|wrong| self.abort(group, &wrong))
    }

    fn all_to_all(
        &self,
        group: &mut Group,
        piece: &Piece,
        outgoing: &[u8],
    ) -> Result<Vec<u8>, OperationError> {
        let own = piece.lengths[self.rank];
        let mut incoming = vec![0; own * self.world];
        let received = vec![own; self.world];
        group.all_to_all_uneven(outgoing, &piece.lengths, &mut incoming, &received)?;
        let flags = incoming.iter().step_by(own);
        self.check_flags(flags, |rank| OperationError::NotFinite { rank })?;
        Ok(incoming)
    }

    fn all_gather(
        &self,
        group: &mut Group,
        piece: &Piece,
        reduced: &[u8],
    ) -> Result<Vec<u8>, OperationError> {
        let mut all = vec![0; piece.lengths.iter().sum()];
        group.all_gather_uneven(reduced, &mut all, &piece.lengths)?;
        let starts = piece.lengths.iter().scan(0, |end, length| {
            let start = *end;
            *end += length;
            Some(start)
        });
        let flags = starts.map(|start| &all[start]);
        self.check_flags(flags, |rank| OperationError::SumNotFinite { rank })?;
        Ok(all)
    }

    /// Adds what has arrived of the piece before this one to this rank's sums.
    fn add(&self, number: usize, arrived: Option<&[u8]>, sum: &mut [f32]) -> Result<(), Malformed> {
        let Some(arrived) = arrived else {
            return Ok(());
        };
        let piece = self.piece(number - 1);
        let part = self.within_own(&piece);
        let ranks = (0_u32..).map(Rank::new);
        for (from, bytes) in ranks.zip(arrived.chunks_exact(piece.lengths[self.rank])) {
            let added = self.compression.add(&bytes[1..], &mut sum[part.clone()]);
            added.map_err(|_| Malformed(from))?;
        }
        Ok(())
    }

    /// Replaces values by what has arrived of the piece before this one.
    fn read(
        &self,
        number: usize,
        arrived: Option<&[u8]>,
        values: &mut [f32],
    ) -> Result<(), Malformed> {
        let Some(mut rest) = arrived else {
            return Ok(());
        };
        let piece = self.piece(number - 1);
        let ranks = (0_u32..).map(Rank::new);
        for ((part, length), from) in piece.parts.into_iter().zip(piece.lengths).zip(ranks) {
            let (bytes, behind) = rest.split_at(length);
            rest = behind;
            let values = &mut values[part];
            values.fill(0.0);
            let read = self.compression.add(&bytes[1..], values);
            read.map_err(|_| Malformed(from))?;
        }
        Ok(())
    }

    /// Where this rank's part of a piece is in its shard.
    fn within_own(&self, piece: &Piece) -> Range<usize> {
        let (part, shard) = (&piece.parts[self.rank], self.shard(self.rank));
        part.start - shard.start..part.end - shard.start
    }

    /// Lets the network carry something while a thread computes, if there is more than one piece.
    fn beside<T, A: Send>(
        &self,
        group: &mut Group,
        carry: impl FnOnce(&mut Group) -> T,
        compute: &mut (impl FnMut() -> A + Send),
    ) -> Result<(T, A), OperationError> {
        if self.pieces == 1 {
            return Ok((carry(group), compute()));
        }
        let both = thread::scope(|scope| {
            let thread = Builder::new().spawn_scoped(scope, compute)?;
            let carried = carry(group);
            match thread.join() {
                Ok(computed) => Ok((carried, computed)),
                Err(panic) => resume_unwind(panic),
            }
        });
        both.map_err(|error: io::Error| group.abort(format!("no thread can be started: {error}")))
    }

    fn abort(&self, group: &mut Group, Malformed(from): &Malformed) -> OperationError {
        group.abort(format!(
            "{from} sent a shard that is not compressed as {:?}",
            self.compression
        ))
    }

    fn check_flags<'a>(
        &self,
        flags: impl Iterator<Item = &'a u8> + Clone,
        not_finite: impl Fn(Rank) -> OperationError,
    ) -> Result<(), OperationError> {
        let mut flagged = (0_u32..).map(Rank::new).zip(flags.clone());
        let first = flags.clone().next();
        if let Some((rank, _)) = flagged.clone().find(|(_, flag)| **flag == NOT_FINITE) {
            return Err(not_finite(rank));
        }
        match flagged.find(|(_, flag)| Some(*flag) != first) {
            Some((peer, _)) => Err(OperationError::CompressionDiffers { peer }),
            None => Ok(()),
        }
    }

    fn compress(&self, values: &[f32], bytes: &mut [u8], noise: Noise) {
        let (flag, bytes) = bytes.split_at_mut(1);
        flag[0] = self.compression.code();
        self.compression.compress(values, bytes, noise);
    }

    /// Elements at different places have different numbers.
    fn noise(&self, stage: u64, first: usize) -> Noise {
        Noise::new([
            self.compression.seed(),
            self.rank as u64,
            stage,
            first as u64,
        ])
    }
}

impl<'a> Contribution<'a> {
    pub(super) fn new(
        exchange: &'a Exchange,
        values: &'a [f32],
        residual: Option<&'a [f32]>,
    ) -> Self {
        Self {
            exchange,
            values,
            residual,
            left_out: match residual {
                Some(residual) => vec![0.0; residual.len()],
                None => Vec::new(),
            },
        }
    }

    /// This rank's part in every part of a piece, one after the other.
    fn compress(&mut self, piece: &Piece) -> Vec<u8> {
        let mut bytes = vec![NOT_FINITE; piece.lengths.iter().sum()];
        if let Some(residual) = self.residual {
            for part in &piece.parts {
                let pairs = self.values[part.clone()]
                    .iter()
                    .zip(&residual[part.clone()]);
                for (into, (value, residual)) in self.left_out[part.clone()].iter_mut().zip(pairs) {
                    *into = value + residual;
                }
            }
        }
        let contributed = match self.residual {
            Some(_) => self.left_out.as_slice(),
            None => self.values,
        };
        if !piece
            .parts
            .iter()
            .all(|part| is_finite(&contributed[part.clone()]))
        {
            return bytes;
        }
        let mut rest = bytes.as_mut_slice();
        for (part, length) in piece.parts.iter().zip(&piece.lengths) {
            let (own, behind) = rest.split_at_mut(*length);
            rest = behind;
            let noise = self.exchange.noise(0, part.start);
            self.exchange
                .compress(&contributed[part.clone()], own, noise);
        }
        self.keep_what_is_left_out(piece, &bytes);
        bytes
    }

    /// Takes what the others are told away from what was to be told.
    fn keep_what_is_left_out(&mut self, piece: &Piece, bytes: &[u8]) {
        if self.residual.is_none() {
            return;
        }
        let mut rest = bytes;
        for (part, length) in piece.parts.iter().zip(&piece.lengths) {
            let (own, behind) = rest.split_at(*length);
            rest = behind;
            let mut told = vec![0.0; part.len()];
            let read = self.exchange.compression.add(&own[1..], &mut told);
            read.expect("these bytes were made above");
            for (left_out, told) in self.left_out[part.clone()].iter_mut().zip(told) {
                *left_out -= told;
            }
        }
    }
}

fn is_finite(values: &[f32]) -> bool {
    // To the end, several at a time: nearly always all are.
    values
        .iter()
        .fold(true, |all, value| all & value.is_finite())
}
