//! Groups over several hosts: inside a host through memory, between hosts over links.
//!
//! ```text
//!   host A: ranks 0 1        host B: ranks 2 3          all-reduce of buffers [x y]
//!
//!   local    0 <-> 1   2 <-> 3     reduce-scatter     0 has x of A, 1 has y of A, …
//!   across   0 <-> 2   1 <-> 3     all-reduce         0 and 2 have x of all, 1 and 3 have y
//!   local    0 <-> 1   2 <-> 3     all-gather         all have both
//! ```
//!
//! Every rank of a host carries its share over the network, as many as the smallest host has ranks.
//! A broadcast goes to all of the root's host first, then by shares to the others. All-gather and
//! reduce-scatter: `levels/blocks.rs`.

mod blocks;

use std::num::NonZeroU32;
use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::engine::{Asked, Bond, Engine, Work};
use super::split::Part;
use crate::contract::{Contract, Kind};
use crate::memory::{Errand, Offer, Take, Then};
use crate::schedule::{Hosts, chunk};
use crate::{Error, Rank};

/// The groups that a rank is in besides that of all ranks.
pub(super) struct Levels {
    /// The ranks of this host.
    local: Engine,
    /// The ranks of all hosts that carry the same share, if this rank carries one.
    across: Option<Engine>,
    /// Into how many shares a buffer is cut.
    shares: usize,
    /// Where each rank is, by its place among all.
    seats: Vec<Seat>,
    /// This rank's place among all.
    me: usize,
    hosts: Hosts,
}

/// Where a rank is, seen from another.
struct Seat {
    /// On the same host.
    is_here: bool,
    /// Its number among the ranks of its host.
    local: Rank,
    /// The number, among the ranks that carry the same share as the one that looks, of the one on
    /// its host; none where that host carries no such share.
    across: Option<Rank>,
}

impl Engine {
    /// Makes the groups inside hosts and across them, where there are several hosts and one of them
    /// has several ranks. All ranks come to the same end.
    pub(super) fn find_levels(&mut self) -> Result<(), Error> {
        if let Bond::Local(_) = &self.ties.bond {
            return Ok(());
        }
        let hosts = self.hosts();
        let (me, shares) = (self.rank.index(), smallest(&hosts));
        if hosts.len() == distinct(&hosts) {
            return Ok(());
        }
        let places = |wanted: &dyn Fn(usize) -> bool| -> Vec<usize> {
            (0..hosts.len()).filter(|place| wanted(*place)).collect()
        };
        let own = places(&|place| hosts[place] == hosts[me]);
        let carriers = places(&|place| lane(&hosts, place) == lane(&hosts, me));
        let seat = |place: usize| Seat {
            is_here: hosts[place] == hosts[me],
            local: rank_at(lane(&hosts, place)),
            across: carriers
                .iter()
                .position(|carrier| hosts[*carrier] == hosts[place])
                .map(rank_at),
        };
        let seats = (0..hosts.len()).map(seat).collect();
        let number = self.next_number();
        let local = self.part_of(own, number);
        let across = (lane(&hosts, me) < shares)
            .then(|| self.part_of(carriers, number.wrapping_add(1)))
            .flatten();
        let caller = Location::caller();
        let Some(local) = self.split(local, caller)? else {
            return Ok(());
        };
        let across = self.split(across, caller)?;
        for part in [Some(&local), across.as_ref()].into_iter().flatten() {
            part.pen.is_part_of(self.number);
        }
        self.levels = Some(Box::new(Levels {
            local,
            across,
            shares,
            seats,
            me,
            hosts: Hosts::of(&hosts),
        }));
        Ok(())
    }

    fn part_of(&self, places: Vec<usize>, number: u64) -> Option<Part> {
        let me = places
            .iter()
            .position(|place| *place == self.rank.index())?;
        Some(Part::new(places, me, number))
    }
}

impl Levels {
    /// Replaces the buffer by the reduction of all ranks'; all have agreed on the call before.
    pub(super) fn all_reduce<T: Element>(
        &mut self,
        contract: &Contract,
        caller: &'static Location<'static>,
        (buffer, reduction): (&mut [T], Reduction<T>),
        world: u32,
    ) -> Result<(), Error> {
        // A mean is a sum until all contributions are in.
        let op = match reduction.op() {
            ReduceOp::Mean => ReduceOp::Sum,
            other => other,
        };
        let inner = Reduction::new(op)?;
        let me = self.local.rank.index();
        let blocks: Vec<Range<usize>> = (0..self.local.world as usize)
            .map(|place| self.share(buffer.len(), place))
            .collect();
        let mut share = vec![T::default(); blocks[me].len()];
        let takes = self.takes(|_| me, |_| blocks[me].start, |_| 0..share.len());
        let errand = Errand {
            offer: Offer::each(buffer, &blocks),
            takes: &takes,
            output: &mut share,
            then: Then::Fold(inner),
        };
        let count = usize::try_from(contract.count).expect("the length of a buffer here");
        let asked = Asked::new(Kind::ReduceScatter, count).with_op(op);
        self.local.perform(asked, caller, Work::Pull(errand))?;
        if let Some(across) = &mut self.across {
            let asked = Asked::new(Kind::AllReduce, share.len()).with_op(op);
            let work = Work::Reduce {
                buffer: &mut share,
                reduction: inner,
                root: None,
            };
            across.perform(asked, caller, work)?;
        }
        buffer[blocks[me].clone()].copy_from_slice(&share);
        self.gather_shares(caller, &share, buffer)?;
        if let Some(world) = NonZeroU32::new(world) {
            reduction.finish(buffer, world);
        }
        Ok(())
    }

    /// Replaces the buffer by that of the rank at this place; all have agreed on the call before.
    ///
    /// The root's host has it first, and all of its ranks hand their shares on.
    pub(super) fn broadcast<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        let Seat {
            is_here,
            local,
            across: carrier,
        } = self.seats[root];
        if is_here {
            let asked = Asked::new(Kind::Broadcast, buffer.len()).with_root(local);
            let work = Work::Broadcast {
                buffer,
                root: local,
            };
            self.local.perform(asked, caller, work)?;
        }
        let own = self.share(buffer.len(), self.local.rank.index());
        if let (Some(across), Some(root)) = (&mut self.across, carrier) {
            let asked = Asked::new(Kind::Broadcast, own.len()).with_root(root);
            let buffer = &mut buffer[own.clone()];
            across.perform(asked, caller, Work::Broadcast { buffer, root })?;
        }
        if is_here {
            return Ok(());
        }
        let share = buffer[own].to_vec();
        self.gather_shares(caller, &share, buffer)
    }

    /// Gives the ranks of this host what each of them carries.
    fn gather_shares<T: Element>(
        &mut self,
        caller: &'static Location<'static>,
        share: &[T],
        buffer: &mut [T],
    ) -> Result<(), Error> {
        let asked = Asked::new(Kind::AllGather, buffer.len());
        let takes = self.takes(|_| 0, |_| 0, |from| self.share(buffer.len(), from));
        let whole = 0..share.len();
        let errand = Errand {
            offer: Offer::whole(share, std::slice::from_ref(&whole)),
            takes: &takes,
            output: buffer,
            then: Then::Copy,
        };
        self.local.perform(asked, caller, Work::Pull(errand))
    }

    /// The elements that the rank at this place of a host carries.
    fn share(&self, len: usize, place: usize) -> Range<usize> {
        if place < self.shares {
            chunk(len, self.shares, place)
        } else {
            len..len
        }
    }

    fn takes(
        &self,
        block: impl Fn(usize) -> usize,
        start: impl Fn(usize) -> usize,
        into: impl Fn(usize) -> Range<usize>,
    ) -> Vec<Take> {
        let me = self.local.rank.index();
        let others = (0..self.local.world as usize).filter(|place| *place != me);
        others
            .map(|from| Take {
                from,
                block: block(from),
                start: start(from),
                into: into(from),
            })
            .collect()
    }
}

/// How many ranks of the same host come before the one at this place.
fn lane(hosts: &[usize], place: usize) -> usize {
    let before = hosts[..place].iter();
    before.filter(|host| **host == hosts[place]).count()
}

/// How many ranks the smallest host has.
fn smallest(hosts: &[usize]) -> usize {
    let sizes = hosts
        .iter()
        .map(|host| hosts.iter().filter(|other| *other == host).count());
    sizes.min().expect("a group has a rank, and it a host")
}

/// How many hosts there are.
fn distinct(hosts: &[usize]) -> usize {
    (0..hosts.len())
        .filter(|place| lane(hosts, *place) == 0)
        .count()
}

fn rank_at(place: usize) -> Rank {
    Rank::new(u32::try_from(place).expect("a world is at most `WORLD_LIMIT`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_are_numbered_in_their_order_and_hosts_counted_once() {
        let hosts = [7, 3, 7, 7, 3, 1];
        let lanes: Vec<usize> = (0..hosts.len()).map(|place| lane(&hosts, place)).collect();
        assert_eq!(lanes, [0, 0, 1, 2, 1, 0]);
        assert_eq!((smallest(&hosts), distinct(&hosts)), (1, 3));
        assert_eq!(distinct(&[]), 0);
    }
}
