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
pub(crate) struct Meeting<'a> {
    cross: Mutex<CrossReplica<'a>>,
    table: Mutex<Table>,
    changed: Condvar,
    patience: Duration,
}

#[derive(Debug)]
struct Table {
    seats: Vec<Option<Seat>>,
    answers: Vec<Option<Result<Boxed, Error>>>,
    /// The replicas whose step has ended.
    left: Vec<bool>,
    /// The first of them whose step failed.
    failed: Option<usize>,
}

#[derive(Debug)]
struct Seat {
    call: Call,
    value: Boxed,
}

/// What a replica calls, and from where.
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

impl<'a> Meeting<'a> {
    pub(crate) fn new(cross: CrossReplica<'a>, replicas: usize, patience: Duration) -> Self {
        let table = Table {
            seats: std::iter::repeat_with(|| None).take(replicas).collect(),
            answers: std::iter::repeat_with(|| None).take(replicas).collect(),
            left: vec![false; replicas],
            failed: None,
        };
        Self {
            cross: Mutex::new(cross),
            table: Mutex::new(table),
            changed: Condvar::new(),
            patience,
        }
    }

    /// Brings `value`; when all replicas have, the first one applies `all` to their values in
    /// order, and each replica gets its part of what that gives.
    pub(crate) fn meet<T: Send + 'static, R: Send + 'static>(
        &self,
        replica: usize,
        (call, value): (Call, T),
        all: impl FnOnce(&mut CrossReplica<'a>, Vec<T>) -> Result<Vec<R>, Error>,
    ) -> Result<R, Error> {
        let value: Boxed = Box::new(value);
        self.table().seats[replica] = Some(Seat { call, value });
        self.changed.notify_all();
        if replica == 0 {
            let answers = self.gather(call).and_then(|values| {
                let mut cross = self.cross.lock().unwrap_or_else(PoisonError::into_inner);
                all(&mut cross, values)
            });
            self.answer(answers);
        }
        let answer = self.wait(replica, call, |table| table.answers[replica].take())?;
        let answer = answer?.downcast().ok();
        // The first replica's call was compared with this one's, so it gave this type.
        answer.map_or_else(
            || Err(disagreement(replica, call, call)),
            |answer| Ok(*answer),
        )
    }

    /// The first replica waits until all have brought a value.
    fn gather<T: 'static>(&self, call: Call) -> Result<Vec<T>, Error> {
        let seats = self.wait(0, call, |table| {
            let all = table.seats.iter().all(Option::is_some);
            all.then(|| {
                table
                    .seats
                    .iter_mut()
                    .filter_map(Option::take)
                    .collect::<Vec<_>>()
            })
        })?;
        let same = |seat: &Seat| seat.call.name == call.name && seat.call.value == call.value;
        if let Some(replica) = seats.iter().position(|seat| !same(seat)) {
            return Err(disagreement(replica, seats[replica].call, call));
        }
        let values = seats
            .into_iter()
            .filter_map(|seat| seat.value.downcast().ok());
        Ok(values.map(|value| *value).collect())
    }

    fn answer<R: Send + 'static>(&self, answers: Result<Vec<R>, Error>) {
        let mut table = self.table();
        match answers {
            Ok(answers) => {
                for (seat, answer) in table.answers.iter_mut().zip(answers) {
                    *seat = Some(Ok(Box::new(answer)));
                }
            }
            Err(error) => {
                for seat in &mut table.answers {
                    *seat = Some(Err(error.clone()));
                }
            }
        }
        drop(table);
        self.changed.notify_all();
    }

    /// Waits until `ready` gives something, and no longer than any replica can still come.
    fn wait<R>(
        &self,
        replica: usize,
        call: Call,
        mut ready: impl FnMut(&mut Table) -> Option<R>,
    ) -> Result<R, Error> {
        let mut table = self.table();
        loop {
            if let Some(found) = ready(&mut table) {
                return Ok(found);
            }
            if let Some(left) = table.left.iter().position(|left| *left) {
                table.seats[replica] = None;
                let call = call.describe();
                return Err(Error::ReplicaLeft {
                    left,
                    replica,
                    call,
                });
            }
            let waited = self.changed.wait_timeout(table, self.patience);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            table = again;
            if time.timed_out() && ready(&mut table).is_none() {
                let call = call.describe();
                let waited = self.patience;
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
        let mut table = self.table();
        table.left[replica] = true;
        if ended == Ended::Failed {
            table.failed.get_or_insert(replica);
        }
        drop(table);
        self.changed.notify_all();
    }

    /// The replica whose step failed first: what others failed with may be a consequence.
    pub(crate) fn first_failed(&self) -> Option<usize> {
        self.table().failed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that holds the lock can panic half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
