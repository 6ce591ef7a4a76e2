//! All processes of a job, and the order in which things happen to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::faults::{Comeback, Crash, Faults, Rumour};
use super::net::{MICROSECOND, Net, SECOND, Time, lock};
use super::oracle::{Heard, Oracle};
use super::process::{Clock, End, Posted, Process, Surroundings};
use super::program::Job;
use super::{Problem, Setting, dice::Dice};
use crate::agreement::Seat;
use crate::wire::Newcomer;

/// By then everybody must have come to an end.
const LIMIT: Time = 150 * SECOND;
/// Those who have heard each other for so long have come to an agreement.
const CALM: Time = 8 * SECOND;
const MOST_RANKS: u32 = 16;

pub(super) struct World {
    base: Instant,
    faults: Faults,
    around: Surroundings,
    processes: Vec<Option<Process>>,
    /// Until when a seat stands still.
    paused: Vec<Time>,
    /// When each seat wants to be called again; what is queued for another time is out of date.
    timers: Vec<Time>,
    queue: Queue,
    /// When the last parcel from one seat to another arrives: streams keep their order.
    latest: BTreeMap<(Seat, Seat), Time>,
    restarts: usize,
}

/// What is to happen, in its order.
#[derive(Default)]
struct Queue {
    /// When, as which of all, and its place among the happenings.
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    happenings: Vec<Option<Happening>>,
    /// Places that are free again.
    free: Vec<usize>,
    count: u64,
}

#[derive(Clone, Debug)]
enum Happening {
    /// Bytes may have arrived.
    Stir(Seat),
    Timer(Seat),
    Arrive(Posted),
    Crash(Seat),
    Restart(Seat, Comeback),
    Pause(Seat, Time),
    Rumour {
        to: Seat,
        about: Seat,
    },
    SeesEnd {
        by: Seat,
        of: Newcomer,
    },
}

impl Happening {
    /// Who cannot take part in it while it stands still.
    fn to(&self) -> Option<Seat> {
        match self {
            Self::Stir(seat) | Self::Timer(seat) | Self::SeesEnd { by: seat, .. } => Some(*seat),
            Self::Arrive(posted) => Some(posted.to),
            Self::Rumour { to, .. } => Some(*to),
            Self::Crash(_) | Self::Restart(..) | Self::Pause(..) => None,
        }
    }
}

impl World {
    pub(super) fn new(setting: &Setting, seed: u64, story: Option<Vec<String>>) -> Self {
        let ranks = setting.ranks.map(|ranks| ranks.clamp(1, MOST_RANKS));
        let faults = Faults::of(setting.scenario, ranks, seed);
        let dice = Dice::new(seed);
        let net = Net::new(&faults, setting.plant, dice.split(1));
        let job = Job {
            seed,
            seats: faults.ranks as usize,
            works: faults.works,
            pair: faults.pair,
        };
        let mut oracle = Oracle::new(job, faults.founders(), faults.innocent());
        oracle.story = story.map(|mut story| {
            faults.describe(seed, &mut story);
            story
        });
        let around = Surroundings {
            job,
            plant: setting.plant,
            net: Arc::new(Mutex::new(net)),
            wires: BTreeMap::new(),
            oracle,
            outbox: Vec::new(),
            given_up: Vec::new(),
            dice: dice.split(2),
            now: 0,
        };
        let seats = faults.ranks as usize;
        Self {
            // Where clocks begin changes nothing: only differences are looked at.
            base: Instant::now(),
            around,
            processes: (0..seats).map(|_| None).collect(),
            paused: vec![0; seats],
            timers: vec![Time::MAX; seats],
            queue: Queue::default(),
            latest: BTreeMap::new(),
            restarts: 0,
            faults,
        }
    }

    /// Plays the job to its end, and gives what has been seen.
    pub(super) fn run(mut self) -> Oracle {
        self.found_group();
        self.plan_faults();
        while let Some((at, happening)) = self.queue.pop() {
            if at > LIMIT || self.around.oracle.problem.is_some() {
                break;
            }
            self.around.now = at;
            lock(&self.around.net).now = at;
            self.happen(happening);
            self.judge_those_who_gave_up();
            self.deliver();
            if self.restarts == 0 && self.open().next().is_none() {
                return self.judged();
            }
        }
        let seats: Vec<_> = self.open().collect();
        if !seats.is_empty() {
            self.around.oracle.found(Problem::Hangs { seats });
        }
        self.around.oracle
    }

    /// Whether those may give up who do.
    fn judge_those_who_gave_up(&mut self) {
        for (by, epoch) in std::mem::take(&mut self.around.given_up) {
            let now = self.around.now;
            let lately = now.saturating_sub(CALM)..now;
            let hosts = &self.faults.hosts;
            let process = |of: Newcomer| self.processes[of.seat as usize].as_ref();
            let here = |of: Newcomer| process(of).is_some_and(|process| process.me == of);
            let heard = Heard {
                epoch,
                living: &|of| {
                    let at_work = process(of).is_some_and(|process| process.end().is_none());
                    here(of) && at_work && self.faults.together(by.seat, of.seat, &lately)
                },
                buried: &|of| {
                    let ended = |crash: &Crash| crash.seat == of.seat && crash.at < lately.start;
                    let near = hosts[by.seat as usize] == hosts[of.seat as usize];
                    near && !here(of) && self.faults.crashes.iter().any(ended)
                },
            };
            if self.around.oracle.must_go_on(by, &heard) {
                self.around.oracle.found(Problem::MajorityStopped { epoch });
            }
        }
    }

    /// A group that nothing happened to has done all its work, and no majority is left out by itself.
    fn judged(mut self) -> Oracle {
        let ends = |end: End| {
            let processes = self.processes.iter().flatten();
            processes.filter(move |process| process.end() == Some(&end))
        };
        let finished = ends(End::Finished).count();
        let oracle = &self.around.oracle;
        let left_out = |of| ends(End::LeftOut).any(|process| process.me == of);
        let stopped = oracle.lives_on(left_out).filter(|_| finished == 0);
        let whole = finished == self.processes.len();
        self.around.oracle.finished = finished as u64;
        if let Some(epoch) = stopped {
            self.around.oracle.found(Problem::MajorityStopped { epoch });
        } else if self.faults.none() && !whole {
            self.around.oracle.found(Problem::NotFinished { finished });
        }
        self.around.oracle
    }

    /// Seats whose processes have come to no end yet.
    fn open(&self) -> impl Iterator<Item = Seat> + '_ {
        let seats = (0..).zip(&self.processes);
        let open =
            |process: &Option<Process>| process.as_ref().is_some_and(|one| one.end().is_none());
        seats
            .filter(move |(_, process)| open(process))
            .map(|(seat, _)| seat)
    }

    fn found_group(&mut self) {
        for founder in self.faults.founders() {
            let clock = self.clock(founder.seat);
            let process = Process::founder(founder, clock, &mut self.around);
            self.processes[founder.seat as usize] = Some(process);
            self.happens_at(0, Happening::Stir(founder.seat));
        }
    }

    fn clock(&self, seat: Seat) -> Clock {
        let (offset, fast) = self.faults.clocks[seat as usize];
        Clock::new(self.base, offset, fast)
    }

    fn plan_faults(&mut self) {
        for crash in self.faults.crashes.clone() {
            self.happens_at(crash.at, Happening::Crash(crash.seat));
            if let Some((at, comeback)) = crash.again {
                self.restarts += 1;
                self.happens_at(at, Happening::Restart(crash.seat, comeback));
            }
        }
        for pause in self.faults.pauses.clone() {
            self.happens_at(pause.from, Happening::Pause(pause.seat, pause.until));
        }
        for Rumour { at, to, about } in self.faults.rumours.clone() {
            self.happens_at(at, Happening::Rumour { to, about });
        }
    }

    fn happens_at(&mut self, at: Time, happening: Happening) {
        self.queue.push(at, happening);
    }

    fn happen(&mut self, happening: Happening) {
        if let Happening::Timer(seat) = happening
            && !self.is_due(seat)
        {
            return;
        }
        if let Some(seat) = happening.to() {
            let until = self.paused[seat as usize];
            if until > self.around.now {
                return self.happens_at(until, happening);
            }
        }
        let around = &mut self.around;
        match happening {
            Happening::Stir(seat) | Happening::Timer(seat) => {
                if let Some(process) = &mut self.processes[seat as usize] {
                    process.stir(around);
                }
                self.set_timer(seat);
            }
            Happening::Arrive(Posted { from, to, parcel }) => {
                if let Some(process) = &mut self.processes[to as usize] {
                    process.receive(from, parcel, around);
                }
                self.set_timer(to);
            }
            Happening::SeesEnd { by, of } => {
                if let Some(process) = &mut self.processes[by as usize] {
                    process.sees_end(of, around);
                }
                self.set_timer(by);
            }
            Happening::Pause(seat, until) => {
                let paused = &mut self.paused[seat as usize];
                *paused = until.max(*paused);
            }
            Happening::Rumour { to, about } => {
                if let Some(process) = &mut self.processes[to as usize] {
                    process.hears_rumour(about, around);
                }
                self.set_timer(to);
            }
            Happening::Crash(seat) => self.crash(seat),
            Happening::Restart(seat, comeback) => self.restart(seat, comeback),
        }
    }

    /// Whether the timer is the last one that was set, and its seat does not stand still; if it
    /// does, it is set for later.
    fn is_due(&mut self, seat: Seat) -> bool {
        let (now, paused) = (self.around.now, self.paused[seat as usize]);
        let timer = &mut self.timers[seat as usize];
        if *timer != now {
            return false;
        }
        *timer = Time::MAX;
        if paused > now {
            *timer = paused;
            self.happens_at(paused, Happening::Timer(seat));
        }
        paused <= now
    }

    fn crash(&mut self, seat: Seat) {
        let Some(process) = self.processes[seat as usize].take() else {
            return;
        };
        let (now, of) = (self.around.now, process.me);
        self.around.oracle.note(now, of, || "is killed".to_owned());
        let host = self.faults.hosts[seat as usize];
        for (by, other) in (0..).zip(self.faults.hosts.clone()) {
            if by != seat && other == host {
                self.happens_at(now + 50 * MICROSECOND, Happening::SeesEnd { by, of });
            }
        }
        lock(&self.around.net).killed = Some(seat);
        drop(process);
        lock(&self.around.net).killed = None;
    }

    fn restart(&mut self, seat: Seat, comeback: Comeback) {
        self.restarts -= 1;
        let me = Newcomer {
            seat,
            incarnation: 2,
        };
        self.around
            .oracle
            .note(self.around.now, me, || format!("starts as {comeback:?}"));
        let clock = self.clock(seat);
        let process = match comeback {
            // Before all founders have met, nobody can tell that another one has been there.
            Comeback::Founder if self.around.oracle.founded() => {
                Process::founder(me, clock, &mut self.around)
            }
            _ => Process::newcomer(me, clock, &mut self.around),
        };
        self.processes[seat as usize] = Some(process);
        self.happens_at(self.around.now, Happening::Stir(seat));
    }

    /// Puts what was sent on its way.
    fn deliver(&mut self) {
        let (plant, seats) = (self.around.plant, self.around.job.seats);
        let sent = std::mem::take(&mut self.around.outbox);
        for posted in sent.into_iter().filter(|posted| plant.hears(seats, posted)) {
            let way = (posted.from.seat, posted.to);
            let at = lock(&self.around.net).transit(way, 64);
            let latest = self.latest.entry(way).or_default();
            let at = at.max(*latest);
            *latest = at;
            self.happens_at(at, Happening::Arrive(posted));
        }
        let arrivals = std::mem::take(&mut lock(&self.around.net).arrivals);
        for (at, seats) in arrivals {
            for seat in seats {
                self.happens_at(at, Happening::Stir(seat));
            }
        }
    }

    fn set_timer(&mut self, seat: Seat) {
        let process = self.processes[seat as usize].as_ref();
        let Some(wake) = process.and_then(Process::wake) else {
            return;
        };
        let wake = wake.max(self.around.now + MICROSECOND);
        if wake < self.timers[seat as usize] {
            self.timers[seat as usize] = wake;
            self.happens_at(wake, Happening::Timer(seat));
        }
    }
}

impl Queue {
    fn push(&mut self, at: Time, happening: Happening) {
        self.count += 1;
        let place = self.free.pop().unwrap_or(self.happenings.len());
        match self.happenings.get_mut(place) {
            Some(free) => *free = Some(happening),
            None => self.happenings.push(Some(happening)),
        }
        self.order.push(Reverse((at, self.count, place)));
    }

    /// What happens next; of several things at a time, what was planned first.
    fn pop(&mut self) -> Option<(Time, Happening)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        self.free.push(place);
        let happening = self.happenings[place].take()?;
        Some((at, happening))
    }
}
