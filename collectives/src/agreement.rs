//! Who goes on into the next epoch: agreement among what is left of the last.
//!
//! An epoch is a membership that does not change. When it ends, by a loss or because the ranks ask
//! newcomers in, its members decide together on the next one: who survives, who is admitted, and
//! which operations all survivors have completed. [`Agreement::handle`] takes the time and one
//! event and says what to do, like [`Membership`](crate::membership::Membership).
//!
//! ```text
//!   proposer                    the other members of the last epoch, along a tree
//!      │ ── prepare(ballot) ──────> │  promise to take part in no lower ballot, and tell
//!      │ <─ promise(standing) ───── │  what they have completed and accepted before
//!      │ ── propose(decision) ────> │  accept, unless they have promised a higher ballot
//!      │ <─ accept ──────────────── │
//!      │ ── decided ──────────────> │
//! ```
//!
//! This is one instance of Paxos (Lamport, "Paxos made simple", 2001) for each epoch, whose voters
//! are the members of the epoch before. It is safe whatever is lost, late or repeated: a decision
//! takes the votes of a majority, any two majorities share a voter, and that voter tells a later
//! proposer what it has accepted, who must then propose the same. A process that restarts has
//! forgotten its votes, so it is no voter any more but a newcomer: voters are incarnations, not
//! member ids. Only members of a first epoch that never began may not have met all others; for them
//! the first incarnation that they hear of counts. It is live because nobody is special: the lowest
//! rank that is not lost proposes, and when it falls silent the next one does, with a higher
//! ballot; two that propose at once wait for different times before they try again. Who cannot
//! reach a majority gives up at the limit.
//!
//! The list may grow: newcomers are part of the decision, and vote from the next epoch on. Nothing
//! of the argument changes by it. What is decided about epoch e + 1 is decided by voters of epoch e
//! alone, of whom everybody who votes there has the same list, for it is the value of the decision
//! before. A majority is one of that list, however long the next is; so there is one decision for
//! each epoch by induction, whoever joins. What a newcomer says before it is in an epoch counts for
//! nothing: it does not vote ([`PreviousEpoch::nowhere`]), and learns only decisions that admit
//! itself. There are never more newcomers than survivors, so those who know what has been are a
//! half with rank 0 at the least, and newcomers alone decide nothing in the epoch that they come
//! into.
//!
//! Not everybody talks to everybody. The first ballot of the lowest member, and the answers to it,
//! go along a tree ([`tree`]) that passes over those that are lost, so each member has to do with
//! as many others as the logarithm of their number says. Safety does not depend on it: an answer
//! names those who give it. Whoever has not answered for half a [retry](AgreementTimeouts) is asked
//! by the proposer itself, and later ballots are told to each member directly. It waits for all
//! that it reaches until they are lost, and says so ([`beats`]). Those that come next
//! [call](calls::CALLED_FIRST) the lowest, to see that it lives; the others do so only where no
//! ballot has moved for a retry, a few at first, and twice as many after each further one.

mod ballot;
mod beats;
mod calls;
mod event;
mod learn;
mod quorum;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::wire::{AgreementMessage, Ballot, Decision, MemberProcess, MemberState, Promises};

use beats::HoldUps;
use calls::Calls;
pub(crate) use event::{Action, AgreementTimeouts, Event, PreviousEpoch, Proof};
pub use quorum::TwoMemberPolicy;
use tree::Node;

/// A process's place in the member list of its job, which it keeps in every epoch.
pub(crate) type MemberId = u32;

#[derive(Debug)]
pub(crate) struct Agreement {
    me: MemberProcess,
    previous_epoch: PreviousEpoch,
    pair: TwoMemberPolicy,
    timeouts: AgreementTimeouts,
    began: Instant,
    own: MemberState,
    /// Members that take part, this one among them.
    reached: BTreeSet<MemberId>,
    lost: BTreeMap<MemberId, Proof>,
    calls: Calls,
    /// No lower ballot is answered.
    promised: Ballot,
    accepted: Option<(Ballot, Decision)>,
    /// What it does for the ballot that it has promised to follow, unless that came to nothing.
    node: Option<Node>,
    /// Whether a ballot of its own has come to nothing: the next ones go to each member directly.
    has_failed: bool,
    /// When a ballot was last seen to move.
    moved: Option<Instant>,
    hold_ups: HoldUps,
    outcome: Outcome,
}

/// What all members decide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgreementRules {
    pub(crate) pair: TwoMemberPolicy,
    pub(crate) timeouts: AgreementTimeouts,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Open,
    Decided(Decision),
    GivenUp,
}

impl Agreement {
    /// `me` stands where `own` says. It votes if it is a member of `previous_epoch`, and listens
    /// otherwise.
    pub(crate) fn new(
        me: MemberProcess,
        mut previous_epoch: PreviousEpoch,
        rules: AgreementRules,
        own: MemberState,
        now: Instant,
    ) -> Self {
        let AgreementRules { pair, timeouts } = rules;
        let voter = previous_epoch.is_voter(me);
        Self {
            reached: voter.then_some(me.member_id).into_iter().collect(),
            me,
            previous_epoch,
            pair,
            timeouts,
            began: now,
            own,
            lost: BTreeMap::new(),
            calls: Calls::default(),
            promised: Ballot::NONE,
            accepted: None,
            node: None,
            has_failed: false,
            moved: None,
            hold_ups: HoldUps::default(),
            outcome: Outcome::Open,
        }
    }

    /// Takes in what happened at `now`, and appends what is to be done about it to `out`.
    ///
    /// Goes on to answer those who are late after the decision.
    pub(crate) fn handle(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        self.hold_ups
            .came(now, self.wake(), self.timeouts.retry / beats::BEATS);
        match event {
            Event::Reached(process) => self.reached(process, out),
            Event::Lost(member_id, proof) => self.lost(member_id, proof, out),
            Event::Said { by, message } => self.hear(now, by, message, out),
            Event::Decided(decision) => self.learn(decision, None, out),
            Event::Tick => {}
        }
        if self.outcome == Outcome::Open && self.votes() {
            self.call_more(now, out);
            self.advance(now, out);
            self.begin_if_due(now, out);
            self.pass_up(now, out);
        }
        if self.outcome == Outcome::Open && now >= self.began + self.timeouts.limit {
            self.outcome = Outcome::GivenUp;
            out.push(Action::NoMajority(self.present()));
        }
    }

    /// When [`handle`](Self::handle) wants to be called with a tick at the latest.
    pub(crate) fn wake(&self) -> Option<Instant> {
        if self.outcome != Outcome::Open {
            return None;
        }
        let next = match &self.node {
            Some(node) if node.parent.is_none() => Some(self.next_step(node)),
            Some(_) | None => self.due_to_win(),
        };
        let limit = self.began + self.timeouts.limit;
        [next, self.next_calls(), self.next_report()]
            .into_iter()
            .flatten()
            .chain([limit])
            .min()
    }

    fn votes(&self) -> bool {
        self.previous_epoch.incarnations.get(&self.me.member_id) == Some(&self.me.incarnation)
    }

    /// Whoever hears that it is itself lost knows better; and who is no member cannot be lost,
    /// whoever says so.
    fn lost(&mut self, member_id: MemberId, proof: Proof, out: &mut Vec<Action>) {
        let is_member = self.previous_epoch.members.contains(&member_id);
        if !is_member || member_id == self.me.member_id {
            return;
        }
        self.reached.remove(&member_id);
        self.calls.stale();
        let known = self.lost.entry(member_id).or_insert(proof);
        *known = proof.max(*known);
        let part = self.node.as_mut();
        let part = part.and_then(|node| node.branches.remove(&member_id));
        if let (Some(part), Outcome::Open) = (part, &self.outcome) {
            self.branch(part, out);
        }
    }

    /// Who takes part, as far as is known.
    fn present(&self) -> Vec<MemberId> {
        let node = self.node.iter();
        let promised = node.flat_map(|node| node.promised.from.keys());
        let present: BTreeSet<_> = self.reached.iter().chain(promised).copied().collect();
        present.into_iter().collect()
    }

    fn reached(&mut self, process: MemberProcess, out: &mut Vec<Action>) {
        let member_id = process.member_id;
        if !self.previous_epoch.members.contains(&member_id) {
            return;
        }
        if !self.previous_epoch.is_voter(process) {
            // Whoever was there before is gone, and its vote with it.
            return self.lost(member_id, Proof::Unreached, out);
        }
        if self.lost.get(&member_id) == Some(&Proof::Ended) {
            // What was said before the end has arrived after it.
            return;
        }
        self.lost.remove(&member_id);
        self.reached.insert(member_id);
        match &self.outcome {
            Outcome::Decided(decision) => {
                let decided = AgreementMessage::Decided(decision.clone());
                out.push(Action::Send(member_id, decided));
            }
            Outcome::Open => self.welcome(member_id, out),
            Outcome::GivenUp => {}
        }
    }

    fn hear(
        &mut self,
        now: Instant,
        by: MemberProcess,
        message: AgreementMessage,
        out: &mut Vec<Action>,
    ) {
        if let AgreementMessage::Decided(decision) = message {
            return self.learn(decision, Some(by.member_id), out);
        }
        if let Outcome::Decided(decision) = &self.outcome {
            let late = matches!(
                message,
                AgreementMessage::Prepare { .. }
                    | AgreementMessage::Propose { .. }
                    | AgreementMessage::Waits { .. }
            );
            out.extend(
                late.then(|| {
                    Action::Send(by.member_id, AgreementMessage::Decided(decision.clone()))
                }),
            );
            return;
        }
        // Only members vote, and who has given up keeps to it.
        if !self.votes() || !self.previous_epoch.is_voter(by) || self.outcome != Outcome::Open {
            return;
        }
        self.answer(now, by, message, out);
    }

    /// The voter's part, and the book-keeping of those between it and the proposer.
    fn answer(
        &mut self,
        now: Instant,
        by: MemberProcess,
        message: AgreementMessage,
        out: &mut Vec<Action>,
    ) {
        match message {
            AgreementMessage::Prepare { ballot, .. }
            | AgreementMessage::Propose { ballot, .. }
            | AgreementMessage::Waits { ballot, .. }
                if ballot < self.promised =>
            {
                let overtaken = AgreementMessage::Overtaken { by: self.promised };
                out.push(Action::Send(by.member_id, overtaken));
            }
            AgreementMessage::Prepare { ballot, part } => {
                self.follow(now, ballot);
                self.node_of(now, ballot).asked_by(now, by.member_id);
                self.promise(now);
                self.branch(part, out);
            }
            AgreementMessage::Propose {
                ballot,
                decision,
                part,
            } => {
                self.follow(now, ballot);
                self.node_of(now, ballot).asked_by(now, by.member_id);
                self.accept(now, decision, out);
                self.branch(part, out);
            }
            AgreementMessage::Promise { ballot, promises } => {
                self.hear_promises(now, ballot, promises, out);
            }
            AgreementMessage::Accept { ballot, voters } => {
                let voters = self.voters(voters);
                if let Some(node) = self.node_to(ballot) {
                    node.accepted.add(now, voters);
                }
            }
            AgreementMessage::Waits { ballot, beat } => self.hear_beat(now, ballot, beat, out),
            AgreementMessage::Overtaken { by: ballot } => self.overtaken(now, ballot, out),
            AgreementMessage::Decided(_) => {}
        }
    }

    fn hear_promises(
        &mut self,
        now: Instant,
        ballot: Ballot,
        mut promises: Promises,
        out: &mut Vec<Action>,
    ) {
        promises.voters = self.voters(promises.voters);
        for ended in std::mem::take(&mut promises.ended) {
            // Of two members, one goes on by what its own kernel has told.
            self.lost(ended, Proof::Unreached, out);
        }
        if let Some(node) = self.node_to(ballot) {
            node.promise(now, promises);
        }
    }

    /// A higher ballot is under way, as whoever began the lower one has to be told.
    fn overtaken(&mut self, now: Instant, ballot: Ballot, out: &mut Vec<Action>) {
        if ballot > self.promised {
            let parent = self.node.as_ref().and_then(|node| node.parent);
            let overtaken = AgreementMessage::Overtaken { by: ballot };
            out.extend(parent.map(|parent| Action::Send(parent, overtaken)));
            self.follow(now, ballot);
        }
    }

    /// A ballot is under way that no lower one may disturb, not even an own one.
    fn follow(&mut self, now: Instant, ballot: Ballot) {
        self.promised = ballot;
        self.moved = Some(now);
        let overruled = self.node.take_if(|node| node.ballot < ballot);
        self.has_failed |= overruled.is_some_and(|node| node.parent.is_none());
    }

    /// What this member does for the ballot that it follows.
    fn node_of(&mut self, now: Instant, ballot: Ballot) -> &mut Node {
        let retry = self.timeouts.retry;
        self.node
            .get_or_insert_with(|| Node::new(ballot, now, retry))
    }

    fn node_to(&mut self, ballot: Ballot) -> Option<&mut Node> {
        self.node.as_mut().filter(|node| node.ballot == ballot)
    }

    /// Those of these processes that vote.
    fn voters(&mut self, mut processes: Vec<MemberProcess>) -> Vec<MemberProcess> {
        processes.retain(|process| self.previous_epoch.is_voter(*process));
        processes
    }

    /// This member's own promise.
    fn promise(&mut self, now: Instant) {
        let promises = Promises {
            voters: vec![self.me],
            standing: self.own.clone(),
            accepted: self.accepted.clone(),
            ended: Vec::new(),
        };
        if let Some(node) = &mut self.node {
            node.promise(now, promises);
        }
    }

    /// This member's own vote, and what follows for those that it passes the ballot on to.
    fn accept(&mut self, now: Instant, decision: Decision, out: &mut Vec<Action>) {
        let Some(node) = &mut self.node else { return };
        self.accepted = Some((node.ballot, decision.clone()));
        node.accepted.add(now, [self.me]);
        if node.proposal.is_none() {
            node.proposal = Some(decision);
            let children: Vec<_> = node.branches.keys().copied().collect();
            for child in children {
                self.prompt(child, out);
            }
        }
    }

    /// Passes the ballot on to these members, unless they have it already.
    fn branch(&mut self, part: Vec<MemberId>, out: &mut Vec<Action>) {
        let Some(node) = &mut self.node else { return };
        let mut open: BTreeSet<MemberId> = part.into_iter().collect();
        open.retain(|member_id| !self.lost.contains_key(member_id) && !node.covers(*member_id));
        let below = tree::branches(self.me.member_id, &open, &self.previous_epoch.members);
        let children: Vec<_> = below.keys().copied().collect();
        node.branches.extend(below);
        for child in children {
            self.prompt(child, out);
        }
    }

    /// Tells a member that the ballot is passed on to where it is, once it can be reached.
    fn prompt(&mut self, child: MemberId, out: &mut Vec<Action>) {
        if !self.reached.contains(&child) {
            return self.call(child, out);
        }
        let Some(node) = &self.node else { return };
        let part = node.branches.get(&child).cloned().unwrap_or_default();
        let ballot = node.ballot;
        let message = match &node.proposal {
            None => AgreementMessage::Prepare { ballot, part },
            Some(decision) => AgreementMessage::Propose {
                ballot,
                decision: decision.clone(),
                part,
            },
        };
        out.push(Action::Send(child, message));
    }

    /// A member can be reached that may have to be told of the ballot: by whoever has it to pass it
    /// on to that one, or by the proposer if that is nobody.
    fn welcome(&mut self, member_id: MemberId, out: &mut Vec<Action>) {
        let Some(node) = &mut self.node else { return };
        let waits = !node.answers().from.contains_key(&member_id);
        if waits && node.parent.is_none() && !node.covers(member_id) {
            node.branches.insert(member_id, Vec::new());
        }
        if waits && node.branches.contains_key(&member_id) {
            self.prompt(member_id, out);
        }
    }

    /// Tells whoever passed the ballot on what has been answered.
    fn pass_up(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.next_report().is_none_or(|at| now < at) {
            return;
        }
        let ended = self
            .lost
            .iter()
            .filter(|(_, proof)| **proof == Proof::Ended);
        let ended = ended.map(|(member_id, _)| *member_id).collect();
        let Some(node) = &mut self.node else { return };
        let ballot = node.ballot;
        let message = match node.proposal {
            None => AgreementMessage::Promise {
                ballot,
                promises: node.promises(ended),
            },
            Some(_) => AgreementMessage::Accept {
                ballot,
                voters: node.acceptances(),
            },
        };
        out.extend(node.parent.map(|parent| Action::Send(parent, message)));
    }

    /// When it is to be told.
    fn next_report(&self) -> Option<Instant> {
        let node = self.node.as_ref()?;
        node.passes_up(self.timeouts.retry / REPORTS, |member_id| {
            self.lost.contains_key(&member_id)
        })
    }
}

/// How many times within a retry a member passes up what it knows while it waits for the rest:
/// often enough that it has come up the deepest tree before those are asked directly that seem not
/// to answer.
const REPORTS: u32 = 24;

#[cfg(test)]
mod tests;
