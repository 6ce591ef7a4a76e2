//! How often a service is asked again, and for how long.

use std::time::Duration;

/// How long a service may take, and how often it is asked again.
///
/// One deadline covers everything that one question needs: credentials, every page of an answer,
/// all attempts and the pauses between them. Pauses double from the first to the longest, and each
/// is shortened by a random part up to a half, so that the workers of a job that start together do
/// not ask together.
///
/// ```
/// use std::time::Duration;
/// use meshwork_cluster_resolver::RetryPolicy;
///
/// let policy = RetryPolicy::new(Duration::from_secs(60)).with_attempt_timeout(Duration::from_secs(5));
/// assert_eq!(policy.deadline(), Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RetryPolicy {
    deadline: Duration,
    attempt: Duration,
    first_pause: Duration,
    longest_pause: Duration,
}

/// The pauses between attempts, in order and without end.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    next: Duration,
    longest: Duration,
    random: u64,
}

impl RetryPolicy {
    /// Up to this time for a question; up to 10 s for an attempt, pauses from 0.2 s to 8 s.
    #[must_use]
    pub fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            attempt: Duration::from_secs(10),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(8),
        }
    }

    /// The time after which an attempt is given up.
    #[must_use]
    pub fn with_attempt_timeout(mut self, attempt: Duration) -> Self {
        self.attempt = attempt;
        self
    }

    /// The first pause and the longest one; a longest one below the first counts as the first.
    #[must_use]
    pub fn with_backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest.max(first));
        self
    }

    /// The time for one question, with all its attempts.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The time for one attempt.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        self.attempt
    }

    /// As patient as this, and not beyond this time.
    #[cfg(any(feature = "etcd", feature = "tpu"))]
    pub(crate) fn within(mut self, time: Duration) -> Self {
        self.deadline = self.deadline.min(time);
        self
    }

    /// The pauses, shortened by what follows from this random number.
    pub(crate) fn pauses(&self, random: u64) -> Pauses {
        Pauses {
            next: self.first_pause,
            longest: self.longest_pause,
            random,
        }
    }
}

impl Default for RetryPolicy {
    /// 30 s for a question.
    fn default() -> Self {
        Self::new(Duration::from_secs(30))
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        // One step of SplitMix64 (Steele, Lea, Flood 2014): enough to spread callers out.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let part = u32::try_from(mixed >> 33).unwrap_or(u32::MAX >> 1);
        let whole = self.next;
        self.next = whole.saturating_mul(2).min(self.longest);
        // `part` has 31 bits, so this is less than a half of the whole.
        let cut = whole.as_nanos() / 2 * u128::from(part) / (1 << 31);
        Some(whole.saturating_sub(Duration::from_nanos(u64::try_from(cut).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_double_to_the_longest_and_lose_at_most_a_half(
            first in 0_u64..10_000,
            longest in 0_u64..100_000,
            random: u64,
        ) {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
            let policy = RetryPolicy::new(Duration::ZERO).with_backoff(first, longest);
            let mut whole = first;
            for pause in policy.pauses(random).take(20) {
                prop_assert!(pause <= whole && pause * 2 >= whole, "{pause:?} of {whole:?}");
                whole = (whole * 2).min(longest.max(first));
            }
        }
    }

    #[test]
    fn workers_that_start_together_do_not_ask_together() {
        let policy = RetryPolicy::default();
        let mut firsts: Vec<_> = (0..100)
            .filter_map(|worker| policy.pauses(worker).next())
            .collect();
        firsts.sort();
        firsts.dedup();
        assert!(firsts.len() > 90, "{} different pauses", firsts.len());
    }
}
