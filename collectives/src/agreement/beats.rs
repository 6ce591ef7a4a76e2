//! What keeps members from beginning ballots that are not needed: whoever waits for answers says so
//! to the others, and who was held up itself first hears what has come meanwhile.

use std::time::{Duration, Instant};

use super::{Action, Agreement, Node};
use crate::wire::{AgreementMessage, Ballot};

/// How many times within a retry whoever waits says so: well within what others wait before they
/// begin a ballot of their own.
pub(super) const BEATS: u32 = 4;

/// How often a member may be held up before it takes that for the way of its machine.
const MOST_HOLD_UPS: u32 = 4;

/// When this member came later than it wanted to: what others have said meanwhile is yet to be
/// heard.
#[derive(Debug, Default)]
pub(super) struct HoldUps {
    count: u32,
    until: Option<Instant>,
}

impl HoldUps {
    /// Notes that it is `now`, though something was to be done at `wake`.
    pub(super) fn came(&mut self, now: Instant, wake: Option<Instant>, patience: Duration) {
        let is_late = wake.is_some_and(|wake| now > wake + patience);
        if is_late && self.count < MOST_HOLD_UPS {
            self.count += 1;
            self.until = Some(now + patience);
        }
    }

    /// When this may be done: not before all is heard that has come.
    pub(super) fn heard(&self, at: Instant) -> Instant {
        self.until.map_or(at, |until| until.max(at))
    }
}

impl Agreement {
    /// Says by the way of an own ballot that it goes on.
    pub(super) fn beat(&mut self, now: Instant, out: &mut Vec<Action>) {
        let is_due = |node: &&mut Node| node.parent.is_none() && now >= node.beats;
        let Some(node) = self.node.as_mut().filter(is_due) else {
            return;
        };
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
