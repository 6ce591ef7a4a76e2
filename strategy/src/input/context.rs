//! `InputContext` and `InputShard`: the number of an input pipeline among those of all workers,
//! batch sizes per replica, and shards of a list.

use std::fmt::{self, Display};

use crate::{Error, Readers};

/// Which of the workers' inputs this is: one worker has one, for all of its replicas.
///
/// ```
/// use meshwork_strategy::InputContext;
///
/// // Worker 1 of 3, each with 2 replicas.
/// let context = InputContext::new(3, 1, 6)?;
/// assert_eq!(context.per_replica_batch_size(60)?, 10);
/// assert!(context.per_replica_batch_size(64).is_err());
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InputContext {
    pipelines: usize,
    pipeline: usize,
    replicas: usize,
}

impl InputContext {
    /// Input number `pipeline` of `pipelines`, for `replicas` replicas of all workers together.
    ///
    /// # Errors
    /// [`Error::NoSuchInput`] when there is no input of that number, or when the replicas do not
    /// split evenly among the workers.
    pub fn new(pipelines: usize, pipeline: usize, replicas: usize) -> Result<Self, Error> {
        let even = pipelines > 0 && replicas > 0 && replicas.is_multiple_of(pipelines);
        if pipeline >= pipelines || !even {
            return Err(Error::NoSuchInput {
                pipeline,
                pipelines,
                replicas,
            });
        }
        Ok(Self {
            pipelines,
            pipeline,
            replicas,
        })
    }

    /// The input of worker `pipeline`, one of `pipelines` that have `local` replicas each.
    pub(crate) fn of_worker(pipelines: usize, pipeline: usize, local: usize) -> Self {
        Self {
            pipelines,
            pipeline,
            replicas: pipelines * local,
        }
    }

    /// How many inputs there are: one for each worker.
    #[must_use]
    #[doc(alias = "num_input_pipelines")]
    pub fn pipelines(&self) -> usize {
        self.pipelines
    }

    /// The number of this input, which is the rank of its worker.
    #[must_use]
    #[doc(alias = "input_pipeline_id")]
    pub fn pipeline(&self) -> usize {
        self.pipeline
    }

    /// How many replicas train together, those of all workers.
    #[must_use]
    pub fn num_replicas_in_sync(&self) -> usize {
        self.replicas
    }

    /// Who reads the inputs, as cursors keep it.
    pub(crate) fn readers(&self) -> Readers {
        Readers::new(self.replicas, self.pipelines)
    }

    /// Replicas of this worker, which this input feeds.
    #[must_use]
    pub fn local_replicas(&self) -> usize {
        self.replicas / self.pipelines
    }

    /// The samples of one replica in a global batch of `global_batch` samples.
    ///
    /// # Errors
    /// [`Error::BatchNotDivisible`]
    #[doc(alias = "get_per_replica_batch_size")]
    pub fn per_replica_batch_size(&self, global_batch: usize) -> Result<usize, Error> {
        let replicas = self.replicas;
        if !global_batch.is_multiple_of(replicas) {
            return Err(Error::BatchNotDivisible {
                global_batch,
                replicas,
            });
        }
        Ok(global_batch / replicas)
    }

    /// This input's share of whatever is split among all of them.
    #[must_use]
    pub fn shard(&self) -> InputShard {
        InputShard {
            index: self.pipeline,
            count: self.pipelines,
        }
    }
}

impl Display for InputContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pipeline,
            pipelines,
            ..
        } = self;
        write!(
            f,
            "InputContext(input pipeline id {pipeline}, total: {pipelines})"
        )
    }
}

/// One of several shares: of `count` things handed out in turn, number `index` and each `count`th
/// after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InputShard {
    index: usize,
    count: usize,
}

impl InputShard {
    /// Everything, for one.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The number of this share, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many shares there are; at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The items of this share.
    ///
    /// ```
    /// use meshwork_strategy::InputContext;
    ///
    /// let second = InputContext::new(3, 1, 3)?.shard();
    /// assert!(second.of(0..10).eq([1, 4, 7]));
    /// # Ok::<(), meshwork_strategy::Error>(())
    /// ```
    pub fn of<I: IntoIterator>(self, items: I) -> impl Iterator<Item = I::Item> {
        items.into_iter().skip(self.index).step_by(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_do_not_exist_or_do_not_split_evenly_are_refused() {
        for (pipelines, pipeline, replicas) in [(0, 0, 1), (2, 2, 2), (2, 0, 3), (1, 0, 0)] {
            let expected = Error::NoSuchInput {
                pipeline,
                pipelines,
                replicas,
            };
            assert_eq!(
                InputContext::new(pipelines, pipeline, replicas),
                Err(expected)
            );
        }
        assert_eq!(InputContext::new(3, 2, 6).unwrap().local_replicas(), 2);
    }
}
