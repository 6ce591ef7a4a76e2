//! A process between epochs, or before its first.

use std::collections::BTreeSet;
use std::time::Instant;

use super::{AGAIN, End, Greeting, PACE, Parcel, Process, Stage, Surroundings, WAITING};
use crate::agreement::{Action, Agreement, Event, Pair, Past, Proof};
use crate::sim::Plant;
use crate::sim::net::Time;
use crate::sim::oracle::Behind;
use crate::sim::program::Step;
use crate::wire::{Decision, Message, Newcomer, Spoken, Standing, Word};

pub(super) struct Changing {
    pub(super) agreement: Agreement,
    epoch: u64,
    members: Vec<Newcomer>,
    history: Vec<Step>,
    base: u64,
    /// Who has answered.
    heard: BTreeSet<u32>,
    pub(super) again: Time,
}

pub(super) struct Waiting {
    agreement: Agreement,
    until: Time,
    pub(super) again: Time,
}

impl Process {
    /// Ends the epoch that this process is in, and asks the others which one follows.
    pub(super) fn change(&mut self, newcomers: Vec<Newcomer>, around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let past = Past {
            epoch: epoch.number,
            members: epoch.members.iter().map(|member| member.seat).collect(),
            incarnations: epoch
                .members
                .iter()
                .map(|member| (member.seat, member.incarnation))
                .collect(),
        };
        let own = Standing {
            completed: epoch.history.len() as u64,
            newcomers,
        };
        let rules = (Pair::Proven, PACE);
        let agreement = Agreement::new(self.me, past, rules, own, self.clock.local(around.now));
        self.stage = Stage::Changing(Box::new(Changing {
            agreement,
            epoch: epoch.number,
            members: std::mem::take(&mut epoch.members),
            history: std::mem::take(&mut epoch.history),
            base: epoch.base,
            heard: BTreeSet::from([self.me.seat]),
            again: around.now,
        }));
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
            let (epoch, members) = (change.epoch, change.members.clone());
            for member in members.into_iter().filter(|member| *member != self.me) {
                self.send(member.seat, Parcel::Hello { epoch }, around);
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
                .take(around.seats)
                .filter(|seat| *seat != self.me.seat)
            {
                self.send(seat, Parcel::Hello { epoch: 0 }, around);
            }
        }
    }

    pub(super) fn voter_died(&mut self, of: Newcomer, around: &mut Surroundings) {
        if let Stage::Changing(change) = &self.stage
            && change.members.contains(&of)
        {
            self.change_event(Event::Lost(of.seat, Proof::Ended), around);
        }
    }

    /// A member of the epoch that is over wants to be in the next, too.
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
        let Stage::Changing(change) = &mut self.stage else {
            return;
        };
        if change.epoch != epoch || !change.members.contains(&from) {
            return;
        }
        change.heard.insert(from.seat);
        if greeting == Greeting::First {
            self.send(from.seat, Parcel::Welcome { epoch }, around);
        }
        self.change_event(Event::Reached(from), around);
    }

    pub(super) fn told(&mut self, from: Newcomer, spoken: Spoken, around: &mut Surroundings) {
        let Spoken { epoch, word } = spoken;
        let late = matches!(word, Word::Prepare(_) | Word::Propose { .. });
        if let (Some(decision), true) = (self.decisions.get(&epoch), late) {
            let word = Word::Decided(decision.clone());
            return self.say(from.seat, Spoken { epoch, word }, around);
        }
        let concerns = match &self.stage {
            Stage::Changing(change) => change.epoch == epoch && change.members.contains(&from),
            Stage::Waiting(_) => true,
            _ => false,
        };
        if concerns {
            self.change_event(Event::Said { by: from, word }, around);
        }
    }

    fn say(&self, to: u32, spoken: Spoken, around: &mut Surroundings) {
        let epoch = spoken.epoch;
        let bytes = Message::Spoken(spoken).encode();
        self.send(to, Parcel::Message { epoch, bytes }, around);
    }

    fn change_event(&mut self, event: Event, around: &mut Surroundings) {
        let now = self.clock.local(around.now);
        let mut out = Vec::new();
        let epoch = match &mut self.stage {
            Stage::Changing(change) => {
                change.agreement.handle(now, event, &mut out);
                self.plant(now, &mut out, around);
                self.changing_epoch()
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
                Action::Decided(decision) => self.decided(decision, around),
                Action::Excluded(_) => {
                    around
                        .oracle
                        .note(around.now, self.me, || "is excluded".to_owned());
                    self.end_with(End::LeftOut, around);
                }
                Action::NoMajority(present) => {
                    around.oracle.gave_up(epoch, &present);
                    self.end_with(End::NoMajority, around);
                }
            }
        }
    }

    /// The mistake to be found: silence is taken for proof of death.
    fn plant(&mut self, now: Instant, out: &mut Vec<Action>, around: &Surroundings) {
        let Stage::Changing(change) = &mut self.stage else {
            return;
        };
        if around.plant == Plant::SilenceIsProof && change.members.len() == 2 {
            let seats = change.members.iter().map(|member| member.seat);
            let silent = seats.filter(|seat| !change.heard.contains(seat));
            for seat in silent.collect::<Vec<_>>() {
                let lost = Event::Lost(seat, Proof::Ended);
                change.agreement.handle(now, lost, out);
            }
        }
    }

    fn changing_epoch(&self) -> u64 {
        match &self.stage {
            Stage::Changing(change) => change.epoch,
            _ => 0,
        }
    }

    fn decided(&mut self, decision: Decision, around: &mut Surroundings) {
        if let Stage::Changing(change) = &self.stage {
            let works = |step: &&Step| matches!(step, Step::Work(_));
            let completed = usize::try_from(decision.completed).unwrap_or(usize::MAX);
            let done = change.history.iter().take(completed).filter(works).count();
            self.position = change.base + done as u64;
            let behind = match (change.history.len() as u64) < decision.completed {
                true => Behind::TheDecision,
                false => Behind::Nobody,
            };
            around.oracle.outcome((self.me, change.epoch), behind);
            self.decisions.insert(change.epoch, decision.clone());
        }
        let members = around.oracle.decided(self.me, &decision);
        self.knocks.clear();
        self.enter(decision.epoch, members, around);
    }
}
