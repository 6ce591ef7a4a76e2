//! Operations that go on while their caller does something else.

mod prepared;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle, ThreadId};

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{Group, no_thread};
use crate::session::outside_async;
use crate::{OperationError, SystemError};
use prepared::Again;

pub use prepared::Prepared;

/// Where operations of a group are started by code that does not get hold of the group, such as
/// what a model library calls in its backward pass: [`Group::operations`] makes one.
///
/// ```
/// use meshwork_collectives::{Group, ReduceOp};
///
/// let mut group = Group::local(1)?.remove(0);
/// let operations = group.operations()?;
/// let started = std::thread::spawn(move || {
///     operations.start(vec![1.0_f32; 4], |group, sum| group.all_reduce(sum, ReduceOp::Sum))
/// });
/// assert_eq!(started.join().expect("no panic").wait()?, [1.0; 4]);
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Operations {
    line: Arc<Line>,
}

/// An operation under way, and the buffer that it works on.
///
/// Dropped without [`wait`](Self::wait) or `await`, the operation goes on all the same. An
/// error that has ended the group shows in the next one; any other is lost.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use meshwork_collectives::{Group, ReduceOp};
///
/// let mut group = Group::local(1)?.remove(0);
/// let sum = group.start_all_reduce(vec![1.0_f32; 4], ReduceOp::Sum)?.await?;
/// assert_eq!(sum, [1.0; 4]);
/// # Ok::<(), meshwork_collectives::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the buffer comes back from `wait` or `await`"]
pub struct Pending<B> {
    done: oneshot::Receiver<Done<B>>,
    line: Arc<Line>,
}

/// A buffer, and what came of the operation on it.
type Done<B> = (B, Result<(), OperationError>);

/// Operations that may wait in line; beyond it their callers wait, but for operations that start
/// others: nothing would leave the line meanwhile.
const LINE: usize = 256;

enum Job {
    Once(Box<dyn FnOnce(&mut Group) + Send>),
    Again(Arc<dyn Again>),
}

/// The thread that carries pending operations out, in the order in which they were started.
#[derive(Debug)]
pub(super) struct Worker {
    line: Arc<Line>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Line {
    state: Mutex<LineState>,
    changed: Condvar,
    /// Who carries the jobs out, once it does.
    thread: OnceLock<ThreadId>,
}

#[derive(Default)]
struct LineState {
    jobs: VecDeque<Job>,
    busy: bool,
    closed: bool,
}

impl<B> Pending<B> {
    /// Waits for the operation and gives the buffer back. Asynchronous code awaits it instead.
    ///
    /// # Errors
    /// Those of the operation; the buffer, whose values are then unspecified, is dropped.
    /// [`OperationError::InsideAsync`] in asynchronous code,
    /// [`OperationError::InsideOperations`] in an operation that is before this one in line.
    pub fn wait(mut self) -> Result<B, OperationError> {
        outside_async()?;
        match self.inside() {
            Some(done) => done,
            None => told(self.done.blocking_recv().ok()),
        }
    }

    /// What came of it, on the thread that carries it out, which cannot wait for it.
    fn inside(&mut self) -> Option<Result<B, OperationError>> {
        // `poll` would be pending, too, where the task has used up its turns.
        self.line
            .is_own_thread()
            .then(|| match self.done.try_recv() {
                Err(TryRecvError::Empty) => Err(OperationError::InsideOperations),
                done => told(done.ok()),
            })
    }
}

/// Completes when the operation does, at its deadline at the latest; in an operation that is before
/// it in line, at once.
impl<B> Future for Pending<B> {
    type Output = Result<B, OperationError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(done) = self.inside() {
            return Poll::Ready(done);
        }
        let done = Pin::new(&mut self.done).poll(context);
        done.map(|done| told(done.ok()))
    }
}

fn told<B>(done: Option<Done<B>>) -> Result<B, OperationError> {
    let (buffer, done) = done.ok_or_else(gone)?;
    done.map(|()| buffer)
}

/// The thread that carries operations out has ended without this one.
fn gone() -> SystemError {
    SystemError::new(
        "the thread for pending operations",
        io::ErrorKind::BrokenPipe,
    )
}

impl Group {
    /// Starts operations that follow one another on `buffers`, and returns at once unless the line
    /// is full: `operations` is called with this rank's end of the group behind all that was
    /// started before. Several are carried out as one where what comes between them, such as a
    /// copy, is to go on meanwhile too.
    ///
    /// The line is full when 256 that were started wait behind the one under way. Whoever starts
    /// another then waits until that one is done, which blocks the thread in asynchronous code too;
    /// operations that start others do not wait.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let parts = group.start_operations(vec![1.0_f32; 100], |group, buffer| {
    ///     buffer.chunks_mut(32).try_for_each(|part| group.all_reduce(part, ReduceOp::Sum))
    /// })?;
    /// // … compute something …
    /// assert_eq!(parts.wait()?, [1.0; 100]);
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`OperationError::System`] when no thread can be started;
    /// [`OperationError::InsideOperations`] on the group that operations are called with. What
    /// `operations` returns is told by [`Pending::wait`]; if it panics, the group ends with
    /// [`OperationError::Aborted`].
    pub fn start_operations<B: Send + 'static>(
        &mut self,
        buffers: B,
        operations: impl FnOnce(&mut Self, &mut B) -> Result<(), OperationError> + Send + 'static,
    ) -> Result<Pending<B>, OperationError> {
        Ok(self.operations()?.start(buffers, operations))
    }

    /// Where operations of this group are started without it, such as by other operations.
    ///
    /// # Errors
    /// [`OperationError::System`] and [`OperationError::InsideOperations`], as of
    /// [`start_operations`](Self::start_operations).
    pub fn operations(&mut self) -> Result<Operations, OperationError> {
        let line = self.line()?;
        Ok(Operations { line })
    }

    /// The line of operations that go on by themselves, and somebody who carries them out.
    fn line(&mut self) -> Result<Arc<Line>, OperationError> {
        // In a line of their own they could wait for what waits for them in this one.
        self.outside_operations()?;
        let worker = match &self.worker {
            Some(worker) => worker,
            None => self.worker.insert(Worker::start(self.for_worker())?),
        };
        Ok(worker.line.clone())
    }

    /// The same rank's end of the group, for the thread that carries out what is in line.
    fn for_worker(&self) -> Self {
        Self {
            rank: self.rank,
            members: self.members.clone(),
            worker: None,
            session: self.session.clone(),
            registry: self.registry.clone(),
            observer: self.observer.clone(),
            over: self.over.clone(),
            is_workers: true,
        }
    }
}

impl Operations {
    /// As [`Group::start_operations`]; where the group has ended, [`Pending::wait`] says so.
    pub fn start<B: Send + 'static>(
        &self,
        mut buffers: B,
        operations: impl FnOnce(&mut Group, &mut B) -> Result<(), OperationError> + Send + 'static,
    ) -> Pending<B> {
        let (sender, done) = oneshot::channel();
        self.line.push(Job::Once(Box::new(move |group| {
            let carry_out = AssertUnwindSafe(|| operations(group, &mut buffers));
            // Others would wait for the rest of it, and who waits here for an idle line.
            let result = catch_unwind(carry_out)
                .unwrap_or_else(|_| Err(group.abort("operations that were started panicked")));
            // Nobody may wait for it any more.
            let _ = sender.send((buffers, result));
        })));
        let line = self.line.clone();
        Pending { done, line }
    }
}

impl Job {
    fn carry_out(self, group: &mut Group) {
        match self {
            Self::Once(job) => job(group),
            Self::Again(job) => job.run(&mut group.settled()),
        }
    }
}

impl Worker {
    fn start(mut group: Group) -> Result<Self, OperationError> {
        let line = Arc::new(Line::default());
        let own = line.clone();
        let thread = thread::Builder::new()
            .name("meshwork-ops".to_owned())
            .spawn(move || own.work(&mut group))
            .map_err(no_thread)?;
        Ok(Self {
            line,
            thread: Some(thread),
        })
    }

    /// Returns when all that was started is done; in one of these operations, all before it is.
    pub(super) fn settle(&self) {
        let busy = |state: &mut LineState| {
            (state.busy || !state.jobs.is_empty()) && !self.line.is_own_thread()
        };
        let waited = self.line.changed.wait_while(self.line.state(), busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.line.state().closed = true;
        self.line.changed.notify_all();
        // One of its own operations may drop the group.
        if let Some(thread) = self.thread.take()
            && !self.line.is_own_thread()
        {
            // What is still in line has its own deadline; a panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl Line {
    /// Lets a job join the line; false if nobody will carry it out any more.
    fn push(&self, job: Job) -> bool {
        let full = |state: &mut LineState| {
            state.jobs.len() >= LINE && !state.closed && !self.is_own_thread()
        };
        let waited = self.changed.wait_while(self.state(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.jobs.push_back(job);
        drop(state);
        self.changed.notify_all();
        true
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the thread that carries jobs out: what is in line waits for it.
    fn is_own_thread(&self) -> bool {
        self.thread.get() == Some(&thread::current().id())
    }

    fn work(&self, group: &mut Group) {
        self.thread.get_or_init(|| thread::current().id());
        while let Some(job) = self.next() {
            // Buffers that nobody waits for are dropped in it, too.
            let carry_out = AssertUnwindSafe(|| job.carry_out(group));
            if catch_unwind(carry_out).is_err() {
                group.abort("operations that were started panicked");
            }
            self.state().busy = false;
            self.changed.notify_all();
        }
    }

    /// The next job, `None` when there are none left and no more will come.
    fn next(&self) -> Option<Job> {
        let idle = |state: &mut LineState| state.jobs.is_empty() && !state.closed;
        let waited = self.changed.wait_while(self.state(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let job = state.jobs.pop_front();
        state.busy = job.is_some();
        drop(state);
        self.changed.notify_all();
        job
    }
}

impl fmt::Debug for LineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LineState")
            .field("jobs", &self.jobs.len())
            .field("busy", &self.busy)
            .field("closed", &self.closed)
            .finish()
    }
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
