//! One round of one rank: whom it sends which blocks, and what becomes of those it receives.

use std::ops::Range;

use smallvec::SmallVec;

use super::rank_at;
use crate::Rank;

/// What one rank does in one round: all of it at once.
///
/// What is sent are the values from before the round. Blocks that several ranks send for reduction
/// are folded together with the local ones, all in the order of their ranks, as
/// [`Reduction::fold`](meshwork_accel::Reduction::fold) does. A block is both sent and received in
/// one round only where it is [exchanged](Round::exchanges).
///
/// The first transfers are those to the next ranks after the own, and from the nearest before it.
/// So even ranks that send one message after the other, and receive one after the other, never wait
/// in a circle: of all that wait, the one whose transfer reaches the least far can go on.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Round {
    pub(super) sends: SmallVec<[Send; 1]>,
    pub(super) receives: SmallVec<[Receive; 1]>,
}

impl Round {
    /// What goes out, each to another rank or of other blocks.
    #[must_use]
    pub fn sends(&self) -> &[Send] {
        &self.sends
    }

    /// What comes in. From one rank, transfers come in the order in which it lists its sends.
    #[must_use]
    pub fn receives(&self) -> &[Receive] {
        &self.receives
    }

    /// Whether blocks are sent that are also received: then the sent values must be out, or kept
    /// elsewhere, before the received ones are reduced into them.
    #[must_use]
    pub fn exchanges(&self) -> bool {
        self.sends.iter().any(|send| {
            let meets = |receive: &Receive| {
                send.blocks.start < receive.blocks.end && receive.blocks.start < send.blocks.end
            };
            self.receives.iter().any(meets)
        })
    }

    /// Adds a transfer to the rank at a place, unless it is this rank's own.
    pub(super) fn send(&mut self, me: usize, to: usize, blocks: Range<usize>) {
        if to != me {
            let to = rank_at(to);
            self.sends.push(Send { to, blocks });
        }
    }

    /// Adds a transfer from the rank at a place, unless it is this rank's own.
    pub(super) fn receive(&mut self, me: usize, from: usize, blocks: Range<usize>) {
        if from != me {
            self.receives.push(Receive {
                from: rank_at(from),
                blocks,
                then: OnReceive::Replace,
            });
        }
    }

    /// The same transfers the other way.
    pub(super) fn backwards(self, then: OnReceive) -> Self {
        let back = |Send { to: from, blocks }| Receive { from, blocks, then };
        let forth = |receive: Receive| Send {
            to: receive.from,
            blocks: receive.blocks,
        };
        Self {
            sends: self.receives.into_iter().map(forth).collect(),
            receives: self.sends.into_iter().map(back).collect(),
        }
    }

    /// Nearest first, as the type promises. What goes to one rank keeps its order.
    pub(super) fn in_order(mut self, world: usize, me: usize) -> Self {
        self.sends
            .sort_by_key(|send| (send.to.index() + world - me) % world);
        self.receives
            .sort_by_key(|receive| (me + world - receive.from.index()) % world);
        self
    }
}

/// Blocks on their way out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Send {
    /// Who gets them.
    pub to: Rank,
    /// Which blocks of the buffer.
    pub blocks: Range<usize>,
}

/// Blocks on their way in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Receive {
    /// Who sends them.
    pub from: Rank,
    /// Which blocks of the buffer.
    pub blocks: Range<usize>,
    /// What becomes of them.
    pub then: OnReceive,
}

/// What becomes of blocks that were received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnReceive {
    /// The local blocks become the reduction of themselves and all that is received for them.
    Reduce,
    /// The local blocks become the received ones.
    Replace,
}
