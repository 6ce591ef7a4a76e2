//! The numbers of a unit, whole or as one worker's shard, and what code of models sees of them.

use std::ops::{Index, IndexMut, Range};

use super::partition::{Partition, Which};

/// A buffer for all tensors of a unit, one after the other, and at least as long.
pub(super) type Whole = Vec<f32>;

/// One kind of numbers of a unit: its parameters, its gradients, or what is remembered of them.
#[derive(Clone, Debug)]
pub(super) enum Tensors {
    Whole(Whole),
    /// The rows of one worker, one tensor after the other.
    Shard {
        worker: usize,
        values: Vec<f32>,
    },
}

/// The parameters of a unit, by their numbers in its [`UnitSpec`](super::UnitSpec), row-major.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    whole: &'a [f32],
    partition: &'a Partition,
}

/// Where the gradients of a unit are written, by the numbers of the parameters that are trained.
#[derive(Debug)]
pub struct Gradients<'a> {
    whole: &'a mut [f32],
    partition: &'a Partition,
}

impl<'a> Parameters<'a> {
    pub(super) fn new(whole: &'a [f32], partition: &'a Partition) -> Self {
        Self { whole, partition }
    }
}

impl<'a> Gradients<'a> {
    pub(super) fn new(whole: &'a mut [f32], partition: &'a Partition) -> Self {
        Self { whole, partition }
    }
}

impl Index<usize> for Parameters<'_> {
    type Output = [f32];

    fn index(&self, parameter: usize) -> &[f32] {
        &self.whole[self.partition.whole(parameter)]
    }
}

impl Index<usize> for Gradients<'_> {
    type Output = [f32];

    fn index(&self, parameter: usize) -> &[f32] {
        &self.whole[self.partition.whole(parameter)]
    }
}

impl IndexMut<usize> for Gradients<'_> {
    fn index_mut(&mut self, parameter: usize) -> &mut [f32] {
        &mut self.whole[self.partition.whole(parameter)]
    }
}

impl Tensors {
    /// Zeros for all workers' rows.
    pub(super) fn whole(partition: &Partition, which: Which) -> Self {
        Self::Whole(vec![0.0; partition.len(which)])
    }

    /// Zeros for one worker's rows.
    pub(super) fn shard(partition: &Partition, which: Which, worker: usize) -> Self {
        let values = vec![0.0; partition.shard_len(which, worker)];
        Self::Shard { worker, values }
    }

    /// The rows of each tensor, in order, that a worker has; those of all where it is nobody's. Of
    /// a shard, they are its owner's.
    pub(super) fn rows_mut<'a>(
        &'a mut self,
        partition: &'a Partition,
        which: Which,
        worker: Option<usize>,
    ) -> Vec<&'a mut [f32]> {
        match self {
            Self::Whole(whole) => {
                let tensors = 0..partition.count(which);
                let of = |tensor| match worker {
                    Some(worker) => partition.own(tensor, worker),
                    None => partition.whole(tensor),
                };
                slices_mut(whole, tensors.map(of))
            }
            Self::Shard { worker, values } => slices_mut(values, partition.places(which, *worker)),
        }
    }
}

/// Ranges of a buffer, which follow one another.
fn slices_mut(values: &mut [f32], ranges: impl Iterator<Item = Range<usize>>) -> Vec<&mut [f32]> {
    let (mut rest, mut gone) = (values, 0);
    let mut slices = Vec::new();
    for range in ranges {
        let (slice, behind) = rest[range.start - gone..].split_at_mut(range.len());
        slices.push(slice);
        rest = behind;
        gone = range.end;
    }
    slices
}

/// Makes a buffer long enough. What is in it is unspecified.
pub(super) fn make_room(whole: &mut Whole, len: usize) {
    if whole.len() < len {
        // Not both at a time, and no copy of what nobody reads.
        *whole = Vec::new();
        *whole = vec![0.0; len];
    }
}

/// Copies ranges of a buffer to one place, one after the other.
pub(super) fn collect_pieces(
    whole: &[f32],
    pieces: impl Iterator<Item = Range<usize>>,
    into: &mut [f32],
) {
    let mut rest = into;
    for piece in pieces {
        let (own, behind) = rest.split_at_mut(piece.len());
        own.copy_from_slice(&whole[piece]);
        rest = behind;
    }
}

/// The inverse of [`collect_pieces`].
pub(super) fn spread_pieces(
    whole: &mut [f32],
    pieces: impl Iterator<Item = Range<usize>>,
    from: &[f32],
) {
    let mut rest = from;
    for piece in pieces {
        let (own, behind) = rest.split_at(piece.len());
        whole[piece].copy_from_slice(own);
        rest = behind;
    }
}

/// Adds other values to these.
pub(super) fn add(values: &mut [f32], others: &[f32]) {
    for (value, other) in values.iter_mut().zip(others) {
        *value += other;
    }
}
