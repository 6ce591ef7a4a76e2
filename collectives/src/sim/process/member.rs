//! A process in an epoch: it joins, works, and notices who is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::{AGAIN, End, Greeting, PATIENCE, Parcel, Process, Stage, Surroundings};
use crate::agreement::Seat;
use crate::execute::{Scratch, Stopped};
use crate::links::{Incoming, Links, Outgoing};
use crate::membership::{Action, Event, Membership};
use crate::schedule::Collective;
use crate::sim::net::{MILLISECOND, Reader, Time, Writer};
use crate::sim::oracle::Place;
use crate::sim::program::{
    BETWEEN_CENSUSES, Begin, Finished, Means, Plan, Step, Task, census, contribution, knocked,
};
use crate::wire::{Message, Newcomer};
use crate::{Error, LossCause, Member, Rank};

pub(super) struct Epoch {
    pub(super) number: u64,
    /// The seats of its members in the order of their ranks.
    pub(super) seats: Vec<Seat>,
    rank: Rank,
    pub(super) membership: Membership,
    /// The incarnation at each seat that is known, this one's among them.
    pub(super) known: BTreeMap<Seat, u64>,
    /// Which process was let in for each seat, this one among them.
    pub(super) admitted: BTreeMap<Seat, Newcomer>,
    again: Option<Time>,
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
    leaving: bool,
}

impl Epoch {
    pub(super) fn next_call(&self) -> Option<Time> {
        [self.again, self.thinks, self.broken]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn rank_of(&self, seat: Seat) -> Option<Rank> {
        let place = self.seats.iter().position(|member| *member == seat)?;
        u32::try_from(place).ok().map(Rank::new)
    }

    /// The rank of a process that has been let in.
    fn rank_of_process(&self, process: Newcomer) -> Option<Rank> {
        let admitted = self.admitted.get(&process.seat) == Some(&process);
        admitted.then(|| self.rank_of(process.seat))?
    }

    fn world(&self) -> u32 {
        u32::try_from(self.seats.len()).unwrap_or(u32::MAX)
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
    pub(super) fn enter(
        &mut self,
        number: u64,
        seats: Vec<Seat>,
        known: BTreeMap<Seat, u64>,
        around: &mut Surroundings,
    ) {
        around.oracle.note(around.now, self.me, || {
            format!("enters epoch {number} of seats {seats:?}")
        });
        let place = seats.iter().position(|seat| *seat == self.me.seat);
        let rank = Rank::new(
            place
                .and_then(|place| u32::try_from(place).ok())
                .unwrap_or_default(),
        );
        let named = (0..).map(Rank::new).zip(&seats);
        let named: Arc<[Member]> = named
            .map(|(rank, seat)| Member::new(rank, format!("seat {seat}")))
            .collect();
        let membership = Membership::new(rank, named, PATIENCE, self.clock.local(around.now));
        let alone = seats.len() == 1;
        self.stage = Stage::Member(Box::new(Epoch {
            number,
            seats,
            rank,
            membership,
            known,
            admitted: BTreeMap::from([(self.me.seat, self.me)]),
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
    }

    pub(super) fn stir_member(&mut self, around: &mut Surroundings) {
        self.member_event(Event::Tick, around);
        let Stage::Member(epoch) = &mut self.stage else {
            return;
        };
        let now = around.now;
        if epoch.again.is_some_and(|again| again <= now) {
            let number = epoch.number;
            let missing = |seat: &&Seat| !epoch.admitted.contains_key(*seat);
            let missing: Vec<_> = epoch.seats.iter().filter(missing).copied().collect();
            epoch.again = (!missing.is_empty()).then_some(now + AGAIN);
            for seat in missing {
                self.send(seat, Parcel::Join { epoch: number }, around);
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
            let step = epoch.next_step(self.position, around.job.works);
            let plan = Plan::of(step, &around.job, epoch.world());
            let buffer = match step {
                Step::Resume => vec![self.position.cast_signed()],
                Step::Leave => Vec::new(),
                Step::Census => {
                    let knocks = self.knocks.iter();
                    let knocks = knocks.map(|(&seat, &incarnation)| Newcomer { seat, incarnation });
                    census(knocks, around.job.seats)
                }
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
            Err(Stopped::Link(_) | Stopped::TimedOut) => {
                let patience = u64::try_from(PATIENCE.silence.as_nanos()).unwrap_or(Time::MAX);
                epoch.broken = Some(around.now + patience);
                epoch.means = Some(means);
            }
            Err(Stopped::Error(error)) => self.member_event(Event::GiveUp(error), around),
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
                let newcomers = knocked(buffer, &epoch.seats);
                if !newcomers.is_empty() {
                    self.change(newcomers, None, around);
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
        let (true, Some(rank)) = (epoch.number == number, epoch.rank_of(from.seat)) else {
            return;
        };
        let known = epoch.known.entry(from.seat).or_insert(from.incarnation);
        if *known != from.incarnation {
            return self.supplanted(from.seat, around);
        }
        epoch.admitted.insert(from.seat, from);
        if greeting == Greeting::First {
            self.send(from.seat, Parcel::Joined { epoch: number }, around);
        }
        self.member_event(Event::Joined(rank), around);
        if self.ended.contains(&from) {
            self.member_died(from, around);
        }
    }

    pub(super) fn member_died(&mut self, of: Newcomer, around: &mut Surroundings) {
        if let Stage::Member(epoch) = &self.stage
            && let Some(rank) = epoch.rank_of_process(of)
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
        let (true, Some(by)) = (epoch.number == number, epoch.rank_of_process(from)) else {
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
                    let (to, number) = (epoch.seats[rank.index()], epoch.number);
                    self.tell(to, number, message, around);
                }
                Action::Ready => {
                    epoch.means = Some(means(self.me, epoch, around));
                    epoch.thinks = Some(around.now);
                    around.oracle.met(self.me, epoch.number);
                }
                Action::Fail(error) => {
                    around
                        .oracle
                        .note(around.now, self.me, || format!("fails: {error}"));
                    if let Error::RankLost { peer, .. } = &error {
                        let blamed = epoch.seats[peer.rank().index()];
                        around.oracle.blamed(self.me, epoch.number, blamed);
                    }
                    self.change(Vec::new(), Some(&error), around);
                }
                Action::Over => {
                    // Its connections close, and that says goodbye to whoever waits for it.
                    let (number, seats) = (epoch.number, epoch.seats.clone());
                    for seat in seats.into_iter().filter(|seat| *seat != self.me.seat) {
                        self.tell(seat, number, Message::Goodbye, around);
                    }
                    around.oracle.left(self.me, number);
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
    for seat in &epoch.seats {
        let other = epoch.admitted.get(seat).filter(|other| **other != me);
        streams.push(other.map(|member| {
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
