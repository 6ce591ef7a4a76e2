//! Who runs a group's network tasks: the thread that waits for an operation, or else one of its
//! own.
//!
//! ```text
//!    caller    ── computes ──┬── operation ──┬── computes ─────
//!                            │ takes over    │
//!    background thread    ═══ drives ═══╧               ╰ idle a moment ═══ drives ═══
//! ```
//!
//! An operation that drives the network itself wakes no other thread for each packet, and needs no
//! second core. Between operations the background thread answers the others, so that heartbeats go
//! on while the caller computes; it waits a moment before it takes over, because operations come in
//! rows.

mod spin;

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

/// How long nobody drives before the background thread takes over: longer than the pause between
/// operations that follow each other, shorter than anybody waits for what has not been sent yet.
const PAUSE: Duration = Duration::from_micros(200);
/// The longest the background thread looks away while operations follow each other: on a core that
/// it shares with the caller, every look costs the operation some 15 µs.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The same where ranks share cores: each look takes one from a rank that has something to do, and
/// operations take as long. Peers that wait for an acknowledgement wait for more than that.
const SHARED_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Tasks that have a turn before the operation and the socket have one. A connection sends for some
/// 50 µs in each of its turns; with tokio's 61, an operation reads nothing until all that it wrote
/// is sent.
const TURNS: u32 = 2;

/// A runtime, and whoever drives it.
#[derive(Debug)]
pub(crate) struct Driver {
    /// Taken when this is dropped, which must not block where tasks run.
    runtime: Option<Arc<Runtime>>,
    background_thread: Option<(Arc<DriverState>, JoinHandle<()>)>,
}

/// What those who drive tell each other.
#[derive(Debug, Default)]
struct DriverState {
    /// Calls that drive, or wait for another that does.
    calls: AtomicUsize,
    /// Calls so far.
    count: AtomicU64,
    /// Whether the background thread drives, and so has to be told.
    with_background_thread: AtomicBool,
    wanted: Notify,
    /// The background thread, once it runs.
    thread: OnceLock<Thread>,
    /// Whether the background thread sleeps until no call is under way.
    sleeps: AtomicBool,
    /// Whether waiting operations may keep a core busy.
    spins: AtomicBool,
    over: AtomicBool,
}

impl Driver {
    /// Nothing goes on between calls, as among threads of one process.
    pub(crate) fn alone() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        Ok(Self {
            runtime: Some(Arc::new(runtime)),
            background_thread: None,
        })
    }

    /// With a thread that drives the network while nobody else does.
    pub(crate) fn with_background_thread() -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .event_interval(TURNS)
            .enable_all()
            .build()?;
        let runtime = Arc::new(runtime);
        let shift = Arc::new(DriverState::default());
        let (drives, own) = (runtime.clone(), shift.clone());
        let thread = thread::Builder::new()
            .name("meshwork-net".to_owned())
            .spawn(move || {
                own.drive_in_background(&drives);
                end(drives);
            })?;
        Ok(Self {
            runtime: Some(runtime),
            background_thread: Some((shift, thread)),
        })
    }

    /// Lets operations keep this thread's core busy while they wait, for a short time each. Ranks
    /// that have no core of their own must not: they would keep those from it whom they wait for.
    pub(crate) fn allow_spinning(&self) {
        if let Some((shift, _)) = &self.background_thread {
            shift.spins.store(true, Ordering::Relaxed);
        }
    }

    /// Whether this process has a core for each of its ranks.
    pub(crate) fn spins(&self) -> bool {
        let shift = self.background_thread.as_ref();
        shift.is_some_and(|(shift, _)| shift.spins.load(Ordering::Relaxed))
    }

    /// Drives the network until `future` is done.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("a future that is done has its output")
    }

    /// Of any future alike, as what a runtime does while it waits is compiled for each type of
    /// future anew.
    fn drive(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        let runtime = self.runtime.as_ref().expect("it is taken on drop");
        let Some((shift, _)) = &self.background_thread else {
            return runtime.block_on(future);
        };
        let _call = shift.begin();
        runtime.block_on(future);
    }

    /// The same for an operation, which may wait busily, and whose last bytes are sent before this
    /// returns, as far as the network takes them.
    pub(crate) fn carry_out<F: Future>(&self, operation: F) -> F::Output {
        self.block_on(async {
            let done = match self.spins() {
                true => spin::busily(operation).await,
                false => operation.await,
            };
            spin::send_off().await;
            done
        })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some((shift, thread)) = self.background_thread.take() {
            shift.over.store(true, Ordering::SeqCst);
            shift.wanted.notify_one();
            thread.thread().unpark();
            // It ends at once, and what the runtime holds, such as a port, is free when this
            // returns.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
        if let Some(runtime) = self.runtime.take() {
            end(runtime);
        }
    }
}

impl DriverState {
    /// Makes the background thread give way until the call is over.
    fn begin(&self) -> DrivingCall<'_> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.with_background_thread.load(Ordering::SeqCst) {
            self.wanted.notify_one();
        }
        DrivingCall(self)
    }

    /// Drives while nobody else does, until all is over.
    fn drive_in_background(&self, runtime: &Runtime) {
        self.thread.get_or_init(thread::current);
        while self.wait_for_a_pause() {
            // Told before the look: a call that begins now sees it, or is seen.
            self.with_background_thread.store(true, Ordering::SeqCst);
            if self.calls.load(Ordering::SeqCst) == 0 && !self.over.load(Ordering::SeqCst) {
                runtime.block_on(self.wanted.notified());
            }
            self.with_background_thread.store(false, Ordering::SeqCst);
        }
    }

    /// Returns when no call has been under way for a while; `false` when all is over.
    ///
    /// While short calls follow each other it looks now and then, less and less often. A call that
    /// is still under way at the next two looks is a long one, whose end wakes this thread: with
    /// hundreds of ranks on a core, looks would be most of what it does.
    fn wait_for_a_pause(&self) -> bool {
        let (mut seen, mut poll_interval, mut lasts) = (None, PAUSE, false);
        while !self.over.load(Ordering::SeqCst) {
            let calls = self.calls.load(Ordering::SeqCst);
            let count = self.count.load(Ordering::Relaxed);
            let same = seen == Some(count);
            seen = Some(count);
            match (calls, same) {
                (0, true) => return true,
                (0, false) => thread::park_timeout(PAUSE),
                (_, true) if lasts => {
                    self.sleep_through_calls();
                    seen = None;
                }
                (_, same) => {
                    lasts = same;
                    poll_interval = (poll_interval * 2).min(self.longest_interval());
                    thread::park_timeout(poll_interval);
                }
            }
        }
        false
    }

    /// Returns when no call is under way, or before.
    fn sleep_through_calls(&self) {
        self.sleeps.store(true, Ordering::SeqCst);
        // Told before the look: a call that ends now sees it, or is seen to have ended.
        if self.calls.load(Ordering::SeqCst) > 0 && !self.over.load(Ordering::SeqCst) {
            thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }

    fn longest_interval(&self) -> Duration {
        match self.spins.load(Ordering::Relaxed) {
            true => POLL_INTERVAL,
            false => SHARED_POLL_INTERVAL,
        }
    }
}

/// A call that drives; over when dropped.
struct DrivingCall<'a>(&'a DriverState);

impl Drop for DrivingCall<'_> {
    fn drop(&mut self) {
        let others = self.0.calls.fetch_sub(1, Ordering::SeqCst) > 1;
        if !others
            && self.0.sleeps.load(Ordering::SeqCst)
            && let Some(background_thread) = self.0.thread.get()
        {
            background_thread.unpark();
        }
    }
}

/// Whoever is last ends the runtime, without waiting for tasks that cannot be interrupted, such as
/// the look-up of a name.
fn end(runtime: Arc<Runtime>) {
    if let Some(runtime) = Arc::into_inner(runtime) {
        runtime.shutdown_background();
    }
}

#[cfg(test)]
mod tests;
