//! How to wait for a flag: spin, then yield, then sleep, and never for ever. A rank with a core of
//! its own that other programs use sleeps instead of yielding.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::communicator::CLOSED;
use super::flag::{Atomic, Flag};
use crate::Rank;
use crate::failure::Failure;

/// How eagerly a rank waits, by the cores that the ranks of its host share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SpinPolicy {
    spins: u32,
    yields: u32,
    /// Whether there is a core for each rank, so that a long yield has given it to another program.
    has_core: bool,
}

impl SpinPolicy {
    /// Asleep at once, as a test of every interleaving has it.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        spins: 0,
        yields: 0,
        has_core: false,
    };

    /// With a core for each rank a short spin avoids the 30 µs that waking a sleeper takes; with
    /// two ranks a core it would only keep the awaited rank from running, so the core is yielded.
    /// Among more, each yield gives way to ranks that only yield in turn: all but those that have
    /// something to do sleep, and who has slept for a while looks less often, as hundreds of ranks
    /// on a few cores would do little else.
    pub(crate) fn new(ranks: usize, cores: usize) -> Self {
        let (spins, yields) = match ranks {
            _ if ranks <= cores => (200, 1_000),
            _ if ranks <= cores.saturating_mul(2) => (20, 1_000),
            _ => (0, 0),
        };
        Self {
            spins,
            yields,
            has_core: ranks <= cores,
        }
    }

    /// Between two looks at whether the group has failed, while asleep, at most.
    fn longest_sleep(self) -> Duration {
        match self.yields {
            0 => CROWDED_SLEEP,
            1.. => SLEEP,
        }
    }
}

/// One operation's patience.
pub(crate) struct Waiter<'a> {
    spin_policy: SpinPolicy,
    limit: Duration,
    observer: &'a dyn WaitObserver,
    /// When the operation first slept: asking the time earlier would cost more than a short wait.
    since: Cell<Option<Instant>>,
}

/// Who looks on while an operation waits.
pub(crate) trait WaitObserver {
    /// Whether the group has failed meanwhile.
    fn over(&self) -> bool;

    /// Called now and then while the wait for the rank at this place is a long one.
    fn waits(&self, place: usize);
}

/// Why a wait ended without its flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaitError {
    /// The group has failed.
    Over,
    /// The rank whose flag it is has left.
    Closed,
    /// The rank at this place was awaited for the whole time that an operation may wait.
    TimedOut(usize),
}

impl WaitError {
    /// What a wait for a flag of the rank at this place has come to.
    pub(super) fn of(self, place: usize) -> Failure {
        match self {
            Self::Over => Failure::GroupOver,
            Self::Closed => Failure::Closed(Rank::at(place)),
            Self::TimedOut(awaited) => Failure::TimedOut(Rank::at(awaited)),
        }
    }
}

/// Between two looks at whether the group has failed, while asleep.
const SLEEP: Duration = Duration::from_millis(5);
/// The same of ranks that share a core with several others, once they have slept for as long.
const CROWDED_SLEEP: Duration = Duration::from_millis(50);
/// Yields between two such looks, while awake.
const LOOKS: u32 = 64;
/// The scheduler lets whoever has got a core by a yield go on for milliseconds, though the flag may
/// be there at once, where it wakes a sleeper at once.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// For how long a rank then sleeps instead of yielding.
const CROWDED_FOR: Duration = Duration::from_secs(1);

thread_local! {
    /// Until when others are taken to compute on the core of this thread.
    static CROWDED_UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(
        spin_policy: SpinPolicy,
        limit: Duration,
        observer: &'a dyn WaitObserver,
    ) -> Self {
        Self {
            spin_policy,
            limit,
            observer,
            since: Cell::new(None),
        }
    }

    /// Whether the flag reaches the number in as short a time as is worth spinning for.
    #[inline]
    pub(crate) fn spin<A: Atomic>(&self, flag: &Flag<A>, number: u32) -> bool {
        for _ in 0..self.spin_policy.spins {
            if flag.reached(number) {
                return true;
            }
            std::hint::spin_loop();
        }
        // Whoever does not spin sees too what is there.
        flag.reached(number)
    }

    /// Returns when a flag has reached the number, unless its rank is `closed` before. The place of
    /// the rank that is `awaited` is asked for when it is to be told.
    pub(crate) fn wait_longer<A: Atomic>(
        &self,
        flag: &Flag<A>,
        number: u32,
        closed: &Flag<A>,
        awaited: impl Fn() -> usize,
    ) -> Result<(), WaitError> {
        if self.yield_core(flag, number, closed) {
            return Ok(());
        }
        let began = Instant::now();
        let since = self.since.get().unwrap_or(began);
        self.since.set(Some(since));
        loop {
            let error = self.ended_early(closed);
            // What was set before its rank left counts.
            if flag.reached(number) {
                return Ok(());
            }
            if let Some(error) = error {
                return Err(error);
            }
            let left = self.limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(WaitError::TimedOut(awaited()));
            }
            self.observer.waits(awaited());
            let sleep = since
                .elapsed()
                .clamp(SLEEP, self.spin_policy.longest_sleep());
            flag.sleep_until(number, left.min(sleep));
        }
    }

    /// Whether the flag reaches the number while the core is lent to whoever wants it, as long as
    /// that gives it back soon.
    fn yield_core<A: Atomic>(&self, flag: &Flag<A>, number: u32, closed: &Flag<A>) -> bool {
        let has_core = self.spin_policy.has_core;
        if has_core && is_crowded() {
            return false;
        }
        for turn in 0..self.spin_policy.yields {
            if flag.reached(number) {
                return true;
            }
            if turn % LOOKS == LOOKS - 1 && self.ended_early(closed).is_some() {
                break;
            }
            if !has_core {
                A::pause();
            } else if pauses_long::<A>() {
                CROWDED_UNTIL.set(Some(Instant::now() + CROWDED_FOR));
                break;
            }
        }
        false
    }

    fn ended_early<A: Atomic>(&self, closed: &Flag<A>) -> Option<WaitError> {
        if self.observer.over() {
            return Some(WaitError::Over);
        }
        closed.reached(CLOSED).then_some(WaitError::Closed)
    }
}

/// Whether others were seen computing on the core of this thread a short while ago.
fn is_crowded() -> bool {
    CROWDED_UNTIL
        .get()
        .is_some_and(|until| Instant::now() < until)
}

/// Yields the core; whether somebody else has computed on it meanwhile.
fn pauses_long<A: Atomic>() -> bool {
    let began = Instant::now();
    A::pause();
    began.elapsed() >= LONG_YIELD
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static YIELDS: AtomicU32 = AtomicU32::new(0);

    /// A number whose waiters get their core back after a millisecond, and which nobody sets.
    #[derive(Debug, Default)]
    struct OnBusyCore;

    impl Atomic for OnBusyCore {
        fn load(&self) -> u32 {
            0
        }
        fn store(&self, _: u32) {}
        fn publish(&self, _: u32) {}
        fn wake_sleepers() {}
        fn add(&self, _: u32) {}
        fn subtract(&self, _: u32) {}
        fn sleep(&self, _: u32, _: Duration) {}
        fn wake(&self) {}
        fn pause() {
            YIELDS.fetch_add(1, Ordering::SeqCst);
            let began = Instant::now();
            while began.elapsed() < LONG_YIELD {
                std::hint::spin_loop();
            }
        }
    }

    struct Nobody;

    impl WaitObserver for Nobody {
        fn over(&self) -> bool {
            false
        }
        fn waits(&self, _: usize) {}
    }

    #[test]
    fn a_rank_that_gets_its_core_back_late_sleeps_from_then_on() {
        let [flag, closed] = [(); 2].map(|()| Flag::<OnBusyCore>::default());
        let waiter = Waiter::new(SpinPolicy::new(2, 2), Duration::ZERO, &Nobody);
        let wait = || waiter.wait_longer(&flag, 1, &closed, || 1);
        assert_eq!(wait(), Err(WaitError::TimedOut(1)));
        assert_eq!(YIELDS.load(Ordering::SeqCst), 1);
        let until = CROWDED_UNTIL.get().unwrap();
        // So that the second wait is within it on any machine.
        CROWDED_UNTIL.set(Some(until + Duration::from_secs(3600)));
        assert_eq!(wait(), Err(WaitError::TimedOut(1)));
        assert_eq!(YIELDS.load(Ordering::SeqCst), 1, "it has yielded again");
        // Two ranks of one core lend it to each other.
        let sharing = SpinPolicy {
            yields: 2,
            ..SpinPolicy::new(2, 1)
        };
        let sharing = Waiter::new(sharing, Duration::ZERO, &Nobody);
        let ended = sharing.wait_longer(&flag, 1, &closed, || 1);
        assert_eq!(ended, Err(WaitError::TimedOut(1)));
        assert_eq!(YIELDS.load(Ordering::SeqCst), 3);
    }

    /// A number that is set by whoever sleeps until it is.
    #[derive(Debug, Default)]
    struct SetBySleep(AtomicU32);

    impl Atomic for SetBySleep {
        fn load(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
        fn store(&self, _: u32) {}
        fn publish(&self, _: u32) {}
        fn wake_sleepers() {}
        fn add(&self, _: u32) {}
        fn subtract(&self, _: u32) {}
        fn sleep(&self, _: u32, _: Duration) {
            self.0.store(1, Ordering::SeqCst);
        }
        fn wake(&self) {}
        fn pause() {}
    }

    #[test]
    fn an_operation_that_gets_on_may_take_longer_than_a_wait() {
        let [flag, closed] = [(); 2].map(|()| Flag::<SetBySleep>::default());
        let limit = Duration::from_secs(1);
        let waiter = Waiter::new(SpinPolicy::NONE, limit, &Nobody);
        // It slept first longer ago than a wait may take.
        waiter.since.set(Instant::now().checked_sub(2 * limit));
        assert_eq!(waiter.wait_longer(&flag, 1, &closed, || 1), Ok(()));
    }

    #[test]
    fn ranks_with_less_than_half_a_core_sleep_at_once() {
        let yields = |ranks, cores| SpinPolicy::new(ranks, cores).yields > 0;
        assert!(yields(2, 2) && yields(4, 2) && !yields(5, 2) && !yields(64, 2));
        assert_eq!(SpinPolicy::new(64, 2), SpinPolicy::NONE);
        assert_eq!(
            SpinPolicy::new(2, 2),
            SpinPolicy {
                spins: 200,
                yields: 1_000,
                has_core: true,
            }
        );
        assert!(!SpinPolicy::new(3, 2).has_core);
        assert_eq!(SpinPolicy::new(2, 0), SpinPolicy::NONE);
        assert_eq!(SpinPolicy::new(4, 2).longest_sleep(), SLEEP);
        assert_eq!(SpinPolicy::new(5, 2).longest_sleep(), CROWDED_SLEEP);
    }
}
