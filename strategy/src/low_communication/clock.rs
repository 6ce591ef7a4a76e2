//! How far a round has come: by inner steps, or by time where workers are not equally fast.

use std::time::Duration;

use super::LowCommunication;

/// Where this worker's round began, in the time that it has spent on inner steps.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Clock {
    round_began: Duration,
}

impl Clock {
    /// The step of the schedule after an inner step that was made behind step `before`, when the
    /// worker has spent `busy` on inner steps in all. It does not go beyond the end of a round, so
    /// that all workers come through each.
    pub(super) fn after_inner_step(
        &mut self,
        settings: &LowCommunication,
        before: u64,
        busy: Duration,
    ) -> u64 {
        let Some(round) = settings.round_time else {
            return before + 1;
        };
        let steps = u64::from(settings.inner_steps.get());
        let began = before / steps * steps;
        let spent = busy.saturating_sub(self.round_began).as_nanos();
        // No round is longer than 2^64 ns, nor has more than 2^32 steps.
        let reached = spent * u128::from(steps) / round.as_nanos().max(1);
        let reached = u64::try_from(reached).map_or(steps, |reached| reached.min(steps));
        let after = (began + reached).max(before);
        if after == began + steps {
            self.round_began = busy;
        }
        after
    }

    /// A worker that begins in the middle of a training begins a round.
    pub(super) fn restarted(busy: Duration) -> Self {
        Self { round_began: busy }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn settings() -> LowCommunication {
        LowCommunication::new(NonZeroU32::new(10).unwrap())
    }

    #[test]
    fn without_a_time_each_inner_step_is_one_of_the_schedule() {
        let mut clock = Clock::default();
        for before in 0..30 {
            let after = clock.after_inner_step(&settings(), before, Duration::MAX);
            assert_eq!(after, before + 1);
        }
    }

    #[test]
    fn fast_and_slow_workers_come_through_the_same_rounds() {
        let settings = settings().with_round_time(Duration::from_millis(100));
        let made = |inner_step: u64| {
            let (mut clock, mut step, mut made) = (Clock::default(), 0, Vec::new());
            let mut busy = Duration::ZERO;
            for round in 1..=3 {
                let mut count = 0;
                while step < 10 * round {
                    busy += Duration::from_millis(inner_step);
                    let after = clock.after_inner_step(&settings, step, busy);
                    assert!((step..=10 * round).contains(&after), "{step} {after}");
                    (step, count) = (after, count + 1);
                }
                made.push(count);
            }
            made
        };
        assert_eq!(made(1), [100, 100, 100]);
        assert_eq!(made(10), [10, 10, 10]);
        // Its third step ends 20 ms late, and so does its round.
        assert_eq!(made(40), [3, 3, 3]);
        assert_eq!(made(1_000), [1, 1, 1]);
    }
}
