//! Who is in the group, and when it is over: a state machine without sockets and clocks.
//!
//! [`Membership::handle`] takes the time and one event and says what to do. Everything a rank
//! knows about the others comes in as an [`Event`], so a test can play any history.
//!
//! ```text
//!             all joined                  Leave, all said goodbye
//!   Joining ──────────────> Running ─────────────────────────────> Over
//!      │ deadline              │ a rank died, fell silent, disconnected
//!      │                       v                                     ^
//!      │                   Grace ── first report that names the ──┤
//!      └────────────────────── culprit, or the grace period is over ┘
//! ```
//!
//! Grace exists because one death makes others: the first survivor that notices ends its own
//! process, and a third rank may see that end first. For a short while all evidence is collected,
//! then the earliest unexplained loss is named. A rank that ends because of another says so.
//!
//! A rank sends its signs of life to those at a distance of 1, 2, 4, 8 … from it, so that its load
//! grows with the logarithm of the group; who of them misses one tells all the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::wire::{Abort, Message};
use crate::{JoinError, LossCause, Member, OperationError, Rank, UnauthenticatedPeer};

mod abort;
mod heartbeat_topology;

pub(crate) use abort::tell;

/// How long evidence is collected after the first sign of a loss.
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// How patient a group is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MembershipTimeouts {
    pub(crate) join: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) silence: Duration,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A connection to this rank stands, and it has proved who it is.
    Joined(Rank),
    /// A process asked to join and was not let in.
    Refused(UnauthenticatedPeer),
    /// This rank sent a sign of life.
    Heard(Rank),
    /// This rank's process ended.
    Died(Rank),
    /// This rank's process has been stopped for a while.
    Stopped(Rank),
    /// This rank's connection is gone, without a word.
    Disconnected(Rank),
    /// `by` says that the group has failed.
    Aborted { by: Rank, abort: Abort },
    /// The launcher says that this rank's process ended.
    Reported(Rank),
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
    /// Everybody is in.
    Ready,
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
    peers: Vec<Peer>,
    phase: Phase,
    strangers: Vec<UnauthenticatedPeer>,
    began: Instant,
    handled: Instant,
    beat: Instant,
}

/// What is known of one rank; one's own entry stays [`Peer::Gone`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Peer {
    Missing,
    Here {
        heard: Instant,
    },
    /// It said goodbye; whatever happens to it now is no loss.
    Gone,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Joining,
    Running,
    Leaving,
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
        members: Arc<[Member]>,
        timeouts: MembershipTimeouts,
        now: Instant,
    ) -> Self {
        let mut peers = vec![Peer::Missing; members.len()];
        peers[me.index()] = Peer::Gone;
        // Alone, there is nobody to wait for.
        let phase = match peers.contains(&Peer::Missing) {
            true => Phase::Joining,
            false => Phase::Running,
        };
        Self {
            me,
            members,
            timeouts,
            peers,
            phase,
            strangers: Vec::new(),
            began: now,
            handled: now,
            beat: now,
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
        match self.phase {
            Phase::Over => None,
            Phase::Grace { until, .. } => Some(until.min(self.beat)),
            Phase::Joining => Some(self.beat.min(self.began + self.timeouts.join)),
            Phase::Running | Phase::Leaving => Some(self.beat),
        }
    }

    /// A process that was itself stopped or starved has heard nobody meanwhile: that is no fault
    /// of the others, so the time beyond two heartbeats is not held against them.
    fn forgive_own_absence(&mut self, now: Instant) {
        let away = now.saturating_duration_since(self.handled);
        let excess = away.saturating_sub(2 * self.timeouts.heartbeat);
        self.handled = now.max(self.handled);
        for peer in &mut self.peers {
            if let Peer::Here { heard } = peer {
                *heard += excess;
            }
        }
    }

    fn learn(&mut self, now: Instant, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::Joined(rank) => self.joined(now, rank, out),
            Event::Heard(rank) => self.heard(now, rank),
            Event::Refused(peer) => self
                .strangers
                .extend((self.strangers.len() < UNAUTHENTICATED).then_some(peer)),
            Event::Died(rank) => self.suspect(now, rank, LossCause::Died),
            Event::Stopped(rank) => self.suspect(now, rank, LossCause::Stopped),
            Event::Disconnected(rank) => self.suspect(now, rank, LossCause::Disconnected),
            Event::Reported(rank) => {
                let heard = self.silence(now, rank);
                self.fail(self.lost(rank, LossCause::Died, heard), out);
            }
            Event::Aborted { by, abort } => {
                let error = abort::from_wire(&abort, by, &self.members);
                self.fail(self.with_own_evidence(error), out);
            }
            Event::Goodbye(rank) => self.goodbye(rank, out),
            Event::GiveUp(error) => self.fail(error, out),
            Event::Leave => self.leave(out),
            Event::Tick => {}
        }
    }

    fn joined(&mut self, now: Instant, rank: Rank, out: &mut Vec<Action>) {
        if self.peers[rank.index()] == Peer::Missing {
            self.peers[rank.index()] = Peer::Here { heard: now };
        }
        if self.phase == Phase::Joining && !self.peers.contains(&Peer::Missing) {
            self.phase = Phase::Running;
            out.push(Action::Ready);
        }
    }

    fn heard(&mut self, now: Instant, rank: Rank) {
        if let Peer::Here { heard } = &mut self.peers[rank.index()] {
            *heard = now.max(*heard);
        }
    }

    fn goodbye(&mut self, rank: Rank, out: &mut Vec<Action>) {
        self.peers[rank.index()] = Peer::Gone;
        self.leave_if_alone(out);
    }

    fn leave(&mut self, out: &mut Vec<Action>) {
        if self.phase == Phase::Running {
            self.phase = Phase::Leaving;
            out.extend(
                self.present()
                    .map(|rank| Action::Send(rank, Message::Goodbye)),
            );
            self.leave_if_alone(out);
        }
    }

    fn leave_if_alone(&mut self, out: &mut Vec<Action>) {
        if self.phase == Phase::Leaving && self.peers.iter().all(|peer| *peer == Peer::Gone) {
            self.phase = Phase::Over;
            out.push(Action::Over);
        }
    }

    /// The first suspect is the culprit unless an abort explains it before grace is over; a
    /// proof of death outweighs what is only a closed connection.
    fn suspect(&mut self, now: Instant, rank: Rank, cause: LossCause) {
        let Peer::Here { .. } = self.peers[rank.index()] else {
            return;
        };
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
    fn with_own_evidence(&self, error: OperationError) -> OperationError {
        match (self.phase, error) {
            (
                Phase::Grace {
                    culprit,
                    cause,
                    heard,
                    ..
                },
                OperationError::RankLost { peer, .. },
            ) if culprit == peer.rank() => self.lost(culprit, cause, heard),
            (_, error) => error,
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
        if self.phase == Phase::Joining && now >= self.began + self.timeouts.join {
            return self.fail(self.not_joined(now), out);
        }
        if now >= self.beat {
            self.beat = now + self.timeouts.heartbeat;
            let watching = self.present().filter(|rank| self.watches(*rank));
            out.extend(watching.map(|rank| Action::Send(rank, Message::Heartbeat)));
        }
        self.notice_silence(now);
    }

    /// How long nothing was heard of a rank that sends this one signs of life.
    fn silence(&self, now: Instant, rank: Rank) -> Option<Duration> {
        match self.peers[rank.index()] {
            Peer::Here { heard } if self.watches(rank) => {
                Some(now.saturating_duration_since(heard))
            }
            _ => None,
        }
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

    fn notice_silence(&mut self, now: Instant) {
        let longest = Rank::all(self.world())
            .filter(|rank| self.watches(*rank))
            .filter_map(|rank| match self.peers[rank.index()] {
                Peer::Here { heard } => Some((now.saturating_duration_since(heard), rank)),
                Peer::Missing | Peer::Gone => None,
            })
            .max_by_key(|(silence, _)| *silence);
        if let Some((silence, rank)) = longest
            && silence >= self.timeouts.silence
        {
            self.suspect(now, rank, LossCause::Silent(silence));
        }
    }

    fn not_joined(&self, now: Instant) -> OperationError {
        let missing = self
            .members
            .iter()
            .filter(|member| self.peers[member.rank().index()] == Peer::Missing)
            .cloned()
            .collect();
        let waited = now.saturating_duration_since(self.began);
        OperationError::Join(JoinError::NotJoined {
            missing,
            waited,
            refused: self.strangers.clone(),
        })
    }

    fn fail(&mut self, error: OperationError, out: &mut Vec<Action>) {
        let abort = tell(&error, self.me);
        let told = self
            .present()
            .map(|rank| Action::Send(rank, Message::Abort(abort.clone())));
        out.extend(told.collect::<Vec<_>>());
        self.phase = Phase::Over;
        out.push(Action::Fail(error));
    }

    fn present(&self) -> impl Iterator<Item = Rank> + '_ {
        Rank::all(self.world()).filter(|rank| matches!(self.peers[rank.index()], Peer::Here { .. }))
    }

    /// Whether this rank and that one tell each other that they live.
    fn watches(&self, rank: Rank) -> bool {
        heartbeat_topology::each_other(self.me.number(), rank.number(), self.world())
    }

    fn world(&self) -> u32 {
        u32::try_from(self.members.len()).expect("a group checks its size before it joins")
    }
}

#[cfg(test)]
mod tests;
