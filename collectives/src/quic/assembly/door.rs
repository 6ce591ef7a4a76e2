use std::sync::Arc;

use quinn::Incoming;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Assembly;
use crate::agreement::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::gate::Place;
use crate::wire::{Message, Spoken};

/// Members that may be heard at a time; a group can have as many.
const CALLERS: usize = 1024;

impl Assembly {
    /// Hears all who call.
    pub(super) async fn receive_all(self: Arc<Self>) {
        let lines = Arc::new(Semaphore::new(CALLERS));
        // Ends with this, and with it all that is heard too late.
        let mut callers = JoinSet::new();
        while let Some(incoming) = self.station.endpoint.accept().await {
            while callers.try_join_next().is_some() {}
            let Some(caller) = self.station.gate.admit(incoming) else {
                continue;
            };
            let (own, lines) = (self.clone(), lines.clone());
            callers.spawn(async move {
                let _ = own.receive(caller, &lines).await;
            });
        }
    }

    /// Hears a caller out, if it belongs here. Others call again when they find nobody.
    async fn receive(
        &self,
        (incoming, place): (Incoming, Place),
        lines: &Semaphore,
    ) -> Result<(), NoMessage> {
        let proved = timeout(place.patience(), async {
            let connection = incoming.await?;
            let mut line = connection.accept_bi().await?;
            let message = control::read(&mut line.1).await?;
            Ok::<_, NoMessage>((connection, line, message))
        });
        let (connection, (mut send, mut receive), message) =
            proved.await.map_err(|_| NoMessage::Ended)??;
        let Message::Knock(knock) = message else {
            return Ok(());
        };
        let seat = knock.newcomer.seat;
        let proved = self
            .station
            .identity
            .is(&connection, self.station.role(seat));
        // A newcomer listens to whoever has been in an epoch; members listen to those of their own.
        let belongs = match self.knock.epoch {
            0 => knock.epoch > 0,
            epoch => knock.epoch == epoch,
        };
        if !proved || !belongs {
            return Ok(());
        }
        // It has proved itself, so it may take its time.
        drop(place);
        let Ok(_line) = lines.try_acquire() else {
            return Ok(());
        };
        control::write(&mut send, &Message::Knock(self.knock)).await?;
        while let Message::Spoken(Spoken { epoch, word }) = control::read(&mut receive).await? {
            if epoch == knock.epoch {
                let said = Event::Said {
                    by: knock.newcomer,
                    word,
                };
                if self.events.send(said).await.is_err() {
                    break;
                }
            }
        }
        Ok(())
    }
}
