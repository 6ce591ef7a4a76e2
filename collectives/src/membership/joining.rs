//! How a group begins: neighbours meet, records go round, and who has not come is named by all.
//!
//! ```text
//!   a rank misses neighbours when time is short ── Absent ──> its neighbours, who pass on what is
//!                                      new and tell whom they miss themselves; all name the union
//! ```
//!
//! Whoever is refused ends at the first refusal, so often one rank alone knows why somebody does
//! not come: whom it did not let in goes round with the absent.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use super::{Action, Life, Membership, Peer, Phase, UNAUTHENTICATED};
use crate::wire::{ABSENT_LIMIT, Absence, Message, RecordBatch, Stranger};
use crate::{JoinError, OperationError, Rank, UnauthenticatedPeer, overlay};

/// The last part of the time to join, in which ranks tell each other who is absent: longer than
/// words take to go round.
const NAMING: Duration = Duration::from_millis(500);

impl Membership {
    pub(super) fn joined(&mut self, now: Instant, rank: Rank, out: &mut Vec<Action>) {
        if let Entry::Vacant(unknown) = self.peers.entry(rank) {
            unknown.insert(Peer::Here(Life::new(now)));
            if matches!(self.phase, Phase::Naming { .. }) {
                self.late.insert(rank);
            }
            // It may be one of another host, which waits for a sign of life.
            self.beat = self.beat.min(now + self.timeouts.heartbeat);
            if self.is_leaving() {
                out.push(Action::Send(rank, Message::Goodbye));
            }
        }
        self.begin_when_complete(out);
    }

    pub(super) fn hear_records(&mut self, batch: &RecordBatch, out: &mut Vec<Action>) {
        self.roster.hear(batch);
        self.begin_when_complete(out);
    }

    /// Tells what is known to whom it is for, and begins once everybody is known.
    fn begin_when_complete(&mut self, out: &mut Vec<Action>) {
        let peers = &self.peers;
        let is_here = |rank: Rank| matches!(peers.get(&rank), Some(Peer::Here(_)));
        let world = self.world();
        while let Some((to, batch)) = self.roster.next(is_here) {
            out.extend(
                batch
                    .messages(world)
                    .map(|message| Action::Send(to, message)),
            );
        }
        if matches!(self.phase, Phase::Joining | Phase::Naming { .. })
            && self.missing_neighbours().next().is_none()
            && let Some(records) = self.roster.complete()
        {
            self.phase = Phase::Running;
            self.choose_whom_to_look_after();
            out.push(Action::Ready(records));
        }
    }

    /// How long it takes to find out who is absent: less where there is little time at all.
    fn naming(&self) -> Duration {
        NAMING.min(self.timeouts.join / 4)
    }

    /// When those that are absent are to be named.
    pub(super) fn naming_begins(&self) -> Instant {
        self.began + self.timeouts.join - self.naming()
    }

    /// Asks all who are there whom they miss, and tells whom this rank does.
    pub(super) fn name_absent(&mut self, now: Instant, out: &mut Vec<Action>) {
        self.phase = Phase::Naming {
            until: now + self.naming(),
        };
        self.tell_absent(self.all_absent(), &self.strangers, out);
    }

    pub(super) fn hear_absent(&mut self, now: Instant, absence: &Absence, out: &mut Vec<Action>) {
        let inside = absence.ranks.iter().filter(|rank| **rank < self.world());
        let ranks: Vec<Rank> = inside.map(|rank| Rank::new(*rank)).collect();
        let news: Vec<Rank> = ranks
            .into_iter()
            .filter(|rank| self.absent.len() < ABSENT_LIMIT && self.absent.insert(*rank))
            .collect();
        let refused = absence.refused.iter().filter_map(Stranger::peer);
        let strangers: Vec<UnauthenticatedPeer> =
            refused.filter(|peer| self.remember(peer)).collect();
        let is_news = !(news.is_empty() && strangers.is_empty());
        match self.phase {
            Phase::Joining => self.name_absent(now, out),
            Phase::Running | Phase::Leaving { .. } | Phase::Naming { .. } if is_news => {
                self.tell_absent(news, &strangers, out);
            }
            Phase::Running
            | Phase::Leaving { .. }
            | Phase::Naming { .. }
            | Phase::Grace { .. }
            | Phase::Over => {}
        }
    }

    /// Somebody was not let in. Where the time to join is nearly over, the others hear it at once.
    pub(super) fn turned_away(&mut self, peer: UnauthenticatedPeer, out: &mut Vec<Action>) {
        if self.remember(&peer) && matches!(self.phase, Phase::Naming { .. }) {
            self.tell_absent(Vec::new(), &[peer], out);
        }
    }

    /// False where it is known, or enough are.
    fn remember(&mut self, peer: &UnauthenticatedPeer) -> bool {
        let is_news = self.strangers.len() < UNAUTHENTICATED && !self.strangers.contains(peer);
        self.strangers.extend(is_news.then(|| peer.clone()));
        is_news
    }

    fn tell_absent(
        &self,
        ranks: impl IntoIterator<Item = Rank>,
        refused: &[UnauthenticatedPeer],
        out: &mut Vec<Action>,
    ) {
        let ranks = ranks.into_iter().take(ABSENT_LIMIT);
        let message = Message::Absent(Absence {
            ranks: ranks.map(Rank::number).collect(),
            refused: refused.iter().map(Stranger::from).collect(),
        });
        out.extend(
            self.present()
                .map(|rank| Action::Send(rank, message.clone())),
        );
    }

    /// Neighbours that have not been there yet.
    fn missing_neighbours(&self) -> impl Iterator<Item = Rank> + '_ {
        let missing = |rank: &Rank| !self.peers.contains_key(rank);
        overlay::neighbours(self.me, self.world())
            .into_iter()
            .filter(missing)
    }

    /// Whom this rank misses by now, and whom others have missed: they may still do so, even if
    /// this rank is connected with them.
    fn all_absent(&self) -> BTreeSet<Rank> {
        let told = self.absent.iter().copied();
        told.chain(self.missing_neighbours()).collect()
    }

    /// Why there is no group.
    pub(super) fn not_joined(&self, now: Instant) -> OperationError {
        let member = |rank: Rank| self.members[rank.index()].clone();
        // Who has come by now is told as absent by those who missed it before: it may be cut off
        // from one of them, but was more likely late for all.
        let absent = self.all_absent().into_iter();
        let absent = absent.filter(|rank| !self.late.contains(rank));
        let mut missing: Vec<_> = absent.map(member).collect();
        if missing.is_empty() {
            // All whom this rank missed are there by now; others have not been heard of.
            missing.extend(self.roster.unknown().map(member));
        }
        let waited = now.saturating_duration_since(self.began);
        OperationError::Join(JoinError::NotJoined {
            missing,
            waited,
            refused: self.strangers.clone(),
        })
    }
}
