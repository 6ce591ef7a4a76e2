//! Which rows of each tensor of a unit which worker has, and in which chunks they travel.

use std::ops::Range;

use crate::VariableSpec;

/// The tensors of a unit cut along their first axis: of `n` rows for `w` workers the first `n mod
/// w` have one more. A worker's shard is its rows of all tensors, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Partition {
    tensors: Vec<Rows>,
    /// Where each tensor begins in a buffer for all of them, and where the last ends.
    starts: Vec<usize>,
    /// The first ones, which are trained.
    trainable: usize,
    workers: usize,
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
        let mut starts = vec![0];
        starts.extend(specs.iter().scan(0, |end, spec| {
            *end += spec.len();
            Some(*end)
        }));
        Self {
            tensors: specs.iter().map(rows).collect(),
            starts,
            trainable,
            workers,
        }
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
        let count = self.tensors[tensor].count;
        let start =
            |worker: usize| worker * (count / self.workers) + worker.min(count % self.workers);
        start(worker)..start(worker + 1)
    }

    pub(super) fn all_rows(&self, tensor: usize) -> Range<usize> {
        0..self.tensors[tensor].count
    }

    /// The elements of a tensor that a worker has.
    pub(super) fn elements(&self, tensor: usize, worker: usize) -> Range<usize> {
        let (rows, len) = (self.rows(tensor, worker), self.tensors[tensor].len);
        rows.start * len..rows.end * len
    }

    /// The place of each tensor in a worker's shard.
    pub(super) fn places(
        &self,
        which: Which,
        worker: usize,
    ) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.count(which)).scan(0, move |end, tensor| {
            let start = *end;
            *end += self.elements(tensor, worker).len();
            Some(start..*end)
        })
    }

    pub(super) fn shard_len(&self, which: Which, worker: usize) -> usize {
        self.places(which, worker)
            .last()
            .map_or(0, |place| place.end)
    }

    /// The elements of a tensor that a worker has, in a buffer for all of them.
    pub(super) fn own(&self, tensor: usize, worker: usize) -> Range<usize> {
        let (start, elements) = (self.starts[tensor], self.elements(tensor, worker));
        start + elements.start..start + elements.end
    }

    /// Where the elements at `positions` of a worker's shard are in a buffer for all tensors.
    pub(super) fn pieces(
        &self,
        worker: usize,
        positions: Range<usize>,
    ) -> impl Iterator<Item = Range<usize>> + '_ {
        let places = self.places(Which::All, worker).enumerate();
        places.filter_map(move |(tensor, place)| {
            let start = positions.start.max(place.start);
            let end = positions.end.min(place.end);
            let first = self.own(tensor, worker).start;
            (start < end).then(|| first + start - place.start..first + end - place.start)
        })
    }

    /// The positions of each worker's shard that travel together, chunk by chunk: at most `most` of
    /// one worker.
    pub(super) fn chunks(
        &self,
        which: Which,
        most: usize,
    ) -> impl Iterator<Item = Vec<Range<usize>>> + use<> {
        let lengths = (0..self.workers).map(|worker| self.shard_len(which, worker));
        let lengths: Vec<usize> = lengths.collect();
        // The first worker has as many rows as any.
        let longest = self.shard_len(which, 0);
        (0..longest).step_by(most).map(move |start| {
            let of = |len: &usize| start.min(*len)..(start + most).min(*len);
            lengths.iter().map(of).collect()
        })
    }
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
            workers in 1_usize..6, most in 1_usize..9,
        ) {
            let partition = partition(&shapes, workers);
            let mut owners = vec![Vec::new(); partition.len(Which::All)];
            for chunk in partition.chunks(Which::All, most) {
                prop_assert_eq!(chunk.len(), workers);
                for (worker, positions) in chunk.into_iter().enumerate() {
                    prop_assert!(positions.len() <= most);
                    let pieces: Vec<_> = partition.pieces(worker, positions.clone()).collect();
                    let held: usize = pieces.iter().map(Range::len).sum();
                    prop_assert_eq!(held, positions.len());
                    pieces.into_iter().flatten().for_each(|at| owners[at].push(worker));
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
