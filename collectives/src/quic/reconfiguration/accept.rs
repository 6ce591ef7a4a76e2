//! Hearing the members that call, and newcomers.

use std::sync::Arc;

use quinn::{Connection, Incoming, SendStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Reconfiguration;
use crate::agreement::Event;
use crate::quic::TURNED_AWAY;
use crate::quic::control::{self, NoMessage};
use crate::quic::handshake_limiter::HandshakePermit;
use crate::tasks::spawn_in;
use crate::wire::{Message, Spoken};

/// Members that may be heard at a time; a group can have as many.
const CALLERS: usize = 4096;

impl Reconfiguration {
    /// Hears all who call.
    pub(super) async fn receive_all(self: Arc<Self>) {
        let senders = Arc::new(Semaphore::new(CALLERS));
        // Ends with this, and with it all that is heard too late.
        let mut callers = JoinSet::new();
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
        let (connection, (mut send, mut receive), message) =
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
        control::write(&mut send, &Message::JoinRequest(self.join_request.clone())).await?;
        while let Message::Spoken(Spoken { epoch, message }) = control::read(&mut receive).await? {
            if epoch == join_request.epoch {
                let said = Event::Said {
                    by: process,
                    message,
                };
                if self.events.send(said).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}
