use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Event};

/// The events of operations that a device may not have finished yet.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Vec<Event>>);

impl Pending {
    /// Adds one; those that have ended well are forgotten now and then, so that the list stays
    /// short.
    pub(super) fn add(&self, event: Event) -> Result<(), Error> {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
        if events.len() < LOOK_AT {
            return Ok(());
        }
        // What has failed is for the next wait to tell.
        events.retain(|event| !matches!(event.outcome(), Ok(Some(Ok(())))));
        Ok(())
    }

    /// Waits until all added events have ended, and reports the first failure once.
    pub(super) fn wait(&self, within: Duration) -> Result<(), Error> {
        let begin = Instant::now();
        let mut events =
            std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        while let Some(event) = events.pop() {
            let ended = event.wait(within.saturating_sub(begin.elapsed()));
            if matches!(ended, Err(Error::Deadline { .. })) {
                events.push(event);
            }
            if ended.is_err() {
                self.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .append(&mut events);
                return ended;
            }
        }
        Ok(())
    }
}

/// How many events are kept before those that have ended are looked for.
const LOOK_AT: usize = 64;
