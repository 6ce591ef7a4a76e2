//! Splits batches among replicas: by exact batch sizes, which are re-cut from batches of any
//! length, or evenly batch by batch. The policy (by file, by data, by hint) is chosen in `source`.

use std::fmt;

use crate::Rows;

/// How many samples of each global batch go to which replica, as worker `worker` counts them: its
/// own replicas first, then those of the workers behind it, around to those before it.
///
/// Of `global_batch` samples the first `global_batch mod replicas` replicas take one more.
///
/// ```
/// use meshwork_strategy::replica_batch_sizes;
///
/// // 7 samples for 2 workers of 2 replicas.
/// assert_eq!(replica_batch_sizes(7, 2, 2, 0), [2, 2, 2, 1]);
/// assert_eq!(replica_batch_sizes(7, 2, 2, 1), [2, 1, 2, 2]);
/// ```
#[must_use]
#[doc(alias = "batch_sizes_for_worker")]
pub fn replica_batch_sizes(
    global_batch: usize,
    workers: usize,
    local_replicas: usize,
    worker: usize,
) -> Vec<usize> {
    let replicas = workers * local_replicas;
    let own = worker * local_replicas;
    (0..replicas)
        .map(|place| (place + own) % replicas)
        .map(|replica| {
            let one_more = usize::from(replica < global_batch % replicas);
            global_batch / replicas + one_more
        })
        .collect()
}

/// The shards of one worker's replicas, in turn; `None` is a replica's turn without samples.
pub struct ReplicaShards<B>(Box<dyn Iterator<Item = Option<B>> + Send>);

impl<B: Rows + Send + 'static> ReplicaShards<B> {
    /// Each batch as it comes.
    pub(super) fn whole(batches: impl Iterator<Item = B> + Send + 'static) -> Self {
        // A worker asks on after its own end, while others have batches.
        Self(Box::new(batches.fuse().map(some_rows)))
    }

    /// Shards of these sizes, over and over, from batches of any size.
    pub(super) fn of_sizes(
        batches: impl Iterator<Item = B> + Send + 'static,
        sizes: Vec<usize>,
    ) -> Self {
        Self(Box::new(Resized {
            batches,
            sizes,
            turn: 0,
            rest: None,
            ended: false,
        }))
    }

    /// Each batch in `count` shards of one length, of which the last are shorter or empty.
    pub(super) fn even(batches: impl Iterator<Item = B> + Send + 'static, count: usize) -> Self {
        let cut = move |batch: B| {
            let rows = batch.rows();
            let length = rows.div_ceil(count);
            let shard = move |place: usize| {
                let start = (place * length).min(rows);
                let end = (start + length).min(rows);
                (start < end).then(|| batch.cut(start..end))
            };
            (0..count).map(shard)
        };
        Self(Box::new(batches.flat_map(cut)))
    }

    /// Only the shards of one share.
    pub(super) fn shard(self, shard: super::InputShard) -> Self {
        Self(Box::new(shard.of(self.0)))
    }
}

impl<B> Iterator for ReplicaShards<B> {
    type Item = Option<B>;

    fn next(&mut self) -> Option<Option<B>> {
        self.0.next()
    }
}

impl<B> fmt::Debug for ReplicaShards<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaShards").finish_non_exhaustive()
    }
}

struct Resized<I, B> {
    batches: I,
    sizes: Vec<usize>,
    turn: usize,
    /// Rows that were read and not given out.
    rest: Option<B>,
    ended: bool,
}

impl<B: Rows, I: Iterator<Item = B>> Iterator for Resized<I, B> {
    type Item = Option<B>;

    fn next(&mut self) -> Option<Option<B>> {
        if self.ended {
            return None;
        }
        let wanted = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        let mut held = self.rest.take();
        while held.as_ref().map_or(0, Rows::rows) < wanted {
            let Some(batch) = self.batches.next() else {
                self.ended = true;
                break;
            };
            held = Some(match held {
                Some(held) => held.join(batch),
                None => batch,
            });
        }
        let rows = held.as_ref().map_or(0, Rows::rows);
        if rows == 0 && wanted > 0 {
            return None;
        }
        let shard = held.as_ref().map(|held| held.cut(0..wanted.min(rows)));
        self.rest = held
            .filter(|_| rows > wanted)
            .map(|held| held.cut(wanted..rows));
        Some(shard.and_then(some_rows))
    }
}

/// A batch without rows is no batch.
fn some_rows<B: Rows>(batch: B) -> Option<B> {
    (batch.rows() > 0).then_some(batch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batches(sizes: &[usize]) -> Vec<Vec<usize>> {
        let mut next = 0;
        let mut batch = |size: &usize| {
            next += size;
            (next - size..next).collect()
        };
        sizes.iter().map(&mut batch).collect()
    }

    proptest! {
        #[test]
        fn sizes_split_a_batch_and_every_worker_begins_with_its_own(
            global in 0_usize..99, workers in 1_usize..6, local in 1_usize..5,
        ) {
            let first = replica_batch_sizes(global, workers, local, 0);
            prop_assert_eq!(first.iter().sum::<usize>(), global);
            prop_assert!(first.is_sorted_by(|a, b| a >= b) && first[0] - first[first.len() - 1] <= 1);
            for worker in 0..workers {
                let mut turned = replica_batch_sizes(global, workers, local, worker);
                turned.rotate_right(worker * local);
                prop_assert_eq!(&turned, &first);
            }
        }

        #[test]
        fn shards_of_any_sizes_hold_every_row_once_in_order(
            incoming in prop::collection::vec(0_usize..9, 0..7),
            sizes in prop::collection::vec(0_usize..5, 1..5),
        ) {
            prop_assume!(sizes.iter().any(|size| *size > 0));
            let rows: usize = incoming.iter().sum();
            let shards: Vec<_> = ReplicaShards::of_sizes(batches(&incoming).into_iter(), sizes.clone()).collect();
            for (turn, shard) in shards.iter().enumerate() {
                let found = shard.as_ref().map_or(0, Vec::len);
                let is_last = shards[turn + 1..].iter().all(Option::is_none);
                prop_assert!(found == sizes[turn % sizes.len()] || is_last);
            }
            let joined: Vec<usize> = shards.into_iter().flatten().flatten().collect();
            prop_assert_eq!(joined, (0..rows).collect::<Vec<_>>());
        }

        #[test]
        fn even_shards_of_all_workers_hold_every_row_once(
            incoming in prop::collection::vec(0_usize..9, 0..7), workers in 1_usize..5, local in 1_usize..4,
        ) {
            let mut seen = Vec::new();
            for worker in 0..workers {
                let shard = crate::InputContext::new(workers, worker, workers * local).unwrap().shard();
                let own = ReplicaShards::even(batches(&incoming).into_iter(), workers * local).shard(shard);
                let own: Vec<_> = own.collect();
                prop_assert_eq!(own.len(), incoming.len() * local);
                seen.extend(own.into_iter().flatten().flatten());
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..incoming.iter().sum()).collect::<Vec<usize>>());
        }
    }
}
