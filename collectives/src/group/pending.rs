//! Operations that go on while their caller does something else.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::engine::{Asked, Engine, Work};
use super::{Group, no_thread};
use crate::contract::Kind;
use crate::{Error, Rank, config};

/// An operation under way, and the buffer that it works on.
///
/// Dropped without [`wait`](Self::wait), the operation goes on all the same, and an error shows in
/// the next one.
#[must_use = "the buffer comes back from `wait`"]
pub struct Pending<B> {
    done: mpsc::Receiver<(B, Result<(), Error>)>,
}

/// Operations that may wait in line; beyond it their callers wait.
const LINE: usize = 256;

type Job = Box<dyn FnOnce(&mut Engine) + Send>;

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
}

#[derive(Default)]
struct LineState {
    jobs: VecDeque<Job>,
    busy: bool,
    closed: bool,
}

impl<B> Pending<B> {
    /// Waits for the operation and gives the buffer back.
    ///
    /// # Errors
    /// Those of the operation; the buffer, whose values are then unspecified, is dropped.
    pub fn wait(self) -> Result<B, Error> {
        let (buffer, done) = self.done.recv().map_err(|_| Error::System {
            what: "the thread for pending operations",
            kind: std::io::ErrorKind::BrokenPipe,
        })?;
        done.map(|()| buffer)
    }
}

impl Group {
    /// Starts to replace `buffer`, on every rank, by the reduction of all ranks' buffers, and
    /// returns at once; see [`all_reduce`](Self::all_reduce).
    ///
    /// Operations are carried out one after the other in the order in which they were called, those
    /// that were started and those that block alike.
    ///
    /// ```
    /// use meshwork_collectives::{Group, ReduceOp};
    ///
    /// let mut group = Group::local(1)?.remove(0);
    /// let early = group.start_all_reduce(vec![1.0_f32; 4], ReduceOp::Sum)?;
    /// let late = group.start_all_reduce(vec![2.0_f32; 4], ReduceOp::Sum)?;
    /// // … compute something …
    /// assert_eq!(early.wait()?, [1.0; 4]);
    /// assert_eq!(late.wait()?, [2.0; 4]);
    /// # Ok::<(), meshwork_collectives::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an op that `T` does not have, [`Error::System`] when no thread
    /// can be started; what goes wrong later is told by
    /// [`Pending::wait`].
    #[track_caller]
    pub fn start_all_reduce<T, B>(&mut self, buffer: B, op: ReduceOp) -> Result<Pending<B>, Error>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        let (caller, reduction) = (Location::caller(), Reduction::new(op)?);
        self.start(buffer, move |engine, buffer| {
            let buffer = buffer.as_mut();
            let asked = Asked::new(Kind::AllReduce, buffer.len()).with_op(op);
            let work = Work::Reduce {
                buffer,
                reduction,
                root: None,
            };
            engine.perform(asked, caller, work)
        })
    }

    /// Starts to replace `buffer`, on every rank, by the buffer of `root`, and returns at once; see
    /// [`broadcast`](Self::broadcast) and [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// # Errors
    /// Those of [`start_all_reduce`](Self::start_all_reduce), and [`Error::RankOutside`].
    #[track_caller]
    pub fn start_broadcast<T, B>(&mut self, buffer: B, root: Rank) -> Result<Pending<B>, Error>
    where
        T: Element,
        B: AsMut<[T]> + Send + 'static,
    {
        config::inside(root, self.world())?;
        let caller = Location::caller();
        self.start(buffer, move |engine, buffer| {
            let buffer = buffer.as_mut();
            let asked = Asked::new(Kind::Broadcast, buffer.len()).with_root(root);
            engine.perform(asked, caller, Work::Broadcast { buffer, root })
        })
    }

    fn start<B: Send + 'static>(
        &mut self,
        mut buffer: B,
        operation: impl FnOnce(&mut Engine, &mut B) -> Result<(), Error> + Send + 'static,
    ) -> Result<Pending<B>, Error> {
        let (sender, done) = mpsc::channel();
        let worker = match &self.worker {
            Some(worker) => worker,
            None => self.worker.insert(Worker::start(self.engine.clone())?),
        };
        worker.push(Box::new(move |engine| {
            let result = operation(engine, &mut buffer);
            // Nobody may wait for it any more.
            let _ = sender.send((buffer, result));
        }));
        Ok(Pending { done })
    }
}

impl Worker {
    fn start(engine: Arc<Mutex<Engine>>) -> Result<Self, Error> {
        let line = Arc::new(Line::default());
        let own = line.clone();
        let thread = thread::Builder::new()
            .name("meshwork-ops".to_owned())
            .spawn(move || own.work(&engine))
            .map_err(no_thread)?;
        Ok(Self {
            line,
            thread: Some(thread),
        })
    }

    fn push(&self, job: Job) {
        let full = |state: &mut LineState| state.jobs.len() >= LINE;
        let waited = self.line.changed.wait_while(self.line.state(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.jobs.push_back(job);
        drop(state);
        self.line.changed.notify_all();
    }

    /// Returns when all that was started is done.
    pub(super) fn settle(&self) {
        let busy = |state: &mut LineState| state.busy || !state.jobs.is_empty();
        let waited = self.line.changed.wait_while(self.line.state(), busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.line.state().closed = true;
        self.line.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What is still in line has its own deadline; a panic there has been reported.
            let _ = thread.join();
        }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, LineState> {
        // Nothing that holds the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, engine: &Mutex<Engine>) {
        while let Some(job) = self.next() {
            job(&mut engine.lock().unwrap_or_else(PoisonError::into_inner));
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
