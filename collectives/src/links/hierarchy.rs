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
//! reduce-scatter: `hierarchy/blocks.rs`; all-to-all: `hierarchy/all_to_all.rs`.

mod all_to_all;
mod blocks;

use std::num::NonZeroU32;
use std::ops::Range;
use std::panic::Location;
use std::time::Duration;

use meshwork_accel::{Element, ElementType, ReduceOp, Reduction};

use crate::contract::Kind;
use crate::failure::Failure;
use crate::operation::{
    Carried, OnArrival, OperationSpec, ReceiveBlock, Request, SendBlocks, Transfer, Work,
};
use crate::schedule::{Hosts, chunk};
use crate::session::Session;
use crate::{MeasuredLinks, OperationError, Rank};

/// The groups that a rank is in besides that of all ranks.
pub(crate) struct Hierarchy {
    /// The ranks of this host.
    local: Session,
    /// The ranks of all hosts that carry the same share, if this rank carries one.
    across: Option<Session>,
    /// Into how many shares a buffer is cut: ranks of the smallest host.
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

/// What the parts of an operation have in common with it.
#[derive(Clone, Copy)]
struct CallOfParts {
    /// The line of the program that made the call.
    caller: &'static Location<'static>,
    /// What the elements are.
    element: ElementType,
}

impl CallOfParts {
    fn of(request: &Request) -> Self {
        Self {
            caller: request.caller,
            element: request.contract.element,
        }
    }

    /// Carries a part out.
    fn perform<T: Element>(
        self,
        session: &mut Session,
        spec: OperationSpec,
        work: Work<'_, T>,
    ) -> Result<(), OperationError> {
        let spec = spec.called_from(self.caller);
        session.perform_carried(self.element, spec, Carried::of(work))
    }
}

/// What can be done host by host.
pub(super) enum HierarchicalWork<'a, T: Element> {
    AllReduce {
        buffer: &'a mut [T],
        reduction: Reduction<T>,
    },
    Broadcast {
        buffer: &'a mut [T],
        root: Rank,
    },
    AllGather(Transfer<'a, T>),
    AllToAll(Transfer<'a, T>),
    ReduceScatter {
        outgoing_blocks: SendBlocks<'a, T>,
        output: &'a mut [T],
        reduction: Reduction<T>,
    },
}

/// Work, by whether it can be done host by host.
pub(super) enum Planned<'a, T: Element> {
    ByHosts(HierarchicalWork<'a, T>),
    /// From rank to rank alone.
    Flat(Work<'a, T>),
}

impl<'a, T: Element> Planned<'a, T> {
    pub(super) fn of(kind: Kind, work: Work<'a, T>) -> Self {
        match work {
            Work::Reduce {
                buffer,
                reduction,
                root: None,
            } => Self::ByHosts(HierarchicalWork::AllReduce { buffer, reduction }),
            Work::Broadcast { buffer, root } => {
                Self::ByHosts(HierarchicalWork::Broadcast { buffer, root })
            }
            Work::Exchange(Transfer {
                outgoing_blocks,
                output,
                then: OnArrival::Fold(reduction),
                ..
            }) => Self::ByHosts(HierarchicalWork::ReduceScatter {
                outgoing_blocks,
                output,
                reduction,
            }),
            Work::Exchange(transfer) if kind == Kind::AllToAll => {
                Self::ByHosts(HierarchicalWork::AllToAll(transfer))
            }
            Work::Exchange(transfer) => Self::ByHosts(HierarchicalWork::AllGather(transfer)),
            other @ (Work::Reduce { root: Some(_), .. }
            | Work::Barrier
            | Work::Agree
            | Work::Send { .. }
            | Work::Receive { .. }) => Self::Flat(other),
        }
    }
}

impl Hierarchy {
    /// Of all ranks' hosts, the groups of this host's ranks and of those that carry the same share.
    ///
    /// Inside the host ranks wait for each other as long as bytes move between hosts, though they
    /// see none of these: for a day. Whoever waits in vain for bytes between hosts, or for the call
    /// of a rank that hangs, ends the group before, and with it all waits inside the host.
    pub(crate) fn new(me: Rank, hosts: Hosts, mut local: Session, across: Option<Session>) -> Self {
        local.set_operation_timeout(Duration::MAX);
        let me = me.index();
        let carriers: Vec<usize> = Self::carriers(&hosts, me).collect();
        let place = |place: usize| RankPlace {
            is_here: hosts.share(place, me),
            local: Rank::at(hosts.local_rank(place)),
            across: carriers
                .iter()
                .position(|carrier| hosts.share(*carrier, place))
                .map(Rank::at),
        };
        Self {
            local,
            across,
            shares: Self::shares(&hosts),
            rank_places: (0..hosts.world()).map(place).collect(),
            me,
            hosts,
        }
    }

    /// Ranks of the smallest host.
    pub(crate) fn shares(hosts: &Hosts) -> usize {
        let sizes = (0..hosts.count()).map(|host| hosts.size(host));
        sizes.min().expect("a group has a rank, which has a host")
    }

    /// The ranks that carry the same share as this one, one on each host that has so many.
    pub(crate) fn carriers(hosts: &Hosts, me: usize) -> impl Iterator<Item = usize> + '_ {
        (0..hosts.world()).filter(move |place| hosts.local_rank(*place) == hosts.local_rank(me))
    }

    /// The group across hosts, if this rank is in it.
    pub(super) fn across(&mut self) -> Option<&mut Session> {
        self.across.as_mut()
    }

    /// What goes around a ring of hosts goes by these links from now on.
    pub(super) fn go_by(&mut self, links: &MeasuredLinks) {
        let carriers: Vec<Rank> = Self::carriers(&self.hosts, self.me).map(Rank::at).collect();
        if let Some(across) = &mut self.across {
            across.medium.go_by(&links.among(&carriers));
        }
    }

    /// Carries an operation out that all ranks have agreed on.
    pub(super) fn run<T: Element>(
        &mut self,
        request: &Request,
        work: HierarchicalWork<'_, T>,
    ) -> Result<(), Failure> {
        let call = CallOfParts::of(request);
        let done = match work {
            HierarchicalWork::AllReduce { buffer, reduction } => {
                self.all_reduce(call, buffer, reduction)
            }
            HierarchicalWork::Broadcast { buffer, root } => {
                self.broadcast(call, buffer, root.index())
            }
            HierarchicalWork::AllGather(transfer) => self.all_gather(call, transfer),
            HierarchicalWork::AllToAll(transfer) => self.all_to_all(call, transfer),
            HierarchicalWork::ReduceScatter {
                outgoing_blocks,
                output,
                reduction,
            } => self.reduce_scatter(call, outgoing_blocks, output, reduction),
        };
        done.map_err(Failure::Part)
    }

    /// Replaces the buffer by the reduction of all ranks'; all have agreed on the call before.
    fn all_reduce<T: Element>(
        &mut self,
        call: CallOfParts,
        buffer: &mut [T],
        reduction: Reduction<T>,
    ) -> Result<(), OperationError> {
        // A mean is a sum until all contributions are in.
        let op = match reduction.op() {
            ReduceOp::Mean => ReduceOp::Sum,
            other => other,
        };
        let inner = Reduction::carrying(reduction.element(), op)?;
        let me = self.local.rank.index();
        let blocks: Vec<Range<usize>> = (0..self.local.world as usize)
            .map(|place| Self::share(self.shares, buffer.len(), place))
            .collect();
        let mut share = vec![T::default(); blocks[me].len()];
        let receives = self.receives(|_| me, |_| blocks[me].start, |_| 0..share.len());
        let transfer = Transfer {
            outgoing_blocks: SendBlocks::each(buffer, &blocks),
            receives: &receives,
            output: &mut share,
            then: OnArrival::Fold(inner),
        };
        let spec = OperationSpec::new(Kind::ReduceScatter, buffer.len()).with_op(op);
        call.perform(&mut self.local, spec, Work::Exchange(transfer))?;
        if let Some(across) = &mut self.across {
            let spec = OperationSpec::new(Kind::AllReduce, share.len()).with_op(op);
            let work = Work::Reduce {
                buffer: &mut share,
                reduction: inner,
                root: None,
            };
            call.perform(across, spec, work)?;
        }
        buffer[blocks[me].clone()].copy_from_slice(&share);
        self.gather_here(call, &share, |from| blocks[from].clone(), buffer)?;
        reduction.finish(buffer, self.world());
        Ok(())
    }

    /// Replaces the buffer by that of the rank at this place; all have agreed on the call before.
    ///
    /// The root's host has it first, and all of its ranks hand their shares on.
    fn broadcast<T: Element>(
        &mut self,
        call: CallOfParts,
        buffer: &mut [T],
        root: usize,
    ) -> Result<(), OperationError> {
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
            call.perform(&mut self.local, spec, work)?;
        }
        let (shares, len) = (self.shares, buffer.len());
        let range = |place| Self::share(shares, len, place);
        let own = range(self.local.rank.index());
        if let (Some(across), Some(root)) = (&mut self.across, carrier) {
            let spec = OperationSpec::new(Kind::Broadcast, own.len()).with_root(root);
            let buffer = &mut buffer[own.clone()];
            call.perform(across, spec, Work::Broadcast { buffer, root })?;
        }
        if is_here {
            return Ok(());
        }
        let share = buffer[own].to_vec();
        self.gather_here(call, &share, range, buffer)
    }

    fn world(&self) -> NonZeroU32 {
        let world = u32::try_from(self.hosts.world()).ok();
        world
            .and_then(NonZeroU32::new)
            .expect("a world is 1 to `WORLD_LIMIT`")
    }

    /// The elements that the rank at this place of a host carries, of `len` in so many shares.
    fn share(shares: usize, len: usize, place: usize) -> Range<usize> {
        if place < shares {
            chunk(len, shares, place)
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

#[cfg(test)]
mod tests;
