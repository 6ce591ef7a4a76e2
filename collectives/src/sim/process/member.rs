//! A process in an epoch: it joins, works, and notices who is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::streams::{means, record};
use super::{AGAIN, Greeting, Look, Parcel, Process, Stage, Surroundings};
use crate::agreement::MemberId;
use crate::membership::{Action, Event, Membership};
use crate::schedule::Collective;
use crate::sim::net::{MILLISECOND, Time};
use crate::sim::oracle::Place;
use crate::sim::program::{
    BETWEEN_CENSUSES, Begin, Finished, Means, Plan, Step, Task, contribution, list_of, words_of,
};
use crate::wire::{
    MemberProcess, Message, Newcomer, NewcomerOffer, decode_newcomers, encode_newcomers,
};
use crate::{LossCause, Member, OperationError, Rank};

pub(super) struct Epoch {
    pub(super) number: u64,
    /// The member ids of its members in the order of their ranks.
    pub(super) member_ids: Vec<MemberId>,
    rank: Rank,
    pub(super) membership: Membership,
    /// The incarnation with each member id that is known, this one's among them.
    pub(super) known: BTreeMap<MemberId, u64>,
    /// Which process was let in for each member id, this one among them.
    pub(super) admitted: BTreeMap<MemberId, MemberProcess>,
    again: Option<Time>,
    /// Those that came in with this epoch, until everybody is in.
    newcomers: BTreeSet<MemberProcess>,
    /// What this rank brought to the last census.
    waiting: Vec<u8>,
    /// What that came to, if newcomers are to be let in.
    settles: Option<NewcomerOffer>,
    /// Who they are: the epoch ends for all its members, and then the next one begins.
    lets_in: Option<Vec<Newcomer>>,
    /// Everybody is in; here until an operation takes it.
    means: Option<Means>,
    task: Option<(Step, Task)>,
    /// When the program makes its next call.
    thinks: Option<Time>,
    /// When this rank no longer waits to be told why a link broke.
    broken: Option<Time>,
    /// The operations of this epoch that have been completed, in order.
    pub(super) history: Vec<Step>,
    /// Works behind the program when the epoch began.
    pub(super) base: u64,
}

/// An epoch as a process comes to know of it.
pub(super) struct Entered {
    pub(super) number: u64,
    pub(super) member_ids: Vec<MemberId>,
    pub(super) known: BTreeMap<MemberId, u64>,
    /// Those that came in with it, but this process.
    pub(super) newcomers: BTreeSet<MemberProcess>,
}

impl Epoch {
    pub(super) fn next_call(&self) -> Option<Time> {
        [self.again, self.thinks, self.broken]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn rank_of(&self, member_id: MemberId) -> Option<Rank> {
        let place = self
            .member_ids
            .iter()
            .position(|member| *member == member_id)?;
        u32::try_from(place).ok().map(Rank::new)
    }

    /// The rank of a process that has been let in.
    pub(super) fn rank_of_process(&self, process: MemberProcess) -> Option<Rank> {
        let admitted = self.admitted.get(&process.member_id) == Some(&process);
        admitted.then(|| self.rank_of(process.member_id))?
    }

    fn world(&self) -> u32 {
        u32::try_from(self.member_ids.len()).unwrap_or(u32::MAX)
    }

    /// What comes next, from what is behind.
    fn next_step(&self, position: u64, works: u64) -> Step {
        let since = self.history.iter().rev();
        let since = since
            .take_while(|step| matches!(step, Step::Work(_)))
            .count();
        match (self.history.last(), self.settles) {
            (None, _) => Step::Resume,
            (Some(Step::Admit { .. }), _) => Step::Leave,
            (Some(_), Some(NewcomerOffer { bytes, root })) => {
                let words = bytes.div_ceil(8);
                Step::Admit { root, words }
            }
            (Some(_), None) if position >= works => Step::Leave,
            (Some(_), None) if since as u64 >= BETWEEN_CENSUSES => Step::Census,
            (Some(_), None) => Step::Work(position),
        }
    }
}

impl Process {
    /// Begins to join an epoch.
    pub(super) fn enter(&mut self, entered: Entered, around: &mut Surroundings) {
        let Entered {
            number,
            member_ids,
            known,
            newcomers,
        } = entered;
        around.oracle.note(around.now, self.me, || {
            format!("enters epoch {number} of members {member_ids:?}")
        });
        let place = member_ids
            .iter()
            .position(|member_id| *member_id == self.me.member_id);
        let rank = Rank::new(
            place
                .and_then(|place| u32::try_from(place).ok())
                .unwrap_or_default(),
        );
        let named = (0..).map(Rank::new).zip(&member_ids);
        let named: Arc<[Member]> = named
            .map(|(rank, member_id)| Member::new(rank, format!("member {member_id}")))
            .collect();
        let own = record(self.me, around);
        let now = self.clock.local(around.now);
        let membership = Membership::new(rank, own, named, around.timeouts, now);
        let alone = member_ids.len() == 1;
        self.stage = Stage::Member(Box::new(Epoch {
            number,
            member_ids,
            rank,
            membership,
            known,
            admitted: BTreeMap::from([(self.me.member_id, self.me)]),
            again: Some(around.now),
            newcomers,
            waiting: Vec::new(),
            settles: None,
            lets_in: None,
            means: None,
            task: None,
            thinks: None,
            broken: None,
            history: Vec::new(),
            base: self.position,
        }));
        if alone {
            self.act(vec![Action::Ready([own].into())], around);
        }
        for ended in self.ended.clone() {
            self.member_died(ended, around);
        }
    }

    pub(super) fn stir_member(&mut self, around: &mut Surroundings) {
        self.member_event(Event::Tick, around);
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let now = around.now;
        if epoch.again.is_some_and(|again| again <= now) {
            let number = epoch.number;
            let missing = |member_id: &&MemberId| !epoch.admitted.contains_key(*member_id);
            let missing: Vec<_> = epoch.member_ids.iter().filter(missing).copied().collect();
            epoch.again = (!missing.is_empty()).then_some(now + AGAIN);
            for member_id in missing {
                self.send(member_id, Parcel::Join { epoch: number }, around);
            }
        }
        self.work(around);
    }

    /// Makes the next call when its time has come, and goes on with the one under way.
    fn work(&mut self, around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        if epoch.broken.is_some_and(|until| until <= around.now) {
            epoch.broken = None;
            let peer = Member::new(epoch.rank, "a link");
            let error = OperationError::lost(peer, LossCause::Disconnected);
            return self.member_event(Event::GiveUp(error), around);
        }
        if epoch.thinks.is_some_and(|until| until <= around.now)
            && let Some(means) = epoch.means.take()
        {
            epoch.thinks = None;
            let step = epoch.next_step(self.position, around.job.works);
            let plan = Plan::of(step, &around.job, epoch.world());
            let buffer = match step {
                Step::Resume => vec![self.position.cast_signed()],
                Step::Leave => Vec::new(),
                Step::Census => {
                    let joiners = super::joiners(&self.join_requests, &epoch.member_ids);
                    epoch.waiting = encode_newcomers(&joiners);
                    let offer = NewcomerOffer::of(&epoch.waiting, epoch.rank);
                    vec![offer.word().cast_signed()]
                }
                Step::Admit { root, words } => match root == epoch.rank {
                    true => words_of(&epoch.waiting),
                    false => vec![0; words],
                },
                Step::Work(number) => match plan.collective {
                    Collective::Broadcast { root } if root != epoch.rank => vec![0; plan.count],
                    _ => contribution(self.me, number, plan.count),
                },
            };
            let sequence = epoch.history.len() as u64 + 1;
            let place = Place {
                epoch: epoch.number,
                sequence,
            };
            around.oracle.began(self.me, place, &buffer);
            let begin = Begin {
                me: epoch.rank,
                world: epoch.world(),
                sequence,
                plan,
                plant: around.plant,
            };
            epoch.task = Some((step, begin.task(means, buffer)));
        }
        self.go_on(around);
    }

    fn go_on(&mut self, around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let Some((step, task)) = &mut epoch.task else {
            return;
        };
        let Poll::Ready(finished) = poll(task) else {
            return;
        };
        let step = *step;
        epoch.task = None;
        let Finished {
            means,
            buffer,
            done,
        } = finished;
        match done {
            Ok(()) => {
                epoch.means = Some(means);
                epoch.thinks = Some(around.now + around.dice.between(0, 500 * MILLISECOND));
                epoch.history.push(step);
                self.completed(step, &buffer, around);
            }
            // Membership sees the same connection end, and knows why.
            Err(Err(_)) => {
                let timeouts =
                    u64::try_from(around.timeouts.silence.as_nanos()).unwrap_or(Time::MAX);
                epoch.broken = Some(around.now + timeouts);
                epoch.means = Some(means);
            }
            Err(Ok(error)) => self.member_event(Event::GiveUp(error), around),
        }
    }

    fn completed(&mut self, step: Step, buffer: &[i64], around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let place = Place {
            epoch: epoch.number,
            sequence: epoch.history.len() as u64,
        };
        around.oracle.completed(self.me, place, step, buffer);
        match step {
            Step::Resume => {
                self.position = buffer[0].cast_unsigned();
                epoch.base = self.position;
            }
            Step::Work(_) => self.position += 1,
            Step::Census => {
                epoch.settles = NewcomerOffer::read(buffer[0].cast_unsigned());
            }
            Step::Admit { .. } => {
                let bytes = epoch.settles.map_or(0, |offer| offer.bytes);
                match decode_newcomers(&list_of(buffer, bytes)) {
                    Ok(newcomers) => epoch.lets_in = Some(newcomers),
                    Err(_) => around.oracle.garbled(self.me.member_id),
                }
                epoch.thinks = Some(around.now);
            }
            Step::Leave => {
                epoch.thinks = None;
                self.member_event(Event::Leave, around);
            }
        }
    }

    pub(super) fn joined_by(
        &mut self,
        from: MemberProcess,
        number: u64,
        greeting: Greeting,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let (true, Some(rank)) = (epoch.number == number, epoch.rank_of(from.member_id)) else {
            return;
        };
        let known = epoch
            .known
            .entry(from.member_id)
            .or_insert(from.incarnation);
        if *known != from.incarnation {
            return self.supplanted(from.member_id, around);
        }
        epoch.admitted.insert(from.member_id, from);
        if greeting == Greeting::First {
            self.send(from.member_id, Parcel::Joined { epoch: number }, around);
        }
        self.member_event(Event::Joined(rank), around);
        if self.ended.contains(&from) {
            self.member_died(from, around);
        }
    }

    pub(super) fn member_died(&mut self, of: MemberProcess, around: &mut Surroundings) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        if let Some(rank) = epoch.rank_of_process(of) {
            self.member_event(Event::Died(rank), around);
        } else if let Some(rank) = epoch.rank_of(of.member_id)
            && epoch.newcomers.contains(&of)
        {
            // Nobody has met it yet, and nobody will.
            self.member_event(Event::Reported(rank), around);
        }
    }

    pub(super) fn member_hears(
        &mut self,
        from: MemberProcess,
        number: u64,
        message: Message,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        let (true, Some(by)) = (epoch.number == number, epoch.rank_of_process(from)) else {
            return;
        };
        let event = match message {
            Message::Heartbeat => Event::Heard(by),
            Message::Goodbye => Event::Goodbye(by),
            Message::PingRequest(ping) => Event::Asked { by, ping },
            Message::Ack(ping) => Event::Vouched { by, ping },
            Message::Abort(abort) => Event::Aborted { by, abort },
            Message::Records(batch) => Event::Records(batch),
            Message::Absent(absence) => Event::Absent(absence),
            _ => return around.oracle.garbled(self.me.member_id),
        };
        self.member_event(event, around);
    }

    pub(super) fn member_event(&mut self, event: Event, around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let mut out = Vec::new();
        epoch
            .membership
            .handle(self.clock.local(around.now), event, &mut out);
        self.act(out, around);
    }

    fn act(&mut self, actions: Vec<Action>, around: &mut Surroundings) {
        for action in actions {
            let Stage::Member(epoch) = &mut self.stage else {
                return;
            };
            match action {
                Action::Send(rank, message) => {
                    let (to, number) = (epoch.member_ids[rank.index()], epoch.number);
                    self.tell(to, number, message, around);
                }
                Action::Examine { rank, heard } => {
                    let member_id = epoch.member_ids[rank.index()];
                    let (by, of) = (self.me.member_id, epoch.admitted.get(&member_id));
                    let look = |of: &MemberProcess| Look { by, of: *of, heard };
                    around.looks.extend(of.map(look));
                }
                Action::Say(awaited) => {
                    let told = || awaited.to_string();
                    around.oracle.note(around.now, self.me, told);
                }
                Action::Ready(records) => {
                    epoch.means = Some(means(self.me, epoch, &records, around));
                    epoch.newcomers.clear();
                    epoch.thinks = Some(around.now);
                    around.oracle.met(self.me, epoch.number);
                }
                Action::Fail(error) => {
                    around
                        .oracle
                        .note(around.now, self.me, || format!("fails: {error}"));
                    if let OperationError::RankLost { peer, .. } = &error {
                        let blamed = epoch.member_ids[peer.rank().index()];
                        around.oracle.blamed(self.me, epoch.number, blamed);
                    }
                    around.oracle.failed(self.me, epoch.number, &error);
                    let newcomers = self.lets_in().unwrap_or_default();
                    self.change(newcomers, Some(&error), around);
                }
                Action::Over => {
                    // Its connections close, and that says goodbye to whoever waits for it.
                    let (number, member_ids) = (epoch.number, epoch.member_ids.clone());
                    let completed = epoch.history.len() as u64;
                    let end = around.plant.end(epoch.rank);
                    for member_id in member_ids
                        .into_iter()
                        .filter(|member_id| *member_id != self.me.member_id)
                    {
                        self.tell(member_id, number, Message::Goodbye, around);
                    }
                    if let Some(newcomers) = self.lets_in() {
                        return self.change(newcomers, None, around);
                    }
                    around.oracle.left(self.me, number, completed);
                    self.end_with(end, around);
                }
            }
        }
    }

    fn lets_in(&mut self) -> Option<Vec<Newcomer>> {
        match &mut self.stage {
            Stage::Member(epoch) => epoch.lets_in.take(),
            Stage::Changing(_) | Stage::Waiting(_) | Stage::Over(_) => None,
        }
    }
}

/// Polls until nothing in the task itself asks for more.
fn poll(task: &mut Task) -> Poll<Finished> {
    let asked = Arc::new(Asked::default());
    let waker = Waker::from(asked.clone());
    loop {
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() || !asked.0.swap(false, Ordering::Relaxed) {
            return polled;
        }
    }
}

/// Whether a task has woken itself.
#[derive(Default)]
struct Asked(AtomicBool);

impl Wake for Asked {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
