//! Where the replicas of one worker meet: each brings a value, one of them works on all.

use std::any::{Any, TypeId};
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cross::CrossReplica;
use crate::Error;

type Boxed = Box<dyn Any + Send>;

/// The replicas' threads of one step.
#[derive(Debug)]
pub(crate) struct Rendezvous<'a> {
    cross: Mutex<CrossReplica<'a>>,
    state: Mutex<RendezvousState>,
    changed: Condvar,
    timeout: Duration,
}

#[derive(Debug)]
struct RendezvousState {
    slots: Vec<Option<Slot>>,
    answers: Vec<Option<Result<Boxed, Error>>>,
    /// The replicas whose step has ended.
    left: Vec<bool>,
    /// The first of them whose step failed.
    failed: Option<usize>,
}

#[derive(Debug)]
struct Slot {
    call: Call,
    value: Boxed,
}

/// A call of a replica, and from where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    name: &'static str,
    site: &'static Location<'static>,
    value: TypeId,
}

impl Call {
    pub(crate) fn new<T: 'static>(name: &'static str, site: &'static Location<'static>) -> Self {
        Self {
            name,
            site,
            value: TypeId::of::<T>(),
        }
    }

    fn describe(self) -> String {
        format!("{} at {}", self.name, self.site)
    }
}

impl<'a> Rendezvous<'a> {
    pub(crate) fn new(cross: CrossReplica<'a>, replicas: usize, timeout: Duration) -> Self {
        let state = RendezvousState {
            slots: std::iter::repeat_with(|| None).take(replicas).collect(),
            answers: std::iter::repeat_with(|| None).take(replicas).collect(),
            left: vec![false; replicas],
            failed: None,
        };
        Self {
            cross: Mutex::new(cross),
            state: Mutex::new(state),
            changed: Condvar::new(),
            timeout,
        }
    }

    /// Brings `value`; when all replicas have, the first one applies `all` to their values in
    /// order, and each replica gets its part of what that gives.
    pub(crate) fn exchange<T: Send + 'static, R: Send + 'static>(
        &self,
        replica: usize,
        call: Call,
        value: T,
        all: impl FnOnce(&mut CrossReplica<'a>, Vec<T>) -> Result<Vec<R>, Error>,
    ) -> Result<R, Error> {
        let value: Boxed = Box::new(value);
        self.state().slots[replica] = Some(Slot { call, value });
        self.changed.notify_all();
        if replica == 0 {
            let answers = self.gather(call).and_then(|values| {
                let mut cross = self.cross.lock().unwrap_or_else(PoisonError::into_inner);
                all(&mut cross, values)
            });
            self.answer(answers);
        }
        let answer = self.wait(replica, call, |state| state.answers[replica].take())?;
        let answer = answer?.downcast().ok();
        // The first replica's call was compared with this one's, so it gave this type.
        answer.map_or_else(
            || Err(disagreement(replica, call, call)),
            |answer| Ok(*answer),
        )
    }

    /// The first replica waits until all have brought a value.
    fn gather<T: 'static>(&self, call: Call) -> Result<Vec<T>, Error> {
        let slots = self.wait(0, call, |state| {
            let all = state.slots.iter().all(Option::is_some);
            all.then(|| {
                state
                    .slots
                    .iter_mut()
                    .filter_map(Option::take)
                    .collect::<Vec<_>>()
            })
        })?;
        let same = |slot: &Slot| slot.call.name == call.name && slot.call.value == call.value;
        if let Some(replica) = slots.iter().position(|slot| !same(slot)) {
            return Err(disagreement(replica, slots[replica].call, call));
        }
        let values = slots
            .into_iter()
            .filter_map(|slot| slot.value.downcast().ok());
        Ok(values.map(|value| *value).collect())
    }

    fn answer<R: Send + 'static>(&self, answers: Result<Vec<R>, Error>) {
        let mut state = self.state();
        match answers {
            Ok(answers) => {
                for (slot, answer) in state.answers.iter_mut().zip(answers) {
                    *slot = Some(Ok(Box::new(answer)));
                }
            }
            Err(error) => {
                for slot in &mut state.answers {
                    *slot = Some(Err(error.clone()));
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until `ready` gives something, and no longer than any replica can still come.
    fn wait<R>(
        &self,
        replica: usize,
        call: Call,
        mut ready: impl FnMut(&mut RendezvousState) -> Option<R>,
    ) -> Result<R, Error> {
        let mut state = self.state();
        loop {
            if let Some(found) = ready(&mut state) {
                return Ok(found);
            }
            if let Some(left) = state.left.iter().position(|left| *left) {
                state.slots[replica] = None;
                let call = call.describe();
                return Err(Error::ReplicaLeft {
                    left,
                    replica,
                    call,
                });
            }
            let waited = self.changed.wait_timeout(state, self.timeout);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if time.timed_out() {
                // What has come just then is taken by asking for it.
                if let Some(found) = ready(&mut state) {
                    return Ok(found);
                }
                let call = call.describe();
                let waited = self.timeout;
                return Err(Error::ReplicaLate {
                    replica,
                    call,
                    waited,
                });
            }
        }
    }

    /// Notes that the step of `replica` has ended, and whether it failed.
    pub(crate) fn leave(&self, replica: usize, ended: Ended) {
        let mut state = self.state();
        state.left[replica] = true;
        if ended == Ended::Failed {
            state.failed.get_or_insert(replica);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The replica whose step failed first: what others failed with may be a consequence.
    pub(crate) fn first_failed(&self) -> Option<usize> {
        self.state().failed
    }

    fn state(&self) -> MutexGuard<'_, RendezvousState> {
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the step of a replica ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    Done,
    Failed,
}

fn disagreement(replica: usize, call: Call, first: Call) -> Error {
    Error::ReplicasDisagree {
        replica,
        call: call.describe(),
        first: first.describe(),
    }
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::Group;

    use super::*;
    use crate::SumOrder;
    use crate::communication_stats::CommunicationStats;

    #[test]
    fn what_comes_as_the_time_is_over_is_not_lost() {
        let mut group = Group::local(1).unwrap().remove(0);
        let mut stats = CommunicationStats::default();
        let cross = CrossReplica::new(&mut group, &mut stats, 2, SumOrder::Fastest);
        let rendezvous = Rendezvous::new(cross, 2, Duration::ZERO);
        let call = Call::new::<()>("all_reduce", Location::caller());
        let mut asked = 0;
        let found = rendezvous.wait(0, call, |_| {
            asked += 1;
            (asked == 2).then_some("it is here")
        });
        assert_eq!(found, Ok("it is here"));
    }
}
