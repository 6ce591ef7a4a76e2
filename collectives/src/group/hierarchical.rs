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
//! reduce-scatter: `hierarchical/blocks.rs`.

mod blocks;

use std::num::NonZeroU32;
use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::session::{ControlPlane, OperationSpec, Session, Work};
use super::split::Part;
use crate::contract::{Contract, Kind};
use crate::schedule::{Hosts, chunk};
use crate::shm::{OnArrival, ReceiveBlock, SendBlocks, Transfer};
use crate::{Error, Rank};

/// The groups that a rank is in besides that of all ranks.
pub(super) struct HierarchicalGroups {
    /// The ranks of this host.
    local: Session,
    /// The ranks of all hosts that carry the same share, if this rank carries one.
    across: Option<Session>,
    /// Into how many shares a buffer is cut.
    shares: usize,
    /// Where each rank is, by its place among all.
    rank_places: Vec<RankPlace>,
    /// This rank's place among all.
    me: usize,
    hosts: Hosts,
}

/// Where a rank is, seen from another.
struct RankPlace {
    /// On the same host.
    is_here: bool,
    /// Its number among the ranks of its host.
    local: Rank,
    /// The number, among the ranks that carry the same share as the one that looks, of the one on
    /// its host; none where that host carries no such share.
    across: Option<Rank>,
}

impl Session {
    /// Makes the groups inside hosts and across them, where there are several hosts and one of them
    /// has several ranks. All ranks come to the same end.
    pub(super) fn find_hosts(&mut self) -> Result<(), Error> {
        if let ControlPlane::Local(_) = &self.context.control {
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
        let carriers = places(&|place| local_rank(&hosts, place) == local_rank(&hosts, me));
        let member_id = |place: usize| RankPlace {
            is_here: hosts[place] == hosts[me],
            local: rank_at(local_rank(&hosts, place)),
            across: carriers
                .iter()
                .position(|carrier| hosts[*carrier] == hosts[place])
                .map(rank_at),
        };
        let rank_places = (0..hosts.len()).map(member_id).collect();
        let number = self.next_number();
        let local = self.part_of(own, number);
        let across = (local_rank(&hosts, me) < shares)
            .then(|| self.part_of(carriers, number.wrapping_add(1)))
            .flatten();
        let caller = Location::caller();
        let Some(local) = self.split(local, caller)? else {
            return Ok(());
        };
        let across = self.split(across, caller)?;
        for part in [Some(&local), across.as_ref()].into_iter().flatten() {
            part.log.is_part_of(self.number);
        }
        self.hierarchical = Some(Box::new(HierarchicalGroups {
            local,
            across,
            shares,
            rank_places,
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

impl HierarchicalGroups {
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
        let receives = self.receives(|_| me, |_| blocks[me].start, |_| 0..share.len());
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(buffer, &blocks),
            receives: &receives,
            output: &mut share,
            then: OnArrival::Fold(inner),
        };
        let count = usize::try_from(contract.count).expect("the length of a buffer here");
        let spec = OperationSpec::new(Kind::ReduceScatter, count).with_op(op);
        self.local.perform(spec, caller, Work::Pull(transfer))?;
        if let Some(across) = &mut self.across {
            let spec = OperationSpec::new(Kind::AllReduce, share.len()).with_op(op);
            let work = Work::Reduce {
                buffer: &mut share,
                reduction: inner,
                root: None,
            };
            across.perform(spec, caller, work)?;
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
        let RankPlace {
            is_here,
            local,
            across: carrier,
        } = self.rank_places[root];
        if is_here {
            let spec = OperationSpec::new(Kind::Broadcast, buffer.len()).with_root(local);
            let work = Work::Broadcast {
                buffer,
                root: local,
            };
            self.local.perform(spec, caller, work)?;
        }
        let own = self.share(buffer.len(), self.local.rank.index());
        if let (Some(across), Some(root)) = (&mut self.across, carrier) {
            let spec = OperationSpec::new(Kind::Broadcast, own.len()).with_root(root);
            let buffer = &mut buffer[own.clone()];
            across.perform(spec, caller, Work::Broadcast { buffer, root })?;
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
        let spec = OperationSpec::new(Kind::AllGather, buffer.len());
        let receives = self.receives(|_| 0, |_| 0, |from| self.share(buffer.len(), from));
        let whole = 0..share.len();
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::whole(share, std::slice::from_ref(&whole)),
            receives: &receives,
            output: buffer,
            then: OnArrival::Copy,
        };
        self.local.perform(spec, caller, Work::Pull(transfer))
    }

    /// The elements that the rank at this place of a host carries.
    fn share(&self, len: usize, place: usize) -> Range<usize> {
        if place < self.shares {
            chunk(len, self.shares, place)
        } else {
            len..len
        }
    }

    fn receives(
        &self,
        block: impl Fn(usize) -> usize,
        start: impl Fn(usize) -> usize,
        into: impl Fn(usize) -> Range<usize>,
    ) -> Vec<ReceiveBlock> {
        let me = self.local.rank.index();
        let others = (0..self.local.world as usize).filter(|place| *place != me);
        others
            .map(|from| ReceiveBlock {
                from,
                block: block(from),
                start: start(from),
                into: into(from),
            })
            .collect()
    }
}

/// How many ranks of the same host come before the one at this place.
fn local_rank(hosts: &[usize], place: usize) -> usize {
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
        .filter(|place| local_rank(hosts, *place) == 0)
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
        let local_ranks: Vec<usize> = (0..hosts.len())
            .map(|place| local_rank(&hosts, place))
            .collect();
        assert_eq!(local_ranks, [0, 0, 1, 2, 1, 0]);
        assert_eq!((smallest(&hosts), distinct(&hosts)), (1, 3));
        assert_eq!(distinct(&[]), 0);
    }
}
