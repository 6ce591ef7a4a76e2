//! `DistributedDataset`: which sample indices each worker takes of each global batch, shuffled by a
//! seed, and resumption from a cursor. For data that come as batches rather than by index there is
//! `input`.

use meshwork_collectives::Rank;
use meshwork_collectives::schedule::chunk;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::{Cursor, Error, Readers};

/// Which samples each worker takes: global batches of numbered samples, split among the workers.
///
/// All workers together see the same global batches in the same order whatever their number, so
/// that a run with four workers can be compared with a run of one. Of a global batch of `b`
/// samples, the first `b mod n` of `n` workers take one more than the others; in the last,
/// shorter batch of an epoch some may take none. Every sample is taken once per epoch.
///
/// ```
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let dataset = strategy.distribute_dataset(10, 4)?;
/// let lengths: Vec<_> = dataset.epoch(0).map(|batch| batch.indices().len()).collect();
/// assert_eq!(lengths, [4, 4, 2]);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DistributedDataset {
    samples: usize,
    global_batch: usize,
    workers: usize,
    worker: usize,
    seed: Option<u64>,
}

impl DistributedDataset {
    pub(crate) fn new(
        samples: usize,
        global_batch: usize,
        worker: Rank,
        workers: u32,
    ) -> Result<Self, Error> {
        let workers = workers as usize;
        if global_batch < workers {
            return Err(Error::BatchTooSmall {
                global_batch,
                workers,
            });
        }
        if samples == 0 {
            return Err(Error::NoSamples);
        }
        Ok(Self {
            samples,
            global_batch,
            workers,
            worker: worker.index(),
            seed: None,
        })
    }

    /// Visits the samples in another order in each epoch, decided by `seed`, which must be the
    /// same in every worker.
    #[must_use]
    pub fn shuffled(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// This worker's parts of the global batches of epoch number `epoch`.
    #[must_use]
    pub fn epoch(&self, epoch: u64) -> DataEpoch {
        self.rest_of(epoch, 0)
    }

    /// This worker's parts of the rest of an epoch from `cursor` on, which may have been saved by
    /// any number of workers, and with another batch size.
    ///
    /// # Errors
    /// [`Error::CursorOutside`]
    pub fn resume(&self, cursor: Cursor) -> Result<DataEpoch, Error> {
        cursor.check(Readers::new(self.workers, self.workers))?;
        let position = usize::try_from(cursor.position()).ok();
        match position.filter(|position| *position <= self.samples) {
            Some(taken) => Ok(self.rest_of(cursor.epoch(), taken)),
            None => Err(Error::CursorOutside {
                position: cursor.position(),
                samples: self.samples,
            }),
        }
    }

    fn rest_of(&self, epoch: u64, taken: usize) -> DataEpoch {
        let mut order: Vec<usize> = (0..self.samples).collect();
        if let Some(seed) = self.seed {
            shuffle(&mut order, seed, epoch);
        }
        DataEpoch {
            dataset: *self,
            epoch,
            order,
            taken,
        }
    }
}

/// This worker's parts of the global batches of one epoch, in order.
#[derive(Clone, Debug)]
pub struct DataEpoch {
    dataset: DistributedDataset,
    epoch: u64,
    order: Vec<usize>,
    /// Samples that all workers together have been given.
    taken: usize,
}

impl DataEpoch {
    /// The position after the batches taken so far, to [`resume`](DistributedDataset::resume) from.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.epoch, self.taken as u64)
    }
}

impl Iterator for DataEpoch {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let DistributedDataset {
            global_batch,
            workers,
            worker,
            ..
        } = self.dataset;
        let left = &self.order[self.taken..];
        let global = left.chunks(global_batch).next()?;
        let indices = global[chunk(global.len(), workers, worker)].to_vec();
        let global_len = global.len();
        self.taken += global_len;
        Some(Batch {
            indices,
            global_len,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.order.len() - self.taken).div_ceil(self.dataset.global_batch);
        (left, Some(left))
    }
}

impl ExactSizeIterator for DataEpoch {}

/// This worker's part of one global batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    indices: Vec<usize>,
    global_len: usize,
}

impl Batch {
    /// The samples of this worker; may be empty in the last batch of an epoch.
    #[must_use]
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// Samples of all workers together.
    #[must_use]
    pub fn global_len(&self) -> usize {
        self.global_len
    }

    /// This worker's share of the global batch, 0 to 1: a mean over its own samples, times this,
    /// summed over all workers is the mean over the global batch, however uneven the parts are.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.indices.len() as f64 / self.global_len as f64
    }
}

/// Fisher and Yates's shuffle, drawn from ChaCha8 (whose output is a fixed function of its key),
/// so that a seed means the same order in every release.
fn shuffle(order: &mut [usize], seed: u64, epoch: u64) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&epoch.to_le_bytes());
    let mut random = ChaCha8Rng::from_seed(key);
    for last in (1..order.len()).rev() {
        // The high half of a 128-bit product is below its second factor; the bias is below
        // 2^-64 times the number of samples.
        let product = u128::from(random.next_u64()) * (last as u128 + 1);
        let other = usize::try_from(product >> 64).expect("at most `last`, which is a usize");
        order.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(samples: usize, global_batch: usize, workers: u32, epoch: u64) -> Vec<Vec<Batch>> {
        Rank::all(workers)
            .map(|worker| DistributedDataset::new(samples, global_batch, worker, workers).unwrap())
            .map(|dataset| dataset.shuffled(7).epoch(epoch).collect())
            .collect()
    }

    proptest! {
        #[test]
        fn workers_together_see_the_batches_of_one_worker(
            samples in 1_usize..300,
            workers in 1_u32..9,
            more in 0_usize..40,
            epoch in 0_u64..3,
        ) {
            let global_batch = workers as usize + more;
            let alone = &parts(samples, global_batch, 1, epoch)[0];
            let together = parts(samples, global_batch, workers, epoch);
            for (step, whole) in alone.iter().enumerate() {
                let joined: Vec<_> = together.iter().flat_map(|worker| worker[step].indices().to_vec()).collect();
                prop_assert_eq!(&joined, whole.indices());
                let weight: f64 = together.iter().map(|worker| worker[step].weight()).sum();
                prop_assert!((weight - 1.0).abs() < 1e-12);
                prop_assert!(together.iter().all(|worker| worker[step].global_len() == joined.len()));
            }
            let mut seen: Vec<_> = alone.iter().flat_map(|batch| batch.indices().to_vec()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn an_epoch_resumed_by_other_workers_uses_each_sample_once(
            samples in 1_usize..200,
            (before, after) in (1_u32..6, 1_u32..6),
            (batch, other_batch) in (6_usize..40, 6_usize..40),
            steps in 0_usize..20,
        ) {
            let dataset = |worker, workers, batch| {
                DistributedDataset::new(samples, batch, worker, workers).unwrap().shuffled(7)
            };
            let mut seen = Vec::new();
            let mut cursors = Vec::new();
            for worker in Rank::all(before) {
                let mut epoch = dataset(worker, before, batch).epoch(2);
                seen.extend(epoch.by_ref().take(steps).flat_map(|batch| batch.indices().to_vec()));
                cursors.push(epoch.cursor());
            }
            prop_assert!(cursors.iter().all(|cursor| *cursor == cursors[0]));
            for worker in Rank::all(after) {
                let rest = dataset(worker, after, other_batch).resume(cursors[0]).unwrap();
                seen.extend(rest.flat_map(|batch| batch.indices().to_vec()));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..samples).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_position_behind_the_end_is_refused() {
        let dataset = DistributedDataset::new(10, 4, Rank::CHIEF, 1).unwrap();
        assert_eq!(dataset.resume(Cursor::new(0, 10)).unwrap().len(), 0);
        let refused = dataset.resume(Cursor::new(0, 11));
        assert!(matches!(
            refused,
            Err(Error::CursorOutside {
                position: 11,
                samples: 10
            })
        ));
    }

    #[test]
    fn epochs_and_seeds_give_different_orders_and_the_same_one_again() {
        let order = |seed, epoch| {
            let mut order: Vec<usize> = (0..100).collect();
            shuffle(&mut order, seed, epoch);
            order
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
        // Held fixed: a change would make resumed runs visit other samples.
        assert_eq!(order(1, 0)[..6], [89, 83, 27, 67, 6, 86]);
    }

    #[test]
    fn a_shuffle_favours_no_place() {
        let mut first = [0_u32; 8];
        for epoch in 0..8000 {
            let mut order: Vec<usize> = (0..8).collect();
            shuffle(&mut order, 3, epoch);
            first[order[0]] += 1;
        }
        assert!(
            first.iter().all(|count| (850..1150).contains(count)),
            "{first:?}"
        );
    }

    #[test]
    fn too_small_batches_and_no_samples_are_refused() {
        let new = |samples, batch| DistributedDataset::new(samples, batch, Rank::CHIEF, 4);
        assert_eq!(
            new(10, 3),
            Err(Error::BatchTooSmall {
                global_batch: 3,
                workers: 4
            })
        );
        assert_eq!(new(0, 4), Err(Error::NoSamples));
    }

    #[test]
    fn the_iterator_knows_how_many_batches_are_left() {
        let dataset = DistributedDataset::new(10, 4, Rank::CHIEF, 1).unwrap();
        let mut epoch = dataset.epoch(0);
        for left in [3, 2, 1, 0] {
            assert_eq!(epoch.len(), left);
            assert_eq!(epoch.next().is_some(), left > 0);
        }
    }
}
