//! Operations that are made again and again over one buffer.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::{Job, Line, gone};
use crate::OperationError;
use crate::contract::Kind;
use crate::group::Group;
use crate::operation::{OperationSpec, Work};
use crate::session::Session;

/// An all-reduce that can be started as often as its group lasts, on any thread, without taking
/// memory; and the buffer that it works on.
///
/// Dropped while it is under way, the operation goes on all the same, and an error shows in the
/// next one.
pub struct Prepared<B> {
    /// Here while nothing is under way, unless an error has taken it.
    buffer: Option<B>,
    line: Arc<Line>,
    task: Arc<dyn Task<B>>,
}

/// One operation, whose buffer comes and goes.
trait Task<B>: Send + Sync {
    fn slot(&self) -> &Slot<B>;
    fn as_job(self: Arc<Self>) -> Arc<dyn Again>;
}

/// What the thread of the operations can do again.
pub(super) trait Again: Send + Sync {
    fn run(&self, session: &mut Session);
}

struct AllReduce<T: Element, B> {
    slot: Slot<B>,
    op: ReduceOp,
    reduction: Reduction<T>,
}

/// Where a buffer is while its operation is under way.
struct Slot<B> {
    state: Mutex<State<B>>,
    changed: Condvar,
}

enum State<B> {
    /// Nothing is under way.
    Idle,
    Started(B, &'static Location<'static>),
    /// The thread of the operations has the buffer.
    Running,
    Done(B, Result<(), OperationError>),
}

impl Group {
    /// Prepares to replace `buffer`, on every rank, by the reduction of all ranks' buffers; see
    /// [`start_all_reduce`](Self::start_all_reduce). Nothing is sent before it is started.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let mut sum = group.prepare_all_reduce(vec![0.0_f32; 4], ReduceOp::Sum)?;
    /// for step in 0..3 {
    ///     sum.buffer_mut().expect("nothing is under way").fill(step as f32);
    ///     sum.start()?;
    ///     // … compute something …
    ///     assert_eq!(*sum.wait()?, [step as f32; 4]);
    /// }
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`OperationError::Unsupported`] for an op that `T` does not have, [`OperationError::System`]
    /// when no thread can be started; [`OperationError::InsideOperations`] in operations that were
    /// started, on the group that they are given.
    pub fn prepare_all_reduce<T, B>(
        &mut self,
        buffer: B,
        op: ReduceOp,
    ) -> Result<Prepared<B>, OperationError>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        let reduction = Reduction::<T>::new(op)?;
        let task = AllReduce {
            slot: Slot::new(),
            op,
            reduction,
        };
        Ok(Prepared {
            buffer: Some(buffer),
            line: self.line()?,
            task: Arc::new(task),
        })
    }
}

impl<B> Prepared<B> {
    /// The buffer; `None` while the operation is under way, and after it has failed.
    #[must_use]
    pub fn buffer(&self) -> Option<&B> {
        self.buffer.as_ref()
    }

    /// The buffer, to be written; `None` while the operation is under way, and after it has failed.
    pub fn buffer_mut(&mut self) -> Option<&mut B> {
        self.buffer.as_mut()
    }

    /// Starts the operation, behind all that was started before, and returns at once unless
    /// [the line is full](Group::start_operations). Nothing happens while it is under way already.
    ///
    /// # Errors
    /// [`OperationError::System`] when the group is over, or the operation has failed before.
    #[track_caller]
    pub fn start(&mut self) -> Result<(), OperationError> {
        let caller = Location::caller();
        let mut state = self.task.slot().state();
        if !matches!(*state, State::Idle) {
            return Ok(());
        }
        let buffer = self.buffer.take().ok_or_else(gone)?;
        *state = State::Started(buffer, caller);
        drop(state);
        if self.line.push(Job::Again(self.task.clone().as_job())) {
            return Ok(());
        }
        *self.task.slot().state() = State::Idle;
        Err(gone().into())
    }

    /// Waits for the operation if it is under way, and gives the buffer.
    ///
    /// # Errors
    /// Those of the operation; the buffer, whose values are then unspecified, is dropped.
    /// [`OperationError::InsideOperations`] in an operation that is before this one in line.
    pub fn wait(&mut self) -> Result<&mut B, OperationError> {
        let slot = self.task.slot();
        let under_way = |state: &mut State<B>| matches!(state, State::Started(..) | State::Running);
        let mut state = slot.state();
        if under_way(&mut state) && self.line.is_own_thread() {
            return Err(OperationError::InsideOperations);
        }
        let waited = slot.changed.wait_while(state, under_way);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if let State::Done(buffer, done) = std::mem::replace(&mut *state, State::Idle) {
            done?;
            self.buffer = Some(buffer);
        }
        drop(state);
        self.buffer.as_mut().ok_or_else(|| gone().into())
    }
}

impl<B> Slot<B> {
    fn new() -> Self {
        Self {
            state: Mutex::new(State::Idle),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State<B>) {
        *self.state() = state;
        self.changed.notify_all();
    }
}

impl<T: Element, B: AsMut<[T]> + Send + 'static> Task<B> for AllReduce<T, B> {
    fn slot(&self) -> &Slot<B> {
        &self.slot
    }

    fn as_job(self: Arc<Self>) -> Arc<dyn Again> {
        self
    }
}

impl<T: Element, B: AsMut<[T]> + Send + 'static> Again for AllReduce<T, B> {
    fn run(&self, session: &mut Session) {
        let started = std::mem::replace(&mut *self.slot.state(), State::Running);
        let State::Started(mut owned, caller) = started else {
            return self.slot.set(State::Idle);
        };
        // Whoever waits learns it on every way out of here, a panic included.
        let mut end = End(&self.slot, State::Idle);
        let buffer = owned.as_mut();
        let spec = OperationSpec::new(Kind::AllReduce, buffer.len()).with_op(self.op);
        let spec = spec.called_from(caller);
        let work = Work::Reduce {
            buffer,
            reduction: self.reduction,
            root: None,
        };
        let done = session.perform(spec, work);
        end.1 = State::Done(owned, done);
    }
}

/// What a slot is set to when this is dropped.
struct End<'a, B>(&'a Slot<B>, State<B>);

impl<B> Drop for End<'_, B> {
    fn drop(&mut self) {
        self.0.set(std::mem::replace(&mut self.1, State::Idle));
    }
}

impl<B> fmt::Debug for Prepared<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("under_way", &self.buffer.is_none())
            .finish_non_exhaustive()
    }
}
