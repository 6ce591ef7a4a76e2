//! Which rows of each tensor of a unit which worker has, and in which chunks they travel.

use std::ops::Range;

use crate::VariableSpec;
use crate::bucketing::even_part;

/// The tensors of a unit cut along their first axis: of `n` rows for `w` workers the first `n mod
/// w` have one more. A worker's shard is its rows of all tensors, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    tensors: Vec<Rows>,
    /// Where each tensor begins in a buffer for all of them, and where the last ends.
    starts: Vec<usize>,
    /// For each worker, where the rows of each tensor begin in its shard, and where the last end.
    shard_starts: Vec<Vec<usize>>,
    /// The first ones, which are trained.
    trainable: usize,
    workers: usize,
}

/// Elements of one tensor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) tensor: usize,
    pub(super) elements: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Rows {
    count: usize,
    /// Elements of each.
    len: usize,
}

/// The first tensors of a unit: those that are trained, or all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Which {
    Trainable,
    All,
}

impl Partition {
    pub(super) fn new(specs: &[VariableSpec], trainable: usize, workers: usize) -> Self {
        let rows = |spec: &VariableSpec| match spec.shape() {
            [] => Rows { count: 1, len: 1 },
            [count, ..] => Rows {
                count: *count,
                len: spec.len().checked_div(*count).unwrap_or(0),
            },
        };
        let mut partition = Self {
            tensors: specs.iter().map(rows).collect(),
            starts: ends(specs.iter().map(VariableSpec::len)),
            shard_starts: Vec::with_capacity(workers),
            trainable,
            workers,
        };
        for worker in 0..workers {
            let lengths = (0..specs.len()).map(|tensor| partition.elements(tensor, worker).len());
            let starts = ends(lengths);
            partition.shard_starts.push(starts);
        }
        partition
    }

    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    pub(super) fn count(&self, which: Which) -> usize {
        match which {
            Which::Trainable => self.trainable,
            Which::All => self.tensors.len(),
        }
    }

    /// Elements of all tensors.
    pub(super) fn len(&self, which: Which) -> usize {
        self.starts[self.count(which)]
    }

    /// Where a tensor is in a buffer for all of them.
    pub(super) fn whole(&self, tensor: usize) -> Range<usize> {
        self.starts[tensor]..self.starts[tensor + 1]
    }

    /// The rows of a tensor that a worker has.
    pub(super) fn rows(&self, tensor: usize, worker: usize) -> Range<usize> {
        even_part(self.tensors[tensor].count, self.workers, worker)
    }

    pub(super) fn all_rows(&self, tensor: usize) -> Range<usize> {
        0..self.tensors[tensor].count
    }

    /// The elements of a tensor that a worker has.
    pub(super) fn elements(&self, tensor: usize, worker: usize) -> Range<usize> {
        let (rows, len) = (self.rows(tensor, worker), self.tensors[tensor].len);
        rows.start * len..rows.end * len
    }

    pub(super) fn shard_len(&self, which: Which, worker: usize) -> usize {
        self.shard_starts[worker][self.count(which)]
    }

    /// The elements of a tensor that a worker has, or all where it is nobody's.
    pub(super) fn part(&self, tensor: usize, worker: Option<usize>) -> Part {
        let elements = match worker {
            Some(worker) => self.elements(tensor, worker),
            None => 0..self.whole(tensor).len(),
        };
        Part { tensor, elements }
    }

    /// Where a part is in a buffer for all tensors.
    pub(super) fn in_whole(&self, part: &Part) -> Range<usize> {
        let start = self.starts[part.tensor];
        start + part.elements.start..start + part.elements.end
    }

    /// Where a part of a worker's rows is in its shard.
    pub(super) fn in_shard(&self, part: &Part, worker: usize) -> Range<usize> {
        let first = self.elements(part.tensor, worker).start;
        let start = self.shard_starts[worker][part.tensor];
        start + part.elements.start - first..start + part.elements.end - first
    }

    /// What is at `positions` of a worker's shard.
    pub(super) fn parts(
        &self,
        worker: usize,
        positions: Range<usize>,
    ) -> impl Iterator<Item = Part> + '_ {
        let starts = &self.shard_starts[worker];
        let first = starts.partition_point(|start| *start <= positions.start);
        let tensors = first.saturating_sub(1)..self.tensors.len();
        let reached = positions.end;
        let tensors = tensors.take_while(move |tensor| starts[*tensor] < reached);
        tensors.filter_map(move |tensor| {
            let start = positions.start.max(starts[tensor]);
            let end = positions.end.min(starts[tensor + 1]);
            let first = self.elements(tensor, worker).start;
            (start < end).then(|| Part {
                tensor,
                elements: first + start - starts[tensor]..first + end - starts[tensor],
            })
        })
    }

    /// Of tensors that follow one another, the positions of each worker's shard that travel
    /// together, chunk by chunk: at most `most` of one worker.
    pub(super) fn chunks(
        &self,
        tensors: Range<usize>,
        most: usize,
    ) -> impl Iterator<Item = Vec<Range<usize>>> + use<> {
        let positions = |starts: &Vec<usize>| starts[tensors.start]..starts[tensors.end];
        let all: Vec<Range<usize>> = self.shard_starts.iter().map(positions).collect();
        // The first worker has as many rows as any.
        let longest = all.first().map_or(0, Range::len);
        (0..longest).step_by(most).map(move |start| {
            let of = |own: &Range<usize>| {
                let from = |distance: usize| (own.start + distance).min(own.end);
                from(start)..from(start + most)
            };
            all.iter().map(of).collect()
        })
    }

    /// Elements of a tensor that each worker has.
    pub(super) fn lengths(&self, tensor: usize) -> Vec<usize> {
        let workers = 0..self.workers;
        let of = |worker| self.elements(tensor, worker).len();
        workers.map(of).collect()
    }
}

/// Where things of these lengths begin that follow one another, and where the last ends.
fn ends(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let ends = lengths.scan(0, |end, length| {
        *end += length;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partition(shapes: &[Vec<usize>], workers: usize) -> Partition {
        let specs = shapes.iter().map(|shape| VariableSpec::new("v", shape));
        let specs: Vec<_> = specs.map(Result::unwrap).collect();
        Partition::new(&specs, specs.len(), workers)
    }

    proptest! {
        #[test]
        fn every_element_is_in_one_chunk_of_one_worker_and_rows_stay_whole(
            shapes in prop::collection::vec(prop::collection::vec(0_usize..5, 0..4), 0..5),
            workers in 1_usize..6, most in 1_usize..9, split in 0_usize..5,
        ) {
            let partition = partition(&shapes, workers);
            let mut owners = vec![Vec::new(); partition.len(Which::All)];
            let split = split.min(shapes.len());
            let runs = [0..split, split..shapes.len()].into_iter();
            for chunk in runs.flat_map(|tensors| partition.chunks(tensors, most)) {
                prop_assert_eq!(chunk.len(), workers);
                for (worker, positions) in chunk.into_iter().enumerate() {
                    prop_assert!(positions.len() <= most);
                    let parts: Vec<_> = partition.parts(worker, positions.clone()).collect();
                    let in_shard = parts.iter().flat_map(|part| partition.in_shard(part, worker));
                    prop_assert!(in_shard.eq(positions));
                    let in_whole = parts.iter().flat_map(|part| partition.in_whole(part));
                    in_whole.for_each(|at| owners[at].push(worker));
                }
            }
            for (tensor, shape) in shapes.iter().enumerate() {
                let owners = &owners[partition.whole(tensor)];
                let row = shape.iter().skip(1).product::<usize>().max(1);
                for (at, owner) in owners.iter().enumerate() {
                    prop_assert_eq!(owner.len(), 1);
                    prop_assert_eq!(&owners[at / row * row], owner);
                }
                prop_assert!(owners.is_sorted());
            }
        }
    }

    #[test]
    fn rows_that_do_not_split_go_to_the_first_workers() {
        let three = partition(&[vec![8, 2], vec![2], vec![]], 3);
        let rows = |tensor| -> Vec<_> { (0..3).map(|worker| three.rows(tensor, worker)).collect() };
        assert_eq!(rows(0), [0..3, 3..6, 6..8]);
        assert_eq!(rows(1), [0..1, 1..2, 2..2]);
        assert_eq!(rows(2), [0..1, 1..1, 1..1]);
        let lengths = (0..3).map(|worker| three.shard_len(Which::All, worker));
        assert_eq!(lengths.collect::<Vec<_>>(), [8, 7, 4]);
    }
}
