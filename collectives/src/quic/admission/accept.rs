//! The accepting side of a connection: from its first packet to a member, a newcomer or a refusal.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::{Connection, Incoming, SendStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Admission, MemberConnection, TcpBinding};
use crate::identity::{Role, distrust};
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::handshake_limiter::HandshakePermit;
use crate::quic::heads::DataHead;
use crate::quic::node::Node;
use crate::quic::streams::{self, Stream};
use crate::quic::{TURNED_AWAY, endpoint};
use crate::tasks::spawn_in;
use crate::wire::{Abort, Hello, Message, WireError};
use crate::{Rank, Refusal, UnauthenticatedCause, UnauthenticatedPeer};

/// Lets in whoever proves to be a member, and tells the membership whom it did not let in.
pub(in crate::quic) async fn accept(admission: Arc<Admission>, node: Arc<Node>) {
    // Ends with this, and with it all who are too late for this epoch.
    let mut callers = JoinSet::new();
    for connection in admission.awaited_on_kept() {
        spawn_in(&mut callers, greeted_again(admission.clone(), connection));
    }
    while let Some(incoming) = node.endpoint.accept().await {
        while callers.try_join_next().is_some() {}
        let Some((incoming, permit)) = node.handshake_limiter.admit(incoming) else {
            continue;
        };
        let (admission, joining) = (admission.clone(), node.config.bounds().joining);
        spawn_in(&mut callers, async move {
            let _ = timeout(joining, receive(&admission, incoming, permit)).await;
        });
    }
}

/// Tells the membership, and whoever reads the log, who was not let in.
pub(super) async fn report(
    admission: &Admission,
    address: SocketAddr,
    cause: UnauthenticatedCause,
) {
    let peer = UnauthenticatedPeer::new(address, cause);
    if admission.node.unauthenticated_log.is_news(&peer) {
        tracing::warn!(rank = admission.me.number(), "{peer}");
    }
    let _ = admission.events.send(Event::Refused(peer)).await;
}

/// Makes a member of whoever calls, unless it breaks off or is refused.
async fn receive(
    admission: &Arc<Admission>,
    incoming: Incoming,
    permit: HandshakePermit,
) -> Result<(), NoMessage> {
    let proving = timeout(permit.patience(), prove(admission, incoming));
    let (connection, (send, receive), said) = proving.await.map_err(|_| NoMessage::Ended)??;
    let said = match said {
        Err(NoMessage::Malformed(WireError::Version { found, expected })) => {
            let refusal = Refusal::Version { expected, found };
            return refuse(admission, connection, send, refusal).await;
        }
        said => said?,
    };
    let hello = match said {
        Message::Hello(hello) => hello,
        Message::Lane(lane) => {
            admission.lane_arrived(lane, connection, (send, receive));
            return Ok(());
        }
        Message::Abort(abort) if admission.identity.is(&connection, Role::Launcher) => {
            reported(admission, &abort).await;
            return Ok(());
        }
        Message::JoinRequest(join_request) => {
            return admission
                .join_requested(join_request, connection, send)
                .await;
        }
        Message::Welcome(_)
        | Message::Refusal(_)
        | Message::Heartbeat
        | Message::Abort(_)
        | Message::Goodbye
        | Message::Spoken(_)
        | Message::Records(_)
        | Message::Absent(_)
        | Message::Routed(_)
        | Message::OpenStreams(_)
        | Message::Closing(_)
        | Message::PingRequest(_)
        | Message::Ack(_)
        | Message::Register(_)
        | Message::Addresses(_)
        | Message::Directory(_)
        | Message::WaitProbe(_) => return Ok(()),
    };
    greeted(admission, connection, hello, (send, receive), Some(permit)).await
}

/// Makes a member again of a neighbour that has kept this connection from the epoch before.
async fn greeted_again(admission: Arc<Admission>, connection: Connection) {
    let greeting = async {
        loop {
            let mut control = connection.accept_bi().await?;
            // Anything else is a stream of that epoch.
            if let Ok(Message::Hello(hello)) = control::read(&mut control.1).await {
                return greeted(&admission, connection.clone(), hello, control, None).await;
            }
        }
    };
    if greeting.await.is_err() {
        connection.close(TURNED_AWAY, &[]);
    }
}

/// Makes a member of whoever greets like this, or refuses it.
async fn greeted(
    admission: &Arc<Admission>,
    connection: Connection,
    hello: Hello,
    control: Stream,
    permit: Option<HandshakePermit>,
) -> Result<(), NoMessage> {
    if admission.has_moved(&connection, &hello) {
        return moved(admission, connection, control.0).await;
    }
    if let Err(refusal) = answer(admission, &connection, &hello) {
        if refusal == Refusal::RankTaken {
            admission.miss(Rank::new(hello.rank)).await;
        }
        return refuse(admission, connection, control.0, refusal).await;
    }
    welcome(admission, connection, hello, control, permit).await
}

/// Answers a member that has said from where it speaks.
async fn moved(
    admission: &Admission,
    connection: Connection,
    mut send: SendStream,
) -> Result<(), NoMessage> {
    control::write(&mut send, &Message::Welcome(admission.hello.clone())).await?;
    // It closes when it has read that.
    connection.closed().await;
    Ok(())
}

/// Greets a member and takes in its streams.
async fn welcome(
    admission: &Arc<Admission>,
    connection: Connection,
    hello: Hello,
    mut control: Stream,
    permit: Option<HandshakePermit>,
) -> Result<(), NoMessage> {
    let rank = Rank::new(hello.rank);
    // It calls again.
    let _greeting = admission.begin_greeting(rank).ok_or(NoMessage::Ended)?;
    endpoint::trust(&connection);
    let tcp_binding = admission.greet(rank, &connection);
    control::write(&mut control.0, &Message::Welcome(admission.hello.clone())).await?;
    // It has proved itself; what it still has to open must not keep others out.
    drop(permit);
    let admitted = match tcp_binding {
        None => follow(admission, connection, hello, control).await?,
        Some(tcp_binding) => {
            follow_over_tcp(admission, connection, tcp_binding, hello, control).await?
        }
    };
    admission.admit(Rank::new(admitted.hello.rank), admitted);
    Ok(())
}

/// The launcher tells the end of a member: it knows places in the member list, and not who is in
/// which epoch.
async fn reported(admission: &Admission, abort: &Abort) {
    if let Some(rank) = admission.rank_at(abort.culprit) {
        let _ = admission.events.send(Event::Reported(rank)).await;
    }
}

/// A caller that has a certificate of this job, and the first that it says.
async fn prove(
    admission: &Admission,
    incoming: Incoming,
) -> Result<(Connection, Stream, Result<Message, NoMessage>), NoMessage> {
    let address = incoming.remote_address();
    let connection = match incoming.await {
        Ok(connection) => connection,
        Err(error) => {
            if let Some(distrust) = distrust(&error) {
                report(admission, address, distrust.cause()).await;
            }
            return Err(NoMessage::Ended);
        }
    };
    admission.node.connection_counters.answered();
    let mut control = connection.accept_bi().await?;
    let said = control::read(&mut control.1).await;
    Ok((connection, control, said))
}

/// Says why, to the caller and to the membership. Whoever speaks another version understands at
/// least the version that stands at the head of every message.
pub(super) async fn refuse(
    admission: &Admission,
    connection: Connection,
    mut send: SendStream,
    refusal: Refusal,
) -> Result<(), NoMessage> {
    let address = connection.remote_address();
    report(admission, address, UnauthenticatedCause::Refused(refusal)).await;
    control::write(&mut send, &Message::Refusal(refusal.into())).await?;
    // The refused one closes when it has read why.
    connection.closed().await;
    Ok(())
}

/// Takes in the data stream and the further connections of a caller that has been welcomed.
async fn follow(
    admission: &Admission,
    connection: Connection,
    hello: Hello,
    control: Stream,
) -> Result<MemberConnection, NoMessage> {
    let mut data = connection.accept_bi().await?;
    let mut head = [0; DataHead::BYTES];
    data.1
        .read_exact(&mut head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let DataHead { attempt } = DataHead::decode(&head).ok_or(NoMessage::Ended)?;
    let lanes = admission.lanes(Rank::new(hello.rank), attempt, &connection);
    let (others, streams): (Vec<_>, Vec<_>) = lanes.await?.into_iter().unzip();
    Ok(MemberConnection {
        connections: [vec![connection], others].concat(),
        hello,
        control,
        data: std::iter::once(streams::data(data))
            .chain(streams)
            .collect(),
        tcp_binding: None,
    })
}

/// The same where the bytes of operations go over TCP.
async fn follow_over_tcp(
    admission: &Admission,
    connection: Connection,
    tcp_binding: TcpBinding,
    hello: Hello,
    control: Stream,
) -> Result<MemberConnection, NoMessage> {
    let data = tokio::select! {
        data = admission.tcp.lanes(&tcp_binding, 0, admission.lane_count()) => data,
        _ = connection.closed() => return Err(NoMessage::Ended),
    };
    Ok(MemberConnection {
        connections: vec![connection],
        hello,
        control,
        data,
        tcp_binding: Some(tcp_binding),
    })
}

/// Whether the caller is who it says, expected, and in the same group.
fn answer(admission: &Admission, connection: &Connection, hello: &Hello) -> Result<(), Refusal> {
    let claimed = hello.rank;
    let rank = Rank::new(claimed);
    if !admission.identity.is(connection, admission.role(rank)) {
        return Err(Refusal::RankUnproved { claimed });
    }
    admission.examine(hello)?;
    if claimed >= admission.hello.world || rank <= admission.me {
        return Err(Refusal::RankUnexpected { claimed });
    }
    if admission.admitted().contains_key(&rank) || !admission.meets(rank, hello.incarnation) {
        return Err(Refusal::RankTaken);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
