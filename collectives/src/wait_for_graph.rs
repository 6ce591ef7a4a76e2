//! Who waits for whom, and whether they wait for each other in different operations.
//!
//! ```text
//!   rank 0 ── all_reduce in group A ──> rank 1        neither can go on: each waits for the other
//!   rank 1 ── barrier in group B ─────> rank 0        to make the call that it makes itself
//! ```
//!
//! Ranks tell each other what they wait for once that takes long. A wait leads to another if the
//! awaited rank's thread is the one that last used the waiting rank's group and has not finished
//! its operation there: then nobody else will make the call that is waited for. Of a message it is
//! known by its number whether the other side has made its call. A cycle of such waits never
//! resolves itself. Words take time to arrive, so a cycle counts only when each of its
//! waits was heard of again well after all of them were first heard of.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::contract::{Call, Kind};
use crate::wire::{WaitReport, WireCall, WireError, WireMessageCounts};
use crate::{OperationError, Rank};

/// A thread of a rank waits for another rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitEdge {
    pub(crate) waiter: Rank,
    pub(crate) awaited: Rank,
    /// Tells this operation from others of the waiter.
    pub(crate) serial: u64,
    pub(crate) call: Call,
    /// Whether it is the receiving side of a message.
    pub(crate) receives: bool,
    /// The groups that the waiting thread was the last to use, and what it has finished there.
    pub(crate) held_groups: Vec<HeldGroup>,
    /// The messages to and from others in these groups; `None` where there are too many to tell.
    pub(crate) message_counts: Option<Vec<MessageCounts>>,
}

/// A group, and the number of the last operation that was finished in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HeldGroup {
    pub(crate) group: u64,
    pub(crate) finished: u64,
}

/// With how many calls messages to another rank were sent, and received from it, in one group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageCounts {
    pub(crate) group: u64,
    pub(crate) with: Rank,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Two ranks and their calls, of which neither lets the other go on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Deadlock {
    pub(crate) one: (Rank, Call),
    pub(crate) other: (Rank, Call),
}

/// The waits that this rank has heard of.
#[derive(Debug, Default)]
pub(crate) struct WaitForGraph {
    known: BTreeMap<(Rank, u64), KnownEdge>,
}

#[derive(Debug)]
struct KnownEdge {
    wait: WaitEdge,
    first: Instant,
    last: Instant,
}

/// How much later than all others a wait must be heard of again: longer than words travel.
const CERTAIN: Duration = Duration::from_millis(100);
/// A wait that is not heard of for so long is over.
const FORGOTTEN: Duration = Duration::from_secs(3);
/// Waits that are remembered: more than threads of a job that wait at a time.
const LIMIT: usize = 4096;

impl WaitForGraph {
    /// Takes in that a rank waits, and says if it waits in vain.
    pub(crate) fn hear(&mut self, now: Instant, wait: WaitEdge) -> Option<Deadlock> {
        self.known
            .retain(|_, known| now.saturating_duration_since(known.last) < FORGOTTEN);
        let name = (wait.waiter, wait.serial);
        let room = self.known.len() < LIMIT || self.known.contains_key(&name);
        match self.known.get_mut(&name) {
            Some(known) if known.wait == wait => known.last = now,
            // A wait for another rank, or with other groups in hand, is another wait: it has got
            // on.
            _ if room => {
                let (first, last) = (now, now);
                self.known.insert(name, KnownEdge { wait, first, last });
            }
            _ => return None,
        }
        let cycle = self.cycle(name)?;
        let first = cycle.iter().map(|known| known.first).max()?;
        let certain = cycle.iter().all(|known| known.last >= first + CERTAIN);
        certain.then(|| deadlock(&cycle)).flatten()
    }

    /// The waits that lead from this one back to it, if they do.
    fn cycle(&self, start: (Rank, u64)) -> Option<Vec<&KnownEdge>> {
        let start = self.known.get(&start)?;
        // Each is looked at once, so this ends; the way to each is kept.
        let mut ways = vec![vec![start]];
        let mut seen = Vec::new();
        while let Some(way) = ways.pop() {
            let end = *way.last()?;
            for next in self.after(&end.wait) {
                if std::ptr::eq(next, start) {
                    return Some(way);
                }
                let name = (next.wait.waiter, next.wait.serial);
                if !seen.contains(&name) {
                    seen.push(name);
                    ways.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
        None
    }

    /// The waits that keep this one from its end.
    fn after<'a>(&'a self, wait: &'a WaitEdge) -> impl Iterator<Item = &'a KnownEdge> {
        let of_awaited = (wait.awaited, 0)..=(wait.awaited, u64::MAX);
        self.known
            .range(of_awaited)
            .map(|(_, known)| known)
            .filter(|known| depends(wait, &known.wait))
    }
}

/// Whether a wait can only end when the thread of another one comes to its call.
fn depends(wait: &WaitEdge, other: &WaitEdge) -> bool {
    let call = wait.call.contract();
    let held_group = other
        .held_groups
        .iter()
        .find(|held_group| held_group.group == call.group);
    held_group.is_some_and(|held_group| match call.kind {
        Kind::Send => unanswered(wait, other),
        _ => held_group.finished < call.sequence,
    })
}

/// Whether the other side has not made its call for the message that is waited for.
fn unanswered(wait: &WaitEdge, other: &WaitEdge) -> bool {
    let call = wait.call.contract();
    let Some(message_counts) = &other.message_counts else {
        return false;
    };
    let between = |message_counts: &&MessageCounts| {
        (message_counts.group, message_counts.with) == (call.group, wait.waiter)
    };
    let answers = message_counts
        .iter()
        .find(between)
        .map_or(0, |message_counts| match wait.receives {
            true => message_counts.sent,
            false => message_counts.received,
        });
    answers < call.sequence
}

/// Two neighbours of a cycle whose calls differ. Steps of one call, such as those inside a host and
/// between hosts, differ too, but come from the same line: others tell more.
fn deadlock(cycle: &[&KnownEdge]) -> Option<Deadlock> {
    let next = cycle.iter().cycle().skip(1);
    let different = cycle
        .iter()
        .zip(next)
        .filter(|(one, next)| one.wait.call.contract() != next.wait.call.contract());
    let (one, other) =
        different.max_by_key(|(one, next)| one.wait.call.site() != next.wait.call.site())?;
    let told = |known: &KnownEdge| (known.wait.waiter, known.wait.call.clone());
    Some(Deadlock {
        one: told(one),
        other: told(other),
    })
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

impl From<&WaitEdge> for WaitReport {
    fn from(wait: &WaitEdge) -> Self {
        let held_groups = wait.held_groups.iter().take(Self::HELD_GROUPS);
        Self {
            call: WireCall::new(wait.waiter, &wait.call),
            awaited: wait.awaited.number(),
            serial: wait.serial,
            receives: wait.receives,
            held_groups: held_groups
                .map(|held_group| (held_group.group, held_group.finished))
                .collect(),
            message_counts: wait.wire_message_counts(),
        }
    }
}

impl WaitEdge {
    fn wire_message_counts(&self) -> Option<Vec<WireMessageCounts>> {
        let message_counts = self.message_counts.as_ref();
        let message_counts = message_counts
            .filter(|message_counts| message_counts.len() <= WaitReport::MESSAGE_COUNTS)?;
        let told = message_counts
            .iter()
            .map(|message_counts| WireMessageCounts {
                group: message_counts.group,
                with: message_counts.with.number(),
                sent: message_counts.sent,
                received: message_counts.received,
            });
        Some(told.collect())
    }

    /// What `from` tells of its wait.
    ///
    /// # Errors
    /// [`WireError`] for a call that is none.
    pub(crate) fn told(from: Rank, waiting: &WaitReport) -> Result<Self, WireError> {
        let (_, call) = waiting.call.call()?;
        let held_groups = waiting.held_groups.iter().take(WaitReport::HELD_GROUPS);
        let message_counts = waiting.message_counts.as_ref();
        let message_counts = message_counts
            .filter(|message_counts| message_counts.len() <= WaitReport::MESSAGE_COUNTS);
        let meant = |told: &WireMessageCounts| MessageCounts {
            group: told.group,
            with: Rank::new(told.with),
            sent: told.sent,
            received: told.received,
        };
        Ok(Self {
            waiter: from,
            awaited: Rank::new(waiting.awaited),
            serial: waiting.serial,
            call,
            receives: waiting.receives,
            held_groups: held_groups
                .map(|&(group, finished)| HeldGroup { group, finished })
                .collect(),
            message_counts: message_counts
                .map(|message_counts| message_counts.iter().map(meant).collect()),
        })
    }
}

#[cfg(test)]
mod tests;
