//! Who goes on into the next epoch: agreement among what is left of the last.
//!
//! An epoch is a membership that does not change. When it ends, by a loss or because the ranks ask
//! newcomers in, its members decide together on the next one: who survives, who is admitted, and
//! which operations all survivors have completed. [`Agreement::handle`] takes the time and one
//! event and says what to do, like [`Membership`](crate::membership::Membership).
//!
//! ```text
//!   proposer                    the other members of the last epoch
//!      │ ── prepare(ballot) ──────> │  promises to take part in no lower ballot, and tells
//!      │ <─ promise(standing) ───── │  what it has completed and accepted before
//!      │ ── propose(decision) ────> │  accepts, unless it has promised a higher ballot
//!      │ <─ accept ──────────────── │
//!      │ ── decided ──────────────> │  everybody who learns it passes it on
//! ```
//!
//! This is one instance of Paxos (Lamport, "Paxos made simple", 2001) for each epoch, whose voters
//! are the members of the epoch before. It is safe whatever is lost, late or repeated: a decision
//! takes the votes of a majority, any two majorities share a voter, and that voter tells a later
//! proposer what it has accepted, who must then propose the same. A process that restarts has
//! forgotten its votes, so it is no voter any more but a newcomer: voters are incarnations, not
//! member ids. Only members of a first epoch that never began may not have met all others; for them
//! the first incarnation that they hear of counts. It is live because nobody is special: the lowest
//! rank that can be reached proposes, and when it falls silent the next one does, with a higher
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
//! Not everybody calls everybody: whoever has no lower rank left calls all, and all others call a
//! [few](calls::CALLED_FIRST) of the lowest, and twice as many after each
//! [retry](AgreementTimeouts) without a decision. So the calls and messages of n members are a
//! multiple of n as long as one of the lowest lives, and whoever can be reached is called in the
//! end.

mod calls;
mod event;
mod quorum;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::wire::{AgreementMessage, Ballot, Decision, MemberProcess, MemberState, Newcomer};

use calls::Calls;
pub(crate) use event::{Action, AgreementTimeouts, Event, PreviousEpoch, Proof};
pub use quorum::TwoMemberPolicy;

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
    attempt: Option<Attempt>,
    /// When a ballot was last seen to move.
    moved: Option<Instant>,
    outcome: Outcome,
}

/// What all members decide by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgreementRules {
    pub(crate) pair: TwoMemberPolicy,
    pub(crate) timeouts: AgreementTimeouts,
}

/// A ballot of this member's own.
#[derive(Debug)]
struct Attempt {
    ballot: Ballot,
    since: Instant,
    /// Who has promised, and where it stands.
    promises: BTreeMap<MemberId, (MemberProcess, MemberState)>,
    /// What voters have accepted in the highest ballot.
    bound: Option<(Ballot, Decision)>,
    proposed: Option<(Decision, BTreeSet<MemberId>)>,
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
            attempt: None,
            moved: None,
            outcome: Outcome::Open,
        }
    }

    /// Takes in what happened at `now`, and appends what is to be done about it to `out`.
    ///
    /// Goes on to answer those who are late after the decision.
    pub(crate) fn handle(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Reached(process) => self.reached(process, out),
            Event::Lost(member_id, proof) => self.lost(member_id, proof),
            Event::Said { by, message } => self.hear(now, by, message, out),
            Event::Decided(decision) => self.learn(decision, out),
            Event::Tick => {}
        }
        if self.outcome == Outcome::Open && self.votes() {
            self.call_more(now, out);
            self.advance(now, out);
            self.begin_if_due(now, out);
        }
        if self.outcome == Outcome::Open && now >= self.began + self.timeouts.limit {
            self.outcome = Outcome::GivenUp;
            out.push(Action::NoMajority(self.reached.iter().copied().collect()));
        }
    }

    /// When [`handle`](Self::handle) wants to be called with a tick at the latest.
    pub(crate) fn wake(&self) -> Option<Instant> {
        if self.outcome != Outcome::Open {
            return None;
        }
        let next = match &self.attempt {
            Some(attempt) if self.may_propose(attempt) => Some(self.grace(attempt)),
            Some(attempt) => Some(attempt.since + self.timeouts.retry),
            // Until then only an event can bring the turn.
            None => self.next_ballot().and_then(|_| self.due()),
        };
        let limit = self.began + self.timeouts.limit;
        [next, self.next_calls()]
            .into_iter()
            .flatten()
            .chain([limit])
            .min()
    }

    fn votes(&self) -> bool {
        self.previous_epoch.incarnations.get(&self.me.member_id) == Some(&self.me.incarnation)
    }

    /// The ballot that this member may begin: one that could win, higher than all it knows of.
    fn next_ballot(&self) -> Option<Ballot> {
        let may_win = self.votes() && self.decides(&self.reached);
        self.promised.next(self.me.member_id).filter(|_| may_win)
    }

    /// Whoever hears that it is itself lost knows better.
    fn lost(&mut self, member_id: MemberId, proof: Proof) {
        if member_id != self.me.member_id {
            self.reached.remove(&member_id);
            self.calls.stale();
            let known = self.lost.entry(member_id).or_insert(proof);
            *known = proof.max(*known);
        }
    }

    fn reached(&mut self, process: MemberProcess, out: &mut Vec<Action>) {
        let member_id = process.member_id;
        if !self.previous_epoch.members.contains(&member_id) {
            return;
        }
        if !self.previous_epoch.is_voter(process) {
            // Whoever was there before is gone, and its vote with it.
            return self.lost(member_id, Proof::Unreached);
        }
        if self.lost.get(&member_id) == Some(&Proof::Ended) {
            // What was said before the end has arrived after it.
            return;
        }
        self.lost.remove(&member_id);
        self.reached.insert(member_id);
        match (&self.outcome, &self.attempt) {
            (Outcome::Decided(decision), _) => {
                out.push(Action::Send(
                    member_id,
                    AgreementMessage::Decided(decision.clone()),
                ));
            }
            (Outcome::Open, Some(attempt)) if attempt.proposed.is_none() => {
                out.push(Action::Send(
                    member_id,
                    AgreementMessage::Prepare(attempt.ballot),
                ));
            }
            _ => {}
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
            return self.learn(decision, out);
        }
        if let Outcome::Decided(decision) = &self.outcome {
            let late = matches!(
                message,
                AgreementMessage::Prepare(_) | AgreementMessage::Propose { .. }
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
        if let Some(answer) = self.answer(now, by, message) {
            self.tell(now, by.member_id, answer, out);
        }
    }

    /// The voter's part, and the proposer's book-keeping.
    fn answer(
        &mut self,
        now: Instant,
        by: MemberProcess,
        message: AgreementMessage,
    ) -> Option<AgreementMessage> {
        match message {
            AgreementMessage::Prepare(ballot) | AgreementMessage::Propose { ballot, .. }
                if ballot < self.promised =>
            {
                Some(AgreementMessage::Overtaken { by: self.promised })
            }
            AgreementMessage::Prepare(ballot) => {
                self.follow(now, ballot);
                Some(AgreementMessage::Promise {
                    ballot,
                    standing: self.own.clone(),
                    accepted: self.accepted.clone(),
                })
            }
            AgreementMessage::Propose { ballot, decision } => {
                self.follow(now, ballot);
                self.accepted = Some((ballot, decision));
                Some(AgreementMessage::Accept { ballot })
            }
            AgreementMessage::Promise {
                ballot,
                standing,
                accepted,
            } => {
                let attempt = self.attempt.as_mut().filter(|own| own.ballot == ballot)?;
                attempt.promises.insert(by.member_id, (by, standing));
                let highest =
                    |bound: &Option<(Ballot, _)>| bound.as_ref().map(|(ballot, _)| *ballot);
                if highest(&accepted) > highest(&attempt.bound) {
                    attempt.bound = accepted;
                }
                None
            }
            AgreementMessage::Accept { ballot } => {
                let attempt = self.attempt.as_mut().filter(|own| own.ballot == ballot)?;
                let (_, votes) = attempt.proposed.as_mut()?;
                votes.insert(by.member_id);
                None
            }
            AgreementMessage::Overtaken { by: ballot } => {
                if ballot > self.promised {
                    self.follow(now, ballot);
                }
                None
            }
            AgreementMessage::Decided(_) => None,
        }
    }

    /// A ballot is under way that no lower one may disturb, not even an own one.
    fn follow(&mut self, now: Instant, ballot: Ballot) {
        self.promised = ballot;
        self.moved = Some(now);
        if self.attempt.as_ref().is_some_and(|own| own.ballot < ballot) {
            self.attempt = None;
        }
    }

    fn tell(
        &mut self,
        now: Instant,
        to: MemberId,
        message: AgreementMessage,
        out: &mut Vec<Action>,
    ) {
        if to == self.me.member_id {
            self.hear(now, self.me, message, out);
        } else {
            out.push(Action::Send(to, message));
        }
    }

    fn tell_reached(&mut self, now: Instant, message: &AgreementMessage, out: &mut Vec<Action>) {
        for member_id in self.reached.clone() {
            self.tell(now, member_id, message.clone(), out);
        }
    }

    /// Takes an own ballot to its next step, or gives it up.
    fn advance(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(attempt) = &self.attempt else { return };
        if let Some((decision, votes)) = &attempt.proposed
            && self.decides(votes)
        {
            return self.learn(decision.clone(), out);
        }
        let answered = |member_id: &MemberId| attempt.promises.contains_key(member_id);
        let ripe = self.reached.iter().all(answered) || now >= self.grace(attempt);
        if ripe && self.may_propose(attempt) {
            let (ballot, decision) = (attempt.ballot, self.decision(attempt));
            if let Some(attempt) = &mut self.attempt {
                attempt.proposed = Some((decision.clone(), BTreeSet::new()));
            }
            self.tell_reached(now, &AgreementMessage::Propose { ballot, decision }, out);
            return self.advance(now, out);
        }
        if now >= attempt.since + self.timeouts.retry {
            self.attempt = None;
            self.moved = Some(now);
        }
    }

    /// Whether a majority has promised to follow, and waits for what is proposed.
    fn may_propose(&self, attempt: &Attempt) -> bool {
        let promised = attempt.promises.keys().copied().collect();
        attempt.proposed.is_none() && self.decides(&promised)
    }

    /// Until when all that can be reached are waited for, after a majority has answered.
    fn grace(&self, attempt: &Attempt) -> Instant {
        attempt.since + self.timeouts.retry * 3 / 4
    }

    /// What the voters are bound to, or else a new epoch of all that have answered.
    fn decision(&self, attempt: &Attempt) -> Decision {
        if let Some((_, bound)) = &attempt.bound {
            return bound.clone();
        }
        let promises = &attempt.promises;
        let survivors = self
            .previous_epoch
            .members
            .iter()
            .filter_map(|member_id| promises.get(member_id));
        let standings = || promises.values().map(|(_, standing)| standing);
        let survivors: Vec<_> = survivors.map(|(process, _)| *process).collect();
        let newcomers: BTreeMap<MemberId, &Newcomer> = standings()
            .chain([&self.own])
            .flat_map(|standing| &standing.newcomers)
            .map(|newcomer| (newcomer.process.member_id, newcomer))
            .filter(|(member_id, _)| !promises.contains_key(member_id))
            .collect();
        // No more than survivors: newcomers know nothing of what was before, and are to be no
        // majority of the epoch that they come into.
        let newcomers = newcomers.into_values().take(survivors.len());
        let completed = standings().map(|standing| standing.completed);
        Decision {
            epoch: self.previous_epoch.epoch + 1,
            newcomers: newcomers.cloned().collect(),
            survivors,
            completed: completed.min().unwrap_or_default(),
        }
    }

    fn begin_if_due(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        let is_due = self.due().is_some_and(|due| now >= due);
        if self.attempt.is_some() || !is_due {
            return;
        }
        // Before anybody hears of it: no later ballot of this member has the same number.
        self.follow(now, ballot);
        self.attempt = Some(Attempt {
            ballot,
            since: now,
            promises: BTreeMap::new(),
            bound: None,
            proposed: None,
        });
        self.tell_reached(now, &AgreementMessage::Prepare(ballot), out);
        self.advance(now, out);
    }

    /// When this member proposes, if nothing moves before: the lowest at once when all are
    /// accounted for, the others the later the higher.
    fn turn(&self) -> Instant {
        let members = &self.previous_epoch.members;
        let lower = members
            .iter()
            .take_while(|member_id| **member_id != self.me.member_id);
        let place = lower
            .filter(|member_id| self.reached.contains(member_id))
            .count();
        let place = u32::try_from(place).expect("members have ranks, which are u32");
        let gathered = match self.has_gathered() {
            true => self.began,
            false => self.began + self.timeouts.gather,
        };
        let pause = self.timeouts.retry.saturating_mul(place);
        match self.moved {
            // Half a step apart from all others, however often they meet.
            Some(moved) => gathered.max(moved + self.timeouts.retry / 2) + pause,
            None => gathered + pause,
        }
    }

    /// Whether of each member it is known that it is here, or lost.
    fn has_gathered(&self) -> bool {
        let mut members = self.previous_epoch.members.iter();
        members
            .all(|member_id| self.reached.contains(member_id) || self.lost.contains_key(member_id))
    }

    /// Whether these votes are enough for the whole of the last epoch.
    fn decides(&self, votes: &BTreeSet<MemberId>) -> bool {
        let ended = |member_id: &MemberId| self.lost.get(member_id) == Some(&Proof::Ended);
        quorum::decides(&self.previous_epoch.members, self.pair, votes, ended)
    }

    fn learn(&mut self, decision: Decision, out: &mut Vec<Action>) {
        let next = decision.epoch == self.previous_epoch.epoch + 1;
        let survives = next && self.votes() && decision.survivors.contains(&self.me);
        let admitted = decision.admits(self.me);
        let concerns = match self.votes() {
            true => decision.epoch > self.previous_epoch.epoch,
            false => admitted,
        };
        if self.outcome != Outcome::Open || !concerns {
            return;
        }
        self.outcome = Outcome::Decided(decision.clone());
        let newcomers = decision.newcomers.iter();
        let newcomers = newcomers.map(|newcomer| newcomer.process.member_id);
        let told: BTreeSet<MemberId> = self.reached.iter().copied().chain(newcomers).collect();
        let message = AgreementMessage::Decided(decision.clone());
        let others = told
            .into_iter()
            .filter(|member_id| *member_id != self.me.member_id);
        out.extend(others.map(|member_id| Action::Send(member_id, message.clone())));
        out.push(match survives || (admitted && !self.votes()) {
            true => Action::Decided(decision),
            false => Action::Excluded(decision),
        });
    }
}

#[cfg(test)]
mod tests;
