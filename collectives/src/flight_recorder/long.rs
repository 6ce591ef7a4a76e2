//! Which operations waited at length, for whom, and when the log says so.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use super::clock::{Scale, Tick};
use super::journal::{LENGTH, Record, Serial};
use crate::Rank;

/// Waits of one operation that are remembered, the last ones: whom it waits for now is the news.
const WAITS: usize = 8;
/// From when on an operation may wait in vain: at least, and for each rank of the job. Where
/// hundreds share a few cores every operation takes that long, and looks and probes would keep them
/// from it.
const LONG: Duration = Duration::from_millis(50);
const LONG_PER_RANK: Duration = Duration::from_millis(1);
/// When the log first says that a rank is slow; then after twice, four times as long, and so on.
const SLOW: Duration = Duration::from_secs(1);

/// The operations of one group that waited at length, the oldest first, in memory that is taken at
/// once: which steps of a training wait is chance, and none shall take memory.
#[derive(Debug)]
pub(super) struct LongWaits(VecDeque<LongWait>);

impl Default for LongWaits {
    fn default() -> Self {
        Self(VecDeque::with_capacity(LENGTH))
    }
}

#[derive(Debug)]
struct LongWait {
    serial: Serial,
    /// When the log says next that the rank that it waits for is slow.
    slow: Duration,
    waits: SmallVec<[Waited; 2]>,
}

/// A rank that was waited for at length, from when until when it was last seen to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waited {
    pub(super) rank: Rank,
    pub(super) from: Tick,
    pub(super) until: Tick,
}

/// How long an operation has waited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Waits {
    /// How much longer than when it was last seen to wait for the same rank.
    pub(super) more: Duration,
    /// How long the operation has waited in all.
    pub(super) waited: Duration,
    /// So long that the log says now whom it waits for.
    pub(super) slow: bool,
}

/// How long an operation waits in a job of so many ranks before it is asked whether it does so in
/// vain.
pub(super) fn patience(ranks: usize) -> Duration {
    let ranks = u32::try_from(ranks).expect("a group checks its size before it joins");
    LONG.max(LONG_PER_RANK * ranks)
}

impl LongWaits {
    /// Notes that an operation waits for a rank.
    pub(super) fn note(
        &mut self,
        record: &Record,
        awaited: Rank,
        now: Tick,
        scale: Scale,
    ) -> Waits {
        let long = self.of_operation(record.serial);
        let mut more = Duration::ZERO;
        match long.waits.last_mut() {
            Some(last) if last.rank == awaited => {
                more = scale.between(last.until, now);
                last.until = now;
            }
            Some(_) | None => {
                if long.waits.len() == WAITS {
                    long.waits.remove(0);
                }
                long.waits.push(Waited {
                    rank: awaited,
                    from: now,
                    until: now,
                });
            }
        }
        let waited = scale.between(record.began, now);
        let slow = waited >= long.slow;
        if slow {
            long.slow = 2 * waited;
        }
        Waits { more, waited, slow }
    }

    /// Whom an operation waited for, in order. The last wait was over when the operation was.
    pub(super) fn of(&self, record: &Record) -> SmallVec<[Waited; 2]> {
        let long = self.0.iter().find(|long| long.serial == record.serial);
        let mut waits = long.map(|long| long.waits.clone()).unwrap_or_default();
        if let (Some(last), Some((ended, _))) = (waits.last_mut(), record.ended) {
            last.until = ended;
        }
        waits
    }

    /// What is noted of this operation, the last of its group.
    fn of_operation(&mut self, serial: Serial) -> &mut LongWait {
        let known = self.0.back().is_some_and(|last| last.serial == serial);
        if !known {
            if self.0.len() == LENGTH {
                self.0.pop_front();
            }
            self.0.push_back(LongWait {
                serial,
                slow: SLOW,
                waits: SmallVec::new(),
            });
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }
}
