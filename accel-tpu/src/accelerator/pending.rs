use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Event};

/// The events of operations that a device may not have finished yet.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Vec<Arc<Event>>>);

impl Pending {
    /// Adds one; those that have ended well are forgotten now and then, so that the list stays
    /// short.
    pub(super) fn add(&self, event: Event) -> Result<(), Error> {
        let mut events = self.lock();
        events.push(Arc::new(event));
        if events.len() < LOOK_AT {
            return Ok(());
        }
        // What has failed is for the next wait to tell.
        events.retain(|event| !matches!(event.outcome(), Ok(Some(Ok(())))));
        Ok(())
    }

    /// Waits until all added events have ended, and reports the first failure, which later waits
    /// do not.
    pub(super) fn wait(&self, within: Duration) -> Result<(), Error> {
        let begin = Instant::now();
        // They stay in the list, for whoever waits meanwhile.
        let events = self.lock().clone();
        for event in events.iter().rev() {
            let ended = event.wait(within.saturating_sub(begin.elapsed()));
            if !matches!(ended, Err(Error::Deadline { .. })) {
                self.lock().retain(|other| !Arc::ptr_eq(other, event));
            }
            ended?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Event>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many events are kept before those that have ended are looked for.
const LOOK_AT: usize = 64;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn what_one_thread_waits_for_another_does_too() {
        let (event, asked) = Event::stub();
        let pending = Pending::default();
        pending.add(event).unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| pending.wait(PATIENCE));
            let bell = asked.recv_timeout(PATIENCE).unwrap();
            let second = pending.wait(Duration::ZERO);
            bell.ring();
            assert!(matches!(second, Err(Error::Deadline { .. })), "{second:?}");
            asked.recv_timeout(PATIENCE).unwrap().ring();
            assert!(first.join().unwrap().is_ok());
        });
        assert!(pending.wait(Duration::ZERO).is_ok(), "it has ended");
    }
}
