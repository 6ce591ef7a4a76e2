//! Whom an operation is done with, before it begins.

use std::collections::BTreeSet;

use super::LinkOperation;
use super::bytes::{BytesTransfer, BytesWork};
use super::exchange::Route;
use super::multi_hop::steps;
use crate::Rank;
use crate::schedule::Collective;

impl LinkOperation<'_> {
    /// Every rank that this one sends to or receives from when it carries the work out.
    pub(crate) fn peers(&self, work: &BytesWork<'_>) -> BTreeSet<Rank> {
        let mut peers = match *work {
            // A message is between two ranks, and announced by one to the other.
            BytesWork::Send { to: peer, .. } | BytesWork::Receive { from: peer, .. } => {
                return BTreeSet::from([peer]);
            }
            BytesWork::Agree => BTreeSet::new(),
            BytesWork::Exchange(ref transfer) => self.peers_of_exchange(transfer),
            BytesWork::Barrier => self.schedule(Collective::Barrier).peers(),
            BytesWork::Reduce { root: None, .. } => self.schedule(Collective::AllReduce).peers(),
            BytesWork::Reduce {
                root: Some(root), ..
            } => self.schedule(Collective::Reduce { root }).peers(),
            BytesWork::Broadcast { root, .. } => {
                self.schedule(Collective::Broadcast { root }).peers()
            }
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

    fn peers_of_exchange(&self, transfer: &BytesTransfer<'_>) -> BTreeSet<Rank> {
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
    fn peers_of_blocks(&self, transfer: &BytesTransfer<'_>) -> BTreeSet<Rank> {
        let blocks = &transfer.outgoing_blocks;
        let takers = Rank::all(self.world).filter(|to| blocks.block_for(to.index()).is_some());
        let givers = transfer.receives.iter().map(|take| Rank::at(take.from));
        takers.chain(givers).collect()
    }
}
