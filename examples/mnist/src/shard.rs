//! Which samples, in which order, and by whom: the same answer on every worker without asking.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The order of `count` samples in one epoch, a permutation that knows nothing of the number of workers.
pub(crate) fn epoch_order(count: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(epoch);
    let mut order: Vec<usize> = (0..count).collect();
    // Fisher and Yates, written out: a library's shuffle may change with its version.
    for last in (1..count).rev() {
        order.swap(last, random.random_range(0..=last));
    }
    order
}

/// The part of `count` items that belongs to `rank` of `workers`; the first ones take one more where it does not divide.
///
/// The parts of all ranks, in the order of ranks, are `0..count`. With fewer items than workers some are empty.
pub(crate) fn share(count: usize, rank: usize, workers: usize) -> Range<usize> {
    let (each, longer) = (count / workers, count % workers);
    let start = rank * each + rank.min(longer);
    start..start + each + usize::from(rank < longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_visits_every_sample_once() {
        for count in 0..40 {
            let mut order = epoch_order(count, 7, 0);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..count));
        }
    }

    #[test]
    fn seed_and_epoch_decide_the_order() {
        let order = epoch_order(100, 1, 0);
        assert_eq!(order, epoch_order(100, 1, 0));
        assert_ne!(order, epoch_order(100, 1, 1));
        assert_ne!(order, epoch_order(100, 2, 0));
    }

    #[test]
    fn shares_cover_all_items_in_order_and_differ_by_at_most_one() {
        for count in 0..=33 {
            for workers in 1..=16 {
                let shares: Vec<_> = (0..workers)
                    .map(|rank| share(count, rank, workers))
                    .collect();
                assert!(
                    shares.iter().cloned().flatten().eq(0..count),
                    "{count} over {workers}"
                );
                let longest = shares.iter().map(Range::len).max().unwrap();
                let shortest = shares.iter().map(Range::len).min().unwrap();
                assert!(
                    longest - shortest <= 1,
                    "{count} over {workers}: {shares:?}"
                );
            }
        }
    }
}
