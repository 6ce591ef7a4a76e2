//! Steps: the same function on every replica.

use std::fmt::Display;
use std::thread;

use super::MultiWorkerMirroredStrategy;
use crate::Error;
use crate::distributed::PerReplica;
use crate::replica::rendezvous::{Ended, Rendezvous};
use crate::replica::{ReplicaContext, ReplicaPosition};

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
            return self.abort_on_error(Err(Error::SeveralReplicas { replicas }.into()));
        }
        let _span = tracing::debug_span!("step").entered();
        let position = self.position(0);
        let (group, communication_stats) = (&mut self.group, &mut self.communication_stats);
        let result = step(&mut ReplicaContext::alone(
            group,
            communication_stats,
            position,
        ));
        let result = self.abort_on_error(result)?;
        self.meter.ran();
        Ok(PerReplica::only(result))
    }

    /// Runs one step on each of this worker's replicas, at the same time.
    ///
    /// A strategy cannot be used while its step runs:
    ///
    /// ```compile_fail
    /// # use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};
    /// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// let values = strategy.per_replica(|_| 1.0);
    /// strategy.run_each(|_| strategy.reduce(ReplicaReduceOp::Sum, values.clone()))?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// That of the replica whose step failed first, which ends the training on all workers.
    /// [`Error::NoThread`] when there is no thread for one.
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
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, ReplicaReduceOp};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::mirrored(2)?;
    /// let mut sums = strategy.per_replica(|replica| vec![replica as f32]);
    /// strategy.run_with(&mut sums, |replica, sum| replica.all_reduce(ReplicaReduceOp::Sum, sum))?;
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
            return self.abort_on_error(Err(Error::ReplicaCount { found, needed }.into()));
        }
        let _span = tracing::debug_span!("step").entered();
        let places: Vec<ReplicaPosition> = (0..needed).map(|local| self.position(local)).collect();
        let results = match (states.as_mut_slice(), &places[..]) {
            ([only], [position]) => {
                let (group, communication_stats) = (&mut self.group, &mut self.communication_stats);
                let mut replica = ReplicaContext::alone(group, communication_stats, *position);
                step(&mut replica, only).map(PerReplica::only)
            }
            (states, places) => {
                let timeout = self.timeout();
                let rendezvous = Rendezvous::new(self.cross(), needed, timeout);
                run_threads(&rendezvous, places, states, &step).map(PerReplica::new)
            }
        };
        let results = self.abort_on_error(results)?;
        self.meter.ran();
        Ok(results)
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
}

/// The first replica's step on this thread, each other one's on its own.
fn run_threads<'a, S: Send, R: Send, E: From<Error> + Display + Send>(
    rendezvous: &'a Rendezvous<'a>,
    places: &[ReplicaPosition],
    states: &mut [S],
    step: &(impl Fn(&mut ReplicaContext<'_>, &mut S) -> Result<R, E> + Sync),
) -> Result<Vec<R>, E> {
    let run = |position: &ReplicaPosition, state: &mut S| {
        let mut leaving = Leaving {
            rendezvous,
            replica: position.local,
            ended: Ended::Failed,
        };
        let result = step(
            &mut ReplicaContext::among_several(rendezvous, *position),
            state,
        );
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
            .map(|(position, state)| {
                let thread =
                    thread::Builder::new().spawn_scoped(scope, move || run(position, state));
                thread.map_err(|error| {
                    // The others need not wait for one that never comes.
                    rendezvous.leave(position.local, Ended::Failed);
                    Error::NoThread { kind: error.kind() }
                })
            })
            .collect();
        let first = first.map(|(position, state)| run(position, state));
        let others = threads.into_iter().map(|thread| match thread?.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        first.into_iter().chain(others).collect::<Vec<_>>()
    });
    if let Some(failed) = rendezvous.first_failed() {
        // What the others failed with may be that this one has left.
        results.swap(0, failed);
    }
    results.into_iter().collect()
}

/// Tells the others that the step of a replica has ended, however it has.
struct Leaving<'a, 'b> {
    rendezvous: &'a Rendezvous<'b>,
    replica: usize,
    ended: Ended,
}

impl Drop for Leaving<'_, '_> {
    fn drop(&mut self) {
        self.rendezvous.leave(self.replica, self.ended);
    }
}

#[cfg(test)]
mod tests;
