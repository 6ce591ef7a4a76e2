//! Whom an operation is done with, before it begins.

use std::collections::BTreeSet;

use meshwork_accel::Element;

use super::LinkOperation;
use super::exchange::Route;
use super::multi_hop::steps;
use crate::Rank;
use crate::operation::{Transfer, Work};
use crate::schedule::Collective;

impl LinkOperation<'_> {
    /// Every rank that this one sends to or receives from when it carries the work out.
    pub(crate) fn peers<T: Element>(&self, work: &Work<'_, T>) -> BTreeSet<Rank> {
        let mut peers = match *work {
            // A message is between two ranks, and announced by one to the other.
            Work::Send { to: peer, .. } | Work::Receive { from: peer, .. } => {
                return BTreeSet::from([peer]);
            }
            Work::Agree => BTreeSet::new(),
            Work::Exchange(ref transfer) => self.peers_of_exchange(transfer),
            Work::Barrier => self.schedule(Collective::Barrier).peers(),
            Work::Reduce { root: None, .. } => self.schedule(Collective::AllReduce).peers(),
            Work::Reduce {
                root: Some(root), ..
            } => self.schedule(Collective::Reduce { root }).peers(),
            Work::Broadcast { root, .. } => self.schedule(Collective::Broadcast { root }).peers(),
        };
        peers.append(&mut self.call_peers());
        peers.remove(&self.me);
        peers
    }

    /// Whom this rank tells of its call, and those that tell it of theirs.
    pub(crate) fn call_peers(&self) -> BTreeSet<Rank> {
        let mut peers: BTreeSet<Rank> = self.tellers().into_iter().chain(self.told()).collect();
        peers.remove(&self.me);
        peers
    }

    fn peers_of_exchange<T: Element>(&self, transfer: &Transfer<'_, T>) -> BTreeSet<Rank> {
        match self.route() {
            Route::Direct => self.peers_of_blocks(transfer),
            Route::AllGather => self.schedule(Collective::AllGather).peers(),
            Route::ReduceScatter => self.schedule(Collective::ReduceScatter).peers(),
            Route::Gather(root) => self.schedule(Collective::Gather { root }).peers(),
            Route::Scatter(root) => self.schedule(Collective::Scatter { root }).peers(),
            Route::AllToAll => {
                let (me, world) = (self.me.index(), self.world as usize);
                let pair = |step| [me + step, me + world - step].map(|at| Rank::at(at % world));
                steps(world).flat_map(pair).collect()
            }
        }
    }

    /// Those that take a block of this rank's, and those whose blocks it takes.
    fn peers_of_blocks<T: Element>(&self, transfer: &Transfer<'_, T>) -> BTreeSet<Rank> {
        let blocks = &transfer.outgoing_blocks;
        let takers = Rank::all(self.world).filter(|to| blocks.block_for(to.index()).is_some());
        let givers = transfer.receives.iter().map(|take| Rank::at(take.from));
        takers.chain(givers).collect()
    }
}
