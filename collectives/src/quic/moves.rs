//! Members that have moved: where they are, and by which address QUIC knows them.
//!
//! A connection of QUIC goes on where the address of the end changes that has begun it. The end
//! that was called must stay where it is: packets from anywhere else are dropped by the one that
//! has called. So whoever is called says from its new address who it is, on a connection of its
//! own, and from then on addresses are exchanged below QUIC, which notices nothing:
//!
//! ```text
//!   QUIC of the caller    to A  ─┐                  ┌─  from A
//!   its socket                   └─ to B     from B ─┘
//! ```
//!
//! QUIC of the end that was called would go on sending from the address at which it was: its socket
//! leaves the choice to the kernel.
//!
//! Whoever greets again from B comes from A, as QUIC sees it, just as one that has gone back there.
//! So the address is kept from which the last packet has come in fact.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::MemberProcess;

/// The members that this process has called and that are elsewhere now, and addresses that it had
/// itself.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Whether there are any: each packet asks.
    any: AtomicBool,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    members: Vec<Move>,
    /// From where QUIC goes on sending on connections that others have begun.
    lost: BTreeSet<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    member: MemberProcess,
    /// As QUIC knows it.
    known: SocketAddr,
    now: SocketAddr,
    /// Where the last packet has come from, of these two.
    came_from: SocketAddr,
}

impl Moves {
    /// A member that is known by one address says by a packet from another, as QUIC sees it, that
    /// it is there from now on, or again at that one. False if it was there already.
    pub(super) fn note(&self, member: MemberProcess, known: SocketAddr, now: SocketAddr) -> bool {
        self.change(|all| {
            let before = all.members.iter().find(|one| one.known == known);
            // To QUIC, all that comes from where it has gone comes from where it was.
            let now = match before {
                Some(one) if now == known => one.came_from,
                Some(_) | None => now,
            };
            let is_news = before.map_or(known, |one| one.now) != now;
            if is_news {
                all.members
                    .retain(|one| one.known != known && one.now != now);
            }
            if is_news && known != now {
                let came_from = now;
                all.members.push(Move {
                    member,
                    known,
                    now,
                    came_from,
                });
            }
            is_news
        })
    }

    /// Forgets all members but these: somebody else may be where others were.
    pub(super) fn retain(&self, stays: impl Fn(MemberProcess) -> bool) {
        self.change(|all| all.members.retain(|one| stays(one.member)));
    }

    /// This machine does not have that address any more.
    pub(super) fn lose(&self, own: IpAddr) {
        self.change(|all| all.lost.insert(own));
    }

    /// Where whoever is known by this address is.
    pub(super) fn is_at(&self, known: SocketAddr) -> SocketAddr {
        self.found(|all| {
            let moved = all.members.iter().find(|one| one.known == known)?;
            Some(moved.now)
        })
        .unwrap_or(known)
    }

    /// By which address the sender of a packet from this one is known.
    pub(super) fn came_from(&self, now: SocketAddr) -> SocketAddr {
        self.found(|all| {
            let is_at = all.members.iter().position(|one| one.now == now);
            // Where one has gone another may have been before.
            let was_at = || all.members.iter().position(|one| one.known == now);
            let place = is_at.or_else(was_at)?;
            let moved = &mut all.members[place];
            moved.came_from = now;
            Some(moved.known)
        })
        .unwrap_or(now)
    }

    /// Whether an address of this machine is lost.
    pub(super) fn is_lost(&self, own: IpAddr) -> bool {
        self.found(|all| all.lost.get(&own).copied()).is_some()
    }

    fn found<T>(&self, find: impl Fn(&mut All) -> Option<T>) -> Option<T> {
        match self.any.load(Ordering::Relaxed) {
            true => find(&mut self.all()),
            false => None,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut All) -> T) -> T {
        let mut all = self.all();
        let changed = change(&mut all);
        let any = !all.members.is_empty() || !all.lost.is_empty();
        self.any.store(any, Ordering::Relaxed);
        changed
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Nothing that holds the lock can panic half-way through a change.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: u8) -> SocketAddr {
        ([10, 0, 0, host], 4000).into()
    }

    fn member(member_id: u32) -> MemberProcess {
        MemberProcess {
            member_id,
            incarnation: 9,
        }
    }

    #[test]
    fn packets_follow_a_member_from_one_address_to_the_next_and_back() {
        let moves = Moves::default();
        for now in [12, 13, 14] {
            assert!(moves.note(member(1), at(2), at(now)));
            assert!(!moves.note(member(1), at(2), at(now)));
            assert_eq!(moves.is_at(at(2)), at(now));
            assert_eq!(moves.came_from(at(now)), at(2));
            assert_eq!(moves.came_from(at(now - 1)), at(now - 1));
            assert_eq!(moves.is_at(at(3)), at(3));
            assert_eq!(moves.came_from(at(3)), at(3));
        }
        assert_eq!(moves.came_from(at(2)), at(2));
        assert!(moves.note(member(1), at(2), at(2)));
        assert_eq!(moves.is_at(at(2)), at(2));
        assert_eq!(moves.came_from(at(14)), at(14));
        assert!(!moves.any.load(Ordering::Relaxed));
        moves.lose(at(2).ip());
        assert!(moves.is_lost(at(2).ip()) && !moves.is_lost(at(3).ip()));
    }

    #[test]
    fn a_greeting_that_is_repeated_from_a_new_address_is_no_return_to_the_old_one() {
        let moves = Moves::default();
        assert!(moves.note(member(1), at(2), at(12)));
        // Its packets arrive as if from where it was.
        for _ in 0..2 {
            let seen = moves.came_from(at(12));
            assert_eq!(seen, at(2));
            assert!(!moves.note(member(1), at(2), seen));
            assert_eq!(moves.is_at(at(2)), at(12));
        }
        // It goes on, says so twice, and comes back at last.
        let seen = moves.came_from(at(13));
        assert!(moves.note(member(1), at(2), seen));
        let seen = moves.came_from(at(13));
        assert!(!moves.note(member(1), at(2), seen));
        assert_eq!(moves.is_at(at(2)), at(13));
        let seen = moves.came_from(at(2));
        assert!(moves.note(member(1), at(2), seen));
        assert_eq!(moves.is_at(at(2)), at(2));
    }

    #[test]
    fn packets_from_where_two_have_been_are_of_the_one_that_is_there() {
        let moves = Moves::default();
        assert!(moves.note(member(1), at(2), at(12)));
        // The second goes where the first was.
        assert!(moves.note(member(2), at(3), at(2)));
        assert_eq!(moves.came_from(at(2)), at(3));
        assert!(!moves.note(member(1), at(2), at(2)));
        assert_eq!((moves.is_at(at(2)), moves.is_at(at(3))), (at(12), at(2)));
    }

    #[test]
    fn where_one_has_gone_no_other_is_and_who_is_no_member_is_forgotten() {
        let moves = Moves::default();
        assert!(moves.note(member(1), at(2), at(12)) && moves.note(member(2), at(3), at(13)));
        // An address goes from one to the other.
        assert!(moves.note(member(1), at(2), at(13)));
        assert_eq!(moves.came_from(at(13)), at(2));
        assert_eq!(moves.is_at(at(3)), at(3));
        moves.retain(|one| one != member(1));
        assert_eq!(moves.is_at(at(2)), at(2));
        assert!(!moves.note(member(1), at(2), at(2)));
    }
}
