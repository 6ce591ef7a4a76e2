//! What time it is, as cheaply as the machine can tell.
//!
//! The processor counts ticks that cost a third of a look at the system's clock. How long a tick is
//! need not be known before somebody asks, and follows then from both clocks.

#![cfg_attr(
    target_arch = "x86_64",
    expect(
        unsafe_code,
        reason = "the processor's counter is read by an unsafe function only"
    )
)]

use std::time::{Duration, Instant, SystemTime};

/// A moment, in ticks of whatever clock counts.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Tick(pub(super) u64);

/// Counts ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    source: Source,
    /// The same moment by all clocks.
    began: (Tick, Instant, SystemTime),
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// The processor's counter.
    #[cfg(target_arch = "x86_64")]
    Processor,
    /// Nanoseconds since this moment.
    System(Instant),
}

/// How long ticks are: so many take so long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    ticks: u64,
    time: Duration,
}

impl Clock {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let source = Source::best(now);
        Self {
            source,
            began: (source.now(), now, SystemTime::now()),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Tick {
        self.source.now()
    }

    /// When it was made.
    pub(super) fn began(&self) -> Tick {
        self.began.0
    }

    /// The scale of the ticks, the better the older the clock.
    pub(super) fn scale(&self) -> Scale {
        let (tick, moment, _) = self.began;
        Scale {
            ticks: tick.until(self.now()),
            time: moment.elapsed(),
        }
    }

    /// A moment in microseconds since 1970.
    pub(super) fn micros(&self, tick: Tick, scale: Scale) -> u64 {
        let (began, _, at) = self.began;
        let since_epoch = at.duration_since(SystemTime::UNIX_EPOCH);
        let since_epoch = since_epoch.unwrap_or(Duration::ZERO);
        whole_micros(since_epoch.saturating_add(scale.between(began, tick)))
    }
}

impl Source {
    /// The processor's counter where the kernel itself keeps time by it, which it does only after
    /// it has found it to be steady and the same on all cores.
    #[cfg(target_arch = "x86_64")]
    fn best(now: Instant) -> Self {
        let clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        match std::fs::read_to_string(clock) {
            Ok(name) if name.trim() == "tsc" => Self::Processor,
            _ => Self::System(now),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn best(now: Instant) -> Self {
        Self::System(now)
    }

    #[inline]
    fn now(self) -> Tick {
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: every processor of this kind has the counter, and reading it changes nothing.
            Self::Processor => Tick(unsafe { std::arch::x86_64::_rdtsc() }),
            Self::System(since) => {
                let nanos = since.elapsed().as_nanos();
                Tick(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        }
    }
}

impl Tick {
    /// Ticks from this moment to a later one.
    pub(super) fn until(self, later: Self) -> u64 {
        later.0.saturating_sub(self.0)
    }
}

impl Scale {
    /// The time from one moment to a later one; none the other way round.
    pub(super) fn between(self, from: Tick, to: Tick) -> Duration {
        self.of(from.until(to))
    }

    /// The time that so many ticks take.
    pub(super) fn of(self, ticks: u64) -> Duration {
        let part = u128::from(ticks) * self.time.as_nanos();
        let nanos = part / u128::from(self.ticks.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// All of a time's microseconds.
pub(super) fn whole_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Scale {
    /// Ticks are milliseconds.
    pub(super) const MILLIS: Self = Self {
        ticks: 1,
        time: Duration::from_millis(1),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever clock counts, and by the system's own.
    fn clocks() -> [Clock; 2] {
        let (best, now) = (Clock::new(), Instant::now());
        let source = Source::System(now);
        let began = (source.now(), now, SystemTime::now());
        [best, Clock { source, began }]
    }

    #[test]
    fn ticks_take_as_long_as_the_system_says() {
        for clock in clocks() {
            let (from, since) = (clock.now(), Instant::now());
            let least = Duration::from_millis(5);
            while since.elapsed() < least {
                std::hint::spin_loop();
            }
            let (to, most) = (clock.now(), since.elapsed());
            let time = clock.scale().between(from, to);
            let slack = Duration::from_millis(1);
            // Whoever was kept from the core between two looks saw a longer time, never a shorter.
            assert!(
                time + slack > least && time < most + slack,
                "{time:?} of {most:?}"
            );
            assert_eq!(clock.scale().between(to, from), Duration::ZERO);
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        for clock in clocks() {
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let expected = whole_micros(since_epoch.unwrap());
            let found = clock.micros(clock.now(), clock.scale());
            assert!(
                found.abs_diff(expected) < 10_000_000,
                "{found} for {expected}"
            );
        }
    }

    #[test]
    fn a_clock_that_has_only_begun_divides_by_nothing() {
        let scale = Scale {
            ticks: 0,
            time: Duration::ZERO,
        };
        assert_eq!(scale.between(Tick(0), Tick(u64::MAX)), Duration::ZERO);
        assert_eq!(
            Scale::MILLIS.between(Tick(3), Tick(10)),
            Duration::from_millis(7)
        );
    }
}
