//! When a member begins a ballot of its own, and how that goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::tree::Node;
use super::{Action, Agreement, MemberId, Proof, quorum};
use crate::wire::{AgreementMessage, Ballot, Decision, Newcomer};

/// How many times the patience with a ballot is doubled at the most.
const MOST_DOUBLINGS: u64 = 3;

/// By how many others a member is told of a ballot that cannot be reached.
const OTHERS: usize = 3;

impl Agreement {
    pub(super) fn begin_if_due(&mut self, now: Instant, out: &mut Vec<Action>) {
        let has_own = self.node.as_ref().is_some_and(|node| node.parent.is_none());
        if has_own || self.due().is_none_or(|due| now < due) {
            return;
        }
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        // Before anybody hears of it: no later ballot of this member has the same number.
        self.follow(now, ballot);
        self.node_of(now, ballot);
        self.promise(now);
        let others = self.previous_epoch.members.iter().copied();
        let others: Vec<_> = others
            .filter(|member_id| *member_id != self.me.member_id)
            .collect();
        match self.goes_along_a_tree() {
            true => self.branch(others, out),
            false => self.ask(now, out),
        }
        self.advance(now, out);
    }

    /// Takes an own ballot to its next step, or gives it up.
    pub(super) fn advance(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(node) = self.own_ballot() else {
            return;
        };
        if let Some(decision) = &node.proposal {
            if self.decides(&node.accepted.voters()) {
                return self.learn(decision.clone(), None, out);
            }
            match now >= self.hold_ups.heard(node.since + self.retry()) {
                true => self.give_up(),
                false => self.beat(now, out),
            }
            return;
        }
        let answered = |member_id: &MemberId| {
            node.promised.from.contains_key(member_id) || self.lost.contains_key(member_id)
        };
        let is_ripe = self.previous_epoch.members.iter().all(answered) || now >= self.ripe(node);
        if is_ripe && self.may_propose(node) {
            let decision = self.decision(node);
            self.propose(now, decision, out);
            return self.advance(now, out);
        }
        if now >= self.hold_ups.heard(self.end(node)) && !self.may_propose(node) {
            self.give_up();
            self.moved = Some(now);
        } else if now >= node.asks {
            self.ask(now, out);
        }
        self.beat(now, out);
    }

    /// When something is to be done about an own ballot.
    pub(super) fn next_step(&self, node: &Node) -> Instant {
        let next = match &node.proposal {
            Some(_) => self.hold_ups.heard(node.since + self.retry()),
            None if self.may_propose(node) => self.ripe(node).min(node.asks),
            None => self.hold_ups.heard(self.end(node)).min(node.asks),
        };
        next.min(node.beats)
    }

    fn propose(&mut self, now: Instant, decision: Decision, out: &mut Vec<Action>) {
        self.moved = Some(now);
        if let Some(node) = &mut self.node {
            node.since = now;
        }
        self.accept(now, decision, out);
    }

    fn give_up(&mut self) {
        self.node = None;
        self.has_failed = true;
    }

    fn own_ballot(&self) -> Option<&Node> {
        self.node.as_ref().filter(|node| node.parent.is_none())
    }

    /// Tells those of the ballot itself that have not answered, whoever was to pass it on; and has
    /// others tell those that it has called in vain.
    fn ask(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(node) = &mut self.node else { return };
        node.asks = now + self.timeouts.retry;
        node.asked += 1;
        let members = self.previous_epoch.members.iter().copied();
        let open = members.filter(|member_id| {
            let answered = node.promised.from.contains_key(member_id);
            !answered && !self.lost.contains_key(member_id)
        });
        let open: Vec<_> = open.collect();
        for &member_id in &open {
            node.branches.entry(member_id).or_default();
        }
        self.ask_by_others(&open, out);
        for member_id in open {
            self.prompt(member_id, out);
        }
    }

    /// The way to a member may be cut that others still have.
    fn ask_by_others(&self, open: &[MemberId], out: &mut Vec<Action>) {
        let Some(node) = self.own_ballot() else {
            return;
        };
        let in_vain = |member_id: &&MemberId| {
            self.calls.has_called(**member_id) && !self.reached.contains(member_id)
        };
        let answered = node.promised.from.keys().copied();
        let mut others: Vec<_> = answered
            .filter(|other| *other != self.me.member_id)
            .collect();
        if others.is_empty() {
            return;
        }
        // Each time it is others.
        let first = OTHERS * node.asked % others.len();
        others.rotate_left(first);
        let mut parts: BTreeMap<MemberId, Vec<MemberId>> = BTreeMap::new();
        let mut turns = others.iter().cycle();
        for member_id in open.iter().filter(in_vain) {
            for other in turns.by_ref().take(OTHERS.min(others.len())) {
                parts.entry(*other).or_default().push(*member_id);
            }
        }
        let ballot = node.ballot;
        for (other, part) in parts {
            out.push(Action::Send(
                other,
                AgreementMessage::Prepare { ballot, part },
            ));
        }
    }

    /// Whether a majority has promised to follow, and waits for what is proposed.
    fn may_propose(&self, node: &Node) -> bool {
        node.proposal.is_none() && self.decides(&node.promised.voters())
    }

    /// Until when others are waited for, after a majority has answered: whoever is reached, until
    /// it answers or is lost, for a process that gets little of its machine is late and lives. Only
    /// where the agreement itself is about to come too late does it go on without.
    ///
    /// Those that a member has itself told of its ballot have been called long before it; along a
    /// tree it does not know yet who can be reached.
    fn ripe(&self, node: &Node) -> Instant {
        let answered = |member_id: &MemberId| node.promised.from.contains_key(member_id);
        if !self.reached.iter().all(answered) {
            return self.last_chance();
        }
        match self.goes_along_a_tree() {
            true => self.patience(node),
            false => self.gathered(),
        }
    }

    /// When there is just time for a decision.
    fn last_chance(&self) -> Instant {
        self.began + self.timeouts.limit * 3 / 4
    }

    /// Until when an answer may come.
    fn patience(&self, node: &Node) -> Instant {
        self.gathered().max(node.since + self.retry() * 3 / 4)
    }

    /// Until when a majority is waited for.
    fn end(&self, node: &Node) -> Instant {
        self.patience(node) + self.retry() / 4
    }

    /// How long answers may take by now: the longer, the more ballots have come to nothing. Two
    /// members that overrule each other faster than a third answers would never have its promise.
    fn retry(&self) -> Duration {
        let failed = self.promised.round.saturating_sub(2).min(MOST_DOUBLINGS);
        self.timeouts.retry * (1 << failed)
    }

    /// Whether a ballot of its own goes along a tree, and not to each member directly.
    fn goes_along_a_tree(&self) -> bool {
        self.is_lowest() && !self.has_failed
    }

    /// What the voters are bound to, or else a new epoch of all that have answered.
    fn decision(&self, node: &Node) -> Decision {
        if let Some((_, bound)) = &node.bound {
            return bound.clone();
        }
        let promised = &node.promised.from;
        let survivors = self.previous_epoch.members.iter();
        let survivors: Vec<_> = survivors
            .filter_map(|member_id| promised.get(member_id).copied())
            .collect();
        let newcomers: BTreeMap<MemberId, &Newcomer> = node
            .newcomers
            .iter()
            .filter(|(member_id, _)| !promised.contains_key(member_id))
            .map(|(member_id, newcomer)| (*member_id, newcomer))
            .collect();
        // No more than survivors: newcomers know nothing of what was before, and are to be no
        // majority of the epoch that they come into.
        let newcomers = newcomers.into_values().take(survivors.len());
        Decision {
            epoch: self.previous_epoch.epoch + 1,
            newcomers: newcomers.cloned().collect(),
            survivors,
            completed: node.completed(),
        }
    }

    /// When this member may begin a ballot, if it could win and nothing moves before.
    pub(super) fn due_to_win(&self) -> Option<Instant> {
        // Until then only an event can bring the turn.
        let due = self.due()?;
        self.next_ballot().map(|_| due)
    }

    /// The ballot that this member may begin: one that could win, higher than all it knows of.
    fn next_ballot(&self) -> Option<Ballot> {
        let members = self.previous_epoch.members.iter().copied();
        let left = members.filter(|member_id| !self.lost.contains_key(member_id));
        let may_win = self.votes() && self.decides(&left.collect());
        self.promised.next(self.me.member_id).filter(|_| may_win)
    }

    /// When this member proposes, if nothing moves before: the lowest at once, the others the later
    /// the higher, and not while they wait to hear of members of which nothing is known.
    pub(super) fn turn(&self) -> Instant {
        let members = &self.previous_epoch.members;
        let lower = members
            .iter()
            .take_while(|member_id| **member_id != self.me.member_id);
        let place = match self.reached.len() {
            // At most this member itself.
            0 | 1 => 0,
            _ => lower
                .filter(|member_id| self.reached.contains(member_id))
                .count(),
        };
        let place = u32::try_from(place).expect("members have ranks, which are u32");
        let gathered = match self.is_lowest() {
            true => self.began,
            false => self.gathered(),
        };
        let pause = self.timeouts.retry.saturating_mul(place);
        match self.moved {
            // Half a step apart from all others, however often they meet.
            Some(moved) => gathered.max(moved + self.retry() / 2) + pause,
            None => gathered + pause,
        }
    }

    /// Whether all lower members are lost.
    pub(super) fn is_lowest(&self) -> bool {
        let mut members = self.previous_epoch.members.iter();
        members.find(|member_id| !self.lost.contains_key(member_id)) == Some(&self.me.member_id)
    }

    /// Until when members are waited for of which nothing is known.
    fn gathered(&self) -> Instant {
        match self.has_gathered() {
            true => self.began,
            false => self.began + self.timeouts.gather,
        }
    }

    /// Whether of each member it is known that it is here, or lost.
    pub(super) fn has_gathered(&self) -> bool {
        let mut members = self.previous_epoch.members.iter();
        members
            .all(|member_id| self.reached.contains(member_id) || self.lost.contains_key(member_id))
    }

    /// Whether these votes are enough for the whole of the last epoch.
    fn decides(&self, votes: &BTreeSet<MemberId>) -> bool {
        let ended = |member_id: &MemberId| self.lost.get(member_id) == Some(&Proof::Ended);
        quorum::decides(&self.previous_epoch.members, self.pair, votes, ended)
    }
}
