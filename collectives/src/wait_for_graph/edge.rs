//! One wait: which operation of which rank waits for whom, and what keeps it.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Rank;
use crate::contract::{Call, Kind};
use crate::wire::{WaitReport, WireCall, WireError, WireMessageCounts};

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
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct HeldGroup {
    pub(crate) group: u64,
    pub(crate) finished: u64,
}

/// With how many calls messages to another rank were sent, and received from it, in one group.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct MessageCounts {
    pub(crate) group: u64,
    pub(crate) with: Rank,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// An operation of a rank that waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct WaitId {
    pub(crate) waiter: Rank,
    pub(crate) serial: u64,
}

impl WaitId {
    /// Its number among all, as good as drawn by lot, and the same on all ranks.
    pub(super) fn draw(self) -> (u64, Rank, u64) {
        let lot = mix(self.serial ^ mix(u64::from(self.waiter.number())));
        (lot, self.waiter, self.serial)
    }
}

/// The output function of SplitMix64, which maps neighbouring numbers far apart.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl WaitEdge {
    pub(super) fn id(&self) -> WaitId {
        WaitId {
            waiter: self.waiter,
            serial: self.serial,
        }
    }

    /// Of the waits on a way, with this one behind them: another once any of them has got on. Only
    /// the rank itself computes and compares what follows from its own waits.
    pub(super) fn digest(&self, before: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        before.hash(&mut hasher);
        (self.waiter, self.awaited, self.serial).hash(&mut hasher);
        (&self.held_groups, &self.message_counts).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether it can only end when the thread of another one comes to its call.
    pub(super) fn depends_on(&self, other: &Self) -> bool {
        let call = self.call.contract();
        let mut held_groups = other.held_groups.iter();
        let held_group = held_groups.find(|held_group| held_group.group == call.group);
        self.awaited == other.waiter
            && held_group.is_some_and(|held_group| match call.kind {
                Kind::Send => self.is_unanswered_by(other),
                _ => held_group.finished < call.sequence,
            })
    }

    /// Whether the other side has not made its call for the message that is waited for.
    fn is_unanswered_by(&self, other: &Self) -> bool {
        let call = self.call.contract();
        let Some(message_counts) = &other.message_counts else {
            return false;
        };
        let between = |message_counts: &&MessageCounts| {
            (message_counts.group, message_counts.with) == (call.group, self.waiter)
        };
        let answers = message_counts
            .iter()
            .find(between)
            .map_or(0, |message_counts| match self.receives {
                true => message_counts.sent,
                false => message_counts.received,
            });
        answers < call.sequence
    }

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
    pub(super) fn told(from: Rank, waiting: &WaitReport) -> Result<Self, WireError> {
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
