//! That a ballot waits for members which are late: so nobody else begins one meanwhile.

use std::time::Instant;

use super::{Action, Agreement, Node};
use crate::wire::{AgreementMessage, Ballot};

/// How many times within a retry whoever waits says so: well within what others wait before they
/// begin a ballot of their own.
pub(super) const BEATS: u32 = 4;

impl Agreement {
    /// Says so to all, by the way of the ballot, where a majority has promised to follow.
    pub(super) fn beat(&mut self, now: Instant, out: &mut Vec<Action>) {
        let is_due =
            |node: &Node| node.parent.is_none() && now >= node.beats && self.may_propose(node);
        if !self.node.as_ref().is_some_and(is_due) {
            return;
        }
        let Some(node) = &mut self.node else { return };
        node.beats = now + self.timeouts.retry / BEATS;
        node.beat += 1;
        self.moved = Some(now);
        self.pass_beat_on(out);
    }

    pub(super) fn hear_beat(
        &mut self,
        now: Instant,
        ballot: Ballot,
        beat: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(node) = self.node_to(ballot) else {
            return;
        };
        if node.parent.is_some() && beat > node.beat {
            node.beat = beat;
            self.moved = Some(now);
            self.pass_beat_on(out);
        }
    }

    fn pass_beat_on(&self, out: &mut Vec<Action>) {
        let Some(node) = &self.node else { return };
        let (ballot, beat) = (node.ballot, node.beat);
        let children = node.branches.keys();
        for child in children.filter(|child| self.reached.contains(child)) {
            out.push(Action::Send(
                *child,
                AgreementMessage::Waits { ballot, beat },
            ));
        }
    }
}
