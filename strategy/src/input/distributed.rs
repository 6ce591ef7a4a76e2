//! One epoch over an `Input` in lockstep: workers agree on whether there is a next step and how
//! many samples it has, so none waits in a reduction for one that has run out. Reading is in
//! `source`, splitting among replicas in `replica_shards`, what is compared in `common`.

use std::mem;

use super::common::Common;
use super::{AutoShard, Input, InputContext, ReplicaShards};
use crate::{Cursor, Error, MultiWorkerMirroredStrategy, PerReplica, Rows};

/// The steps of one epoch over an [`Input`], with the shards of this worker's replicas.
///
/// The epoch continues until no worker has samples left. One that runs out before the others
/// continues without samples, so that none of them waits for it in a reduction.
#[derive(Debug)]
pub struct DistributedBatches<B> {
    shards: ReplicaShards<B>,
    context: InputContext,
    common: Common,
    /// Whether those that compute one replica have been compared.
    is_compared: bool,
    cursor: Cursor,
}

/// The shards of this worker's replicas in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepShards<B> {
    shards: PerReplica<Option<B>>,
    global_rows: usize,
}

impl<B: Rows + Send + 'static> DistributedBatches<B> {
    pub(crate) fn new(
        input: &Input<B>,
        policy: AutoShard,
        context: InputContext,
        from: Cursor,
    ) -> Result<Self, Error> {
        let readers = context.readers();
        from.check(readers)?;
        let policy = match policy {
            // As the epoch began: a share of the files has no such place.
            AutoShard::Auto if from.is_within_batches() => AutoShard::Data,
            policy => policy,
        };
        let mut shards = input.replica_shards(policy, &context, from.epoch())?;
        let local = context.local_replicas() as u64;
        let passed = from.position().checked_mul(local);
        let passed = passed.ok_or_else(|| Error::CursorText {
            text: from.to_string(),
        })?;
        for _ in 0..passed {
            if shards.next().is_none() {
                break;
            }
        }
        let mut cursor = Cursor::new(from.epoch(), from.position());
        if !input.steps_are_batches(policy, &context)? {
            cursor = cursor.bound_to(readers);
        }
        Ok(Self {
            shards,
            context,
            common: input.common(policy, &context)?,
            is_compared: false,
            cursor,
        })
    }

    /// Batches of this worker alone, each for one replica, as they come.
    pub(crate) fn distributed(
        batches: impl Iterator<Item = B> + Send + 'static,
        context: InputContext,
    ) -> Self {
        Self {
            shards: ReplicaShards::whole(batches),
            context,
            common: Common::default(),
            is_compared: false,
            cursor: Cursor::start().bound_to(context.readers()),
        }
    }

    /// The next step, `None` when no worker has samples left. All workers call it together: they
    /// agree on whether there is a step, and on how many samples it has, and compare what they
    /// share: the names of files in their order, without folders, and by which policy. Those that
    /// compute one replica share it too, which costs one more small operation in the first step.
    ///
    /// # Errors
    /// [`DifferenceError::Inputs`](crate::DifferenceError), which ends the training on all workers;
    /// in an elastic job it is that of a worker that differs, and the others go on without it.
    /// [`Error::Group`].
    #[track_caller]
    pub fn next_step(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Option<StepShards<B>>, Error> {
        let mut shards = Vec::with_capacity(self.context.local_replicas());
        let mut had = 0_u64;
        for _ in 0..self.context.local_replicas() {
            let shard = self.shards.next();
            had += u64::from(shard.is_some());
            shards.push(shard.flatten());
        }
        let rows: usize = shards.iter().flatten().map(Rows::rows).sum();
        let own = self.common.digest();
        let [had, rows, all] = strategy.sum_over_workers([had, rows as u64, own])?;
        let has_to_compare = match strategy.is_split() {
            // The sum is over replicas: those that compute one with this worker are not in it.
            true => !mem::replace(&mut self.is_compared, true),
            false => all != own * strategy.input_context().pipelines() as u64,
        };
        if has_to_compare {
            strategy.compare_inputs(self.common.words())?;
        }
        if had == 0 {
            return Ok(None);
        }
        self.cursor = self.cursor.step();
        Ok(Some(StepShards {
            shards: PerReplica::new(shards),
            // The rows of all workers are held in memory at the same time.
            global_rows: usize::try_from(rows).unwrap_or(usize::MAX),
        }))
    }

    /// The position after the steps taken so far. A job with other numbers of replicas or workers
    /// can continue from it where the input is split by data; elsewhere its workers would read
    /// other shares.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }
}

impl MultiWorkerMirroredStrategy {
    /// Distributes the batches of `input` to the replicas of all workers, from a cursor on. An
    /// error ends the training on all workers.
    ///
    /// An epoch that began split by data goes on so, also where there are files enough by now to
    /// split them by [`AutoShard::Auto`].
    ///
    /// # Errors
    /// Those of [`Input::replica_shards`], [`Error::CursorElsewhere`], and [`Error::CursorText`] of
    /// a position behind more shards than can be counted.
    #[doc(alias = "experimental_distribute_dataset")]
    pub fn distribute_batches<B: Rows + Send + 'static>(
        &mut self,
        input: &Input<B>,
        policy: AutoShard,
        from: Cursor,
    ) -> Result<DistributedBatches<B>, Error> {
        let batches = DistributedBatches::new(input, policy, self.input_context(), from);
        self.abort_on_error(batches)
    }

    /// Distributes batches of this worker's own to its replicas, one to each in turn, as they are.
    /// What to read is for the caller to decide, by [`input_context`](Self::input_context).
    #[doc(alias = "distribute_datasets_from_function")]
    pub fn distribute_local_batches<B: Rows + Send + 'static>(
        &self,
        batches: impl IntoIterator<Item = B, IntoIter: Send + 'static>,
    ) -> DistributedBatches<B> {
        DistributedBatches::distributed(batches.into_iter(), self.input_context())
    }

    /// Which of the workers' inputs is this one's.
    #[must_use]
    pub fn input_context(&self) -> InputContext {
        let local = self.local_replicas();
        let workers = self.num_replicas_in_sync() / local;
        InputContext::of_worker(workers, self.rank().index(), local)
    }
}

impl<B: Rows> StepShards<B> {
    /// The shard of each of this worker's replicas; `None` for one without samples in this step.
    #[must_use]
    pub fn shards(&self) -> &PerReplica<Option<B>> {
        &self.shards
    }

    /// As [`shards`](Self::shards).
    #[must_use]
    pub fn into_shards(self) -> PerReplica<Option<B>> {
        self.shards
    }

    /// Samples of all workers' replicas together.
    #[must_use]
    pub fn global_rows(&self) -> usize {
        self.global_rows
    }

    /// The share of each replica in the samples of the step, 0 to 1: means over own samples, times
    /// this, summed over all replicas are the mean over all samples, however uneven the shards are.
    #[must_use]
    pub fn weights(&self) -> PerReplica<f64> {
        let all = self.global_rows.max(1) as f64;
        self.shards
            .map(|shard| shard.as_ref().map_or(0, Rows::rows) as f64 / all)
    }
}

#[cfg(test)]
mod tests;
