//! Newcomers that end before they have met anybody: nobody is connected with them yet, so nobody
//! would hear of it before the time to join is over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::evidence::refuses;
use super::{Admission, lock};
use crate::membership::Event;
use crate::quic::node::host_digest;
use crate::quic::resolve;
use crate::tasks::spawn_in;
use crate::wire::Newcomer;
use crate::{Rank, host};

/// How often the port of a newcomer on another host is tried.
const AGAIN: Duration = Duration::from_millis(500);

impl Admission {
    /// Watches those that came in with this epoch; as long as what is returned lives, which is
    /// until all have met.
    pub(in crate::quic) fn watch_newcomers(self: &Arc<Self>) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        let newcomers = self.decision.iter().flat_map(|decision| {
            let first = decision.survivors.len();
            (first..).map(Rank::at).zip(&decision.newcomers)
        });
        for (rank, newcomer) in newcomers.filter(|(rank, _)| *rank != self.me) {
            spawn_in(
                &mut watching,
                self.clone().watch_newcomer(rank, newcomer.clone()),
            );
        }
        watching
    }

    /// One that this kernel does not know has ended already, or is another kernel's and has only a
    /// host of the same name: its port tells which.
    async fn watch_newcomer(self: Arc<Self>, rank: Rank, newcomer: Newcomer) {
        let own = host_digest(&self.node.host);
        let shares_host = newcomer.host == own && own != [0; 16];
        if shares_host && host::has_process(newcomer.process_id) {
            if host::process_ended(newcomer.process_id).await.is_err() {
                // The kernel cannot tell: the time to join is left.
                return;
            }
            lock(&self.ended).insert(rank);
        } else if !newcomer.port_is_telling || !self.closes(&newcomer.address).await {
            return;
        }
        let _ = self.events.send(Event::Reported(rank)).await;
    }

    /// Where a newcomer listens, if that is the host that it asks from: not behind address
    /// translation, where others may find somebody else by that name.
    pub(super) async fn address_of(
        &self,
        newcomer: &Newcomer,
        from: SocketAddr,
    ) -> Option<SocketAddr> {
        let found = resolve(&newcomer.address, from).await.ok()?;
        found.filter(|address| address.ip() == from.ip())
    }

    /// Returns when nobody listens at an address any more; false if there is none.
    async fn closes(&self, address: &str) -> bool {
        let Ok(own) = self.node.endpoint.local_addr() else {
            return false;
        };
        let Ok(Some(address)) = resolve(address, own).await else {
            return false;
        };
        while !is_closed(address).await {
            sleep(AGAIN).await;
        }
        true
    }
}

async fn is_closed(address: SocketAddr) -> bool {
    refuses(address).await && refuses(address).await
}
