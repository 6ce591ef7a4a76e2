//! How to wait for a flag: spin, then yield, then sleep, and never for ever.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::domain::CLOSED;
use super::flag::{Atomic, Flag};

/// How eagerly a rank waits, by the cores that the ranks of its host share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Eagerness {
    spins: u32,
    yields: u32,
}

impl Eagerness {
    /// Asleep at once, as a test of every interleaving has it.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self {
        spins: 0,
        yields: 0,
    };

    /// With a core for each rank a short spin avoids the 30 µs that waking a sleeper takes; with
    /// fewer cores it would only keep the awaited rank from running, so the core is yielded.
    pub(crate) fn new(ranks: usize, cores: usize) -> Self {
        let spins = if ranks <= cores { 200 } else { 20 };
        Self {
            spins,
            yields: 1_000,
        }
    }
}

/// One operation's patience.
pub(crate) struct Patience<'a> {
    eagerness: Eagerness,
    limit: Duration,
    watch: &'a dyn Watch,
    /// When the operation first slept: asking the time earlier would cost more than a short wait.
    since: Cell<Option<Instant>>,
}

/// Who looks on while an operation waits.
pub(crate) trait Watch {
    /// Whether the group has failed meanwhile.
    fn over(&self) -> bool;

    /// Called now and then while the wait for the rank at this place is a long one.
    fn waits(&self, place: usize);
}

/// Why a wait ended without its flag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Vain {
    /// The group has failed.
    Over,
    /// The rank whose flag it is has left.
    Closed,
    /// The operation's time is up.
    TimedOut,
}

/// Between two looks at whether the group has failed, while asleep.
const SLICE: Duration = Duration::from_millis(5);
/// Yields between two such looks, while awake.
const LOOKS: u32 = 64;

impl<'a> Patience<'a> {
    pub(crate) fn new(eagerness: Eagerness, limit: Duration, watch: &'a dyn Watch) -> Self {
        Self {
            eagerness,
            limit,
            watch,
            since: Cell::new(None),
        }
    }

    /// Whether the flag reaches the number in as short a time as is worth spinning for.
    #[inline]
    pub(crate) fn spin<A: Atomic>(&self, flag: &Flag<A>, number: u32) -> bool {
        for _ in 0..self.eagerness.spins {
            if flag.reached(number) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// Returns when the flag of the rank at this place has reached the number, unless the rank is
    /// `closed` before.
    pub(crate) fn wait_longer<A: Atomic>(
        &self,
        flag: &Flag<A>,
        number: u32,
        (place, closed): (usize, &Flag<A>),
    ) -> Result<(), Vain> {
        for turn in 0..self.eagerness.yields {
            if flag.reached(number) {
                return Ok(());
            }
            if turn % LOOKS == LOOKS - 1 && self.is_vain(closed).is_some() {
                break;
            }
            A::pause();
        }
        let since = self.since.get().unwrap_or_else(Instant::now);
        self.since.set(Some(since));
        loop {
            let vain = self.is_vain(closed);
            // What was set before its rank left counts.
            if flag.reached(number) {
                return Ok(());
            }
            if let Some(vain) = vain {
                return Err(vain);
            }
            let left = self.limit.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(Vain::TimedOut);
            }
            self.watch.waits(place);
            flag.sleep_until(number, left.min(SLICE));
        }
    }

    fn is_vain<A: Atomic>(&self, closed: &Flag<A>) -> Option<Vain> {
        if self.watch.over() {
            return Some(Vain::Over);
        }
        closed.reached(CLOSED).then_some(Vain::Closed)
    }
}
