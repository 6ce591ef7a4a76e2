//! Whether a silent rank lives: evidence is quick, silence is patient.
//!
//! ```text
//!   last sign of life ── 1¼ heartbeats ─────> its port is looked at, then ever more rarely, down
//!                                             to once in 1¼ checks
//!                     ── half the patience ─> three others that watch it are asked for it, and so
//!                                             it hears that it is missed
//!                     ── 2 s, 4 s, 8 s … ───> a line says who is waited for
//!                     ── the patience ──────> lost, unless others have heard of it since
//!                     ── twice of it ───────> lost, whoever hears of it: the way to it is cut
//! ```
//!
//! A rank of the same host is not judged by silence, however starved the machine is: the kernel
//! tells that it has ended. If it is stopped, it has the same patience to go on. Once all have
//! finished, its goodbye is waited for no longer than twice the patience.
//!
//! A rank that was itself stopped or starved doubts itself: the time is not held against the
//! others, and its patience grows, by at most [`DOUBT`] times. (Probes by others and local health
//! as in Dadgar, Phillips and Currey, "Lifeguard", 2018.)

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use super::{Action, LAST_WORDS, Membership, MembershipTimeouts, Peer, Phase};
use crate::wire::{Message, Ping};
use crate::{LossCause, Member, Rank, overlay};

/// How many times longer the patience of a rank is at most that has been starved lately.
const DOUBT: u32 = 4;
/// How many times longer a rank that only others hear of is waited for.
const VOUCHED: u32 = 2;
/// How many others are asked for a silent rank.
const ASKED: usize = 3;
/// When it is first said who is waited for; then after twice, four times as long, and so on.
const SAID: Duration = Duration::from_secs(2);
/// Checks between two looks at a process of this host.
const LOOK: u32 = 2;

/// When a rank that is connected gave signs of life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Life {
    /// To this rank.
    pub(super) heard: Instant,
    /// To others, who have said so.
    vouched: Instant,
    /// Since when its process has been seen stopped.
    stopped: Option<Instant>,
    /// When it was last looked for.
    examined: Instant,
    /// Since when its port is known to be closed.
    closed: Option<Instant>,
    /// After how long it is said next that it is waited for.
    say: Duration,
}

impl Life {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            heard: now,
            vouched: now,
            stopped: None,
            examined: now,
            closed: None,
            say: SAID,
        }
    }

    fn hear(&mut self, now: Instant) {
        self.heard = now.max(self.heard);
        self.stopped = None;
        self.closed = None;
        self.say = SAID;
    }

    /// The time in which nobody could be heard is held against nobody.
    fn forgive(&mut self, excess: Duration) {
        self.heard += excess;
        self.vouched += excess;
        self.examined += excess;
        self.stopped = self.stopped.map(|since| since + excess);
        self.closed = self.closed.map(|since| since + excess);
    }
}

/// How far this process may trust what it does not hear.
#[derive(Clone, Copy, Debug)]
pub(super) struct Health {
    /// How many times longer it is patient: 1 for a process that runs when it wants to.
    factor: u32,
    changed: Instant,
}

impl Health {
    pub(super) fn new(now: Instant) -> Self {
        let factor = 1;
        Self {
            factor,
            changed: now,
        }
    }

    fn starved(&mut self, now: Instant) {
        self.factor = DOUBT.min(self.factor + 1);
        self.changed = now;
    }

    /// Confidence comes back, a step in each `patience` without another delay.
    fn recover(&mut self, now: Instant, patience: Duration) {
        if self.factor > 1 && now >= self.changed + patience {
            self.factor -= 1;
            self.changed = now;
        }
    }
}

/// A rank that is waited for, and why: to be said to people.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Awaited {
    pub(super) member: Member,
    /// Its process, where that is known.
    pub(super) process: Option<u32>,
    pub(super) why: Why,
    pub(super) waited: Duration,
    pub(super) patience: Duration,
}

/// Why a rank is waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    Stopped,
    Silent,
}

impl Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, address) = (self.member.rank(), self.member.address());
        write!(f, "waiting for {rank} ({address}")?;
        if let Some(process) = self.process {
            write!(f, ", process {process}")?;
        }
        let waited = self.waited;
        match self.why {
            Why::Stopped => write!(
                f,
                "), stopped for {waited:.1?}; SIGCONT or its debugger lets it go on"
            )?,
            Why::Silent => write!(f, "), of which nothing was heard for {waited:.1?}")?,
        }
        write!(f, "; it counts as lost after {:.1?}", self.patience)
    }
}

impl Membership {
    /// A process that was itself stopped or starved has heard nobody meanwhile: that is no fault
    /// of the others, so the time beyond two checks is not held against them.
    pub(super) fn forgive_own_absence(&mut self, now: Instant) {
        let away = now.saturating_duration_since(self.handled);
        let excess = away.saturating_sub(2 * self.timeouts.check);
        self.handled = now.max(self.handled);
        if excess.is_zero() {
            return self.health.recover(now, self.timeouts.silence);
        }
        self.health.starved(now);
        for peer in self.peers.values_mut() {
            if let Peer::Here(life) = peer {
                life.forgive(excess);
            }
        }
        if let Phase::Leaving { since } = &mut self.phase {
            *since += excess;
        }
    }

    pub(super) fn heard(&mut self, now: Instant, rank: Rank) {
        if let Some(life) = self.life_mut(rank) {
            life.hear(now);
        }
    }

    pub(super) fn stopped(&mut self, now: Instant, rank: Rank) {
        if let Some(life) = self.life_mut(rank) {
            life.stopped.get_or_insert(now);
        }
    }

    /// Its host says that nobody listens at its port. That counts unless it has been heard since,
    /// or is heard soon.
    pub(super) fn port_closed(&mut self, now: Instant, rank: Rank, heard: Instant) {
        let heartbeat = self.timeouts.heartbeat;
        let Some(life) = self.life_mut(rank) else {
            return;
        };
        let silent = now.saturating_duration_since(heard) >= heartbeat;
        if silent && life.heard <= heard {
            life.closed.get_or_insert(now);
        }
    }

    pub(super) fn is_closed(&self, rank: Rank) -> bool {
        matches!(self.peers.get(&rank), Some(Peer::Here(life)) if life.closed.is_some())
    }

    /// The rank whose port has been closed for longest, and how long it may still be heard. Nobody
    /// while evidence is collected of who is lost.
    pub(super) fn last_words(&self) -> Option<(Rank, Instant)> {
        if matches!(self.phase, Phase::Grace { .. } | Phase::Over) {
            return None;
        }
        let closed = self
            .lives()
            .filter_map(|(rank, life)| Some((life.closed?, rank)));
        let (since, rank) = closed.min()?;
        Some((rank, since + LAST_WORDS))
    }

    /// A rank misses another, and asks this one for it, or this one itself.
    pub(super) fn asked(&mut self, now: Instant, by: Rank, ping: Ping, out: &mut Vec<Action>) {
        self.heard(now, by);
        let [origin, target] = [ping.origin, ping.target].map(Rank::new);
        if target == self.me {
            out.push(Action::Send(by, Message::Ack(ping)));
            if origin != by && self.is_here(origin) {
                out.push(Action::Send(origin, Message::Heartbeat));
            }
        } else if origin == by
            && self.watches(target)
            && let Some(Peer::Here(life)) = self.peers.get(&target)
        {
            let lately = now.saturating_duration_since(life.heard) <= 2 * self.timeouts.check;
            let runs = self.is_local(target) && life.stopped.is_none();
            out.push(match lately || runs {
                true => Action::Send(by, Message::Ack(ping)),
                false => Action::Send(target, Message::PingRequest(ping)),
            });
        }
    }

    /// A rank says that another lives, or that it does itself.
    pub(super) fn vouched(&mut self, now: Instant, by: Rank, ping: Ping, out: &mut Vec<Action>) {
        self.heard(now, by);
        let [origin, target] = [ping.origin, ping.target].map(Rank::new);
        if origin == self.me {
            if let Some(life) = self.life_mut(target) {
                life.vouched = now.max(life.vouched);
            }
        } else if target == by && self.is_here(origin) {
            out.push(Action::Send(origin, Message::Ack(ping)));
        }
    }

    /// Those to whom this rank tells that it lives: the kernel tells it to the others.
    pub(super) fn told_of_life(&self) -> impl Iterator<Item = Rank> + '_ {
        let peers = self.peers.keys().copied();
        peers.filter(|rank| self.watches(*rank) && !self.is_local(*rank))
    }

    /// When somebody is to be looked for next.
    pub(super) fn next_examination(&self) -> Option<Instant> {
        self.lives()
            .filter_map(|(rank, life)| self.examination_of(rank, life))
            .min()
    }

    /// When this rank is to be looked for next: one of another host that is silent, or the one of
    /// this host that is left to this rank.
    fn examination_of(&self, rank: Rank, life: &Life) -> Option<Instant> {
        let MembershipTimeouts {
            heartbeat, check, ..
        } = self.timeouts;
        let silent = life.examined.saturating_duration_since(life.heard);
        match self.is_local(rank) {
            true if self.looks_after == Some(rank) => Some(life.examined + LOOK * check),
            false if self.watches(rank) => {
                let pause = silent.clamp(heartbeat, check.max(heartbeat));
                Some(life.heard.max(life.examined) + pause + pause / 4)
            }
            _ => None,
        }
    }

    /// Looks for those of whom it is time, and has others look for those who are silent for long.
    pub(super) fn examine(&mut self, now: Instant, out: &mut Vec<Action>) {
        let is_due = |(rank, life): &(Rank, &Life)| {
            let at = self.examination_of(*rank, life);
            at.is_some_and(|at| at <= now)
        };
        let due = self.lives().filter(is_due);
        let due: Vec<(Rank, Instant)> = due.map(|(rank, life)| (rank, life.heard)).collect();
        for (rank, heard) in due {
            out.push(Action::Examine { rank, heard });
            let missed = self.waited(now, rank) >= self.timeouts.silence / 2;
            if missed && !self.is_local(rank) {
                let ping = Ping {
                    origin: self.me.number(),
                    target: rank.number(),
                };
                let asked = self.others_who_watch(rank);
                out.extend(asked.map(|other| Action::Send(other, Message::PingRequest(ping))));
            }
            if let Some(life) = self.life_mut(rank) {
                life.examined = now;
            }
        }
    }

    /// Some neighbours of both this rank and that one.
    fn others_who_watch(&self, rank: Rank) -> impl Iterator<Item = Rank> + '_ {
        let world = self.world();
        let others = self.present().filter(move |other| *other != rank);
        let both =
            move |other: &Rank| self.watches(*other) && overlay::adjacent(*other, rank, world);
        others.filter(both).take(ASKED)
    }

    /// Finds out for whom there is no more patience, and says who is waited for.
    pub(super) fn judge(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Running | Phase::Leaving { .. }) {
            return;
        }
        let watched = self.present().filter(|rank| self.watches(*rank));
        let waited: Vec<(Rank, Duration)> =
            watched.map(|rank| (rank, self.waited(now, rank))).collect();
        let lost = waited
            .iter()
            .filter(|(rank, _)| self.is_given_up(now, *rank))
            .max_by_key(|(_, waited)| *waited);
        if let Some((rank, silence)) = lost {
            let cause = match self.is_local(*rank) {
                true => LossCause::Stopped,
                false => LossCause::Silent(*silence),
            };
            return self.suspect(now, *rank, cause);
        }
        for (rank, waited) in waited {
            out.extend(self.say(rank, waited));
        }
    }

    /// All have finished, so a goodbye that does not come costs nobody a result. That of a rank
    /// that this one does not watch may be lost with its host; by now those who watch it have had
    /// the time to miss it. A rank of this host may be frozen or hang in its kernel, which no
    /// silence tells and which is not being stopped.
    pub(super) fn wait_no_longer(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Phase::Leaving { since } = self.phase else {
            return;
        };
        if now.saturating_duration_since(since) < VOUCHED * self.patience() {
            return;
        }
        let unjudged = |rank: &Rank| !self.watches(*rank) || self.is_local(*rank);
        for rank in self.present().filter(unjudged).collect::<Vec<_>>() {
            self.goodbye(rank, out);
        }
    }

    /// How long a rank has been waited for: stopped, or silent on another host.
    fn waited(&self, now: Instant, rank: Rank) -> Duration {
        let since = match self.peers.get(&rank) {
            Some(Peer::Here(life)) if self.is_local(rank) => life.stopped,
            Some(Peer::Here(life)) => Some(life.heard),
            Some(Peer::Gone) | None => None,
        };
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn is_given_up(&self, now: Instant, rank: Rank) -> bool {
        let Some(Peer::Here(life)) = self.peers.get(&rank) else {
            return false;
        };
        let patience = self.patience();
        let vouched = now.saturating_duration_since(life.vouched) < patience;
        let waited = self.waited(now, rank);
        match vouched && !self.is_local(rank) {
            true => waited >= VOUCHED * patience,
            false => waited >= patience,
        }
    }

    fn patience(&self) -> Duration {
        self.health.factor * self.timeouts.silence
    }

    /// That a rank is waited for, when it is time to say so.
    fn say(&mut self, rank: Rank, waited: Duration) -> Option<Action> {
        let (local, patience) = (self.is_local(rank), self.patience());
        let process = local.then(|| self.roster.process(rank)).flatten();
        let member = self.members[rank.index()].clone();
        let life = self.life_mut(rank)?;
        if waited < life.say {
            return None;
        }
        life.say *= 2;
        let why = match local {
            true => Why::Stopped,
            false => Why::Silent,
        };
        Some(Action::Say(Awaited {
            member,
            process,
            why,
            waited,
            patience,
        }))
    }

    /// Which rank of this host this one looks after: the nearest neighbour ahead.
    pub(super) fn choose_whom_to_look_after(&mut self) {
        let world = self.world();
        let distances = (0..u32::BITS).map(|round| 1 << round);
        let ahead = distances
            .take_while(|distance| *distance < world)
            .map(|distance| overlay::ahead(self.me, distance, world));
        self.looks_after = ahead.into_iter().find(|rank| self.is_local(*rank));
    }

    /// Whether the kernel of this host tells when that rank ends.
    pub(super) fn is_local(&self, rank: Rank) -> bool {
        self.roster.shares_host(rank) && !self.unwatched.contains(&rank)
    }

    fn lives(&self) -> impl Iterator<Item = (Rank, &Life)> {
        self.peers.iter().filter_map(|(rank, peer)| match peer {
            Peer::Here(life) => Some((*rank, life)),
            Peer::Gone => None,
        })
    }

    fn life_mut(&mut self, rank: Rank) -> Option<&mut Life> {
        match self.peers.get_mut(&rank)? {
            Peer::Here(life) => Some(life),
            Peer::Gone => None,
        }
    }
}
