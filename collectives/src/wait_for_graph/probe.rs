//! What goes from wait to wait.

use std::time::Duration;

use super::edge::{WaitEdge, WaitId};
use crate::contract::Call;
use crate::wire::{WaitProbe, WaitReport, WireCall, WireError};
use crate::{OperationError, Rank};

/// Waits that one probe meets at most: more than threads of a job that wait at a time.
const HOPS: u32 = 1 << 20;

/// A question whether the waits that follow from one lead back to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Probe {
    initiator: WaitId,
    /// When it was sent: so long after the initiator began to wait, by its clock alone.
    sent: Duration,
    hops: u32,
    /// Tells the waits so far from all others.
    digest: u64,
    /// Two neighbours among them whose calls differ.
    differing: Option<Deadlock>,
    /// The wait that it comes from.
    last: WaitEdge,
}

/// Two ranks and their calls, of which neither lets the other go on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deadlock {
    pub(crate) one: (Rank, Call),
    pub(crate) other: (Rank, Call),
}

impl Probe {
    pub(super) fn new(wait: &WaitEdge, sent: Duration) -> Self {
        Self {
            initiator: wait.id(),
            sent,
            hops: 1,
            digest: wait.digest(0),
            differing: None,
            last: wait.clone(),
        }
    }

    pub(super) fn initiator(&self) -> WaitId {
        self.initiator
    }

    pub(super) fn sent(&self) -> Duration {
        self.sent
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    #[cfg(test)]
    pub(super) fn last(&self) -> &WaitEdge {
        &self.last
    }

    /// Whether it has the same initiator as another one, and comes from the same wait.
    pub(super) fn comes_like(&self, other: &Self) -> bool {
        (self.initiator, self.last.id()) == (other.initiator, other.last.id())
    }

    /// Whether this wait keeps the one that it comes from.
    pub(super) fn concerns(&self, wait: &WaitEdge) -> bool {
        self.last.depends_on(wait)
    }

    /// It goes on from this wait, unless it has come too far.
    pub(super) fn passed_by(&self, wait: &WaitEdge) -> Option<Self> {
        (self.hops < HOPS).then(|| Self {
            hops: self.hops + 1,
            digest: wait.digest(self.digest),
            differing: self.differing_with(wait),
            last: wait.clone(),
            ..*self
        })
    }

    /// It is back where it came from: what the waits come to, if not all are in one operation.
    pub(super) fn closed_by(&self, wait: &WaitEdge) -> Option<Deadlock> {
        self.differing_with(wait)
    }

    /// The pair to name, with this wait as the next one.
    fn differing_with(&self, wait: &WaitEdge) -> Option<Deadlock> {
        let next = Deadlock::between(&self.last, wait);
        let pairs = self.differing.clone().into_iter().chain(next);
        pairs.min_by_key(Deadlock::order)
    }

    /// A probe from a rank.
    ///
    /// # Errors
    /// [`WireError`] for a call that is none.
    pub(crate) fn told(from: Rank, told: &WaitProbe) -> Result<Self, WireError> {
        let differing = told.differing.as_ref().map(Deadlock::told).transpose()?;
        Ok(Self {
            initiator: WaitId {
                waiter: Rank::new(told.initiator),
                serial: told.serial,
            },
            sent: told.sent,
            hops: told.hops,
            digest: told.digest,
            differing,
            last: WaitEdge::told(from, &told.last)?,
        })
    }
}

impl From<&Probe> for WaitProbe {
    fn from(probe: &Probe) -> Self {
        let wire = |deadlock: &Deadlock| {
            [&deadlock.one, &deadlock.other].map(|(rank, call)| WireCall::new(*rank, call))
        };
        Self {
            initiator: probe.initiator.waiter.number(),
            serial: probe.initiator.serial,
            sent: probe.sent,
            hops: probe.hops,
            digest: probe.digest,
            differing: probe.differing.as_ref().map(wire),
            last: WaitReport::from(&probe.last),
        }
    }
}

impl Deadlock {
    /// Two waits, of which one follows from the other, unless they are in one operation.
    fn between(one: &WaitEdge, other: &WaitEdge) -> Option<Self> {
        let told = |wait: &WaitEdge| (wait.waiter, wait.call.clone());
        let differs = one.call.contract() != other.call.contract();
        differs.then(|| Self {
            one: told(one),
            other: told(other),
        })
    }

    /// The least of a cycle is named, wherever that begins. Steps of one call, such as those inside
    /// a host and between hosts, differ too, but come from the same line: others tell more.
    fn order(&self) -> (bool, [(Rank, u64, u64); 2]) {
        let same_line = self.one.1.site() == self.other.1.site();
        let calls = [&self.one, &self.other];
        let calls = calls.map(|(rank, call)| {
            let contract = call.contract();
            (*rank, contract.group, contract.sequence)
        });
        (same_line, calls)
    }

    fn told(calls: &[WireCall; 2]) -> Result<Self, WireError> {
        let [one, other] = calls;
        Ok(Self {
            one: one.call()?,
            other: other.call()?,
        })
    }
}

impl From<Deadlock> for OperationError {
    fn from(Deadlock { one, other }: Deadlock) -> Self {
        Self::Disagreement {
            rank: one.0,
            mine: Box::new(one.1),
            peer: other.0,
            theirs: Box::new(other.1),
        }
    }
}
