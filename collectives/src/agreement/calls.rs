//! Which members are called, and when.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{Action, Agreement, MemberId, Proof};

/// How many of the lowest members are called first, to see that they live, and how many members
/// call them at once: one may be gone without anybody knowing.
pub(super) const CALLED_FIRST: usize = 2;

/// Who has been called so far.
#[derive(Debug, Default)]
pub(super) struct Calls {
    called: BTreeSet<MemberId>,
    /// The step after which those were all who were to be; `None` if more has been learned since.
    step: Option<u32>,
    /// Since when all have been called.
    complete: Option<Instant>,
}

impl Calls {
    /// Somebody was lost, so others are the lowest.
    pub(super) fn stale(&mut self) {
        self.step = None;
    }

    pub(super) fn has_called(&self, member_id: MemberId) -> bool {
        self.called.contains(&member_id)
    }
}

impl Agreement {
    pub(super) fn call(&mut self, member_id: MemberId, out: &mut Vec<Action>) {
        if self.calls.called.insert(member_id) {
            out.push(Action::Call(member_id));
        }
    }

    /// Calls whom it takes to see whether a ballot is to be expected from others.
    pub(super) fn call_more(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.is_lowest() {
            return self.call_the_blamed(out);
        }
        if self.calls.complete.is_some() {
            return;
        }
        let step = match now >= self.turn() {
            true => u32::MAX,
            false => self.step(now),
        };
        if self.calls.step == Some(step) {
            return;
        }
        for member_id in self.wanted(step) {
            self.call(member_id, out);
        }
        self.calls.step = Some(step);
        let called = |member_id: MemberId| self.calls.called.contains(&member_id);
        let is_complete = self.callable().all(called);
        self.calls.complete = is_complete.then_some(now);
    }

    /// Whoever is taken for lost may live, and has no place in the tree along which the lowest
    /// reaches all others.
    fn call_the_blamed(&mut self, out: &mut Vec<Action>) {
        let is_lost = |member_id: &MemberId| self.lost.contains_key(member_id);
        let blamed: Vec<_> = self.callable().filter(is_lost).collect();
        for member_id in blamed {
            self.call(member_id, out);
        }
    }

    /// When more are to be called, if there are any.
    pub(super) fn next_calls(&self) -> Option<Instant> {
        if self.calls.complete.is_some() || !self.votes() || self.is_lowest() {
            return None;
        }
        let Some(step) = self.calls.step else {
            return Some(self.began);
        };
        let after = self.timeouts.retry.checked_mul(step.checked_add(1)?)?;
        Some(self.last_moved().checked_add(after)?.min(self.turn()))
    }

    /// When this member may begin a ballot: the lowest at once, and others once they have called
    /// all, as those that answer are not to be left out.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.is_lowest() {
            return Some(self.hold_ups.heard(self.turn()));
        }
        let answered = match self.has_gathered() {
            true => self.calls.complete?,
            false => self.calls.complete? + self.timeouts.retry / 2,
        };
        Some(self.hold_ups.heard(self.turn().max(answered)))
    }

    /// When a ballot moved last, or the agreement began.
    fn last_moved(&self) -> Instant {
        self.moved.unwrap_or(self.began)
    }

    /// How many retries have gone by since.
    fn step(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.last_moved());
        let steps = since.as_nanos() / self.timeouts.retry.as_nanos().max(1);
        u32::try_from(steps).unwrap_or(u32::MAX)
    }

    /// Those that are called by a step: the lowest of those that are not lost, at first by those
    /// that follow them.
    fn wanted(&self, step: u32) -> Vec<MemberId> {
        let members = self.previous_epoch.members.iter().copied();
        let is_lost = |member_id: &MemberId| self.lost.contains_key(member_id);
        let lower = members.take_while(|member_id| *member_id != self.me.member_id);
        let follows = lower.filter(|member_id| !is_lost(member_id));
        let count = match step {
            0 if follows.take(CALLED_FIRST + 1).count() > CALLED_FIRST => 0,
            _ => CALLED_FIRST.saturating_mul(2_usize.saturating_pow(step)),
        };
        let standing = self.callable().filter(|member_id| !is_lost(member_id));
        standing
            .chain(self.callable().filter(is_lost))
            .take(count)
            .collect()
    }

    /// All others that may be there.
    fn callable(&self) -> impl Iterator<Item = MemberId> + '_ {
        let members = self.previous_epoch.members.iter().copied();
        let ended = |member_id: &MemberId| self.lost.get(member_id) == Some(&Proof::Ended);
        members.filter(move |member_id| *member_id != self.me.member_id && !ended(member_id))
    }
}
