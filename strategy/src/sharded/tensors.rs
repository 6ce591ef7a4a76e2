//! The numbers of a unit, whole or as one worker's shard, and what code of models sees of them.

use std::ops::{Index, IndexMut, Range};

use super::lent::{Lent, with_lent};
use super::partition::{Part, Partition, Which};

/// A buffer for all tensors of a unit, one after the other, and at least as long.
pub(super) type Whole = Vec<f32>;

/// One kind of numbers of a unit: its parameters, its gradients, or what is remembered of them.
#[derive(Debug)]
pub(super) enum Tensors {
    Whole(Whole),
    /// The rows of one worker, one tensor after the other.
    Shard {
        worker: usize,
        values: Vec<f32>,
    },
    /// Whole, where a model library has them.
    Lent(Box<dyn Lent>),
}

/// The rows of all workers, where they are kept.
#[derive(Debug)]
pub(super) enum AllRows<'a> {
    Buffer(&'a mut [f32]),
    Lent(&'a mut dyn Lent),
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
    /// No tensor at all.
    pub(super) const NONE: Self = Self::Whole(Vec::new());

    /// Zeros for all workers' rows.
    pub(super) fn whole(partition: &Partition, which: Which) -> Self {
        Self::Whole(vec![0.0; partition.len(which)])
    }

    /// Zeros for one worker's rows.
    pub(super) fn shard(partition: &Partition, which: Which, worker: usize) -> Self {
        let values = vec![0.0; partition.shard_len(which, worker)];
        Self::Shard { worker, values }
    }

    /// The rows of all workers; `None` of a shard.
    pub(super) fn all_rows(&mut self) -> Option<AllRows<'_>> {
        match self {
            Self::Whole(whole) => Some(AllRows::Buffer(whole)),
            Self::Lent(lent) => Some(AllRows::Lent(&mut **lent)),
            Self::Shard { .. } => None,
        }
    }

    /// Zeros for all that there is, which no model library has.
    pub(super) fn fill_zeros(&mut self) {
        match self {
            Self::Whole(values) | Self::Shard { values, .. } => values.fill(0.0),
            Self::Lent(_) => unreachable!("a model library keeps no state of our optimizers"),
        }
    }

    /// Copies what is at `positions` of a worker's shard to one place.
    pub(super) fn read(
        &mut self,
        partition: &Partition,
        worker: usize,
        positions: Range<usize>,
        into: &mut [f32],
    ) {
        match self {
            Self::Shard { values, .. } => into.copy_from_slice(&values[positions]),
            Self::Whole(whole) => {
                AllRows::Buffer(whole).read(partition, worker, positions, into);
            }
            Self::Lent(lent) => AllRows::Lent(&mut **lent).read(partition, worker, positions, into),
        }
    }

    /// The inverse of [`read`](Self::read).
    pub(super) fn write(
        &mut self,
        partition: &Partition,
        worker: usize,
        positions: Range<usize>,
        from: &[f32],
    ) {
        match self {
            Self::Shard { values, .. } => values[positions].copy_from_slice(from),
            Self::Whole(whole) => {
                AllRows::Buffer(whole).write(partition, worker, positions, from);
            }
            Self::Lent(lent) => {
                AllRows::Lent(&mut **lent).write(partition, worker, positions, from);
            }
        }
    }

    /// Lets `act` have the rows of a tensor that a worker has; those of all where it is nobody's.
    /// Of a shard, they are its owner's.
    pub(super) fn rows<R>(
        &mut self,
        partition: &Partition,
        tensor: usize,
        worker: Option<usize>,
        act: impl FnOnce(&mut [f32]) -> R,
    ) -> R {
        match self {
            Self::Whole(_) | Self::Shard { .. } => act(self.rows_mut(partition, tensor, worker)),
            Self::Lent(lent) => {
                let rows = partition.part(tensor, worker).elements;
                with_lent(&mut **lent, tensor, |all| act(&mut all[rows]))
            }
        }
    }

    /// The same of what no model library has.
    pub(super) fn rows_mut(
        &mut self,
        partition: &Partition,
        tensor: usize,
        worker: Option<usize>,
    ) -> &mut [f32] {
        match self {
            Self::Whole(whole) => &mut whole[partition.in_whole(&partition.part(tensor, worker))],
            Self::Shard { worker, values } => {
                let part = partition.part(tensor, Some(*worker));
                &mut values[partition.in_shard(&part, *worker)]
            }
            Self::Lent(_) => unreachable!("a model library keeps no state of our optimizers"),
        }
    }
}

impl AllRows<'_> {
    /// Lets `act` have elements of a tensor.
    pub(super) fn part<R>(
        &mut self,
        partition: &Partition,
        part: &Part,
        act: impl FnOnce(&mut [f32]) -> R,
    ) -> R {
        match self {
            Self::Buffer(whole) => act(&mut whole[partition.in_whole(part)]),
            Self::Lent(lent) => with_lent(*lent, part.tensor, |all| {
                act(&mut all[part.elements.clone()])
            }),
        }
    }

    /// Copies what is at `positions` of a worker's shard to one place.
    pub(super) fn read(
        &mut self,
        partition: &Partition,
        worker: usize,
        positions: Range<usize>,
        into: &mut [f32],
    ) {
        let mut rest = into;
        for part in partition.parts(worker, positions) {
            let (own, behind) = rest.split_at_mut(part.elements.len());
            self.part(partition, &part, |values| own.copy_from_slice(values));
            rest = behind;
        }
    }

    /// The inverse of [`read`](Self::read).
    pub(super) fn write(
        &mut self,
        partition: &Partition,
        worker: usize,
        positions: Range<usize>,
        from: &[f32],
    ) {
        let mut rest = from;
        for part in partition.parts(worker, positions) {
            let (own, behind) = rest.split_at(part.elements.len());
            self.part(partition, &part, |values| values.copy_from_slice(own));
            rest = behind;
        }
    }
}

/// Makes a buffer long enough. What is in it is unspecified.
pub(super) fn make_room(whole: &mut Whole, len: usize) {
    if whole.len() < len {
        // Not both at a time, and no copy of what nobody reads.
        *whole = Vec::new();
        *whole = vec![0.0; len];
    }
}

/// Adds other values to these.
pub(super) fn add(values: &mut [f32], others: &[f32]) {
    for (value, other) in values.iter_mut().zip(others) {
        *value += other;
    }
}
