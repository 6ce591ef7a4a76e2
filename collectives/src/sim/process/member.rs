//! A process in an epoch: it joins, works, and notices who is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{AGAIN, End, Greeting, PATIENCE, Parcel, Process, Stage, Surroundings};
use crate::execute::{Scratch, Stopped};
use crate::links::{Incoming, Links, Outgoing};
use crate::membership::{Action, Event, Membership};
use crate::schedule::Collective;
use crate::sim::net::{MILLISECOND, Reader, Time, Writer};
use crate::sim::program::{
    BETWEEN_CENSUSES, Finished, Means, Plan, Step, Task, begin, census, contribution, knocked,
};
use crate::wire::{Message, Newcomer};
use crate::{Error, LossCause, Member, Rank};

pub(super) struct Epoch {
    pub(super) number: u64,
    /// In the order of their ranks.
    pub(super) members: Vec<Newcomer>,
    rank: Rank,
    pub(super) membership: Membership,
    called: BTreeSet<Newcomer>,
    again: Option<Time>,
    /// Everybody is in; here until an operation takes it.
    means: Option<Means>,
    task: Option<(Step, Plan, Task)>,
    /// When the program makes its next call.
    thinks: Option<Time>,
    /// When this rank no longer waits to be told why a link broke.
    broken: Option<Time>,
    /// The operations of this epoch that have been completed, in order.
    pub(super) history: Vec<Step>,
    /// Works behind the program when the epoch began.
    pub(super) base: u64,
    leaving: bool,
}

impl Epoch {
    pub(super) fn next_call(&self) -> Option<Time> {
        [self.again, self.thinks, self.broken]
            .into_iter()
            .flatten()
            .min()
    }

    fn place(&self, of: Newcomer) -> Option<Rank> {
        let place = self.members.iter().position(|member| *member == of)?;
        u32::try_from(place).ok().map(Rank::new)
    }

    fn world(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    /// What comes next, from what is behind.
    fn next_step(&self, position: u64, works: u64) -> Step {
        let since = self.history.iter().rev();
        let since = since
            .take_while(|step| matches!(step, Step::Work(_)))
            .count();
        match self.history.last() {
            None => Step::Resume,
            Some(_) if position >= works => Step::Leave,
            Some(_) if since as u64 >= BETWEEN_CENSUSES => Step::Census,
            Some(_) => Step::Work(position),
        }
    }
}

impl Process {
    /// Begins to join an epoch.
    pub(super) fn enter(&mut self, number: u64, members: Vec<Newcomer>, around: &mut Surroundings) {
        around.oracle.note(around.now, self.me, || {
            let seats: Vec<_> = members.iter().map(|member| member.seat).collect();
            format!("enters epoch {number} of seats {seats:?}")
        });
        let place = members.iter().position(|member| *member == self.me);
        let rank = Rank::new(
            place
                .and_then(|place| u32::try_from(place).ok())
                .unwrap_or_default(),
        );
        let named = (0..).map(Rank::new).zip(&members);
        let named: Arc<[Member]> = named
            .map(|(rank, member)| Member::new(rank, format!("seat {}", member.seat)))
            .collect();
        let membership = Membership::new(rank, named, PATIENCE, self.clock.local(around.now));
        let alone = members.len() == 1;
        self.stage = Stage::Member(Box::new(Epoch {
            number,
            members,
            rank,
            membership,
            called: BTreeSet::new(),
            again: Some(around.now),
            means: None,
            task: None,
            thinks: None,
            broken: None,
            history: Vec::new(),
            base: self.position,
            leaving: false,
        }));
        if alone {
            self.act(vec![Action::Ready], around);
        }
        for dead in self.ended.clone() {
            self.member_died(dead, around);
        }
    }

    pub(super) fn stir_member(&mut self, around: &mut Surroundings) {
        self.member_event(Event::Tick, around);
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let now = around.now;
        if epoch.again.is_some_and(|again| again <= now) {
            let (number, me) = (epoch.number, self.me);
            let called = |member: &&Newcomer| **member != me && !epoch.called.contains(*member);
            let missing: Vec<_> = epoch.members.iter().filter(called).copied().collect();
            epoch.again = (!missing.is_empty()).then_some(now + AGAIN);
            for member in missing {
                self.send(member.seat, Parcel::Join { epoch: number }, around);
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
            let error = Error::lost(peer, LossCause::Disconnected);
            return self.member_event(Event::GiveUp(error), around);
        }
        if epoch.thinks.is_some_and(|until| until <= around.now)
            && let Some(means) = epoch.means.take()
        {
            epoch.thinks = None;
            let step = epoch.next_step(self.position, around.works);
            let plan = Plan::of(step, around.seed, epoch.world(), around.seats);
            let buffer = match step {
                Step::Resume => vec![self.position.cast_signed()],
                Step::Leave => Vec::new(),
                Step::Census => {
                    let knocks = self.knocks.iter();
                    let knocks = knocks.map(|(&seat, &incarnation)| Newcomer { seat, incarnation });
                    census(knocks, around.seats)
                }
                Step::Work(number) => match plan.collective {
                    Collective::Broadcast { root } if root != epoch.rank => vec![0; plan.count],
                    _ => contribution(self.me, number, plan.count),
                },
            };
            let sequence = epoch.history.len() as u64 + 1;
            let task = begin((epoch.rank, epoch.world()), sequence, plan, means, buffer);
            epoch.task = Some((step, plan, task));
        }
        self.go_on(around);
    }

    fn go_on(&mut self, around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let Some((step, plan, task)) = &mut epoch.task else {
            return;
        };
        let Poll::Ready(finished) = poll(task) else {
            return;
        };
        let (step, plan) = (*step, *plan);
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
                self.completed(step, &plan, &buffer, around);
            }
            // Membership sees the same connection end, and knows why.
            Err(Stopped::Link(_) | Stopped::TimedOut) => {
                let patience = u64::try_from(PATIENCE.silence.as_nanos()).unwrap_or(Time::MAX);
                epoch.broken = Some(around.now + patience);
                epoch.means = Some(means);
            }
            Err(Stopped::Error(error)) => self.member_event(Event::GiveUp(error), around),
        }
    }

    fn completed(&mut self, step: Step, plan: &Plan, buffer: &[i64], around: &mut Surroundings) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let operation = (epoch.number, epoch.history.len() as u64);
        around
            .oracle
            .completed((self.me, operation), step, plan, buffer);
        match step {
            Step::Resume => {
                self.position = buffer[0].cast_unsigned();
                epoch.base = self.position;
            }
            Step::Work(_) => self.position += 1,
            Step::Census => {
                let taken: Vec<_> = epoch.members.iter().map(|member| member.seat).collect();
                let newcomers = knocked(buffer, &taken);
                if !newcomers.is_empty() {
                    self.change(newcomers, around);
                }
            }
            Step::Leave => {
                epoch.leaving = true;
                epoch.thinks = None;
                self.member_event(Event::Leave, around);
            }
        }
    }

    pub(super) fn joined_by(
        &mut self,
        from: Newcomer,
        number: u64,
        greeting: Greeting,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let (true, Some(rank)) = (epoch.number == number, epoch.place(from)) else {
            return;
        };
        epoch.called.insert(from);
        if greeting == Greeting::First {
            self.send(from.seat, Parcel::Joined { epoch: number }, around);
        }
        self.member_event(Event::Joined(rank), around);
    }

    pub(super) fn member_died(&mut self, of: Newcomer, around: &mut Surroundings) {
        if let Stage::Member(epoch) = &self.stage
            && let Some(rank) = epoch.place(of)
        {
            self.member_event(Event::Died(rank), around);
        }
    }

    pub(super) fn member_hears(
        &mut self,
        from: Newcomer,
        number: u64,
        message: Message,
        around: &mut Surroundings,
    ) {
        let Stage::Member(epoch) = &self.stage else {
            return;
        };
        let (true, Some(by)) = (epoch.number == number, epoch.place(from)) else {
            return;
        };
        let event = match message {
            Message::Heartbeat => Event::Heard(by),
            Message::Goodbye => Event::Goodbye(by),
            Message::Abort(abort) => Event::Aborted { by, abort },
            _ => return around.oracle.garbled(self.me.seat),
        };
        self.member_event(event, around);
    }

    fn member_event(&mut self, event: Event, around: &mut Surroundings) {
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
                    let (to, epoch) = (epoch.members[rank.index()].seat, epoch.number);
                    let bytes = message.encode();
                    self.send(to, Parcel::Message { epoch, bytes }, around);
                }
                Action::Ready => {
                    epoch.means = Some(means(self.me, epoch, around));
                    epoch.thinks = Some(around.now);
                }
                Action::Fail(error) => {
                    around
                        .oracle
                        .note(around.now, self.me, || format!("fails: {error}"));
                    self.change(Vec::new(), around);
                }
                Action::Over => {
                    // Its connections close, and that says goodbye to whoever waits for it.
                    let (number, members) = (epoch.number, epoch.members.clone());
                    for member in members.into_iter().filter(|member| *member != self.me) {
                        let bytes = Message::Goodbye.encode();
                        let parcel = Parcel::Message {
                            epoch: number,
                            bytes,
                        };
                        self.send(member.seat, parcel, around);
                    }
                    self.end_with(End::Finished, around);
                }
            }
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

/// Streams to and from all members.
fn means(me: Newcomer, epoch: &Epoch, around: &mut Surroundings) -> Means {
    let mut streams = Vec::new();
    for member in &epoch.members {
        streams.push((*member != me).then(|| {
            let mut wire = |from: Newcomer, to: Newcomer| {
                let wire = around.wires.entry((epoch.number, from, to));
                wire.or_default().clone()
            };
            let way = (me.seat, member.seat);
            let outgoing = Writer::new(&wire(me, *member), &around.net, way);
            let incoming = Reader::new(&wire(*member, me), &around.net);
            let streams: (Outgoing, Incoming) = (Box::new(outgoing), Box::new(incoming));
            streams
        }));
    }
    Means {
        links: Links::new(streams),
        scratch: Scratch::new(),
    }
}
