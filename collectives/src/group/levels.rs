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

use std::num::NonZeroU32;
use std::ops::Range;
use std::panic::Location;

use meshwork_accel::{Element, ReduceOp, Reduction};

use super::engine::{Asked, Bond, Engine, Work};
use super::split::Part;
use crate::Error;
use crate::contract::{Contract, Kind};
use crate::memory::{Errand, Offer, Take, Then};
use crate::schedule::chunk;

/// The groups that a rank is in besides that of all ranks.
pub(super) struct Levels {
    /// The ranks of this host.
    local: Engine,
    /// The ranks of all hosts that carry the same share, if this rank carries one.
    across: Option<Engine>,
    /// Into how many shares a buffer is cut.
    shares: usize,
}

impl Engine {
    /// Makes the groups inside hosts and across them, where there are several hosts and one of them
    /// has several ranks. All ranks come to the same end.
    pub(super) fn find_levels(&mut self) -> Result<(), Error> {
        let Bond::Remote(remote) = &self.ties.bond else {
            return Ok(());
        };
        let hosts = remote.hosts();
        let host = |place: usize| hosts[self.members[place].rank().index()];
        let ranks = 0..self.world as usize;
        let on = |wanted: usize| -> Vec<usize> {
            ranks
                .clone()
                .filter(|place| host(*place) == wanted)
                .collect()
        };
        let own = on(host(self.rank.index()));
        let sizes: Vec<usize> = ranks.clone().map(|place| on(host(place)).len()).collect();
        let apart = sizes.iter().all(|size| *size == 1);
        let Some(shares) = sizes.iter().min().copied().filter(|_| !apart) else {
            return Ok(());
        };
        let lane = |place: usize| on(host(place)).iter().position(|other| *other == place);
        let own_lane = lane(self.rank.index());
        let carriers = ranks.clone().filter(|place| lane(*place) == own_lane);
        let carriers: Vec<usize> = carriers.collect();
        let number = self.next_number();
        let local = self.part_of(own, number);
        let across = own_lane.filter(|lane| *lane < shares);
        let across = across.and_then(|_| self.part_of(carriers, number.wrapping_add(1)));
        let caller = Location::caller();
        let Some(local) = self.split(local, caller)? else {
            return Ok(());
        };
        let across = self.split(across, caller)?;
        for part in [Some(&local), across.as_ref()].into_iter().flatten() {
            self.ties.recorder.is_part(part.number, self.number);
        }
        self.levels = Some(Box::new(Levels {
            local,
            across,
            shares,
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
        let count = usize::try_from(contract.count).unwrap_or(usize::MAX);
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
        let takes = self.takes(|_| 0, |_| 0, |from| blocks[from].clone());
        let whole = 0..share.len();
        let errand = Errand {
            offer: Offer::whole(&share, std::slice::from_ref(&whole)),
            takes: &takes,
            output: buffer,
            then: Then::Copy,
        };
        let asked = Asked::new(Kind::AllGather, count);
        self.local.perform(asked, caller, Work::Pull(errand))?;
        if let Some(world) = NonZeroU32::new(world) {
            reduction.finish(buffer, world);
        }
        Ok(())
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
