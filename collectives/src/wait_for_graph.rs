//! Who waits for whom, and whether they wait for each other in different operations.
//!
//! ```text
//!   rank 0 ── all_reduce in group A ──> rank 1        neither can go on: each waits for the other
//!   rank 1 ── barrier in group B ─────> rank 0        to make the call that it makes itself
//! ```
//!
//! A rank that waits for long sends a probe to the rank that it waits for. If that one's thread
//! waits too and so keeps the first from its end, it passes the probe on, and so forth: one that
//! comes back has gone around a cycle. (Edge chasing, as in Chandy, Misra and Haas, "Distributed
//! deadlock detection", 1983.)
//!
//! A probe has met the waits one after the other, and some may have been over before it met the
//! last. So a second one goes, well after the first is back. If it meets the very same waits, each
//! of them lasted from before the first was back until after that: for a moment all waits of the
//! cycle were there, and from then on none can end.
//!
//! Of a chain of waits each sends probes. So that they are not passed on by all, each wait has a
//! number that is as good as drawn by lot, and passes on those of lower numbers only: ln N of N on
//! average. The lowest number of a cycle comes all the way around. (As in Chang and Roberts, "An
//! improved algorithm for decentralized extrema-finding", 1979.)

mod edge;
mod probe;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

pub(crate) use edge::{HeldGroup, MessageCounts, WaitEdge, WaitId};
pub(crate) use probe::{Deadlock, Probe};

use crate::Rank;

/// How long after a probe is back the next one may be sent that proves anything: longer than bytes
/// that would end one of the waits are on their way.
const CERTAIN: Duration = Duration::from_millis(100);
/// Between the first two probes of a wait, then twice as long, and so on.
const SOON: Duration = Duration::from_millis(50);
/// Between two probes of a wait at most.
const OFTEN: Duration = Duration::from_secs(1);
/// How long a probe is kept for waits that it may concern, and how long a wait is remembered that
/// nobody looks at: until a later probe has surely come.
const KEPT: Duration = Duration::from_secs(2);
/// Probes that are kept: more than arrive between two looks at a wait.
const LIMIT: usize = 1024;
/// Probes that are passed on at one look at a wait: fewer than may wait for a slow connection.
const AT_ONCE: usize = 8;
/// Digests of cycles that are remembered of one wait.
const CYCLES: usize = 8;

/// One rank's part of the graph: its own waits, and the probes that have come to it.
#[derive(Debug, Default)]
pub(crate) struct WaitForGraph {
    waits: BTreeMap<u64, OwnWait>,
    /// The oldest first.
    arrived: VecDeque<ArrivedProbe>,
    /// The number of the next probe that arrives.
    arrivals: u64,
}

#[derive(Debug)]
struct OwnWait {
    since: Instant,
    /// When it was last looked at.
    last: Instant,
    /// When its next probe is sent.
    next: Instant,
    /// From that one to the one after.
    pause: Duration,
    /// The number of the first probe that it has not been compared with.
    unseen: u64,
    /// Cycles that it was in, the oldest first.
    cycles: VecDeque<Cycle>,
}

/// A way on which a probe has come back.
#[derive(Debug)]
struct Cycle {
    digest: u64,
    /// When the first one was back, since the wait began.
    at: Duration,
}

#[derive(Debug)]
struct ArrivedProbe {
    number: u64,
    at: Instant,
    probe: Probe,
}

/// What comes of a look at a wait.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Send(Rank, Probe),
    GiveUp(Deadlock),
}

impl WaitForGraph {
    /// Whether [`WaitForGraph::look`] at this operation, which still waits, would do anything.
    pub(crate) fn is_due(&mut self, now: Instant, serial: u64) -> bool {
        self.waits.get_mut(&serial).is_none_or(|own| {
            own.last = now;
            own.next <= now || own.unseen < self.arrivals
        })
    }

    /// Takes in a probe, for the next look at a wait of this rank.
    pub(crate) fn arrives(&mut self, now: Instant, probe: Probe) {
        let kept = |at: Instant| now.saturating_duration_since(at) < KEPT;
        while self.arrived.front().is_some_and(|old| !kept(old.at)) {
            self.arrived.pop_front();
        }
        let mut known = self.arrived.iter();
        if let Some(place) = known.position(|old| old.probe.comes_like(&probe)) {
            // One that goes around a cycle without its initiator ends here.
            if self.arrived[place].probe.sent() >= probe.sent() {
                return;
            }
            self.arrived.remove(place);
        }
        if self.arrived.len() == LIMIT {
            self.arrived.pop_front();
        }
        self.arrived.push_back(ArrivedProbe {
            number: self.arrivals,
            at: now,
            probe,
        });
        self.arrivals += 1;
    }

    /// Looks at a wait of this rank as it is now.
    pub(crate) fn look(&mut self, now: Instant, wait: &WaitEdge) -> Vec<Action> {
        self.waits
            .retain(|_, own| now.saturating_duration_since(own.last) < KEPT);
        let own = self.waits.entry(wait.serial);
        let own = own.or_insert_with(|| OwnWait::new(now));
        own.last = now;
        let mut actions = Vec::new();
        if own.next <= now {
            own.next = now + own.pause;
            own.pause = OFTEN.min(2 * own.pause);
            let probe = Probe::new(wait, own.waited(now));
            actions.push(Action::Send(wait.awaited, probe));
        }
        let unseen = self.arrived.partition_point(|old| old.number < own.unseen);
        for arrived in self.arrived.range(unseen..) {
            if actions.len() > AT_ONCE {
                return actions;
            }
            own.unseen = arrived.number + 1;
            if arrived.probe.concerns(wait) {
                actions.extend(own.meets(now, wait, &arrived.probe));
            }
        }
        own.unseen = self.arrivals;
        actions
    }
}

impl OwnWait {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            last: now,
            next: now,
            pause: SOON,
            unseen: 0,
            cycles: VecDeque::new(),
        }
    }

    fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// What becomes of a probe that has come to this wait.
    fn meets(&mut self, now: Instant, wait: &WaitEdge, probe: &Probe) -> Option<Action> {
        if probe.initiator() == wait.id() {
            return self.closes(now, wait, probe).map(Action::GiveUp);
        }
        let passes = probe.initiator().draw() < wait.id().draw();
        let probe = passes.then(|| probe.passed_by(wait))??;
        Some(Action::Send(wait.awaited, probe))
    }

    /// Takes in that a probe of this wait is back. Returns what the waits come to if they were the
    /// same before.
    fn closes(&mut self, now: Instant, wait: &WaitEdge, probe: &Probe) -> Option<Deadlock> {
        // Waits for each other in one and the same operation are a part of it.
        let deadlock = probe.closed_by(wait)?;
        let digest = probe.digest();
        let mut cycles = self.cycles.iter();
        if let Some(cycle) = cycles.find(|cycle| cycle.digest == digest) {
            return (probe.sent() >= cycle.at + CERTAIN).then_some(deadlock);
        }
        if self.cycles.len() == CYCLES {
            self.cycles.pop_front();
        }
        let at = self.waited(now);
        self.cycles.push_back(Cycle { digest, at });
        self.next = now + CERTAIN;
        None
    }
}

#[cfg(test)]
mod tests;
