//! One process of a simulated job: the product's own machines, driven as its tasks drive them.

mod change;
mod member;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::net::{MILLISECOND, SECOND, Shared, Time, Wire};
use super::oracle::Oracle;
use super::program::Job;
use super::{Plant, dice::Dice};
use crate::agreement::{AgreementTimeouts, MemberId};
use crate::membership::{self, Event, MembershipTimeouts};
use crate::wire::{AgreementMessage, Decision, MemberProcess, Message, Newcomer, Spoken};
use crate::{LossCause, Member, OperationError};
use change::{Changing, Waiting};
use member::{Entered, Epoch};

/// How patient simulated groups are: less than by default, as a job may choose.
pub(super) const TIMEOUTS: MembershipTimeouts = MembershipTimeouts {
    join: Duration::from_secs(5),
    heartbeat: Duration::from_millis(250),
    check: Duration::from_millis(250),
    silence: Duration::from_millis(1500),
};
/// How patient they are where links drop for long: more than by default.
pub(super) const PATIENT: MembershipTimeouts = MembershipTimeouts {
    join: Duration::from_secs(90),
    silence: Duration::from_secs(75),
    ..TIMEOUTS
};
const PACE: AgreementTimeouts = AgreementTimeouts {
    gather: Duration::from_millis(1500),
    retry: Duration::from_millis(400),
    limit: Duration::from_secs(20),
};
/// How often a process that has got no answer calls again.
const AGAIN: Time = 100 * MILLISECOND;
/// How long a newcomer asks to be let in.
const WAITING: Time = 40 * SECOND;

/// What goes from process to process besides the bytes of operations.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    /// This process was last in this epoch, or in none if that is 0, and wants to be in the next.
    Hello { epoch: u64 },
    /// The answer of one that wants the same.
    Welcome { epoch: u64 },
    /// This process is in this epoch.
    Join { epoch: u64 },
    /// So is this one.
    Joined { epoch: u64 },
    /// In answer to one that wants to be let in: these are the members.
    Directory { members: Vec<MemberId> },
    /// A message of the product, as it stands on the wire.
    Message { epoch: u64, bytes: Vec<u8> },
}

/// A parcel, from whom, and to which process.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) from: MemberProcess,
    pub(super) to: MemberId,
    pub(super) parcel: Parcel,
}

/// A process looks for evidence of what became of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) by: MemberId,
    pub(super) of: MemberProcess,
    pub(super) heard: Instant,
}

/// What it sees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sight {
    /// On its own host.
    Stopped,
    Runs,
    /// On another.
    PortClosed {
        heard: Instant,
    },
}

/// What all processes share.
pub(super) struct Surroundings {
    pub(super) job: Job,
    pub(super) plant: Plant,
    pub(super) timeouts: MembershipTimeouts,
    pub(super) net: Shared,
    pub(super) wires: BTreeMap<(u64, MemberProcess, MemberProcess), Arc<Mutex<Wire>>>,
    pub(super) oracle: Oracle,
    pub(super) outbox: Vec<Posted>,
    /// Who looks for whom.
    pub(super) looks: Vec<Look>,
    /// The host of each member id.
    pub(super) hosts: Vec<u64>,
    /// Who has given up for want of a majority, and in which epoch.
    pub(super) given_up: Vec<(MemberProcess, u64)>,
    pub(super) dice: Dice,
    pub(super) now: Time,
}

pub(super) struct Process {
    pub(super) me: MemberProcess,
    clock: Clock,
    stage: Stage,
    /// Who has asked to join, by member id.
    join_requests: BTreeMap<MemberId, u64>,
    /// Processes of this host whose end the kernel has told.
    ended: BTreeSet<MemberProcess>,
    /// What followed each epoch that this process was in.
    decisions: BTreeMap<u64, Decision>,
    /// Works that the program has behind it.
    position: u64,
}

enum Stage {
    Member(Box<Epoch>),
    Changing(Box<Changing>),
    Waiting(Box<Waiting>),
    Over(End),
}

/// How a process's part ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    Finished,
    NoMajority,
    /// It was never let in, or everybody had gone.
    LeftOut,
}

/// A clock that is wrong, and runs wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: Instant,
    offset: Time,
    /// In millionths.
    fast: u64,
}

impl Clock {
    pub(super) fn new(base: Instant, offset: Time, fast: u64) -> Self {
        Self { base, offset, fast }
    }

    fn local(&self, now: Time) -> Instant {
        let drift = now / 1_000_000 * self.fast;
        self.base + Duration::from_nanos(self.offset + now + drift)
    }

    /// The first time at which this clock shows `local` or later.
    fn when(&self, local: Instant) -> Time {
        let shown = local.saturating_duration_since(self.base).as_nanos();
        let shown = Time::try_from(shown)
            .unwrap_or(Time::MAX)
            .saturating_sub(self.offset);
        let about = shown - shown / (1_000_000 + self.fast) * self.fast;
        about + MILLISECOND
    }
}

impl Process {
    /// One that begins with the first epoch, whatever has been before.
    pub(super) fn founder(me: MemberProcess, clock: Clock, around: &mut Surroundings) -> Self {
        let mut process = Self::new(me, clock);
        let member_ids = (0..).take(around.job.member_ids).collect();
        let entered = Entered {
            number: 1,
            member_ids,
            known: [(me.member_id, me.incarnation)].into(),
            newcomers: BTreeSet::new(),
        };
        process.enter(entered, around);
        process
    }

    /// One that asks to be let in.
    pub(super) fn newcomer(me: MemberProcess, clock: Clock, around: &mut Surroundings) -> Self {
        let mut process = Self::new(me, clock);
        process.wait(around);
        process
    }

    fn new(me: MemberProcess, clock: Clock) -> Self {
        Self {
            me,
            clock,
            stage: Stage::Over(End::LeftOut),
            join_requests: BTreeMap::new(),
            ended: BTreeSet::new(),
            decisions: BTreeMap::new(),
            position: 0,
        }
    }

    pub(super) fn end(&self) -> Option<&End> {
        match &self.stage {
            Stage::Over(end) => Some(end),
            _ => None,
        }
    }

    /// When it wants to be called again at the latest.
    pub(super) fn wake(&self) -> Option<Time> {
        let clock = |at: Option<Instant>| at.map(|at| self.clock.when(at));
        match &self.stage {
            Stage::Member(epoch) => [clock(epoch.membership.wake()), epoch.next_call()]
                .into_iter()
                .flatten()
                .min(),
            Stage::Changing(change) => [clock(change.agreement.wake()), Some(change.again)]
                .into_iter()
                .flatten()
                .min(),
            Stage::Waiting(waiting) => Some(waiting.again),
            Stage::Over(_) => None,
        }
    }

    /// Time has passed, or bytes have arrived.
    pub(super) fn stir(&mut self, around: &mut Surroundings) {
        match &self.stage {
            Stage::Member(_) => self.stir_member(around),
            Stage::Changing(_) => self.stir_change(around),
            Stage::Waiting(_) => self.stir_waiting(around),
            Stage::Over(_) => {}
        }
    }

    /// The kernel tells that a process of this host has ended.
    pub(super) fn sees_end(&mut self, of: MemberProcess, around: &mut Surroundings) {
        self.ended.insert(of);
        match &self.stage {
            Stage::Member(_) => self.member_died(of, around),
            Stage::Changing(_) => self.voter_died(of, around),
            _ => {}
        }
    }

    pub(super) fn sees(&mut self, of: MemberProcess, sight: Sight, around: &mut Surroundings) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        if let Some(rank) = epoch.rank_of_process(of) {
            let event = match sight {
                Sight::Stopped => Event::Stopped(rank),
                Sight::Runs => Event::Heard(rank),
                Sight::PortClosed { heard } => Event::PortClosed { rank, heard },
            };
            self.member_event(event, around);
        }
    }

    /// Somebody who is not the kernel says that the process with a member id has ended: the
    /// launcher, or another rank if it is this one.
    pub(super) fn hears_rumour(&mut self, about: MemberId, around: &mut Surroundings) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        let Some(rank) = epoch.rank_of(about) else {
            return;
        };
        let mut others = epoch
            .admitted
            .keys()
            .filter(|member_id| **member_id != about);
        let event = match others.find_map(|member_id| epoch.rank_of(*member_id)) {
            Some(by) if about == self.me.member_id => {
                let error = OperationError::lost(Member::new(rank, ""), LossCause::Died);
                let abort = membership::tell(&error, by);
                Event::Aborted { by, abort }
            }
            _ if about == self.me.member_id => return,
            _ => Event::Reported(rank),
        };
        self.member_event(event, around);
    }

    pub(super) fn receive(
        &mut self,
        from: MemberProcess,
        parcel: Parcel,
        around: &mut Surroundings,
    ) {
        // A process that has come to its end is there no more.
        if self.end().is_some() {
            return;
        }
        match parcel {
            Parcel::Hello { epoch: 0 } => self.join_requested(from, around),
            Parcel::Hello { epoch } => self.greeted(from, epoch, Greeting::First, around),
            Parcel::Welcome { epoch: 0 } => self.nobody_there(from.member_id, around),
            Parcel::Welcome { epoch } => self.greeted(from, epoch, Greeting::Answer, around),
            Parcel::Directory { members } => self.told_of(&members),
            Parcel::Join { epoch } => self.joined_by(from, epoch, Greeting::First, around),
            Parcel::Joined { epoch } => self.joined_by(from, epoch, Greeting::Answer, around),
            Parcel::Message { epoch, bytes } => {
                let message = super::decode(&bytes);
                match message {
                    Some(Message::Spoken(spoken)) => self.told(from, spoken, around),
                    Some(message) => self.member_hears(from, epoch, message, around),
                    None => around.oracle.garbled(self.me.member_id),
                }
            }
        }
    }

    /// Somebody asks to be let in.
    fn join_requested(&mut self, from: MemberProcess, around: &mut Surroundings) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        let (members, number) = (epoch.member_ids.clone(), epoch.number);
        self.send(from.member_id, Parcel::Directory { members }, around);
        let decision = self.decisions.get(&(number - 1));
        if let Some(missed) = decision.filter(|decision| decision.admits(from)) {
            let message = AgreementMessage::Decided(missed.clone());
            let spoken = Message::Spoken(Spoken { epoch: 0, message });
            return self.tell(from.member_id, 0, spoken, around);
        }
        self.join_requests.insert(from.member_id, from.incarnation);
        self.supplanted(from.member_id, around);
    }

    /// A newcomer hears whom else it may ask.
    fn told_of(&mut self, members: &[MemberId]) {
        let me = self.me.member_id;
        if let Stage::Waiting(waiting) = &mut self.stage {
            let others = members.iter().filter(|member_id| **member_id != me);
            waiting.seeds.extend(others);
        }
    }

    /// Another process is with a member id: if the one before is still waited for, it will not
    /// come.
    fn supplanted(&mut self, member_id: MemberId, around: &mut Surroundings) {
        if let Stage::Member(epoch) = &self.stage
            && !epoch.admitted.contains_key(&member_id)
            && let Some(rank) = epoch.rank_of(member_id)
        {
            self.member_event(Event::Reported(rank), around);
        }
    }

    fn send(&self, to: MemberId, parcel: Parcel, around: &mut Surroundings) {
        let from = self.me;
        around.outbox.push(Posted { from, to, parcel });
    }

    fn tell(&self, to: MemberId, epoch: u64, message: Message, around: &mut Surroundings) {
        if let Some(bytes) = around.plant.encode(message) {
            self.send(to, Parcel::Message { epoch, bytes }, around);
        }
    }

    fn end_with(&mut self, end: End, around: &mut Surroundings) {
        around
            .oracle
            .note(around.now, self.me, || format!("ends: {end:?}"));
        self.stage = Stage::Over(end);
    }
}

/// Whether an answer is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Greeting {
    First,
    Answer,
}

/// Who has asked to join and is no member.
fn joiners(join_requests: &BTreeMap<MemberId, u64>, members: &[MemberId]) -> Vec<Newcomer> {
    let new = join_requests
        .iter()
        .filter(|(member_id, _)| !members.contains(member_id));
    let newcomer = |(&member_id, &incarnation): (&MemberId, &u64)| {
        let process = MemberProcess {
            member_id,
            incarnation,
        };
        Newcomer::at(process, format!("member {member_id}"))
    };
    new.map(newcomer).collect()
}
