//! Hearing the members that call, and newcomers.

use std::sync::Arc;

use quinn::{Connection, Incoming, SendStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::line::{Carrier, Line};
use super::{Arrival, Reconfiguration};
use crate::quic::TURNED_AWAY;
use crate::quic::admission::LentConnection;
use crate::quic::control::{self, NoMessage};
use crate::quic::handshake_limiter::HandshakePermit;
use crate::quic::streams::Stream;
use crate::tasks::spawn_in;
use crate::wire::{JoinRequest, Message};

/// Members that may be heard at a time; a group can have as many.
const CALLERS: usize = 4096;

impl Reconfiguration {
    /// Hears all who call, over connections of their own and those that are lent.
    pub(super) async fn receive_all(self: Arc<Self>, lent: Vec<LentConnection>) {
        let senders = Arc::new(Semaphore::new(CALLERS));
        // Ends with this, and with it all that is heard too late.
        let mut callers = JoinSet::new();
        for lent in lent {
            spawn_in(&mut callers, self.clone().receive_by(lent));
        }
        while let Some(incoming) = self.node.endpoint.accept().await {
            while callers.try_join_next().is_some() {}
            let Some((incoming, permit)) = self.node.handshake_limiter.admit(incoming) else {
                continue;
            };
            let (own, senders) = (self.clone(), senders.clone());
            spawn_in(&mut callers, async move {
                let _ = own.receive(incoming, permit, &senders).await;
            });
        }
    }

    /// Hears a member that calls over a connection of the epoch before: now, and not in an
    /// agreement before.
    async fn receive_by(self: Arc<Self>, lent: LentConnection) {
        while let Ok((send, mut receive)) = lent.connection.accept_bi().await {
            if let Ok(Message::JoinRequest(join_request)) = control::read(&mut receive).await
                && join_request.newcomer.process.member_id == lent.with
                && join_request.epoch == self.join_request.epoch
            {
                let carrier = Carrier::Lent(lent.clone());
                let _ = self.answer(join_request, carrier, (send, receive)).await;
            }
        }
    }

    /// Tells a newcomer that members are here, who hear it once they are in the next epoch.
    async fn put_off(&self, connection: Connection, mut send: SendStream) -> Result<(), NoMessage> {
        control::write(&mut send, &Message::JoinRequest(self.join_request.clone())).await?;
        let _ = send.finish();
        // Answered when the other has it all: nothing is to wait for the end of this agreement.
        let _ = send.stopped().await;
        connection.close(TURNED_AWAY, b"");
        Ok(())
    }

    /// Hears a caller out, if it belongs here. Others call again when they find nobody.
    async fn receive(
        &self,
        incoming: Incoming,
        permit: HandshakePermit,
        senders: &Semaphore,
    ) -> Result<(), NoMessage> {
        let proved = timeout(permit.patience(), async {
            let connection = incoming.await?;
            self.node.connection_counters.answered();
            let mut line = connection.accept_bi().await?;
            let message = control::read(&mut line.1).await?;
            Ok::<_, NoMessage>((connection, line, message))
        });
        let (connection, (send, receive), message) =
            proved.await.map_err(|_| NoMessage::Ended)??;
        let Message::JoinRequest(join_request) = message else {
            return Ok(());
        };
        let process = join_request.newcomer.process;
        let proved = self
            .node
            .identity
            .is(&connection, self.node.role(process.member_id));
        // A newcomer listens to whoever has been in an epoch; members listen to those of their own.
        let belongs = match self.join_request.epoch {
            0 => join_request.epoch > 0,
            epoch => join_request.epoch == epoch,
        };
        if proved && self.join_request.epoch > 0 && join_request.epoch == 0 {
            // Whoever does not close is not waited for long.
            let _ = timeout(permit.patience(), self.put_off(connection, send)).await;
            return Ok(());
        }
        if !proved || !belongs {
            return Ok(());
        }
        // It has proved itself, so it may take its time.
        drop(permit);
        let Ok(_line) = senders.try_acquire() else {
            return Ok(());
        };
        let carrier = Carrier::Own(connection);
        self.answer(join_request, carrier, (send, receive)).await
    }

    /// Hears a member of this epoch out, which can be answered from now on.
    async fn answer(
        &self,
        join_request: JoinRequest,
        carrier: Carrier,
        stream: Stream,
    ) -> Result<(), NoMessage> {
        let (mut send, receive) = stream;
        control::write(&mut send, &Message::JoinRequest(self.join_request.clone())).await?;
        let process = join_request.newcomer.process;
        let line = Line::of_caller(process, carrier.clone(), send);
        if self.arrives(Arrival::Called(line)).await.is_ok() {
            self.hear(process, join_request.epoch, receive).await;
        }
        Ok(())
    }
}
