//! A cluster that is looked at again and again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ClusterResolver;
use crate::difference::Difference;
use crate::error::Error;
use crate::spec::ClusterSpec;

/// Looks at a cluster again and again, and yields it whenever it changed.
///
/// It is made by [`ClusterResolver::watch`]. As an iterator it yields the cluster as it is at
/// first, then each change, however long that takes, and ends when a [`Stop`] says so.
/// [`next_within`](Self::next_within) waits for a limited time. A look that fails is yielded as its
/// error, and the next one follows at its time: whether to go on is for the caller to say.
///
/// It blocks the thread that asks; async code gives it one of its own, and a channel.
///
/// ```
/// use std::{sync::mpsc, thread, time::Duration};
/// use meshwork_cluster_resolver::{ClusterResolver, ClusterSpec, SimpleResolver, Stop};
///
/// let resolver = SimpleResolver::new(ClusterSpec::from_addresses(["a:1"])?);
/// let (stop, (send, updates)) = (Stop::default(), mpsc::channel());
/// let watch = resolver.watch(Duration::from_secs(5)).until(&stop);
/// let first = thread::scope(|scope| {
///     scope.spawn(|| watch.for_each(|update| drop(send.send(update))));
///     let first = updates.recv().expect("the first look is made at once");
///     stop.stop();
///     first
/// })?;
/// assert_eq!(first.difference().added().len(), 1);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Debug)]
pub struct Watch<'a> {
    resolver: &'a dyn ClusterResolver,
    interval: Duration,
    /// The last cluster that was yielded.
    known: Option<ClusterSpec>,
    /// When the next look is due, at once if `None`.
    due: Option<Instant>,
    pace: Pace,
    /// How long the source had been silent when it told of a change that is not looked at yet.
    told: Option<Duration>,
    /// The last rest after a sign without a change.
    rest: Duration,
    stop: Stop,
}

/// A cluster that changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Update {
    spec: ClusterSpec,
    difference: Difference,
}

/// Why [`ClusterResolver::wait_for_change`] returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WatchSignal {
    /// The cluster may have changed: look now.
    Changed,
    /// The time is over, or the watch was stopped.
    Quiet,
}

/// Ends a [`Watch`], from any thread: its pause at once, a look under way when it has its answer.
/// Clones end the same watches.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    told: Condvar,
}

/// How to pass the time until the next look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pace {
    /// By asking the source for a sign of change, from then on.
    Alert(Instant),
    /// By doing nothing, because the source is out of order.
    Resting,
}

impl<'a> Watch<'a> {
    /// A watch over this cluster, with this time between the end of a look and the next one.
    ///
    /// Sources that announce changes are looked at sooner; one that announces some where there are
    /// none is left alone in between, for longer each time, up to the interval.
    #[must_use]
    pub fn new(resolver: &'a dyn ClusterResolver, interval: Duration) -> Self {
        Self {
            resolver,
            interval,
            known: None,
            due: None,
            pace: Pace::Resting,
            told: None,
            rest: Duration::ZERO,
            stop: Stop::default(),
        }
    }

    /// Ends when told by this handle.
    #[must_use]
    pub fn until(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The next change that is seen within this time; `None` if there is none, or if the watch was
    /// stopped. The time limits the waiting, not a look that has begun. The first look of all is
    /// always made.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Update, Error>> {
        // A time that ends after the clock does has no end.
        let deadline = Instant::now().checked_add(timeout);
        while !self.stop.is_stopped() {
            let now = Instant::now();
            let pause = self.due.map_or(Duration::ZERO, |due| due - now);
            let left = deadline.map_or(Duration::MAX, |deadline| deadline - now);
            if pause.is_zero()
                && let Some(update) = self.look().transpose()
            {
                return Some(update);
            }
            if left.is_zero() {
                return None;
            }
            if !pause.is_zero()
                && let Err(error) = self.pass(pause.min(left))
            {
                self.pace = Pace::Resting;
                return Some(Err(error));
            }
        }
        None
    }

    fn look(&mut self) -> Result<Option<Update>, Error> {
        let looked = self.resolver.cluster_spec();
        let (now, interval) = (Instant::now(), self.interval.min(NEVER));
        let told = self.told.take();
        self.due = Some(now + interval);
        self.pace = Pace::Resting;
        let spec = looked?;
        self.pace = Pace::Alert(now);
        if self.known.as_ref() == Some(&spec) {
            if let Some(silence) = told {
                self.rest = rest(self.rest, silence).min(interval);
                self.pace = Pace::Alert(now + self.rest);
            }
            return Ok(None);
        }
        self.rest = Duration::ZERO;
        let before = self.known.replace(spec.clone()).unwrap_or_default();
        let difference = before.difference_to(&spec);
        Ok(Some(Update { spec, difference }))
    }

    fn pass(&mut self, time: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        let (signal, since) = match (&self.known, self.pace) {
            (Some(known), Pace::Alert(from)) if from <= begun => {
                let signal = self.resolver.wait_for_change(known, time, &self.stop)?;
                (signal, from)
            }
            (_, Pace::Alert(from)) => (self.stop.wait(time.min(from - begun)), begun),
            (_, Pace::Resting) => (self.stop.wait(time), begun),
        };
        if signal == WatchSignal::Changed {
            self.due = None;
            self.told = Some(since.elapsed());
        }
        Ok(())
    }
}

impl Iterator for Watch<'_> {
    type Item = Result<Update, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_within(Duration::MAX)
    }
}

impl Update {
    /// The cluster as it is now.
    #[must_use]
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// What changed since the update before; since the empty cluster in the first one.
    #[must_use]
    pub fn difference(&self) -> &Difference {
        &self.difference
    }
}

impl Stop {
    /// Ends the watches that were given this handle, now and for ever.
    pub fn stop(&self) {
        *self.stopped() = true;
        self.shared.told.notify_all();
    }

    /// Whether [`stop`](Self::stop) was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        *self.stopped()
    }

    /// Waits until [`stop`](Self::stop) is called, or this time is over; always
    /// [`WatchSignal::Quiet`].
    pub fn wait(&self, time: Duration) -> WatchSignal {
        let waiting = |stopped: &mut bool| !*stopped;
        let waited = self
            .shared
            .told
            .wait_timeout_while(self.stopped(), time, waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        WatchSignal::Quiet
    }

    /// A flag is whole whatever happened to the thread that held it.
    fn stopped(&self) -> MutexGuard<'_, bool> {
        let stopped = self.shared.stopped.lock();
        stopped.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rest after a sign without a change that came after this silence, and after this rest before.
fn rest(last: Duration, silence: Duration) -> Duration {
    // A source that was silent for long is in order: it may only end its watches at times.
    if last.is_zero() || silence >= CALM {
        return FIRST_REST;
    }
    last.saturating_mul(2)
}

const FIRST_REST: Duration = Duration::from_millis(100);

/// A silence between signs that costs nobody much.
const CALM: Duration = Duration::from_secs(10);

/// An interval that nobody lives to see end, and that clocks can still add.
const NEVER: Duration = Duration::from_secs(1 << 32);

#[cfg(test)]
mod tests;
