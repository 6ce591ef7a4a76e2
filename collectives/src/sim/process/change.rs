//! A process between epochs, or before its first.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{AGAIN, End, Greeting, PACE, Parcel, Process, Stage, Surroundings, WAITING};
use crate::Error;
use crate::agreement::{Action, Agreement, Event, Pair, Past, Proof, Seat};
use crate::sim::Plant;
use crate::sim::net::Time;
use crate::sim::program::Step;
use crate::wire::{Decision, Message, Newcomer, Spoken, Standing, Word};

pub(super) struct Changing {
    pub(super) agreement: Agreement,
    past: Past,
    own: Standing,
    history: Vec<Step>,
    base: u64,
    /// Who has answered.
    heard: BTreeSet<Seat>,
    pub(super) again: Time,
}

pub(super) struct Waiting {
    agreement: Agreement,
    until: Time,
    pub(super) again: Time,
}

impl Process {
    /// Ends the epoch that this process is in, and asks the others which one follows.
    pub(super) fn change(
        &mut self,
        newcomers: Vec<Newcomer>,
        end: Option<&Error>,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        around.oracle.left(self.me, epoch.number);
        let past = Past {
            epoch: epoch.number,
            members: epoch.seats.clone().into(),
            incarnations: epoch.known.clone(),
        };
        let completed = epoch.history.len() as u64;
        let own = Standing {
            completed: match around.plant {
                Plant::InflatedStanding => completed + 1,
                _ => completed,
            },
            newcomers,
        };
        let culprit = match end {
            Some(Error::RankLost { peer, .. }) => epoch.seats.get(peer.rank().index()).copied(),
            _ => None,
        };
        let now = self.clock.local(around.now);
        let rules = (around.job.pair, around.plant.pace(PACE));
        self.stage = Stage::Changing(Box::new(Changing {
            agreement: Agreement::new(self.me, past.clone(), rules, own.clone(), now),
            past,
            own,
            history: std::mem::take(&mut epoch.history),
            base: epoch.base,
            heard: BTreeSet::from([self.me.seat]),
            again: around.now,
        }));
        // Who is blamed may live on: only the kernel has proof.
        if let Some(seat) = culprit.filter(|seat| *seat != self.me.seat) {
            self.change_event(Event::Lost(seat, Proof::Unreached), around);
        }
        for dead in self.ended.clone() {
            self.voter_died(dead, around);
        }
        self.stir_change(around);
    }

    /// Asks to be let in.
    pub(super) fn wait(&mut self, around: &mut Surroundings) {
        let rules = (Pair::Proven, PACE);
        let now = self.clock.local(around.now);
        self.stage = Stage::Waiting(Box::new(Waiting {
            agreement: Agreement::new(self.me, Past::nowhere(), rules, Standing::default(), now),
            until: around.now + WAITING,
            again: around.now,
        }));
    }

    pub(super) fn stir_change(&mut self, around: &mut Surroundings) {
        if let Stage::Changing(change) = &mut self.stage
            && change.again <= around.now
        {
            change.again = around.now + AGAIN;
            let Past { epoch, members, .. } = change.past.clone();
            for seat in members.iter().filter(|seat| **seat != self.me.seat) {
                self.send(*seat, Parcel::Hello { epoch }, around);
            }
        }
        self.change_event(Event::Tick, around);
    }

    pub(super) fn stir_waiting(&mut self, around: &mut Surroundings) {
        let Stage::Waiting(waiting) = &mut self.stage else {
            return;
        };
        if around.now >= waiting.until {
            return self.end_with(End::LeftOut, around);
        }
        if waiting.again <= around.now {
            waiting.again = around.now + AGAIN;
            for seat in (0..)
                .take(around.job.seats)
                .filter(|seat| *seat != self.me.seat)
            {
                self.send(seat, Parcel::Hello { epoch: 0 }, around);
            }
        }
    }

    pub(super) fn voter_died(&mut self, of: Newcomer, around: &mut Surroundings) {
        if let Stage::Changing(change) = &self.stage
            && change.past.incarnations.get(&of.seat) == Some(&of.incarnation)
        {
            self.change_event(Event::Lost(of.seat, Proof::Ended), around);
        }
    }

    /// A member of an epoch that is over wants to be in the next.
    pub(super) fn greeted(
        &mut self,
        from: Newcomer,
        epoch: u64,
        greeting: Greeting,
        around: &mut Surroundings,
    ) {
        if let Some(decision) = self.decisions.get(&epoch) {
            let word = Word::Decided(decision.clone());
            return self.say(from.seat, Spoken { epoch, word }, around);
        }
        match &mut self.stage {
            Stage::Changing(change)
                if change.past.epoch == epoch && change.past.members.contains(&from.seat) =>
            {
                change.heard.insert(from.seat);
            }
            // Whoever had this seat before has gone.
            Stage::Waiting(_) if greeting == Greeting::First => {
                return self.send(from.seat, Parcel::Welcome { epoch: 0 }, around);
            }
            _ => return,
        }
        if greeting == Greeting::First {
            self.send(from.seat, Parcel::Welcome { epoch }, around);
        }
        let by = self.taken_for(from, around);
        self.change_event(Event::Reached(by), around);
    }

    /// Whoever is called at this seat has been in no epoch.
    pub(super) fn nobody_there(&mut self, seat: Seat, around: &mut Surroundings) {
        if matches!(self.stage, Stage::Changing(_)) {
            self.change_event(Event::Lost(seat, Proof::Unreached), around);
        }
    }

    pub(super) fn told(&mut self, from: Newcomer, spoken: Spoken, around: &mut Surroundings) {
        let Spoken { epoch, mut word } = spoken;
        if let Word::Decided(decision) = &mut word {
            around.plant.learn(self.me, decision);
        }
        let late = matches!(word, Word::Prepare(_) | Word::Propose { .. });
        if let (Some(decision), true) = (self.decisions.get(&epoch), late) {
            let word = Word::Decided(decision.clone());
            return self.say(from.seat, Spoken { epoch, word }, around);
        }
        let concerns = match &self.stage {
            Stage::Changing(change) => change.past.epoch == epoch,
            Stage::Waiting(_) => true,
            _ => false,
        };
        if concerns {
            let by = self.taken_for(from, around);
            self.change_event(Event::Said { by, word }, around);
        }
    }

    /// The mistake of taking whoever is at a seat for the one that was there.
    fn taken_for(&self, from: Newcomer, around: &Surroundings) -> Newcomer {
        match (&self.stage, around.plant) {
            (Stage::Changing(change), Plant::Impostors) => {
                let known = change.past.incarnations.get(&from.seat);
                let incarnation = known.copied().unwrap_or(from.incarnation);
                Newcomer {
                    incarnation,
                    ..from
                }
            }
            _ => from,
        }
    }

    fn say(&self, to: Seat, spoken: Spoken, around: &mut Surroundings) {
        self.tell(to, spoken.epoch, Message::Spoken(spoken), around);
    }

    fn change_event(&mut self, event: Event, around: &mut Surroundings) {
        let now = self.clock.local(around.now);
        let mut out = Vec::new();
        let epoch = match &mut self.stage {
            Stage::Changing(change) => {
                change.agreement.handle(now, event, &mut out);
                match around.plant {
                    Plant::SilenceAsProof => change.bury_the_silent(now, &mut out),
                    Plant::ForgottenVotes => {
                        change.forget_votes(self.me, around.job.pair, &out, now);
                    }
                    _ => {}
                }
                change.past.epoch
            }
            Stage::Waiting(waiting) => {
                waiting.agreement.handle(now, event, &mut out);
                0
            }
            _ => return,
        };
        for action in out {
            match action {
                Action::Send(to, word) => self.say(to, Spoken { epoch, word }, around),
                Action::Decided(decision) if around.plant != Plant::FalseExclusion => {
                    self.decided(decision, around);
                }
                Action::Decided(decision) | Action::Excluded(decision) => {
                    around.oracle.learned(self.me, &decision);
                    around
                        .oracle
                        .note(around.now, self.me, || "is excluded".to_owned());
                    self.end_with(End::LeftOut, around);
                }
                Action::NoMajority(_) => {
                    around.given_up.push((self.me, epoch));
                    self.end_with(End::NoMajority, around);
                }
            }
        }
    }

    fn decided(&mut self, decision: Decision, around: &mut Surroundings) {
        around.oracle.decided(self.me, &decision);
        if let Stage::Changing(change) = &self.stage {
            let (past, completed) = (change.past.epoch, change.history.len() as u64);
            let agreed = decision.completed;
            around.oracle.held_to(self.me, past, agreed, completed);
            if around.plant != Plant::ForgottenRollback {
                self.position = change.position_after(agreed);
            }
            self.decisions.insert(past, decision.clone());
        }
        self.knocks.clear();
        let members: Vec<_> = decision.members().collect();
        let known = members.iter().map(|one| (one.seat, one.incarnation));
        let seats = members.iter().map(|one| one.seat).collect();
        self.enter(decision.epoch, seats, known.collect(), around);
    }
}

impl Changing {
    /// Works that the program has behind it once so many operations of the epoch are.
    fn position_after(&self, completed: u64) -> u64 {
        let completed = usize::try_from(completed).unwrap_or(usize::MAX);
        let works = |step: &&Step| matches!(step, Step::Work(_));
        let done = self.history.iter().take(completed).filter(works).count();
        self.base + done as u64
    }

    /// The mistake of a voter that remembers nothing once it has voted.
    fn forget_votes(&mut self, me: Newcomer, pair: Pair, out: &[Action], now: Instant) {
        let vote = |action: &Action| matches!(action, Action::Send(_, Word::Accept { .. }));
        if out.iter().any(vote) {
            let (past, own) = (self.past.clone(), self.own.clone());
            self.agreement = Agreement::new(me, past, (pair, PACE), own, now);
        }
    }

    /// The mistake of taking silence for proof.
    fn bury_the_silent(&mut self, now: Instant, out: &mut Vec<Action>) {
        let members = self.past.members.clone();
        if members.len() == 2 {
            for silent in members.iter().filter(|seat| !self.heard.contains(seat)) {
                let lost = Event::Lost(*silent, Proof::Ended);
                self.agreement.handle(now, lost, out);
            }
        }
    }
}
