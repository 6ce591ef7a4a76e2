//! Who goes on into the next epoch: agreement among what is left of the last.
//!
//! An epoch is a membership that does not change. When it ends, by a loss or because the ranks ask
//! newcomers in, its members decide together on the next one: who survives, who is admitted, and
//! which operations all survivors have completed. [`Agreement::handle`] takes the time and one event
//! and says what to do, like [`Membership`](crate::membership::Membership).
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
//! seats. Only members of a first epoch that never began may not have met all others; for them the
//! first incarnation that they hear of counts. It is live because nobody is
//! special: the lowest rank that can be reached proposes, and when it falls silent the next one
//! does, with a higher ballot; two that propose at once wait for different times before they try
//! again. Who cannot reach a majority gives up at the limit.

mod quorum;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wire::{Ballot, Decision, Newcomer, Standing, Word};

pub use quorum::Pair;

/// A process's place in the member list of its job, which it keeps in every epoch.
pub(crate) type Seat = u32;

/// How long an agreement waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// For members of which nothing is known, before it is decided without them.
    pub(crate) gather: Duration,
    /// For the answers to a ballot, before another is tried.
    pub(crate) retry: Duration,
    /// For a decision.
    pub(crate) limit: Duration,
}

/// The epoch that is over, or that newcomers are asked into.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    /// Counted from 1; 0 where this process was in none.
    pub(crate) epoch: u64,
    /// The seats of its members in the order of their ranks.
    pub(crate) members: Arc<[Seat]>,
    /// Who voted there for this process: the incarnations at those seats that it has met.
    pub(crate) incarnations: BTreeMap<Seat, u64>,
}

impl Past {
    /// Of a process that was in no epoch.
    pub(crate) fn nowhere() -> Self {
        Self {
            epoch: 0,
            members: Arc::new([]),
            incarnations: BTreeMap::new(),
        }
    }

    /// Whether this process is the voter at its seat. Where none was met, the first that is heard of
    /// is, and no other after it.
    fn is_voter(&mut self, process: Newcomer) -> bool {
        let Newcomer { seat, incarnation } = process;
        self.members.contains(&seat)
            && *self.incarnations.entry(seat).or_insert(incarnation) == incarnation
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A process at the seat of a member of the last epoch takes part.
    Reached(Newcomer),
    /// A member of the last epoch takes part no longer.
    Lost(Seat, Proof),
    Said {
        by: Newcomer,
        word: Word,
    },
    /// Somebody who has gone on tells what was decided.
    Decided(Decision),
    Tick,
}

/// How sure it is that a member is gone.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Proof {
    /// It cannot be reached, but may be alive on another side.
    Unreached,
    /// The kernel has told the end of its process.
    Ended,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Send(Seat, Word),
    /// This process is in the next epoch.
    Decided(Decision),
    /// The next epoch has begun without this process.
    Excluded(Decision),
    /// No decision within the limit: these members could be reached, this one among them.
    NoMajority(Vec<Seat>),
}

#[derive(Debug)]
pub(crate) struct Agreement {
    me: Newcomer,
    past: Past,
    pair: Pair,
    pace: Pace,
    began: Instant,
    own: Standing,
    /// Members that take part, this one among them.
    reached: BTreeSet<Seat>,
    lost: BTreeMap<Seat, Proof>,
    /// No lower ballot is answered.
    promised: Ballot,
    accepted: Option<(Ballot, Decision)>,
    attempt: Option<Attempt>,
    /// When a ballot was last seen to move.
    moved: Option<Instant>,
    outcome: Outcome,
}

/// A ballot of this member's own.
#[derive(Debug)]
struct Attempt {
    ballot: Ballot,
    since: Instant,
    /// Who has promised, and where it stands.
    promises: BTreeMap<Seat, (Newcomer, Standing)>,
    /// What voters have accepted in the highest ballot.
    bound: Option<(Ballot, Decision)>,
    proposed: Option<(Decision, BTreeSet<Seat>)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Open,
    Known(Decision),
    GivenUp,
}

impl Agreement {
    /// `me` stands where `own` says. It votes if it is a member of `past`, and listens otherwise.
    pub(crate) fn new(
        me: Newcomer,
        mut past: Past,
        (pair, pace): (Pair, Pace),
        own: Standing,
        now: Instant,
    ) -> Self {
        let voter = past.is_voter(me);
        Self {
            reached: voter.then_some(me.seat).into_iter().collect(),
            me,
            past,
            pair,
            pace,
            began: now,
            own,
            lost: BTreeMap::new(),
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
            Event::Lost(seat, proof) => self.lost(seat, proof),
            Event::Said { by, word } => self.hear(now, (by, word), out),
            Event::Decided(decision) => self.learn(decision, out),
            Event::Tick => {}
        }
        if self.outcome == Outcome::Open && self.votes() {
            self.advance(now, out);
            self.begin_if_due(now, out);
        }
        if self.outcome == Outcome::Open && now >= self.began + self.pace.limit {
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
            Some(attempt) => Some(attempt.since + self.pace.retry),
            // Until then only an event can bring the turn.
            None => self.next_ballot().map(|_| self.turn()),
        };
        let limit = self.began + self.pace.limit;
        Some(next.map_or(limit, |next| next.min(limit)))
    }

    fn votes(&self) -> bool {
        self.past.incarnations.get(&self.me.seat) == Some(&self.me.incarnation)
    }

    /// The ballot that this member may begin: one that could win, higher than all it knows of.
    fn next_ballot(&self) -> Option<Ballot> {
        let may_win = self.votes() && self.decides(&self.reached);
        self.promised.next(self.me.seat).filter(|_| may_win)
    }

    /// Whoever hears that it is itself lost knows better.
    fn lost(&mut self, seat: Seat, proof: Proof) {
        if seat != self.me.seat {
            self.reached.remove(&seat);
            let known = self.lost.entry(seat).or_insert(proof);
            *known = proof.max(*known);
        }
    }

    fn reached(&mut self, process: Newcomer, out: &mut Vec<Action>) {
        let seat = process.seat;
        if !self.past.members.contains(&seat) {
            return;
        }
        if !self.past.is_voter(process) {
            // Whoever was there before is gone, and its vote with it.
            return self.lost(seat, Proof::Unreached);
        }
        if self.lost.get(&seat) == Some(&Proof::Ended) {
            // What was said before the end has arrived after it.
            return;
        }
        self.lost.remove(&seat);
        self.reached.insert(seat);
        match (&self.outcome, &self.attempt) {
            (Outcome::Known(decision), _) => {
                out.push(Action::Send(seat, Word::Decided(decision.clone())));
            }
            (Outcome::Open, Some(attempt)) if attempt.proposed.is_none() => {
                out.push(Action::Send(seat, Word::Prepare(attempt.ballot)));
            }
            _ => {}
        }
    }

    fn hear(&mut self, now: Instant, (by, word): (Newcomer, Word), out: &mut Vec<Action>) {
        if let Word::Decided(decision) = word {
            return self.learn(decision, out);
        }
        if let Outcome::Known(decision) = &self.outcome {
            let late = matches!(word, Word::Prepare(_) | Word::Propose { .. });
            out.extend(late.then(|| Action::Send(by.seat, Word::Decided(decision.clone()))));
            return;
        }
        // Only members vote, and who has given up keeps to it.
        if !self.votes() || !self.past.is_voter(by) || self.outcome != Outcome::Open {
            return;
        }
        if let Some(answer) = self.answer(now, by, word) {
            self.tell(now, (by.seat, answer), out);
        }
    }

    /// The voter's part, and the proposer's book-keeping.
    fn answer(&mut self, now: Instant, by: Newcomer, word: Word) -> Option<Word> {
        match word {
            Word::Prepare(ballot) | Word::Propose { ballot, .. } if ballot < self.promised => {
                Some(Word::Overtaken { by: self.promised })
            }
            Word::Prepare(ballot) => {
                self.follow(now, ballot);
                Some(Word::Promise {
                    ballot,
                    standing: self.own.clone(),
                    accepted: self.accepted.clone(),
                })
            }
            Word::Propose { ballot, decision } => {
                self.follow(now, ballot);
                self.accepted = Some((ballot, decision));
                Some(Word::Accept { ballot })
            }
            Word::Promise {
                ballot,
                standing,
                accepted,
            } => {
                let attempt = self.attempt.as_mut().filter(|own| own.ballot == ballot)?;
                attempt.promises.insert(by.seat, (by, standing));
                let highest =
                    |bound: &Option<(Ballot, _)>| bound.as_ref().map(|(ballot, _)| *ballot);
                if highest(&accepted) > highest(&attempt.bound) {
                    attempt.bound = accepted;
                }
                None
            }
            Word::Accept { ballot } => {
                let attempt = self.attempt.as_mut().filter(|own| own.ballot == ballot)?;
                let (_, votes) = attempt.proposed.as_mut()?;
                votes.insert(by.seat);
                None
            }
            Word::Overtaken { by: ballot } => {
                if ballot > self.promised {
                    self.follow(now, ballot);
                }
                None
            }
            Word::Decided(_) => None,
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

    fn tell(&mut self, now: Instant, (to, word): (Seat, Word), out: &mut Vec<Action>) {
        if to == self.me.seat {
            self.hear(now, (self.me, word), out);
        } else {
            out.push(Action::Send(to, word));
        }
    }

    fn tell_reached(&mut self, now: Instant, word: &Word, out: &mut Vec<Action>) {
        for seat in self.reached.clone() {
            self.tell(now, (seat, word.clone()), out);
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
        let answered = |seat: &Seat| attempt.promises.contains_key(seat);
        let ripe = self.reached.iter().all(answered) || now >= self.grace(attempt);
        if ripe && self.may_propose(attempt) {
            let (ballot, decision) = (attempt.ballot, self.decision(attempt));
            if let Some(attempt) = &mut self.attempt {
                attempt.proposed = Some((decision.clone(), BTreeSet::new()));
            }
            self.tell_reached(now, &Word::Propose { ballot, decision }, out);
            return self.advance(now, out);
        }
        if now >= attempt.since + self.pace.retry {
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
        attempt.since + self.pace.retry * 3 / 4
    }

    /// What the voters are bound to, or else a new epoch of all that have answered.
    fn decision(&self, attempt: &Attempt) -> Decision {
        if let Some((_, bound)) = &attempt.bound {
            return bound.clone();
        }
        let promises = &attempt.promises;
        let survivors = self
            .past
            .members
            .iter()
            .filter_map(|seat| promises.get(seat));
        let standings = || promises.values().map(|(_, standing)| standing);
        let newcomers: BTreeMap<Seat, Newcomer> = standings()
            .chain([&self.own])
            .flat_map(|standing| &standing.newcomers)
            .filter(|newcomer| !promises.contains_key(&newcomer.seat))
            .map(|newcomer| (newcomer.seat, *newcomer))
            .collect();
        let completed = standings().map(|standing| standing.completed);
        Decision {
            epoch: self.past.epoch + 1,
            survivors: survivors.map(|(process, _)| *process).collect(),
            newcomers: newcomers.into_values().collect(),
            completed: completed.min().unwrap_or_default(),
        }
    }

    fn begin_if_due(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(ballot) = self.next_ballot() else {
            return;
        };
        if self.attempt.is_some() || now < self.turn() {
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
        self.tell_reached(now, &Word::Prepare(ballot), out);
        self.advance(now, out);
    }

    /// When this member proposes, if nothing moves before: the lowest at once when all are accounted
    /// for, the others the later the higher.
    fn turn(&self) -> Instant {
        let members = &self.past.members;
        let lower = members.iter().take_while(|seat| **seat != self.me.seat);
        let place = lower.filter(|seat| self.reached.contains(seat)).count();
        let place = u32::try_from(place).expect("members have ranks, which are u32");
        let known = |seat: &Seat| self.reached.contains(seat) || self.lost.contains_key(seat);
        let gathered = match members.iter().all(known) {
            true => self.began,
            false => self.began + self.pace.gather,
        };
        let pause = self.pace.retry.saturating_mul(place);
        match self.moved {
            // Half a step apart from all others, however often they meet.
            Some(moved) => gathered.max(moved + self.pace.retry / 2) + pause,
            None => gathered + pause,
        }
    }

    /// Whether these votes are enough for the whole of the last epoch.
    fn decides(&self, votes: &BTreeSet<Seat>) -> bool {
        let ended = |seat: &Seat| self.lost.get(seat) == Some(&Proof::Ended);
        quorum::decides(&self.past.members, self.pair, votes, ended)
    }

    fn learn(&mut self, decision: Decision, out: &mut Vec<Action>) {
        let next = decision.epoch == self.past.epoch + 1;
        let survives = next && self.votes() && decision.survivors.contains(&self.me);
        let admitted = decision.newcomers.contains(&self.me);
        let concerns = match self.votes() {
            true => decision.epoch > self.past.epoch,
            false => admitted,
        };
        if self.outcome != Outcome::Open || !concerns {
            return;
        }
        self.outcome = Outcome::Known(decision.clone());
        let newcomers = decision.newcomers.iter().map(|newcomer| newcomer.seat);
        let told: BTreeSet<Seat> = self.reached.iter().copied().chain(newcomers).collect();
        let word = Word::Decided(decision.clone());
        let others = told.into_iter().filter(|seat| *seat != self.me.seat);
        out.extend(others.map(|seat| Action::Send(seat, word.clone())));
        out.push(match survives || (admitted && !self.votes()) {
            true => Action::Decided(decision),
            false => Action::Excluded(decision),
        });
    }
}

#[cfg(test)]
mod tests;
