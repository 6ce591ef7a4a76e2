//! How long to wait for a TPU.

use std::time::Duration;

/// How long to wait for a TPU, and how often to look.
///
/// Pauses double from the first to the longest; a [`steady`](Self::steady) one keeps its length.
/// A pause that would end after the deadline is not begun, so giving up comes early rather than
/// late.
///
/// ```
/// use std::time::Duration;
/// use meshwork_cluster_resolver::ReadyWait;
///
/// let second = Duration::from_secs(1);
/// let mut wait = ReadyWait::new(8 * second).with_backoff(second, 4 * second);
/// assert_eq!(wait.pause(Duration::ZERO), Some(second));
/// assert_eq!(wait.pause(second), Some(2 * second));
/// assert_eq!(wait.pause(3 * second), Some(4 * second));
/// assert_eq!(wait.pause(7 * second), None);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadyWait {
    deadline: Duration,
    next: Duration,
    longest: Duration,
}

impl ReadyWait {
    /// Up to this time, with pauses from 5 s to 30 s.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            next: Duration::from_secs(5),
            longest: Duration::from_secs(30),
        }
    }

    /// The first pause and the longest one; a longest one below the first counts as the first.
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.next, self.longest) = (first, longest.max(first));
        self
    }

    /// Pauses of this length.
    #[must_use]
    pub fn steady(self, pause: Duration) -> Self {
        self.with_backoff(pause, pause)
    }

    /// The next pause, after this time since the beginning; `None` to give up.
    pub fn pause(&mut self, elapsed: Duration) -> Option<Duration> {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        let end = elapsed.checked_add(pause)?;
        (end <= self.deadline).then_some(pause)
    }

    /// The time that is left after this much of it.
    pub(super) fn left(&self, elapsed: Duration) -> Duration {
        self.deadline.saturating_sub(elapsed)
    }
}

impl Default for ReadyWait {
    /// 20 minutes.
    fn default() -> Self {
        Self::new(Duration::from_secs(20 * 60))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_wait_is_longer_than_its_deadline(
            deadline in 0_u64..100,
            first in 1_u64..40,
            longest in 0_u64..40,
        ) {
            let seconds = Duration::from_secs;
            let wait = ReadyWait::new(seconds(deadline));
            let mut wait = wait.with_backoff(seconds(first), seconds(longest));
            let mut elapsed = Duration::ZERO;
            while let Some(pause) = wait.pause(elapsed) {
                elapsed += pause;
            }
            prop_assert!(elapsed <= seconds(deadline));
            prop_assert!(elapsed + seconds(first.max(longest)) > seconds(deadline));
        }
    }
}
