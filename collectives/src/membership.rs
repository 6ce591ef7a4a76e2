//! Who is in the group, and when it is over: a state machine without sockets and clocks.
//!
//! [`Membership::handle`] takes the time and one event and says what to do. Everything a rank
//! knows about the others comes in as an [`Event`], so a test can play any history.
//!
//! ```text
//!             all joined                  Leave, all said goodbye
//!   Joining ──────────────> Running ─────────────────────────────> Over
//!      │ time is short         │ a rank died, disconnected, was given up
//!      v                       v                                     ^
//!   Naming                 Grace ── first report that names the ──┤
//!      └── who is absent ───── culprit, or the grace period is over ┘
//! ```
//!
//! Grace exists because one death makes others: the first survivor that notices ends its own
//! process, and a third rank may see that end first. For a short while all evidence is collected,
//! then the earliest unexplained loss is named. A rank that ends because of another says so.
//!
//! A rank is connected with its [neighbours](crate::overlay), at a distance of 1, 2, 4, 8 … from
//! it, and with those that an operation has needed. Signs of life go to neighbours of other hosts
//! (see `liveness`); who misses one tells all whom it is connected with, and they tell theirs. So
//! the load of a rank grows with the logarithm of the group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wire::{Abort, Absence, MemberRecord, Message, Ping, RecordBatch};
use crate::{LossCause, Member, OperationError, Rank, UnauthenticatedPeer, overlay};

mod abort;
mod joining;
mod liveness;
mod roster;

pub(crate) use abort::tell;
pub(crate) use liveness::Awaited;
use liveness::{Health, Life};
use roster::Roster;

/// How long evidence is collected after the first sign of a loss.
pub(crate) const GRACE: Duration = Duration::from_millis(50);
/// How long a rank of another host may still be heard whose port is closed. It has been silent for
/// a heartbeat by then, and what it said before it ended came before its port closed.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// How patient a group is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MembershipTimeouts {
    pub(crate) join: Duration,
    /// How often a rank tells those of other hosts that it lives.
    pub(crate) heartbeat: Duration,
    /// How often it looks at itself and at those of its own host.
    pub(crate) check: Duration,
    pub(crate) silence: Duration,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A connection to this rank stands, and it has proved who it is.
    Joined(Rank),
    /// A member has told what it knows of others.
    Records(RecordBatch),
    /// These ranks have not come, and these processes were not let in, says a member.
    Absent(Absence),
    /// A process asked to join and was not let in.
    Refused(UnauthenticatedPeer),
    /// This rank sent a sign of life.
    Heard(Rank),
    /// This rank's process ended.
    Died(Rank),
    /// The kernel of this host says that this rank's process is stopped.
    Stopped(Rank),
    /// The kernel of this host cannot tell when this rank's process ends, even if the host of that
    /// one has the same name.
    Unwatched(Rank),
    /// The host of this rank says that nobody listens at its port.
    PortClosed {
        rank: Rank,
        /// When the rank had last been heard as its port was looked at.
        heard: Instant,
    },
    /// `by` misses a rank.
    Asked { by: Rank, ping: Ping },
    /// `by` says that a rank lives which another misses.
    Vouched { by: Rank, ping: Ping },
    /// This rank's connection is gone, without a word.
    Disconnected(Rank),
    /// `by` says that the group has failed.
    Aborted { by: Rank, abort: Abort },
    /// The launcher says that this rank's process ended.
    Reported(Rank),
    /// The connection with this rank is closed, as both ends have agreed that neither needs it.
    Released(Rank),
    /// This rank has finished.
    Goodbye(Rank),
    /// This process gives up, for this reason.
    GiveUp(OperationError),
    /// This process has finished.
    Leave,
    /// Time has passed.
    Tick,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Send(Rank, Message),
    /// Look for evidence of what became of this rank: at its process if it is on this host, at its
    /// port if it is not.
    Examine {
        rank: Rank,
        /// When it was last heard.
        heard: Instant,
    },
    /// Tell people whom this rank waits for.
    Say(Awaited),
    /// Everybody is there, and this is what is known of each rank.
    Ready(Arc<[MemberRecord]>),
    /// The group is over because of this; follows after the sends that tell the others.
    Fail(OperationError),
    /// The group is over because everybody has finished.
    Over,
}

#[derive(Debug)]
pub(crate) struct Membership {
    me: Rank,
    members: Arc<[Member]>,
    timeouts: MembershipTimeouts,
    /// Who is connected, or has left: neighbours, and those that operations have needed.
    peers: BTreeMap<Rank, Peer>,
    roster: Roster,
    /// Who has not come, as far as others have told.
    absent: BTreeSet<Rank>,
    /// Who has come to this rank while the absent were named.
    late: BTreeSet<Rank>,
    phase: Phase,
    strangers: Vec<UnauthenticatedPeer>,
    began: Instant,
    handled: Instant,
    beat: Instant,
    health: Health,
    /// The rank of this host whose process this one looks at.
    looks_after: Option<Rank>,
    /// Ranks of this host that are judged as those of others.
    unwatched: BTreeSet<Rank>,
}

/// What is known of a rank that is or was connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    Here(Life),
    /// It said goodbye; whatever happens to it now is no loss. It may wait for the goodbyes of
    /// others, and hears from this rank until then.
    Gone,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Joining,
    /// The deadline is near, and members tell each other whom they miss.
    Naming {
        until: Instant,
    },
    Running,
    /// All have come to the end, and say goodbye to each other.
    Leaving {
        since: Instant,
    },
    Grace {
        until: Instant,
        culprit: Rank,
        cause: LossCause,
        /// How long before it had last been heard of.
        heard: Option<Duration>,
    },
    Over,
}

/// Strangers that are remembered for the error; the rest are counted by nobody.
const UNAUTHENTICATED: usize = 4;

impl Membership {
    pub(crate) fn new(
        me: Rank,
        own: MemberRecord,
        members: Arc<[Member]>,
        timeouts: MembershipTimeouts,
        now: Instant,
    ) -> Self {
        let roster = Roster::new(me, own, members.len());
        Self::with_roster(me, roster, members, timeouts, now)
    }

    /// Of a rank that knows all others and is connected with its neighbours.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn begun(
        me: Rank,
        records: Arc<[MemberRecord]>,
        members: Arc<[Member]>,
        timeouts: MembershipTimeouts,
        now: Instant,
    ) -> Self {
        let roster = Roster::complete_from(me, records);
        let mut membership = Self::with_roster(me, roster, members, timeouts, now);
        let neighbours = overlay::neighbours(me, membership.world()).into_iter();
        membership.peers = neighbours
            .map(|rank| (rank, Peer::Here(Life::new(now))))
            .collect();
        membership.phase = Phase::Running;
        membership.choose_whom_to_look_after();
        membership
    }

    fn with_roster(
        me: Rank,
        roster: Roster,
        members: Arc<[Member]>,
        timeouts: MembershipTimeouts,
        now: Instant,
    ) -> Self {
        // Alone, there is nobody to wait for.
        let phase = match members.len() == 1 {
            true => Phase::Running,
            false => Phase::Joining,
        };
        Self {
            me,
            roster,
            absent: BTreeSet::new(),
            late: BTreeSet::new(),
            members,
            timeouts,
            peers: BTreeMap::new(),
            phase,
            strangers: Vec::new(),
            began: now,
            handled: now,
            beat: now,
            health: Health::new(now),
            looks_after: None,
            unwatched: BTreeSet::new(),
        }
    }

    /// Takes in what happened at `now`, and appends what is to be done about it to `out`.
    pub(crate) fn handle(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        self.forgive_own_absence(now);
        if self.phase != Phase::Over {
            self.learn(now, event, out);
        }
        if self.phase != Phase::Over {
            self.pass_time(now, out);
        }
    }

    /// When [`handle`](Self::handle) wants to be called with a tick at the latest.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let deadline = match self.phase {
            Phase::Over => return None,
            Phase::Grace { until, .. } | Phase::Naming { until } => until,
            Phase::Joining => self.naming_begins(),
            Phase::Running | Phase::Leaving { .. } => self.beat,
        };
        let last_words = self.last_words().map(|(_, until)| until);
        let times = [self.next_examination(), last_words].into_iter().flatten();
        Some(times.fold(deadline.min(self.beat), Instant::min))
    }

    fn learn(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Joined(rank) => self.joined(now, rank, out),
            Event::Heard(rank) => self.heard(now, rank),
            Event::Records(batch) => self.hear_records(&batch, out),
            Event::Absent(absence) => self.hear_absent(now, &absence, out),
            Event::Refused(peer) => self.turned_away(peer, out),
            // Once this rank leaves all have finished: an end follows a goodbye that is unread yet.
            Event::Died(rank) if self.is_leaving() && self.is_here(rank) => self.goodbye(rank, out),
            Event::Died(rank) => self.suspect(now, rank, LossCause::Died),
            Event::Stopped(rank) => self.stopped(now, rank),
            Event::Unwatched(rank) => {
                self.unwatched.insert(rank);
            }
            Event::PortClosed { rank, heard } => self.port_closed(now, rank, heard),
            Event::Asked { by, ping } => self.asked(now, by, ping, out),
            Event::Vouched { by, ping } => self.vouched(now, by, ping, out),
            Event::Disconnected(rank) => self.suspect(now, rank, LossCause::Disconnected),
            Event::Reported(rank) => {
                let heard = self.silence(now, rank);
                self.fail(self.lost(rank, LossCause::Died, heard), out);
            }
            Event::Aborted { abort, .. }
                if abort.reports_absence() && matches!(self.phase, Phase::Naming { .. }) =>
            {
                self.fail(self.not_joined(now), out);
            }
            Event::Aborted { by, abort } => {
                let error = abort::from_wire(&abort, by, &self.members);
                self.fail(self.with_own_evidence(now, error), out);
            }
            Event::Released(rank) => self.released(rank, out),
            Event::Goodbye(rank) => self.goodbye(rank, out),
            Event::GiveUp(error) => self.fail(error, out),
            Event::Leave => self.leave(now, out),
            Event::Tick => {}
        }
    }

    fn goodbye(&mut self, rank: Rank, out: &mut Vec<Action>) {
        self.peers.insert(rank, Peer::Gone);
        self.leave_if_alone(out);
    }

    /// From now on this rank is like any that was never connected: others watch it. Neighbours
    /// stay.
    fn released(&mut self, rank: Rank, out: &mut Vec<Action>) {
        if !self.watches(rank) && self.is_here(rank) {
            self.peers.remove(&rank);
            self.unwatched.remove(&rank);
            self.leave_if_alone(out);
        }
    }

    fn leave(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.phase == Phase::Running {
            self.phase = Phase::Leaving { since: now };
            let told = self.peers.keys();
            out.extend(told.map(|rank| Action::Send(*rank, Message::Goodbye)));
            self.leave_if_alone(out);
        }
    }

    fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    fn leave_if_alone(&mut self, out: &mut Vec<Action>) {
        if self.is_leaving() && self.present().next().is_none() {
            self.phase = Phase::Over;
            out.push(Action::Over);
        }
    }

    /// The first suspect is the culprit unless an abort explains it before grace is over; a
    /// proof of death outweighs what is only a closed connection.
    fn suspect(&mut self, now: Instant, rank: Rank, cause: LossCause) {
        if !self.is_here(rank) {
            return;
        }
        let heard = self.silence(now, rank);
        match &mut self.phase {
            Phase::Grace {
                culprit,
                cause: known,
                ..
            } => {
                if *culprit == rank && cause == LossCause::Died {
                    *known = cause;
                }
            }
            phase => {
                *phase = Phase::Grace {
                    until: now + GRACE,
                    culprit: rank,
                    cause,
                    heard,
                }
            }
        }
    }

    /// What another rank reports, in this rank's own words if it knows better.
    fn with_own_evidence(&self, now: Instant, error: OperationError) -> OperationError {
        let OperationError::RankLost { peer, .. } = &error else {
            return error;
        };
        let rank = peer.rank();
        if let Phase::Grace {
            culprit,
            cause,
            heard,
            ..
        } = self.phase
            && culprit == rank
        {
            return self.lost(rank, cause, heard);
        }
        match self.is_closed(rank) {
            true => self.lost(rank, LossCause::PortClosed, self.silence(now, rank)),
            false => error,
        }
    }

    fn pass_time(&mut self, now: Instant, out: &mut Vec<Action>) {
        if let Phase::Grace {
            until,
            culprit,
            cause,
            heard,
        } = self.phase
            && now >= until
        {
            return self.fail(self.lost(culprit, cause, heard), out);
        }
        if let Some((rank, until)) = self.last_words()
            && now >= until
        {
            // Once this rank leaves all have finished: whoever is gone has said so unheard.
            return match self.is_leaving() {
                true => self.goodbye(rank, out),
                false => {
                    let heard = self.silence(now, rank);
                    self.fail(self.lost(rank, LossCause::PortClosed, heard), out);
                }
            };
        }
        match self.phase {
            Phase::Joining if now >= self.naming_begins() => self.name_absent(now, out),
            Phase::Naming { until } if now >= until => {
                return self.fail(self.not_joined(now), out);
            }
            Phase::Joining
            | Phase::Naming { .. }
            | Phase::Running
            | Phase::Leaving { .. }
            | Phase::Grace { .. }
            | Phase::Over => {}
        }
        if now >= self.beat {
            let told: Vec<Rank> = self.told_of_life().collect();
            let pause = match told.is_empty() {
                true => self.timeouts.check,
                false => self.timeouts.heartbeat,
            };
            self.beat = now + pause;
            let heartbeats = told.into_iter();
            out.extend(heartbeats.map(|rank| Action::Send(rank, Message::Heartbeat)));
            self.judge(now, out);
            self.wait_no_longer(now, out);
        }
        self.examine(now, out);
    }

    /// How long nothing was heard of a rank that sends this one signs of life.
    fn silence(&self, now: Instant, rank: Rank) -> Option<Duration> {
        let tells = self.watches(rank) && !self.is_local(rank);
        let heard = self.heard_of(rank).filter(|_| tells)?;
        Some(now.saturating_duration_since(heard))
    }

    /// A loss that this rank has noticed itself.
    fn lost(&self, rank: Rank, cause: LossCause, heard: Option<Duration>) -> OperationError {
        OperationError::RankLost {
            peer: self.members[rank.index()].clone(),
            cause,
            reporter: None,
            heard,
            completed: 0,
        }
    }

    fn fail(&mut self, error: OperationError, out: &mut Vec<Action>) {
        let abort = tell(&error, self.me);
        let told = self.peers.keys();
        out.extend(told.map(|rank| Action::Send(*rank, Message::Abort(abort.clone()))));
        self.phase = Phase::Over;
        out.push(Action::Fail(error));
    }

    fn present(&self) -> impl Iterator<Item = Rank> + '_ {
        let peers = self.peers.keys().copied();
        peers.filter(|rank| self.is_here(*rank))
    }

    fn is_here(&self, rank: Rank) -> bool {
        self.heard_of(rank).is_some()
    }

    /// When a rank that is connected was last heard of.
    fn heard_of(&self, rank: Rank) -> Option<Instant> {
        match self.peers.get(&rank)? {
            Peer::Here(life) => Some(life.heard),
            Peer::Gone => None,
        }
    }

    /// Whether this rank and that one tell each other that they live.
    fn watches(&self, rank: Rank) -> bool {
        overlay::adjacent(self.me, rank, self.world())
    }

    fn world(&self) -> u32 {
        u32::try_from(self.members.len()).expect("a group checks its size before it joins")
    }
}

#[cfg(test)]
mod tests;
