//! This worker among the others that train the same network.
//!
//! Every exchange between workers is one method here, called by all of them in the same order; a worker that is alone
//! has nobody to exchange with.

use std::ops::Range;
use std::time::Duration;

use crate::error::Error;
use crate::shard;

/// One of the workers of a job, with what connects it to the others.
#[derive(Debug)]
pub(crate) struct Replica {
    rank: usize,
    workers: usize,
}

/// What one exchange cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Bytes of this worker's buffer; 0 if nobody else was there.
    pub(crate) bytes: usize,
    /// From the call to the result.
    pub(crate) elapsed: Duration,
}

impl Replica {
    /// The only worker of its job.
    pub(crate) fn alone() -> Self {
        Self {
            rank: 0,
            workers: 1,
        }
    }

    /// Number of workers in the job.
    pub(crate) fn workers(&self) -> usize {
        self.workers
    }

    /// Which of `count` items are this worker's to process.
    pub(crate) fn share(&self, count: usize) -> Range<usize> {
        shard::share(count, self.rank, self.workers)
    }

    /// Replaces `values` by those of the chief.
    pub(crate) fn broadcast(&mut self, _values: &mut [f32]) -> Result<(), Error> {
        Ok(())
    }

    /// Replaces `values` by their sum over all workers, element by element.
    pub(crate) fn all_reduce(&mut self, _values: &mut [f32]) -> Result<Traffic, Error> {
        Ok(Traffic::default())
    }

    /// Checks that all workers hold the same bits in `values`.
    pub(crate) fn require_equal(&mut self, _values: &[f32]) -> Result<(), Error> {
        Ok(())
    }

    /// The sum of `count` over all workers.
    pub(crate) fn sum(&mut self, count: usize) -> Result<usize, Error> {
        Ok(count)
    }
}

impl Traffic {
    /// Gigabytes (10⁹) of the buffer reduced in a second; 0 if nothing was exchanged.
    pub(crate) fn gigabytes_per_second(self) -> f64 {
        if self.bytes == 0 || self.elapsed.is_zero() {
            return 0.0;
        }
        self.bytes as f64 / self.elapsed.as_secs_f64() / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_a_finite_rate_even_where_there_was_none() {
        assert_eq!(Traffic::default().gigabytes_per_second(), 0.0);
        let unmeasurable = Traffic {
            bytes: 8,
            elapsed: Duration::ZERO,
        };
        assert_eq!(unmeasurable.gigabytes_per_second(), 0.0);
        let one = Traffic {
            bytes: 1_000_000,
            elapsed: Duration::from_millis(1),
        };
        assert!((one.gigabytes_per_second() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_lone_worker_has_all_samples_and_keeps_its_values() {
        let mut replica = Replica::alone();
        let mut values = [1.0, 2.0];
        replica.broadcast(&mut values).unwrap();
        assert_eq!(replica.all_reduce(&mut values).unwrap(), Traffic::default());
        replica.require_equal(&values).unwrap();
        assert_eq!((values, replica.sum(7).unwrap()), ([1.0, 2.0], 7));
        assert_eq!((replica.share(5), replica.workers()), (0..5, 1));
    }
}
