//! All processes of a job, and the order in which things happen to them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::faults::{Comeback, Crash, Faults, Rumour};
use super::net::{MICROSECOND, Net, SECOND, Time, lock};
use super::oracle::{Heard, Oracle};
use super::process::{Clock, End, Look, PATIENT, Posted, Process, Sight, Surroundings, TIMEOUTS};
use super::program::Job;
use super::{Problem, RANKS, Scenario, Setting, dice::Dice};
use crate::agreement::MemberId;
use crate::wire::MemberProcess;

/// By then everybody must have come to an end.
const LIMIT: Time = 150 * SECOND;
/// Those who have heard each other for so long have come to an agreement.
const CALM: Time = 8 * SECOND;

pub(super) struct World {
    base: Instant,
    faults: Faults,
    around: Surroundings,
    processes: Vec<Option<Process>>,
    /// Until when a member id stands still.
    paused: Vec<Time>,
    /// When each member id wants to be called again; what is queued for another time is out of
    /// date.
    timers: Vec<Time>,
    queue: Queue,
    /// When the last parcel from one member id to another arrives: streams keep their order.
    latest: BTreeMap<(MemberId, MemberId), Time>,
    /// Processes that are still to start.
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
    Stir(MemberId),
    Timer(MemberId),
    Arrive(Posted),
    Crash(MemberId),
    Restart(MemberId, Comeback),
    Arrival(MemberId),
    Pause(MemberId, Time),
    Rumour {
        to: MemberId,
        about: MemberId,
    },
    SeesEnd {
        by: MemberId,
        of: MemberProcess,
    },
    Sees {
        by: MemberId,
        of: MemberProcess,
        sight: Sight,
    },
}

impl Happening {
    /// Who cannot take part in it while it stands still.
    fn to(&self) -> Option<MemberId> {
        match self {
            Self::Stir(member_id)
            | Self::Timer(member_id)
            | Self::SeesEnd { by: member_id, .. }
            | Self::Sees { by: member_id, .. } => Some(*member_id),
            Self::Arrive(posted) => Some(posted.to),
            Self::Rumour { to, .. } => Some(*to),
            Self::Crash(_) | Self::Restart(..) | Self::Arrival(_) | Self::Pause(..) => None,
        }
    }
}

impl World {
    pub(super) fn new(setting: &Setting, seed: u64, story: Option<Vec<String>>) -> Self {
        let ranks = setting
            .ranks
            .map(|ranks| ranks.clamp(*RANKS.start(), *RANKS.end()));
        let faults = Faults::of(setting.scenario, ranks, seed);
        let dice = Dice::new(seed);
        let net = Net::new(&faults, setting.plant, dice.split(1));
        let job = Job {
            seed,
            member_ids: faults.ranks as usize,
            works: faults.works,
            pair: faults.pair,
        };
        let mut oracle = Oracle::new(job, &faults);
        oracle.story = story.map(|mut story| {
            faults.describe(seed, &mut story);
            story
        });
        let around = Surroundings {
            job,
            plant: setting.plant,
            timeouts: setting.plant.patience(match setting.scenario {
                Scenario::Outage => PATIENT,
                _ => TIMEOUTS,
            }),
            net: Arc::new(Mutex::new(net)),
            wires: BTreeMap::new(),
            oracle,
            outbox: Vec::new(),
            looks: Vec::new(),
            hosts: faults.hosts.clone(),
            given_up: Vec::new(),
            dice: dice.split(2),
            now: 0,
        };
        let member_ids = faults.places() as usize;
        Self {
            // Where clocks begin changes nothing: only differences are looked at.
            base: Instant::now(),
            around,
            processes: (0..member_ids).map(|_| None).collect(),
            paused: vec![0; member_ids],
            timers: vec![Time::MAX; member_ids],
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
        let member_ids: Vec<_> = self.open().collect();
        if !member_ids.is_empty() {
            self.around.oracle.found(Problem::Hangs { member_ids });
        }
        self.around.oracle
    }

    /// Whether those may give up who do.
    fn judge_those_who_gave_up(&mut self) {
        for (by, epoch) in std::mem::take(&mut self.around.given_up) {
            let now = self.around.now;
            let lately = now.saturating_sub(CALM)..now;
            let hosts = &self.faults.hosts;
            let process = |of: MemberProcess| self.processes[of.member_id as usize].as_ref();
            let here = |of: MemberProcess| process(of).is_some_and(|process| process.me == of);
            let heard = Heard {
                epoch,
                living: &|of| {
                    let at_work = process(of).is_some_and(|process| process.end().is_none());
                    here(of) && at_work && self.faults.together(by.member_id, of.member_id, &lately)
                },
                buried: &|of| {
                    let ended =
                        |crash: &Crash| crash.member_id == of.member_id && crash.at < lately.start;
                    let near = hosts[by.member_id as usize] == hosts[of.member_id as usize];
                    near && !here(of) && self.faults.crashes.iter().any(ended)
                },
            };
            if self.around.oracle.must_go_on(by, &heard) {
                self.around.oracle.found(Problem::MajorityStopped { epoch });
            }
        }
    }

    /// A group that nothing happened to has done all its work, and no majority is left out by
    /// itself.
    fn judged(mut self) -> Oracle {
        let ends = |end: End| {
            let processes = self.processes.iter().flatten();
            processes.filter(move |process| process.end() == Some(&end))
        };
        let finished = ends(End::Finished).count();
        let oracle = &self.around.oracle;
        let left_out = |of| ends(End::LeftOut).any(|process| process.me == of);
        let stopped = oracle.lives_on(left_out).filter(|_| finished == 0);
        let (founders, _) = self.processes.split_at(self.faults.ranks as usize);
        let founders = founders.iter().flatten();
        let is_done = |process: &Process| process.end() == Some(&End::Finished);
        let whole =
            founders.filter(|founder| is_done(founder)).count() == self.faults.ranks as usize;
        self.around.oracle.finished = finished as u64;
        if let Some(epoch) = stopped {
            self.around.oracle.found(Problem::MajorityStopped { epoch });
        } else if self.faults.none() && !whole {
            self.around.oracle.found(Problem::NotFinished { finished });
        }
        self.around.oracle
    }

    /// Member ids whose processes have come to no end yet.
    fn open(&self) -> impl Iterator<Item = MemberId> + '_ {
        let member_ids = (0..).zip(&self.processes);
        let open =
            |process: &Option<Process>| process.as_ref().is_some_and(|one| one.end().is_none());
        member_ids
            .filter(move |(_, process)| open(process))
            .map(|(member_id, _)| member_id)
    }

    fn found_group(&mut self) {
        for founder in self.faults.founders() {
            let clock = self.clock(founder.member_id);
            let process = Process::founder(founder, clock, &mut self.around);
            self.processes[founder.member_id as usize] = Some(process);
            self.happens_at(0, Happening::Stir(founder.member_id));
        }
    }

    fn clock(&self, member_id: MemberId) -> Clock {
        let (offset, fast) = self.faults.clocks[member_id as usize];
        Clock::new(self.base, offset, fast)
    }

    fn plan_faults(&mut self) {
        for crash in self.faults.crashes.clone() {
            self.happens_at(crash.at, Happening::Crash(crash.member_id));
            if let Some((at, comeback)) = crash.again {
                self.restarts += 1;
                self.happens_at(at, Happening::Restart(crash.member_id, comeback));
            }
        }
        for arrival in self.faults.arrivals.clone() {
            self.restarts += 1;
            self.happens_at(arrival.at, Happening::Arrival(arrival.member_id));
        }
        for pause in self.faults.pauses.clone() {
            self.happens_at(pause.from, Happening::Pause(pause.member_id, pause.until));
        }
        for Rumour { at, to, about } in self.faults.rumours.clone() {
            self.happens_at(at, Happening::Rumour { to, about });
        }
    }

    fn happens_at(&mut self, at: Time, happening: Happening) {
        self.queue.push(at, happening);
    }

    fn happen(&mut self, happening: Happening) {
        if let Happening::Timer(member_id) = happening
            && !self.is_due(member_id)
        {
            return;
        }
        if let Some(member_id) = happening.to() {
            let until = self.paused[member_id as usize];
            if until > self.around.now {
                return self.happens_at(until, happening);
            }
        }
        let around = &mut self.around;
        match happening {
            Happening::Stir(member_id) | Happening::Timer(member_id) => {
                if let Some(process) = &mut self.processes[member_id as usize] {
                    process.stir(around);
                }
                self.set_timer(member_id);
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
            Happening::Sees { by, of, sight } => {
                if let Some(process) = &mut self.processes[by as usize] {
                    process.sees(of, sight, around);
                }
                self.set_timer(by);
            }
            Happening::Pause(member_id, until) => {
                let paused = &mut self.paused[member_id as usize];
                *paused = until.max(*paused);
            }
            Happening::Rumour { to, about } => {
                if let Some(process) = &mut self.processes[to as usize] {
                    process.hears_rumour(about, around);
                }
                self.set_timer(to);
            }
            Happening::Crash(member_id) => self.crash(member_id),
            Happening::Restart(member_id, comeback) => self.restart(member_id, comeback),
            Happening::Arrival(member_id) => self.arrive(member_id),
        }
    }

    fn arrive(&mut self, member_id: MemberId) {
        self.restarts -= 1;
        let me = MemberProcess {
            member_id,
            incarnation: 1,
        };
        let told = || "comes, and is on no list".to_owned();
        self.around.oracle.note(self.around.now, me, told);
        let process = Process::newcomer(me, self.clock(member_id), &mut self.around);
        self.processes[member_id as usize] = Some(process);
        self.happens_at(self.around.now, Happening::Stir(member_id));
    }

    /// Whether the timer is the last one that was set, and its member id does not stand still; if
    /// it does, it is set for later.
    fn is_due(&mut self, member_id: MemberId) -> bool {
        let (now, paused) = (self.around.now, self.paused[member_id as usize]);
        let timer = &mut self.timers[member_id as usize];
        if *timer != now {
            return false;
        }
        *timer = Time::MAX;
        if paused > now {
            *timer = paused;
            self.happens_at(paused, Happening::Timer(member_id));
        }
        paused <= now
    }

    fn crash(&mut self, member_id: MemberId) {
        let Some(process) = self.processes[member_id as usize].take() else {
            return;
        };
        let (now, of) = (self.around.now, process.me);
        self.around.oracle.note(now, of, || "is killed".to_owned());
        let host = self.faults.hosts[member_id as usize];
        for (by, other) in (0..).zip(self.faults.hosts.clone()) {
            if by != member_id && other == host {
                self.happens_at(now + 50 * MICROSECOND, Happening::SeesEnd { by, of });
            }
        }
        lock(&self.around.net).killed = Some(member_id);
        drop(process);
        lock(&self.around.net).killed = None;
    }

    fn restart(&mut self, member_id: MemberId, comeback: Comeback) {
        self.restarts -= 1;
        let me = MemberProcess {
            member_id,
            incarnation: 2,
        };
        self.around
            .oracle
            .note(self.around.now, me, || format!("starts as {comeback:?}"));
        let clock = self.clock(member_id);
        let process = match comeback {
            // Before all founders have met, nobody can tell that another one has been there.
            Comeback::Founder if self.around.oracle.founded() => {
                Process::founder(me, clock, &mut self.around)
            }
            _ => Process::newcomer(me, clock, &mut self.around),
        };
        self.processes[member_id as usize] = Some(process);
        self.happens_at(self.around.now, Happening::Stir(member_id));
    }

    /// Answers those who look for others, as kernels do.
    fn answer_looks(&mut self) {
        let now = self.around.now;
        for Look { by, of, heard } in std::mem::take(&mut self.around.looks) {
            let hosts = &self.faults.hosts;
            let process = self.processes[of.member_id as usize].as_ref();
            let at_work = process.filter(|process| process.end().is_none());
            let near = hosts[by as usize] == hosts[of.member_id as usize];
            let stopped = self.paused[of.member_id as usize] > now;
            let sight = match at_work {
                Some(process) if near && process.me == of && stopped => Sight::Stopped,
                Some(process) if near && process.me == of => Sight::Runs,
                None if !near => Sight::PortClosed { heard },
                Some(_) | None => continue,
            };
            let mut net = lock(&self.around.net);
            if net.is_cut(by, of.member_id) {
                continue;
            }
            let there = net.transit((by, of.member_id), 1);
            let back = net.transit((of.member_id, by), 1);
            drop(net);
            self.happens_at(there + back - now, Happening::Sees { by, of, sight });
        }
    }

    /// Puts what was sent on its way.
    fn deliver(&mut self) {
        self.answer_looks();
        let (plant, member_ids) = (self.around.plant, self.around.job.member_ids);
        let sent = std::mem::take(&mut self.around.outbox);
        for posted in sent
            .into_iter()
            .filter(|posted| plant.hears(member_ids, posted))
        {
            let way = (posted.from.member_id, posted.to);
            let at = lock(&self.around.net).transit(way, 64);
            let latest = self.latest.entry(way).or_default();
            let at = at.max(*latest);
            *latest = at;
            self.happens_at(at, Happening::Arrive(posted));
        }
        let arrivals = std::mem::take(&mut lock(&self.around.net).arrivals);
        for (at, member_ids) in arrivals {
            for member_id in member_ids {
                self.happens_at(at, Happening::Stir(member_id));
            }
        }
    }

    fn set_timer(&mut self, member_id: MemberId) {
        let process = self.processes[member_id as usize].as_ref();
        let Some(wake) = process.and_then(Process::wake) else {
            return;
        };
        let wake = wake.max(self.around.now + MICROSECOND);
        if wake < self.timers[member_id as usize] {
            self.timers[member_id as usize] = wake;
            self.happens_at(wake, Happening::Timer(member_id));
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
