//! Connections that one epoch leaves to the next.
//!
//! ```text
//!   this epoch      last word ─────────────────────────> confirmed: the connection stays open
//!   handed over     whatever goes on over it ends, and only then does this process vote
//!   next epoch      higher rank ── new stream: Hello ──> lower: takes streams until that one
//! ```
//!
//! Nothing of an epoch is taken for the next. What was sent in it is on its own streams, which
//! nobody reads any more. Streams come in the order in which they were opened, and the higher rank,
//! which alone opens, opens none for the old epoch once that is handed over: all before the `Hello`
//! are of the old epoch, and all behind it of the one that the `Hello` names.
//!
//! Each end decides for itself, and closes what it does not keep. The other then dials, as it does
//! if the `Hello` is not answered.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::Ordering;

use quinn::Connection;

use super::control_sender::LastWord;
use super::{Admission, AdmittedMember, lock};
use crate::Rank;
use crate::quic::TURNED_AWAY;
use crate::quic::node::View;
use crate::tasks::spawn_in;

/// Connections with neighbours from the epoch before, by their ranks in this one.
pub(crate) type Kept = BTreeMap<Rank, Connection>;

impl Admission {
    /// Does what has to do with a connection, until all are handed over.
    pub(super) fn attend(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(tasks) = lock(&self.tasks).as_mut() {
            while tasks.try_join_next().is_some() {}
            spawn_in(tasks, work);
        }
    }

    /// Returns when nobody opens streams of this epoch any more, or takes them in.
    pub(in crate::quic) async fn stop(&self) {
        let tasks = lock(&self.tasks).take();
        if let Some(mut tasks) = tasks {
            tasks.shutdown().await;
        }
    }

    /// What the next epoch has of the connections of this one, which is over; all others close.
    pub(in crate::quic) async fn leave_to(&self, next: &View) -> Kept {
        self.close_kept();
        let members = mem::take(&mut *self.admitted());
        // Their streams would take up room on the connections for as long as they live.
        let have_room = self.split_groups.load(Ordering::Relaxed) == 0;
        let (mut kept, mut unneeded) = (Kept::new(), Vec::new());
        for (rank, member) in members {
            match self.place_in(next, rank).filter(|_| have_room) {
                Some(place) => {
                    let connection = parted(member).await;
                    kept.extend(connection.map(|connection| (place, connection)));
                }
                None => unneeded.push(member),
            }
        }
        self.close_when_returned(unneeded);
        kept
    }

    /// The rank of a member in the next epoch, if the same process is a neighbour there.
    fn place_in(&self, next: &View, rank: Rank) -> Option<Rank> {
        next.neighbour(self.process(rank)?)
    }

    /// The connection with a neighbour from the epoch before, to be tried once.
    pub(super) fn kept_with(&self, rank: Rank) -> Option<Connection> {
        lock(&self.kept).get(&rank).cloned()
    }

    /// Connections from the epoch before on which the higher ranks are to greet this one.
    pub(super) fn awaited_on_kept(&self) -> Vec<Connection> {
        let kept = lock(&self.kept);
        kept.range(self.me..)
            .map(|(_, kept)| kept.clone())
            .collect()
    }

    /// A member is connected by this connection: the one from the epoch before, or it needs that no
    /// more.
    pub(super) fn is_reached(&self, rank: Rank, by: &Connection) {
        let Some(kept) = lock(&self.kept).remove(&rank) else {
            return;
        };
        match kept.stable_id() == by.stable_id() {
            true => self.node.connection_counters.kept(),
            false => kept.close(TURNED_AWAY, &[]),
        }
    }

    pub(super) fn close_kept(&self) {
        for connection in mem::take(&mut *lock(&self.kept)).into_values() {
            connection.close(TURNED_AWAY, &[]);
        }
    }
}

/// The connection with a member, once its last word is confirmed.
async fn parted(mut member: AdmittedMember) -> Option<Connection> {
    match member.control_sender.farewell()?.await {
        Ok(LastWord::Stays(parted)) => parted.into_kept(),
        Ok(LastWord::Closes(_) | LastWord::Unconfirmed) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests;
