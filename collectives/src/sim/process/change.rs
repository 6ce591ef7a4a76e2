//! A process between epochs, or before its first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use super::member::Entered;
use super::{AGAIN, End, Greeting, PACE, Parcel, Process, Stage, Surroundings, WAITING};
use crate::OperationError;
use crate::agreement::{
    Action, Agreement, AgreementRules, Event, MemberId, PreviousEpoch, Proof, TwoMemberPolicy,
};
use crate::sim::Plant;
use crate::sim::net::Time;
use crate::sim::program::Step;
use crate::wire::{
    AgreementMessage, Decision, MemberProcess, MemberState, Message, Newcomer, Spoken,
};

/// Calls without an answer after which a member is lost that has answered before: as many as there
/// are in the patience with a silent rank.
const CALLS: u32 = 15;

pub(super) struct Changing {
    pub(super) agreement: Agreement,
    previous_epoch: PreviousEpoch,
    own: MemberState,
    history: Vec<Step>,
    base: u64,
    /// Who is called again and again.
    called: BTreeSet<MemberId>,
    /// Who has answered.
    heard: BTreeSet<MemberId>,
    /// How often those have been called since whose answers are missing.
    silent: BTreeMap<MemberId, u32>,
    pub(super) again: Time,
}

pub(super) struct Waiting {
    agreement: Agreement,
    /// Whom it asks: all who are listed, or some and those that they tell of.
    pub(super) seeds: BTreeSet<MemberId>,
    until: Time,
    pub(super) again: Time,
}

impl Process {
    /// Ends the epoch that this process is in, and asks the others which one follows.
    pub(super) fn change(
        &mut self,
        newcomers: Vec<Newcomer>,
        end: Option<&OperationError>,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let (number, completed) = (epoch.number, epoch.history.len() as u64);
        around.oracle.left(self.me, number, completed);
        around.oracle.note(around.now, self.me, || {
            format!("ends epoch {number}, with {} newcomers", newcomers.len())
        });
        let previous_epoch = PreviousEpoch {
            epoch: epoch.number,
            members: epoch.member_ids.clone().into(),
            incarnations: Arc::new(epoch.known.clone()),
        };
        let own = MemberState {
            completed: match around.plant {
                Plant::InflatedStanding => completed + 1,
                Plant::DeflatedStanding => 0,
                _ => completed,
            },
            newcomers,
        };
        let culprit = match end {
            Some(OperationError::RankLost { peer, .. }) => {
                epoch.member_ids.get(peer.rank().index()).copied()
            }
            _ => None,
        };
        let now = self.clock.local(around.now);
        let rules = AgreementRules {
            pair: around.job.pair,
            timeouts: around.plant.pace(PACE),
        };
        self.stage = Stage::Changing(Box::new(Changing {
            agreement: Agreement::new(self.me, previous_epoch.clone(), rules, own.clone(), now),
            previous_epoch,
            own,
            history: std::mem::take(&mut epoch.history),
            base: epoch.base,
            called: BTreeSet::new(),
            heard: BTreeSet::from([self.me.member_id]),
            silent: BTreeMap::new(),
            again: around.now,
        }));
        // Who is blamed may live on: only the kernel has proof.
        if let Some(member_id) = culprit.filter(|member_id| *member_id != self.me.member_id) {
            self.change_event(Event::Lost(member_id, Proof::Unreached), around);
        }
        for dead in self.ended.clone() {
            self.voter_died(dead, around);
        }
        self.stir_change(around);
    }

    /// Asks to be let in.
    pub(super) fn wait(&mut self, around: &mut Surroundings) {
        let rules = AgreementRules {
            pair: TwoMemberPolicy::Proven,
            timeouts: PACE,
        };
        let now = self.clock.local(around.now);
        self.stage = Stage::Waiting(Box::new(Waiting {
            agreement: Agreement::new(
                self.me,
                PreviousEpoch::nowhere(),
                rules,
                MemberState::default(),
                now,
            ),
            until: around.now + WAITING,
            again: around.now,
            seeds: around.job.seeds_of(self.me.member_id),
        }));
    }

    pub(super) fn stir_change(&mut self, around: &mut Surroundings) {
        if let Stage::Changing(change) = &mut self.stage
            && change.again <= around.now
        {
            change.again = around.now + AGAIN;
            let epoch = change.previous_epoch.epoch;
            let lost = change.fall_silent();
            for member_id in change.called.clone() {
                self.send(member_id, Parcel::Hello { epoch }, around);
            }
            for member_id in lost {
                self.change_event(Event::Lost(member_id, Proof::Unreached), around);
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
            for member_id in waiting.seeds.clone() {
                self.send(member_id, Parcel::Hello { epoch: 0 }, around);
            }
        }
    }

    pub(super) fn voter_died(&mut self, of: MemberProcess, around: &mut Surroundings) {
        if let Stage::Changing(change) = &self.stage
            && change.previous_epoch.incarnations.get(&of.member_id) == Some(&of.incarnation)
        {
            self.change_event(Event::Lost(of.member_id, Proof::Ended), around);
        }
    }

    /// A member of an epoch that is over wants to be in the next.
    pub(super) fn greeted(
        &mut self,
        from: MemberProcess,
        epoch: u64,
        greeting: Greeting,
        around: &mut Surroundings,
    ) {
        if let Some(decision) = self.decisions.get(&epoch) {
            let message = AgreementMessage::Decided(decision.clone());
            return self.say(from.member_id, Spoken { epoch, message }, around);
        }
        let is_reached = match &mut self.stage {
            Stage::Changing(change)
                if change.previous_epoch.epoch == epoch
                    && change.previous_epoch.members.contains(&from.member_id) =>
            {
                let is_new = change.heard.insert(from.member_id);
                if greeting != Greeting::First {
                    change.silent.insert(from.member_id, 0);
                }
                // Whoever calls can be answered; one that is called as well is reached by that.
                let is_called = change.called.contains(&from.member_id);
                greeting != Greeting::First || is_new && !is_called
            }
            // Whoever had this member id before has gone.
            Stage::Waiting(_) if greeting == Greeting::First => {
                return self.send(from.member_id, Parcel::Welcome { epoch: 0 }, around);
            }
            _ => return,
        };
        if greeting == Greeting::First {
            self.send(from.member_id, Parcel::Welcome { epoch }, around);
        }
        if is_reached {
            let by = self.taken_for(from, around);
            self.change_event(Event::Reached(by), around);
        }
    }

    /// Whoever is called with this member id has been in no epoch.
    pub(super) fn nobody_there(&mut self, member_id: MemberId, around: &mut Surroundings) {
        if matches!(self.stage, Stage::Changing(_)) {
            self.change_event(Event::Lost(member_id, Proof::Unreached), around);
        }
    }

    pub(super) fn told(&mut self, from: MemberProcess, spoken: Spoken, around: &mut Surroundings) {
        let Spoken { epoch, mut message } = spoken;
        if let AgreementMessage::Decided(decision) = &mut message {
            around.plant.learn(self.me, decision);
        }
        let late = matches!(
            message,
            AgreementMessage::Prepare { .. }
                | AgreementMessage::Propose { .. }
                | AgreementMessage::Waits { .. }
        );
        if let (Some(decision), true) = (self.decisions.get(&epoch), late) {
            let message = AgreementMessage::Decided(decision.clone());
            return self.say(from.member_id, Spoken { epoch, message }, around);
        }
        let concerns = match &self.stage {
            Stage::Changing(change) => change.previous_epoch.epoch == epoch,
            Stage::Waiting(_) => true,
            _ => false,
        };
        if concerns {
            let by = self.taken_for(from, around);
            self.change_event(Event::Said { by, message }, around);
        }
    }

    /// The mistake of taking whoever is with a member id for the one that was there.
    fn taken_for(&self, from: MemberProcess, around: &Surroundings) -> MemberProcess {
        match (&self.stage, around.plant) {
            (Stage::Changing(change), Plant::Impostors) => {
                let known = change.previous_epoch.incarnations.get(&from.member_id);
                let incarnation = known.copied().unwrap_or(from.incarnation);
                MemberProcess {
                    incarnation,
                    ..from
                }
            }
            _ => from,
        }
    }

    fn say(&self, to: MemberId, spoken: Spoken, around: &mut Surroundings) {
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
                change.previous_epoch.epoch
            }
            Stage::Waiting(waiting) => {
                waiting.agreement.handle(now, event, &mut out);
                0
            }
            _ => return,
        };
        for action in out {
            match action {
                Action::Call(to) => {
                    if let Stage::Changing(change) = &mut self.stage {
                        change.called.insert(to);
                    }
                    self.send(to, Parcel::Hello { epoch }, around);
                }
                Action::Send(to, message) => self.say(to, Spoken { epoch, message }, around),
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
        if let Stage::Changing(change) = &self.stage
            && around.plant != Plant::ForgottenRollback
        {
            self.position = change.position_after(decision.completed);
        }
        self.decisions.insert(decision.epoch - 1, decision.clone());
        self.join_requests.clear();
        let members: Vec<_> = decision.members().collect();
        let known = members.iter().map(|one| (one.member_id, one.incarnation));
        let member_ids = members.iter().map(|one| one.member_id).collect();
        let newcomers = decision.newcomers.iter().map(|newcomer| newcomer.process);
        let newcomers = newcomers.filter(|newcomer| *newcomer != self.me);
        let entered = Entered {
            number: decision.epoch,
            member_ids,
            known: known.collect(),
            newcomers: newcomers.collect(),
        };
        self.enter(entered, around);
    }
}

impl Changing {
    /// Another call to all; those that are lost by now, as they have been called too often since
    /// they answered.
    fn fall_silent(&mut self) -> Vec<MemberId> {
        self.silent.values_mut().for_each(|calls| *calls += 1);
        let lost = self.silent.extract_if(.., |_, calls| *calls > CALLS);
        lost.map(|(member_id, _)| member_id).collect()
    }

    /// Works that the program has behind it once so many operations of the epoch are.
    fn position_after(&self, completed: u64) -> u64 {
        let completed = usize::try_from(completed).unwrap_or(usize::MAX);
        let works = |step: &&Step| matches!(step, Step::Work(_));
        let done = self.history.iter().take(completed).filter(works).count();
        self.base + done as u64
    }

    /// The mistake of a voter that remembers nothing once it has voted.
    fn forget_votes(
        &mut self,
        me: MemberProcess,
        pair: TwoMemberPolicy,
        out: &[Action],
        now: Instant,
    ) {
        let vote =
            |action: &Action| matches!(action, Action::Send(_, AgreementMessage::Accept { .. }));
        if out.iter().any(vote) {
            let (previous_epoch, own) = (self.previous_epoch.clone(), self.own.clone());
            let rules = AgreementRules {
                pair,
                timeouts: PACE,
            };
            self.agreement = Agreement::new(me, previous_epoch, rules, own, now);
        }
    }

    /// The mistake of taking silence for proof.
    fn bury_the_silent(&mut self, now: Instant, out: &mut Vec<Action>) {
        let members = self.previous_epoch.members.clone();
        if members.len() == 2 {
            for silent in members
                .iter()
                .filter(|member_id| !self.heard.contains(member_id))
            {
                let lost = Event::Lost(*silent, Proof::Ended);
                self.agreement.handle(now, lost, out);
            }
        }
    }
}
