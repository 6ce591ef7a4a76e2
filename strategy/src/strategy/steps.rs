//! Steps: the same function on every replica.

use std::fmt::Display;
use std::thread;

use super::MultiWorkerMirroredStrategy;
use crate::distributed::PerReplica;
use crate::replica::meeting::{Ended, Meeting};
use crate::replica::{Place, ReplicaContext};
use crate::{Error, Rows};

impl MultiWorkerMirroredStrategy {
    /// Runs one step on this worker's only replica. The step may change what it captures; one for
    /// several replicas is run by [`run_each`](Self::run_each) or [`run_with`](Self::run_with).
    ///
    /// An error of the step ends the training on all workers, which report it as this one's.
    ///
    /// # Errors
    /// Those of `step`; [`Error::SeveralReplicas`].
    pub fn run<R, E: From<Error> + Display>(
        &mut self,
        step: impl FnOnce(&mut ReplicaContext<'_>) -> Result<R, E>,
    ) -> Result<PerReplica<R>, E> {
        if self.local_replicas > 1 {
            let replicas = self.local_replicas;
            return self.told(Err(Error::SeveralReplicas { replicas }.into()));
        }
        let place = self.place(0);
        let (group, traffic) = (&mut self.group, &mut self.traffic);
        let result = step(&mut ReplicaContext::alone(group, traffic, place));
        self.told(result).map(PerReplica::only)
    }

    /// Runs one step on each of this worker's replicas, at the same time.
    ///
    /// A strategy cannot be used while its step runs:
    ///
    /// ```compile_fail
    /// # use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReduceOp};
    /// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// let values = strategy.per_replica(|_| 1.0);
    /// strategy.run_each(|_| strategy.reduce(ReduceOp::Sum, values.clone()))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// That of the replica whose step failed first, which ends the training on all workers.
    #[doc(alias = "run")]
    pub fn run_each<R: Send, E: From<Error> + Display + Send>(
        &mut self,
        step: impl Fn(&mut ReplicaContext<'_>) -> Result<R, E> + Sync,
    ) -> Result<PerReplica<R>, E> {
        let mut nothing = PerReplica::new(vec![(); self.local_replicas]);
        self.run_with(&mut nothing, |replica, ()| step(replica))
    }

    /// Runs one step on each of this worker's replicas, at the same time, each with its own one of
    /// `states`: what a replica has for itself, such as its model or its piece of a batch.
    ///
    /// ```
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReduceOp};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// let mut sums = strategy.per_replica(|replica| vec![replica as f32]);
    /// strategy.run_with(&mut sums, |replica, sum| replica.all_reduce(ReduceOp::Sum, sum))?;
    /// assert!(sums.local_results().all(|sum| *sum == [0.0 + 1.0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReplicaCount`] when there is not one state for each replica of this worker, and
    /// those of [`run_each`](Self::run_each).
    ///
    /// # Panics
    /// When a step panics.
    #[doc(alias = "run")]
    pub fn run_with<S: Send, R: Send, E: From<Error> + Display + Send>(
        &mut self,
        states: &mut PerReplica<S>,
        step: impl Fn(&mut ReplicaContext<'_>, &mut S) -> Result<R, E> + Sync,
    ) -> Result<PerReplica<R>, E> {
        let (found, needed) = (states.len(), self.local_replicas);
        if found != needed {
            return self.told(Err(Error::ReplicaCount { found, needed }.into()));
        }
        let places: Vec<Place> = (0..needed).map(|local| self.place(local)).collect();
        let results = match (states.as_mut_slice(), &places[..]) {
            ([only], [place]) => {
                let (group, traffic) = (&mut self.group, &mut self.traffic);
                let mut replica = ReplicaContext::alone(group, traffic, *place);
                step(&mut replica, only).map(PerReplica::only)
            }
            (states, places) => {
                let patience = self.patience();
                let meeting = Meeting::new(self.cross(), needed, patience);
                run_threads(&meeting, (places, states), &step).map(PerReplica::new)
            }
        };
        self.told(results)
    }

    /// A value for each of this worker's replicas, made of its number among all replicas.
    #[must_use]
    #[doc(alias = "experimental_distribute_values_from_function")]
    pub fn per_replica<T>(&self, make: impl FnMut(usize) -> T) -> PerReplica<T> {
        let first = self.rank().index() * self.local_replicas;
        PerReplica::new((first..first + self.local_replicas).map(make).collect())
    }

    /// One value for all of this worker's replicas.
    #[must_use]
    #[doc(alias = "experimental_replicate_to_logical_devices")]
    pub fn replicate_to_logical_devices<T: Clone>(&self, value: &T) -> PerReplica<T> {
        self.per_replica(|_| value.clone())
    }

    /// A value for one of this worker's replicas, and none for the others.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]
    #[doc(alias = "experimental_assign_to_logical_device")]
    pub fn assign_to_logical_device<T>(
        &self,
        value: T,
        device: usize,
    ) -> Result<PerReplica<Option<T>>, Error> {
        let devices = self.local_replicas;
        if device >= devices {
            return Err(Error::NoSuchDevice { device, devices });
        }
        let mut values: Vec<Option<T>> = std::iter::repeat_with(|| None).take(devices).collect();
        values[device] = Some(value);
        Ok(PerReplica::new(values))
    }

    /// The rows of a batch split among this worker's replicas, as evenly as they go: of `n` rows
    /// for `r` replicas the first `n mod r` take one more.
    #[must_use]
    #[doc(alias = "experimental_split_to_logical_devices")]
    pub fn split_to_logical_devices<B: Rows>(&self, batch: &B) -> PerReplica<B> {
        let (rows, replicas) = (batch.rows(), self.local_replicas);
        let start = |replica: usize| replica * (rows / replicas) + replica.min(rows % replicas);
        let piece = |replica: usize| batch.cut(start(replica)..start(replica + 1));
        PerReplica::new((0..replicas).map(piece).collect())
    }
}

/// The first replica's step on this thread, each other one's on its own.
fn run_threads<'a, S: Send, R: Send, E: From<Error> + Display + Send>(
    meeting: &'a Meeting<'a>,
    (places, states): (&[Place], &mut [S]),
    step: &(impl Fn(&mut ReplicaContext<'_>, &mut S) -> Result<R, E> + Sync),
) -> Result<Vec<R>, E> {
    let run = |place: &Place, state: &mut S| {
        let mut leaving = Leaving {
            meeting,
            replica: place.local,
            ended: Ended::Failed,
        };
        let result = step(&mut ReplicaContext::in_team(meeting, *place), state);
        if result.is_ok() {
            leaving.ended = Ended::Done;
        }
        result
    };
    let mut results = thread::scope(|scope| {
        let run = &run;
        let mut replicas = places.iter().zip(states);
        let first = replicas.next();
        let threads: Vec<_> = replicas
            .map(|(place, state)| scope.spawn(move || run(place, state)))
            .collect();
        let first = first.map(|(place, state)| run(place, state));
        let others = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first.into_iter().chain(others).collect::<Vec<_>>()
    });
    if let Some(failed) = meeting.first_failed() {
        // What the others failed with may be that this one has left.
        results.swap(0, failed);
    }
    results.into_iter().collect()
}

/// Tells the others that the step of a replica has ended, however it has.
struct Leaving<'a, 'b> {
    meeting: &'a Meeting<'b>,
    replica: usize,
    ended: Ended,
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        self.meeting.leave(self.replica, self.ended);
    }
}

#[cfg(test)]
mod tests;
