//! The connection with a member, and what attends to it.

use std::sync::Arc;

use quinn::{Connection, RecvStream};

use super::Admission;
use super::evidence::Whereabouts;
use crate::Rank;
use crate::idle::Closable;
use crate::membership::Event;
use crate::quic::control;

/// The connection with a member, as its tasks know it.
#[derive(Clone)]
pub(in crate::quic) struct MemberLink {
    pub(in crate::quic) rank: Rank,
    pub(in crate::quic) admission: Arc<Admission>,
    /// What closes it while nothing needs it, if it need not stay.
    pub(in crate::quic) closable: Option<Arc<Closable>>,
}

impl MemberLink {
    /// Turns what happens to the connection into events, until both ends agree to close it or it
    /// has nothing more to say.
    pub(super) async fn attend(
        self,
        control: RecvStream,
        connections: Vec<Connection>,
        whereabouts: Whereabouts,
    ) {
        // First of all events of this rank: nobody can be lost who has not joined.
        let _ = self.admission.events.send(Event::Joined(self.rank)).await;
        let attending = async {
            tokio::join!(
                control::listen(&self, control),
                control::until_any_closed(&self, connections),
                self.watch(whereabouts),
            );
        };
        match &self.closable {
            None => attending.await,
            Some(closable) => tokio::select! {
                biased;
                () = closable.closed() => {}
                () = attending => {}
            },
        }
    }

    /// Tells what becomes of the member's process. Of one that was asked to close the connection
    /// its neighbours tell: it may have agreed, and left.
    async fn watch(&self, whereabouts: Whereabouts) {
        let Some(event) = self.admission.watch(self.rank, whereabouts).await else {
            return;
        };
        let has_died = matches!(event, Event::Died(_));
        if has_died
            && self
                .admission
                .breaks(self.rank, self.closable.as_ref())
                .await
        {
            return;
        }
        let _ = self.admission.events.send(event).await;
    }
}
