//! Gradients in buckets that are reduced while others are still computed.

mod communication_dtype;
mod power_sgd;
mod room;

use std::num::NonZeroUsize;
use std::ops::Range;

use crate::{
    Error, MultiWorkerMirroredStrategy, ReplicaContext, ReplicaReduceOp, Snapshot, VariableSpec,
};
use communication_dtype::Bf16Buffers;
use power_sgd::PowerSgd;
use room::{Bucket, Buffer, Room};

pub use communication_dtype::CommunicationDtype;

/// Room for the gradients of all variables, in buckets: buffers that the other workers of a host
/// read where they are, allocated once.
///
/// Buckets hold the variables from the last to the first, as backward passes give gradients in that
/// order. A bucket whose gradients are all [`ready`](Self::ready) is reduced at once, after the
/// buckets before it, while the caller continues computing. With
/// [`bytes_per_bucket`](crate::CommunicationOptions::bytes_per_bucket) at 0 there is one bucket,
/// which [`finish`](Self::finish) reduces.
///
/// ```
/// use meshwork_strategy::{Error, GradientBuckets, MultiWorkerMirroredStrategy, VariableSpec};
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let specs = [VariableSpec::new("w", &[2, 2])?, VariableSpec::new("b", &[2])?];
/// let mut gradients = GradientBuckets::new(&mut strategy, &specs, 1)?;
/// strategy.run(|replica| {
///     for index in [1, 0] {
///         gradients.gradient_mut(index)?.fill(0.5);
///         gradients.ready(replica, index)?;
///     }
///     gradients.extra_mut()?[0] = 2.3; // the loss, reduced with them
///     gradients.finish(replica)
/// })?;
/// assert_eq!((gradients.gradient(1), gradients.extra()), (&[0.5, 0.5][..], &[2.3][..]));
/// # Ok::<(), Error>(())
/// ```
///
/// The default has room for no variable.
#[derive(Debug, Default)]
#[doc(alias("Reducer", "DistributedDataParallel", "bucket_cap_mb"))]
pub struct GradientBuckets {
    specs: Vec<VariableSpec>,
    /// Where each variable's gradient is.
    places: Vec<(usize, Range<usize>)>,
    /// Whose gradient is ready.
    is_ready: Vec<bool>,
    buckets: Vec<Bucket>,
    extra: usize,
    /// Buckets that are under way or done.
    started: usize,
    form: Form,
}

/// The form in which gradients travel.
#[derive(Debug, Default)]
enum Form {
    #[default]
    F32,
    Bf16(Bf16Buffers),
    LowRank(PowerSgd),
}

impl GradientBuckets {
    /// Room for one gradient of each variable, and for `extra` numbers; all zero.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] where a worker has more than one; [`Error::TooLarge`] for the
    /// variable that makes a bucket larger than memory; [`Error::Group`] when there is no memory.
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        specs: &[VariableSpec],
        extra: usize,
    ) -> Result<Self, Error> {
        if strategy.local_replicas() > 1 {
            let replicas = strategy.local_replicas();
            return Err(Error::SeveralReplicas { replicas });
        }
        let Room { places, buckets } = Room::of(strategy, specs, extra)?;
        Ok(Self {
            specs: specs.to_vec(),
            is_ready: vec![false; places.len()],
            places,
            buckets,
            extra,
            started: 0,
            form: Form::F32,
        })
    }

    /// Room anew for the same variables, and for `extra` numbers, when the workers have changed;
    /// for [`Training::regroup`](crate::Training::regroup). All is zero, and travels in the form
    /// that was chosen before.
    ///
    /// What [PowerSGD](Self::with_power_sgd) has left out of this worker's gradients stays: nothing
    /// of it counts twice or is lost where a worker is, but for what that one had left out. What
    /// all have in common then comes with the state that those take over who are behind, or are
    /// new: [`save_shared`](Self::save_shared) is part of a
    /// [`Training::snapshot`](crate::Training::snapshot), [`restore_shared`](Self::restore_shared)
    /// of a [`Training::restore`](crate::Training::restore).
    ///
    /// # Errors
    /// Those of [`new`](Self::new); nothing has changed then.
    pub fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        extra: usize,
    ) -> Result<(), Error> {
        let Room { places, buckets } = Room::of(strategy, &self.specs, extra)?;
        let mut form = std::mem::take(&mut self.form);
        if let Form::LowRank(low_rank) = &mut form {
            low_rank.keep(self);
        }
        *self = Self {
            specs: std::mem::take(&mut self.specs),
            is_ready: vec![false; places.len()],
            places,
            buckets,
            extra,
            started: 0,
            form,
        };
        Ok(())
    }

    /// Chooses the element type of gradients on the wire, in the same way on every worker. Anything
    /// but [`CommunicationDtype::F32`] is sent by [`finish`](Self::finish) alone, and extra numbers
    /// behind it, as they are.
    #[must_use]
    pub fn with_communication_dtype(mut self, dtype: CommunicationDtype) -> Self {
        self.form = match dtype {
            CommunicationDtype::F32 => Form::F32,
            CommunicationDtype::Bf16 => Form::Bf16(Bf16Buffers::default()),
        };
        self
    }

    /// Sends the gradients of matrices as products of two thin ones of this rank, in the same way
    /// on every worker: `r·(n + m)` numbers for a matrix of `n` rows and `m` columns, those of all
    /// further dimensions (PowerSGD). What that leaves out is added to the worker's next gradients.
    /// Vectors, extra numbers, and matrices that would not become smaller travel whole. All is sent
    /// by [`finish`](Self::finish) alone, in two operations.
    ///
    /// [`save`](Self::save) has what is left out: without it a restart loses about a step's worth.
    /// [`regroup`](Self::regroup) keeps it when workers change.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use meshwork_strategy::{Error, GradientBuckets, MultiWorkerMirroredStrategy, VariableSpec};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let specs = [VariableSpec::new("w", &[20, 30])?];
    /// let mut gradients =
    ///     GradientBuckets::new(&mut strategy, &specs, 0)?.with_power_sgd(NonZeroUsize::MIN);
    /// strategy.run(|replica| {
    ///     gradients.gradient_mut(0)?.fill(0.5); // of rank 1, and so exact but for rounding
    ///     gradients.finish(replica)
    /// })?;
    /// assert!(gradients.gradient(0).iter().all(|one| (one - 0.5).abs() < 1e-5));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    #[doc(alias("PowerSGD", "low-rank compression", "powerSGD_hook"))]
    pub fn with_power_sgd(mut self, rank: NonZeroUsize) -> Self {
        self.form = Form::LowRank(PowerSgd::new(&self.specs, rank));
        self
    }

    /// Adds to the snapshot of this worker what [PowerSGD](Self::with_power_sgd) has left out of
    /// its gradients so far, and the factors that the next step begins with; in any other form
    /// there is nothing to add. Between two steps.
    ///
    /// What was left out differs from worker to worker: each saves a snapshot of its own, in a
    /// folder of its own.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use meshwork_strategy::{
    ///     Cursor, Error, GradientBuckets, MultiWorkerMirroredStrategy, Snapshot, VariableSpec,
    /// };
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let specs = [VariableSpec::new("w", &[20, 30])?];
    /// let mut gradients =
    ///     GradientBuckets::new(&mut strategy, &specs, 0)?.with_power_sgd(NonZeroUsize::MIN);
    /// strategy.run(|replica| {
    ///     for (place, one) in (0..).zip(gradients.gradient_mut(0)?) {
    ///         *one = f32::from(place % 7_i16);
    ///     }
    ///     gradients.finish(replica)
    /// })?;
    /// let snapshot = gradients.save(&strategy, Snapshot::new(1, Cursor::start()))?;
    ///
    /// let mut again =
    ///     GradientBuckets::new(&mut strategy, &specs, 0)?.with_power_sgd(NonZeroUsize::MIN);
    /// again.restore(&strategy, &snapshot)?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// What [all have in common](Self::save_shared) is part of it, and is not added twice.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`].
    pub fn save(
        &self,
        strategy: &MultiWorkerMirroredStrategy,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        match &self.form {
            Form::F32 | Form::Bf16(_) => Ok(snapshot),
            Form::LowRank(low_rank) => low_rank.save(&self.specs, strategy.rank(), snapshot),
        }
    }

    /// Goes on from what was [saved](Self::save), with the same variables and rank: with the same
    /// bits, where all workers do. After an error nothing has changed.
    ///
    /// In a job that is elastic ranks are not compared: see that no two workers read one's
    /// snapshot, which would count twice.
    ///
    /// # Errors
    /// [`LowCommunicationError::PowerSgdRank`](crate::LowCommunicationError::PowerSgdRank) where
    /// the rank is another,
    /// [`LowCommunicationError::SnapshotOfOther`](crate::LowCommunicationError::SnapshotOfOther)
    /// for another worker's, [`Error::NotInCheckpoint`] for a variable that the snapshot does not have,
    /// or in another shape.
    pub fn restore(
        &mut self,
        strategy: &MultiWorkerMirroredStrategy,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        match &mut self.form {
            Form::F32 | Form::Bf16(_) => Ok(power_sgd::check_rank(snapshot, 0)?),
            Form::LowRank(low_rank) => {
                let worker = (!strategy.is_elastic()).then(|| strategy.rank());
                low_rank.restore(&self.specs, worker, snapshot)
            }
        }
    }

    /// Adds to a snapshot that any worker may go on from what all have in common of
    /// [PowerSGD](Self::with_power_sgd): the factors that the next step begins with. In any other
    /// form there is nothing to add.
    ///
    /// # Errors
    /// [`Error::DuplicateVariable`].
    pub fn save_shared(&self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        match &self.form {
            Form::F32 | Form::Bf16(_) => Ok(snapshot),
            Form::LowRank(low_rank) => low_rank.save_shared(&self.specs, snapshot),
        }
    }

    /// Takes over what all workers have in common, [as one of them has it](Self::save_shared); of a
    /// snapshot that has no such state, or one of products of another rank, nothing.
    ///
    /// A worker that has made the steps of the snapshot itself keeps what it has left out. One that
    /// missed only the end of the last, as a worker was lost, has a part in it, and goes on from
    /// what that step leaves out. All others begin with nothing left out, such as a newcomer. After
    /// an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::NotInCheckpoint`] for a variable that the snapshot has in another shape,
    /// [`LowCommunicationError::SnapshotText`](crate::LowCommunicationError::SnapshotText) for one
    /// that is damaged.
    pub fn restore_shared(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let mut form = std::mem::take(&mut self.form);
        let restored = match &mut form {
            Form::F32 | Form::Bf16(_) => Ok(()),
            Form::LowRank(low_rank) => {
                low_rank.keep(self);
                low_rank.restore_shared(&self.specs, snapshot)
            }
        };
        self.form = form;
        restored
    }

    /// The variables, in the order in which they were given.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        &self.specs
    }

    /// How many buckets there are; at least one.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The gradient of variable number `index`; empty while its bucket is under way.
    ///
    /// # Panics
    /// When there is no such variable.
    #[must_use]
    pub fn gradient(&self, index: usize) -> &[f32] {
        let (bucket, range) = &self.places[index];
        let buffer = self.buckets[*bucket].buffer.idle();
        buffer.map_or(&[], |buffer| &buffer[range.clone()])
    }

    /// The gradient of variable number `index`, to be written, or added to in several passes that
    /// are reduced once: what is there is kept until [`clear`](Self::clear).
    ///
    /// # Errors
    /// [`Error::GradientInFlight`] while its bucket is.
    ///
    /// # Panics
    /// When there is no such variable.
    pub fn gradient_mut(&mut self, index: usize) -> Result<&mut [f32], Error> {
        let (bucket, range) = self.places[index].clone();
        let name = self.specs[index].name();
        let buffer = self.buckets[bucket].here(name)?;
        Ok(&mut buffer[range])
    }

    /// Says that the gradient of variable number `index` is complete, and starts to reduce buckets
    /// that are. Only the step of a `replica` can be the place for that.
    ///
    /// # Errors
    /// [`Error::GradientTwice`] for one that was complete already, [`Error::Group`].
    ///
    /// # Panics
    /// When there is no such variable.
    #[track_caller]
    pub fn ready(&mut self, _replica: &mut ReplicaContext<'_>, index: usize) -> Result<(), Error> {
        self.ready_inside(index)
    }

    /// As [`ready`](Self::ready), for code inside of a step that does not get hold of its replica,
    /// as what a model library calls in its backward pass.
    ///
    /// # Errors
    /// Those of [`ready`](Self::ready).
    ///
    /// # Panics
    /// When there is no such variable.
    #[track_caller]
    pub fn ready_inside(&mut self, index: usize) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_ready[index], true) {
            let name = self.specs[index].name().to_owned();
            return Err(Error::GradientTwice { name });
        }
        self.buckets[self.places[index].0].missing -= 1;
        // The last bucket waits for the extra numbers.
        while matches!(self.form, Form::F32)
            && self.started + 1 < self.buckets.len()
            && self.buckets[self.started].missing == 0
        {
            self.start()?;
        }
        Ok(())
    }

    /// The numbers that are reduced with the last bucket.
    #[must_use]
    pub fn extra(&self) -> &[f32] {
        let buffer = self.buckets.last().and_then(|bucket| bucket.buffer.idle());
        buffer.map_or(&[], |buffer| &buffer[buffer.len() - self.extra..])
    }

    /// The numbers that are reduced with the last bucket, to be written.
    ///
    /// # Errors
    /// [`Error::GradientInFlight`]
    pub fn extra_mut(&mut self) -> Result<&mut [f32], Error> {
        let extra = self.extra;
        match self.buckets.last_mut() {
            Some(bucket) => {
                let buffer = bucket.here("extra numbers")?;
                let start = buffer.len() - extra;
                Ok(&mut buffer[start..])
            }
            None => Ok(&mut []),
        }
    }

    /// Reduces the remaining gradients, whether they were marked as ready or not, and waits for
    /// everything: gradients and extra numbers are then the sums over all workers.
    ///
    /// # Errors
    /// [`Error::Group`]; the buckets under way are then lost, until [`regroup`](Self::regroup).
    #[track_caller]
    pub fn finish(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        while self.started + 1 < self.buckets.len() && matches!(self.form, Form::F32) {
            self.start()?;
        }
        // Taken for as long as it uses the buckets.
        let mut form = std::mem::take(&mut self.form);
        let reduced = self.reduce(replica, &mut form);
        self.form = form;
        reduced?;
        for bucket in &mut self.buckets {
            bucket.missing = bucket.tensors;
            if let Buffer::Early(operation) = &mut bucket.buffer {
                operation.wait()?;
            }
        }
        self.is_ready.fill(false);
        self.started = 0;
        Ok(())
    }

    /// Reduces what is not under way.
    #[track_caller]
    fn reduce(&mut self, replica: &mut ReplicaContext<'_>, form: &mut Form) -> Result<(), Error> {
        match form {
            Form::F32 => {
                for number in self.started..self.buckets.len() {
                    let buffer = self.buckets[number].here("gradients")?;
                    replica.all_reduce(ReplicaReduceOp::Sum, buffer)?;
                }
            }
            Form::Bf16(buffers) => {
                let (buckets, extra) = (self.buckets.len(), self.extra);
                for (number, bucket) in self.buckets.iter_mut().enumerate() {
                    let values = bucket.here("gradients")?;
                    let extra = if number + 1 == buckets { extra } else { 0 };
                    let (gradients, extra) = values.split_at_mut(values.len() - extra);
                    buffers.all_reduce(replica, gradients)?;
                    if !extra.is_empty() {
                        replica.all_reduce(ReplicaReduceOp::Sum, extra)?;
                    }
                }
            }
            Form::LowRank(low_rank) => low_rank.all_reduce(replica, self)?,
        }
        Ok(())
    }

    /// Sets everything that is not under way to zero.
    pub fn clear(&mut self) {
        for bucket in &mut self.buckets {
            if let Some(buffer) = bucket.buffer.idle_mut() {
                buffer.fill(0.0);
            }
        }
    }

    #[track_caller]
    fn start(&mut self) -> Result<(), Error> {
        if let Buffer::Early(operation) = &mut self.buckets[self.started].buffer {
            operation.start()?;
        }
        self.started += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
