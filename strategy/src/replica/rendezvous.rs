//! Where the replicas of one worker meet: each brings a value, one of them works on all.

use std::any::{Any, TypeId};
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ReplicaReduceOp;
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
    detail: Option<Detail>,
    site: &'static Location<'static>,
    value: TypeId,
}

/// What a call asks for beside its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Detail {
    Op(ReplicaReduceOp),
    #[cfg(feature = "ndarray")]
    Axis(usize),
}

impl Call {
    pub(crate) fn new<T: 'static>(
        name: &'static str,
        detail: Option<Detail>,
        site: &'static Location<'static>,
    ) -> Self {
        Self {
            name,
            detail,
            site,
            value: TypeId::of::<T>(),
        }
    }

    fn is_same(self, other: Self) -> bool {
        (self.name, self.detail, self.value) == (other.name, other.detail, other.value)
    }

    fn describe(self) -> String {
        let Self { name, site, .. } = self;
        match self.detail {
            None => format!("{name} at {site}"),
            Some(Detail::Op(op)) => format!("{name} at {site} ({op:?})"),
            #[cfg(feature = "ndarray")]
            Some(Detail::Axis(axis)) => format!("{name} at {site} (axis {axis})"),
        }
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
        if let Some(replica) = slots.iter().position(|slot| !slot.call.is_same(call)) {
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

    /// Waits until `ready` gives something, and no longer than any replica can still come. Once the
    /// first replica has taken the value of this one, it waits as long as that one works on it.
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
            // The group bounds each of its operations, and knows who is late there.
            if time.timed_out() && state.slots[replica].is_some() {
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

    /// Of two replicas that do not wait for each other, `replica` has brought its value.
    fn brought(replica: usize, test: impl FnOnce(&Rendezvous<'_>, Call)) {
        let mut group = Group::local(1).unwrap().remove(0);
        let mut stats = CommunicationStats::default();
        let cross = CrossReplica::new(&mut group, &mut stats, 2, SumOrder::Fastest);
        let rendezvous = Rendezvous::new(cross, 2, Duration::ZERO);
        let call = Call::new::<()>("all_reduce", None, Location::caller());
        let value = Box::new(());
        rendezvous.state().slots[replica] = Some(Slot { call, value });
        test(&rendezvous, call);
    }

    #[test]
    fn what_comes_as_the_time_is_over_is_not_lost() {
        brought(0, |rendezvous, call| {
            let mut asked = 0;
            let found = rendezvous.wait(0, call, |_| {
                asked += 1;
                (asked == 2).then_some("it is here")
            });
            assert_eq!(found, Ok("it is here"));
        });
    }

    #[test]
    fn a_replica_whose_value_was_taken_waits_as_long_as_the_first_one_works() {
        brought(1, |rendezvous, call| {
            let worked = rendezvous.exchange(0, call, (), |_, values| {
                let mut asked = 0;
                rendezvous.wait(1, call, |_| {
                    asked += 1;
                    (asked == 5).then_some(())
                })?;
                Ok(values)
            });
            assert_eq!(worked, Ok(()));
        });
    }
}
