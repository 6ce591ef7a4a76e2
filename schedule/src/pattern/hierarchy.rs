//! Two levels: ranks of one host through memory, hosts among each other with every rank of a host
//! carrying its share.
//!
//! What concerns a rank is, on every other host, in the care of the rank with the same local rank
//! there; of a host with fewer ranks, local ranks begin again at its first.

use std::ops::Range;

use super::Place;
use crate::Round;
use crate::hosts::Hosts;

/// Which block is whose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// Block `k` is rank `k`'s.
    Rank,
    /// Blocks are dealt by local rank, so that what a rank cares for is in one piece.
    LocalRank,
}

impl Owner {
    fn block(self, hosts: &Hosts, rank: usize) -> usize {
        match self {
            Self::Rank => rank,
            Self::LocalRank => hosts.local_rank_place(rank),
        }
    }

    fn rank(self, hosts: &Hosts, block: usize) -> usize {
        match self {
            Self::Rank => block,
            Self::LocalRank => hosts.in_local_ranks(block),
        }
    }
}

/// Rounds of [`all_gather`].
pub(crate) const ALL_GATHER_ROUNDS: usize = 2;
/// Rounds of [`broadcast`].
pub(crate) const BROADCAST_ROUNDS: usize = 2;
/// Rounds of [`scatter`].
pub(crate) const SCATTER_ROUNDS: usize = 2;
/// Rounds of [`all_to_all`].
pub(crate) const ALL_TO_ALL_ROUNDS: usize = 3;

/// Each rank's block to its keepers on the other hosts, then all that a rank keeps to its host.
pub(crate) fn all_gather(place: &Place<'_>, owner: Owner, index: usize) -> Round {
    if index > 0 {
        return within_hosts(place, owner);
    }
    let (hosts, me) = (place.hosts, place.rank);
    let mut moves = Moves::default();
    let block = owner.block(hosts, me);
    for host in others(hosts, me) {
        moves.out.push((keeper(hosts, host, me), block));
    }
    for (rank, block) in kept(place, owner, me) {
        if !hosts.share(rank, me) {
            moves.into.push((rank, block));
        }
    }
    moves.round(me)
}

/// The root's blocks to their keepers on its host.
pub(crate) fn deal(place: &Place<'_>, root: usize) -> Round {
    let (hosts, me) = (place.hosts, place.rank);
    let mut moves = Moves::default();
    if me == root {
        for peer in hosts.members(hosts.host(root)) {
            let kept = kept(place, Owner::LocalRank, peer);
            moves.out.extend(kept.map(|(_, block)| (peer, block)));
        }
    } else if hosts.share(me, root) {
        let kept = kept(place, Owner::LocalRank, me);
        moves.into.extend(kept.map(|(_, block)| (root, block)));
    }
    moves.round(me)
}

/// From each keeper on the root's host to those on the other hosts, then all that a rank keeps to
/// its host.
pub(crate) fn broadcast(place: &Place<'_>, root: usize, index: usize) -> Round {
    if index > 0 {
        return within_hosts(place, Owner::LocalRank);
    }
    let (hosts, me) = (place.hosts, place.rank);
    let mut moves = Moves::default();
    for (rank, block) in kept(place, Owner::LocalRank, me) {
        if hosts.share(me, root) {
            let keepers = others(hosts, me).map(|host| (keeper(hosts, host, rank), block));
            moves.out.extend(keepers);
        } else {
            moves
                .into
                .push((keeper(hosts, hosts.host(root), rank), block));
        }
    }
    moves.round(me)
}

/// The blocks of a host from the root to one rank there, which hands them out.
pub(crate) fn scatter(place: &Place<'_>, root: usize, index: usize) -> Round {
    let (hosts, me) = (place.hosts, place.rank);
    let deputy = |host| hosts.at(host, hosts.local_rank(root));
    let home = hosts.host(me);
    let mut moves = Moves::default();
    match index {
        0 if me == root => {
            for host in others(hosts, root) {
                let blocks = hosts.members(host).map(|rank| (deputy(host), rank));
                moves.out.extend(blocks);
            }
        }
        0 if me == deputy(home) && home != hosts.host(root) => {
            moves
                .into
                .extend(hosts.members(home).map(|rank| (root, rank)));
        }
        0 => {}
        _ if me == deputy(home) => moves
            .out
            .extend(hosts.members(home).map(|rank| (rank, rank))),
        _ => moves.into.push((deputy(home), me)),
    }
    moves.round(me)
}

/// What a host has for a rank of another is collected by the rank there with the same local rank,
/// and sent to the one with that local rank, so that each carries its share, and one message goes
/// between two such. Local ranks are counted up to those of the smallest host: then they begin
/// again, and what has come for those beyond is handed out in the last round.
pub(crate) fn all_to_all(place: &Place<'_>, index: usize) -> Round {
    let (hosts, me, world) = (place.hosts, place.rank, place.world);
    let home = hosts.host(me);
    let shares = (0..hosts.count()).map(|host| hosts.size(host)).min();
    let carrier = |host: usize, to: usize| match shares {
        Some(shares) => hosts.at(host, hosts.local_rank(to) % shares),
        None => to,
    };
    let block = |from: usize, to: usize| from * world + to;
    let mut moves = Moves::default();
    if index == 0 {
        for to in 0..world {
            let first = match hosts.share(me, to) {
                true => to,
                false => carrier(home, to),
            };
            moves.out.push((first, block(me, to)));
            let mine = hosts.members(home).filter(|_| first == me);
            moves.into.extend(mine.map(|from| (from, block(from, to))));
        }
    }
    for host in others(hosts, me).filter(|_| index > 0) {
        for (here, there) in pairs(hosts, home, host) {
            match index {
                1 => {
                    if carrier(home, there) == me {
                        moves.out.push((carrier(host, there), block(here, there)));
                    }
                    if carrier(home, here) == me {
                        moves.into.push((carrier(host, here), block(there, here)));
                    }
                }
                _ => {
                    if carrier(home, here) == me {
                        moves.out.push((here, block(there, here)));
                    }
                    if here == me {
                        moves.into.push((carrier(home, me), block(there, me)));
                    }
                }
            }
        }
    }
    moves.round(me)
}

/// All that each rank keeps, to the others of its host.
fn within_hosts(place: &Place<'_>, owner: Owner) -> Round {
    let (hosts, me) = (place.hosts, place.rank);
    let mut moves = Moves::default();
    for peer in hosts.members(hosts.host(me)) {
        moves
            .out
            .extend(kept(place, owner, me).map(|(_, block)| (peer, block)));
        moves
            .into
            .extend(kept(place, owner, peer).map(|(_, block)| (peer, block)));
    }
    moves.round(me)
}

/// The blocks that a rank keeps for its host, each with the rank that owns it.
fn kept<'a>(
    place: &Place<'a>,
    owner: Owner,
    keeper_rank: usize,
) -> impl Iterator<Item = (usize, usize)> + 'a {
    let hosts = place.hosts;
    let home = hosts.host(keeper_rank);
    (0..place.world)
        .map(move |block| (owner.rank(hosts, block), block))
        .filter(move |(rank, _)| keeper(hosts, home, *rank) == keeper_rank)
}

/// The rank of a host that keeps what another rank owns.
fn keeper(hosts: &Hosts, host: usize, owner: usize) -> usize {
    hosts.at(host, hosts.local_rank(owner))
}

fn others(hosts: &Hosts, rank: usize) -> impl Iterator<Item = usize> + '_ {
    (0..hosts.count()).filter(move |host| *host != hosts.host(rank))
}

fn pairs(hosts: &Hosts, left: usize, right: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    hosts
        .members(left)
        .flat_map(move |one| hosts.members(right).map(move |other| (one, other)))
}

/// Single blocks to and from others, to be put together.
#[derive(Default)]
struct Moves {
    out: Vec<(usize, usize)>,
    into: Vec<(usize, usize)>,
}

impl Moves {
    fn round(self, me: usize) -> Round {
        let mut round = Round::default();
        for (to, blocks) in runs(self.out) {
            round.send(me, to, blocks);
        }
        for (from, blocks) in runs(self.into) {
            round.receive(me, from, blocks);
        }
        round
    }
}

/// Consecutive blocks of the same peer in one piece.
pub(crate) fn runs(mut moves: Vec<(usize, usize)>) -> Vec<(usize, Range<usize>)> {
    moves.sort_unstable();
    let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
    for (peer, block) in moves {
        match runs.last_mut() {
            Some((last, blocks)) if *last == peer && blocks.end == block => blocks.end += 1,
            _ => runs.push((peer, block..block + 1)),
        }
    }
    runs
}
