//! `StepSum`: sums over all workers for code that does not get hold of the replica of its step.

use meshwork_collectives::{self as collectives, Prepared};

use crate::{Error, MultiWorkerMirroredStrategy};

/// A sum over all workers, made inside of a step by code that does not get hold of its replica, as
/// what a model library calls in the middle of a forward or a backward pass. It takes memory once.
///
/// All workers make the same sums and other operations in the same order. Make it anew when the
/// workers have changed.
///
/// ```
/// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, StepSum};
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let mut sum = StepSum::new(&mut strategy, 2)?;
/// let mut numbers = [3.0, 0.5];
/// strategy.run(|_| sum.add_up(&mut numbers))?;
/// assert_eq!(numbers, [3.0, 0.5]); // of the only worker
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct StepSum {
    len: usize,
    /// `None` where there is one worker.
    operation: Option<Prepared<Vec<f64>>>,
}

impl StepSum {
    /// Prepares to sum `len` numbers.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] where a worker has more than one; [`Error::Group`] when no thread
    /// can be started.
    pub fn new(strategy: &mut MultiWorkerMirroredStrategy, len: usize) -> Result<Self, Error> {
        if strategy.local_replicas() > 1 {
            let replicas = strategy.local_replicas();
            return Err(Error::SeveralReplicas { replicas });
        }
        let operation = match strategy.num_replicas_in_sync() {
            1 => None,
            _ => {
                let sum = collectives::ReduceOp::Sum;
                Some(strategy.prepare_all_reduce::<f64, _>(vec![0.0; len], sum)?)
            }
        };
        Ok(Self { len, operation })
    }

    /// How many numbers are summed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it sums nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces `numbers` by their sums over all workers, which have the same bits everywhere.
    ///
    /// # Errors
    /// [`Error::Group`]; it then sums nothing any more.
    ///
    /// # Panics
    /// When there are not [`len`](Self::len) numbers.
    #[track_caller]
    pub fn add_up(&mut self, numbers: &mut [f64]) -> Result<(), Error> {
        assert_eq!(numbers.len(), self.len, "numbers that were prepared for");
        // One worker's numbers are their sum.
        if let Some(operation) = &mut self.operation {
            if let Some(buffer) = operation.buffer_mut() {
                buffer.copy_from_slice(numbers);
            }
            operation.start()?;
            numbers.copy_from_slice(operation.wait()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::each;
    use crate::{GradientBuckets, VariableSpec};

    #[test]
    fn sums_are_made_between_buckets_of_gradients() {
        for world in [1, 2, 3] {
            each(world, |mut strategy| {
                let own = f64::from(strategy.rank().number()) + 1.0;
                let all: f64 = (1..=world).map(f64::from).sum();
                let specs = [1, 2].map(|len| VariableSpec::new("w", &[len]).unwrap());
                let mut gradients = GradientBuckets::new(&mut strategy, &specs, 0).unwrap();
                let mut sum = StepSum::new(&mut strategy, 3).unwrap();
                for step in 0..3 {
                    let mut numbers = [own, f64::from(step), 1e300];
                    let made = strategy.run(|replica| {
                        gradients.gradient_mut(1)?.fill(1.0);
                        gradients.ready(replica, 1)?;
                        sum.add_up(&mut numbers)?;
                        gradients.gradient_mut(0)?.fill(2.0);
                        gradients.ready(replica, 0)?;
                        gradients.finish(replica)
                    });
                    made.unwrap();
                    let world = f64::from(world);
                    assert_eq!(numbers, [all, f64::from(step) * world, 1e300 * world]);
                    assert_eq!(f64::from(gradients.gradient(0)[0]), 2.0 * world);
                }
                strategy.leave().unwrap();
            });
        }
    }

    #[test]
    fn a_worker_that_has_ended_is_the_error_of_the_next_sum_and_of_those_behind_it() {
        each(2, |mut strategy| {
            let mut sum = StepSum::new(&mut strategy, 1).unwrap();
            if strategy.rank().index() == 1 {
                strategy.abort("no more");
                return;
            }
            let error = sum.add_up(&mut [1.0]).unwrap_err();
            assert!(error.to_string().contains("no more"), "{error}");
            assert!(sum.add_up(&mut [1.0]).is_err());
        });
    }

    #[test]
    #[should_panic(expected = "prepared for")]
    fn another_count_is_a_mistake() {
        let mut strategy = MultiWorkerMirroredStrategy::alone().unwrap();
        let mut sum = StepSum::new(&mut strategy, 2).unwrap();
        let _ = sum.add_up(&mut [1.0]);
    }
}
