//! Trainings that go on when workers are lost, and take new ones in.

pub(super) mod poll_interval;
pub(super) mod roster;

use std::fmt::Display;
use std::time::Instant;

use meshwork_collectives::{Epoch, OperationError};

use crate::{Error, LentArrays, MultiWorkerMirroredStrategy, Snapshot};

/// A training as [`MultiWorkerMirroredStrategy::train`] runs it: steps that are made by all workers
/// or by none, and a state that one worker can give another.
///
/// ```
/// use meshwork_strategy::{
///     Change, Cursor, DistributedDataset, Error, MultiWorkerMirroredStrategy, Progress, ReplicaReduceOp,
///     Snapshot, Training, VariableSpec,
/// };
///
/// /// Fits y = 3 x to a hundred numbers.
/// struct Fit {
///     weight: [f32; 1],
///     steps: u64,
///     cursor: Cursor,
///     numbers: DistributedDataset,
/// }
///
/// impl Training for Fit {
///     type Error = Error;
///
///     fn regroup(&mut self, strategy: &mut MultiWorkerMirroredStrategy, _: &Change) -> Result<(), Error> {
///         strategy.agree("100 samples, 10 in a batch")?;
///         self.numbers = strategy.distribute_dataset(100, 10)?;
///         Ok(())
///     }
///
///     fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<Progress, Error> {
///         let mut epoch = self.numbers.resume(self.cursor)?;
///         let Some(batch) = epoch.next() else {
///             return Ok(Progress::Done);
///         };
///         let slope = |x: f32| 2.0 * x * (x * self.weight[0] - 3.0 * x);
///         let part: f32 = batch.indices().iter().map(|i| slope(*i as f32 / 100.0)).sum();
///         let mut gradient = [part / batch.global_len() as f32];
///         strategy.run(|replica| replica.all_reduce(ReplicaReduceOp::Sum, &mut gradient))?;
///         // All workers have contributed: from here on nothing can fail.
///         self.weight[0] -= 0.5 * gradient[0];
///         self.cursor = epoch.cursor();
///         self.steps += 1;
///         Ok(Progress::Step)
///     }
///
///     fn steps(&self) -> u64 {
///         self.steps
///     }
///
///     fn snapshot(&mut self) -> Result<Snapshot, Error> {
///         Snapshot::new(self.steps, self.cursor)
///             .with_array(&VariableSpec::new("weight", &[1])?, &self.weight)
///     }
///
///     fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
///         self.weight[0] = snapshot.array(&VariableSpec::new("weight", &[1])?)?[0];
///         (self.steps, self.cursor) = (snapshot.step(), snapshot.cursor());
///         Ok(())
///     }
/// }
///
/// let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
/// let numbers = strategy.distribute_dataset(100, 10)?;
/// let mut fit = Fit { weight: [0.0], steps: 0, cursor: Cursor::start(), numbers };
/// strategy.train(&mut fit)?;
/// assert_eq!(fit.steps, 10);
/// strategy.leave()?;
/// # Ok::<(), Error>(())
/// ```
pub trait Training {
    /// The error of a step. Where it is an [`Error`] of this crate its text has that one's, as with
    /// `#[error(transparent)]`: so others know that copies differ.
    type Error: From<Error> + Display;

    /// Rebuilds everything that depends on who the workers are: gradient buckets, this worker's
    /// part of the data, what is read ahead. All workers call it together, before the first step
    /// and after each change of the workers. It does not touch the state that
    /// [`snapshot`](Self::snapshot) saves.
    ///
    /// # Errors
    /// Any; an error of this worker's own ends it, and the others continue without it.
    fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        change: &Change,
    ) -> Result<(), Self::Error>;

    /// Makes a step: changes the state once all gradients are reduced, all of it or nothing.
    ///
    /// A step that failed because a worker was lost is made again, by those who are left. What
    /// it draws at random must follow from the state, such as from a seed and the number of the
    /// step, or the second attempt is another step.
    ///
    /// # Errors
    /// Any; [`steps`](Self::steps) then shows whether the state has changed.
    fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy)
    -> Result<Progress, Self::Error>;

    /// The number of steps that the state has made. Workers with equal numbers hold the same bits.
    fn steps(&self) -> u64;

    /// Everything that the steps to come follow from: variables, the optimizer's state,
    /// [`steps`](Self::steps), the data cursor, random state; not what is [lent](Self::lend).
    /// Called on the workers that give their state alone, so it must not communicate.
    ///
    /// # Errors
    /// Any
    fn snapshot(&mut self) -> Result<Snapshot, Self::Error>;

    /// The large arrays of the state, which are given from where they are, and taken over there:
    /// that saves the memory for a copy on both sides. Of equal number, lengths and order on all
    /// workers. By default there are none.
    ///
    /// They are overwritten while the state of others comes. Should all who have it be lost before
    /// it is here, nothing is left to begin from, and the worker ends with
    /// [`StateError::HalfTaken`](crate::StateError::HalfTaken).
    ///
    /// ```
    /// # use meshwork_strategy::LentArrays;
    /// # struct Model { weights: Vec<f32>, velocity: Vec<f32> }
    /// # impl Model {
    /// fn lend(&mut self) -> LentArrays<'_> {
    ///     LentArrays::new().with(&mut self.weights).with(&mut self.velocity)
    /// }
    /// # }
    /// ```
    fn lend(&mut self) -> LentArrays<'_> {
        LentArrays::new()
    }

    /// Takes over the state of another worker; the inverse of [`snapshot`](Self::snapshot). What
    /// is [lent](Self::lend) is in its place by then.
    ///
    /// # Errors
    /// Any, such as [`Error::NotInCheckpoint`] for a state of another model.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Self::Error>;

    /// Called on the chief alone where no worker has a state to continue from: restores the latest
    /// checkpoint, if there is one. All others then begin with the chief's state.
    ///
    /// # Errors
    /// Any
    fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// The outcome of a call of [`Training::step`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Progress {
    /// A step was made, or whatever else all workers do together between two steps.
    Step,
    /// There is nothing left to do. It may be asked again, with workers that came in meanwhile.
    Done,
}

/// How the workers have changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub(crate) epoch: u64,
    pub(crate) survivors: u32,
    pub(crate) cause: Option<OperationError>,
    pub(crate) noticed: Instant,
}

impl Change {
    /// By the growth or the beginning of a group, noticed now.
    pub(crate) fn to(epoch: Epoch) -> Self {
        Self {
            epoch: epoch.number(),
            survivors: epoch.survivors(),
            cause: None,
            noticed: Instant::now(),
        }
    }

    /// Which membership of the group this is, from 1.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many of the workers were there before, too; none at the beginning.
    #[must_use]
    pub fn survivors(&self) -> u32 {
        self.survivors
    }

    /// Why the last membership ended, where a worker was lost.
    #[must_use]
    pub fn cause(&self) -> Option<&OperationError> {
        self.cause.as_ref()
    }

    /// When this worker learnt that the last membership was over.
    #[must_use]
    pub fn noticed(&self) -> Instant {
        self.noticed
    }
}
