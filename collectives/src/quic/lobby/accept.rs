use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Incoming, SendStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Admitted, Lobby, Tie};
use crate::identity::{Distrust, Role, distrust};
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::gate::Place;
use crate::quic::heads::DataHead;
use crate::quic::station::Station;
use crate::quic::streams::{self, Stream};
use crate::wire::{Hello, Message, VERSION, WireError};
use crate::{Rank, Refusal, Stranger, StrangerCause};

/// How long a caller may take from its first packet until it is a member.
const JOINING: Duration = Duration::from_secs(10);

/// Lets in whoever proves to be a member, and tells the membership whom it did not let in.
pub(in crate::quic) async fn accept(lobby: Arc<Lobby>, station: Arc<Station>) {
    // Ends with this, and with it all who are too late for this epoch.
    let mut callers = JoinSet::new();
    while let Some(incoming) = station.endpoint.accept().await {
        while callers.try_join_next().is_some() {}
        let Some((incoming, place)) = station.gate.admit(incoming) else {
            continue;
        };
        let lobby = lobby.clone();
        callers.spawn(async move {
            let _ = timeout(JOINING, receive(&lobby, incoming, place)).await;
        });
    }
}

/// Tells the membership, and whoever reads the log, who was not let in.
pub(super) async fn report(lobby: &Lobby, address: SocketAddr, cause: StrangerCause) {
    let stranger = Stranger::new(address, cause);
    if lobby.log.is_news(&stranger) {
        tracing::warn!(rank = lobby.me.number(), "{stranger}");
    }
    let _ = lobby.events.send(Event::Refused(stranger)).await;
}

/// Makes a member of whoever calls, unless it breaks off or is refused.
async fn receive(lobby: &Arc<Lobby>, incoming: Incoming, place: Place) -> Result<(), NoMessage> {
    let proving = timeout(place.patience(), prove(lobby, incoming));
    let (connection, (mut send, receive), said) = proving.await.map_err(|_| NoMessage::Ended)??;
    let said = match said {
        Err(NoMessage::Malformed(WireError::Version { found })) => {
            let expected = VERSION;
            let refusal = Refusal::Version { expected, found };
            return refuse(lobby, (connection, send), refusal).await;
        }
        said => said?,
    };
    let hello = match said {
        Message::Hello(hello) => hello,
        Message::Lane(lane) => {
            lobby.lane_arrived(lane, connection, (send, receive));
            return Ok(());
        }
        Message::Abort(abort) if lobby.identity.is(&connection, Role::Launcher) => {
            // It knows places in the member list, and not who is in which epoch.
            if let Some(rank) = lobby.rank_at(abort.culprit) {
                let _ = lobby.events.send(Event::Reported(rank)).await;
            }
            return Ok(());
        }
        Message::Knock(knock) => return lobby.knocked(knock, connection, send).await,
        Message::Welcome(_)
        | Message::Refusal(_)
        | Message::Heartbeat
        | Message::Abort(_)
        | Message::Goodbye
        | Message::Spoken(_)
        | Message::Waiting(_) => return Ok(()),
    };
    if let Err(refusal) = answer(lobby, &connection, &hello) {
        if refusal == Refusal::RankTaken {
            lobby.miss(Rank::new(hello.rank)).await;
        }
        return refuse(lobby, (connection, send), refusal).await;
    }
    let tie = lobby.greet(Rank::new(hello.rank), &connection);
    control::write(&mut send, &Message::Welcome(lobby.hello.clone())).await?;
    // It has proved itself; what it still has to open must not keep others out.
    drop(place);
    let control = (send, receive);
    let admitted = match tie {
        None => follow(lobby, connection, (hello, control)).await?,
        Some(tie) => follow_over_tcp(lobby, (connection, tie), (hello, control)).await?,
    };
    lobby.admit(Rank::new(admitted.hello.rank), admitted);
    Ok(())
}

/// A caller that has a certificate of this job, and the first that it says.
async fn prove(
    lobby: &Lobby,
    incoming: Incoming,
) -> Result<(Connection, Stream, Result<Message, NoMessage>), NoMessage> {
    let address = incoming.remote_address();
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => {
            let cause = match distrust(&error) {
                Some(Distrust::OtherJob) => StrangerCause::OtherJob,
                Some(Distrust::Expired) => StrangerCause::Expired,
                None => return Err(NoMessage::Ended),
            };
            report(lobby, address, cause).await;
            return Err(NoMessage::Ended);
        }
    };
    let mut control = connection.accept_bi().await?;
    let said = control::read(&mut control.1).await;
    Ok((connection, control, said))
}

/// Says why, to the caller and to the membership. Whoever speaks another version understands at least
/// the version that stands at the head of every message.
async fn refuse(
    lobby: &Lobby,
    (connection, mut send): (Connection, SendStream),
    refusal: Refusal,
) -> Result<(), NoMessage> {
    let address = connection.remote_address();
    report(lobby, address, StrangerCause::Refused(refusal)).await;
    control::write(&mut send, &Message::Refusal(refusal.into())).await?;
    // The refused one closes when it has read why.
    connection.closed().await;
    Ok(())
}

/// Takes in the data stream and the further connections of a caller that has been welcomed.
async fn follow(
    lobby: &Lobby,
    connection: Connection,
    (hello, control): (Hello, Stream),
) -> Result<Admitted, NoMessage> {
    let mut data = connection.accept_bi().await?;
    let mut head = [0; DataHead::BYTES];
    data.1
        .read_exact(&mut head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let DataHead { attempt } = DataHead::decode(&head).ok_or(NoMessage::Ended)?;
    let lanes = lobby.lanes((Rank::new(hello.rank), attempt), &connection);
    let (others, streams): (Vec<_>, Vec<_>) = lanes.await?.into_iter().unzip();
    Ok(Admitted {
        connections: [vec![connection], others].concat(),
        hello,
        control,
        data: std::iter::once(streams::data(data))
            .chain(streams)
            .collect(),
        tie: None,
    })
}

/// The same where the bytes of operations go over TCP.
async fn follow_over_tcp(
    lobby: &Lobby,
    (connection, tie): (Connection, Tie),
    (hello, control): (Hello, Stream),
) -> Result<Admitted, NoMessage> {
    let data = tokio::select! {
        data = lobby.tcp.lanes(&tie, (0, lobby.lane_count())) => data,
        _ = connection.closed() => return Err(NoMessage::Ended),
    };
    Ok(Admitted {
        connections: vec![connection],
        hello,
        control,
        data,
        tie: Some(tie),
    })
}

/// Whether the caller is who it says, expected, and in the same group.
fn answer(lobby: &Lobby, connection: &Connection, hello: &Hello) -> Result<(), Refusal> {
    let claimed = hello.rank;
    let rank = Rank::new(claimed);
    if !lobby.identity.is(connection, lobby.role(rank)) {
        return Err(Refusal::RankUnproved { claimed });
    }
    lobby.examine(hello)?;
    if claimed >= lobby.hello.world || rank <= lobby.me {
        return Err(Refusal::RankUnexpected { claimed });
    }
    if lobby.seats()[rank.index()].is_some() || !lobby.meets(rank, hello.incarnation) {
        return Err(Refusal::RankTaken);
    }
    Ok(())
}
