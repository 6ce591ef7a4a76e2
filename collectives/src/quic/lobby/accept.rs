use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint, Incoming};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Admitted, DATA, Lobby};
use crate::identity::{Role, is_other_job};
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::wire::{Hello, Message};
use crate::{Rank, Refusal, Stranger, StrangerCause};

/// Handshakes that may be half done at a time; more are turned away and try again.
const HALF_OPEN: usize = 64;
/// How long a caller may take to prove who it is.
const PROVING: Duration = Duration::from_secs(10);

/// Lets in whoever proves to be a member, and tells the membership whom it did not let in.
pub(in crate::quic) async fn accept(lobby: Arc<Lobby>, endpoint: Endpoint) {
    let places = Arc::new(Semaphore::new(HALF_OPEN));
    while let Some(incoming) = endpoint.accept().await {
        let Ok(place) = places.clone().try_acquire_owned() else {
            incoming.refuse();
            continue;
        };
        let lobby = lobby.clone();
        tokio::spawn(async move {
            let address = incoming.remote_address();
            let verdict = timeout(PROVING, receive(&lobby, incoming)).await;
            drop(place);
            if let Ok(Err(TurnedAway::For(cause))) = verdict {
                let stranger = Stranger::new(address, cause);
                tracing::warn!(rank = lobby.me.number(), "{stranger}");
                let _ = lobby.events.send(Event::Refused(stranger)).await;
            }
        });
    }
}

/// Why an incoming connection did not become a member's.
enum TurnedAway {
    For(StrangerCause),
    /// It broke off, or it had only something to say.
    Gone,
}

impl<E: Into<NoMessage>> From<E> for TurnedAway {
    fn from(_: E) -> Self {
        Self::Gone
    }
}

async fn receive(lobby: &Arc<Lobby>, incoming: Incoming) -> Result<(), TurnedAway> {
    let connection = incoming.await.map_err(|error| match is_other_job(&error) {
        true => TurnedAway::For(StrangerCause::OtherJob),
        false => TurnedAway::Gone,
    })?;
    let (mut send, mut receive) = connection.accept_bi().await?;
    let hello = match control::read(&mut receive).await? {
        Message::Hello(hello) => hello,
        Message::Abort(abort) if lobby.identity.is(&connection, Role::Launcher) => {
            if (abort.culprit as usize) < lobby.members.len() {
                let _ = lobby
                    .events
                    .send(Event::Reported(Rank::new(abort.culprit)))
                    .await;
            }
            return Ok(());
        }
        _ => return Err(TurnedAway::Gone),
    };
    if let Err(refusal) = answer(lobby, &connection, &hello) {
        let message = Message::Refusal(refusal.into());
        control::write(&mut send, &message).await?;
        // The refused one closes when it has read why; `PROVING` bounds the wait.
        connection.closed().await;
        return Err(TurnedAway::For(StrangerCause::Refused(refusal)));
    }
    control::write(&mut send, &Message::Welcome(lobby.hello.clone())).await?;
    let mut data = connection.accept_bi().await?;
    let mut head = [0; DATA.len()];
    data.1
        .read_exact(&mut head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let rank = Rank::new(hello.rank);
    lobby.admit(
        rank,
        Admitted {
            connection,
            hello,
            control: (send, receive),
            data,
        },
    );
    Ok(())
}

/// Whether the caller is who it says, expected, and in the same group.
fn answer(lobby: &Lobby, connection: &Connection, hello: &Hello) -> Result<(), Refusal> {
    let claimed = hello.rank;
    let rank = Rank::new(claimed);
    if !lobby.identity.is(connection, Role::Rank(rank)) {
        return Err(Refusal::RankUnproved { claimed });
    }
    lobby.examine(hello)?;
    if claimed >= lobby.hello.world || rank <= lobby.me {
        return Err(Refusal::RankUnexpected { claimed });
    }
    if lobby.seats()[rank.index()].is_some() {
        return Err(Refusal::RankTaken);
    }
    Ok(())
}
