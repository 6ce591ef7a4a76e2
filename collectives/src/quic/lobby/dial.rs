use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, Endpoint};
use tokio::time::{sleep, timeout};

use super::{Admitted, Lobby, data_head};
use crate::identity::{Distrust, distrust};
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::{TURNED_AWAY, endpoint, resolve};
use crate::wire::{Lane, Message};
use crate::{Error, Member, Rank};

/// How long one attempt to reach a rank may take before a new one starts afresh.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two attempts that fail at once.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts to dial every rank below this one.
pub(in crate::quic) fn dial_lower_ranks(lobby: &Arc<Lobby>, endpoint: &Endpoint) {
    for rank in Rank::all(lobby.me.number()) {
        let (lobby, endpoint) = (lobby.clone(), endpoint.clone());
        tokio::spawn(async move {
            match dial(&lobby, &endpoint, rank).await {
                Ok(admitted) => lobby.admit(rank, admitted),
                Err(error) => {
                    let _ = lobby.events.send(Event::GiveUp(error)).await;
                }
            }
        });
    }
}

/// Dials until it is answered; the membership's join deadline ends it otherwise.
async fn dial(lobby: &Lobby, endpoint: &Endpoint, rank: Rank) -> Result<Admitted, Error> {
    // Nobody listens any more once the group is over.
    for number in (0_u32..).take_while(|_| !lobby.events.is_closed()) {
        match timeout(ATTEMPT, attempt(lobby, endpoint, (rank, number))).await {
            Ok(Ok(admitted)) => return Ok(admitted),
            Ok(Err(Attempt::Hopeless(error))) => return Err(error),
            Ok(Err(Attempt::Failed)) => sleep(PAUSE).await,
            Err(_) => {}
        }
    }
    Err(Error::System {
        what: "dialling",
        kind: std::io::ErrorKind::TimedOut,
    })
}

enum Attempt {
    /// Another attempt may succeed: the peer is not there yet.
    Failed,
    /// None will.
    Hopeless(Error),
}

impl<E: Into<NoMessage>> From<E> for Attempt {
    fn from(_: E) -> Self {
        Self::Failed
    }
}

async fn attempt(
    lobby: &Lobby,
    endpoint: &Endpoint,
    (rank, number): (Rank, u32),
) -> Result<Admitted, Attempt> {
    let peer = lobby.members[rank.index()].clone();
    let address = peer_address(lobby, endpoint, &peer).await?;
    let connection = connect(lobby, endpoint, (address, &peer)).await?;
    let mut control = connection.open_bi().await?;
    control::write(&mut control.0, &Message::Hello(lobby.hello.clone())).await?;
    let hello = match control::read(&mut control.1).await? {
        Message::Welcome(hello) => hello,
        Message::Refusal(refusal) => {
            connection.close(TURNED_AWAY, b"");
            return Err(Attempt::Hopeless(Error::Refused {
                rank: lobby.me,
                peer,
                reason: refusal.into(),
            }));
        }
        _ => return Err(Attempt::Failed),
    };
    let mut data = connection.open_bi().await?;
    let head = data_head(number);
    data.0
        .write_all(&head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let (mut connections, mut streams) = (vec![connection], vec![data]);
    for index in 1..lobby.lane_count() {
        let connection = connect(lobby, endpoint, (address, &peer)).await?;
        let mut stream = connection.open_bi().await?;
        let lane = Lane {
            rank: lobby.me.number(),
            attempt: number,
            index,
        };
        control::write(&mut stream.0, &Message::Lane(lane)).await?;
        connections.push(connection);
        streams.push(stream);
    }
    Ok(Admitted {
        connections,
        hello,
        control,
        data: streams,
    })
}

async fn peer_address(
    lobby: &Lobby,
    endpoint: &Endpoint,
    peer: &Member,
) -> Result<SocketAddr, Attempt> {
    let own = endpoint.local_addr().map_err(|_| Attempt::Failed)?;
    // A name that cannot be resolved yet, as while a cluster starts, is tried again.
    let found = resolve(peer.address(), own)
        .await
        .map_err(|_| Attempt::Failed)?;
    found.ok_or_else(|| {
        let family = if own.is_ipv4() { "IPv4" } else { "IPv6" };
        Attempt::Hopeless(Error::AddressFamily {
            rank: lobby.me,
            family,
            peer: peer.clone(),
        })
    })
}

async fn connect(
    lobby: &Lobby,
    endpoint: &Endpoint,
    (address, peer): (SocketAddr, &Member),
) -> Result<Connection, Attempt> {
    let name = lobby
        .identity
        .server_name(lobby.role(peer.rank()))
        .map_err(Attempt::Hopeless)?
        .to_str()
        .into_owned();
    let connecting = endpoint
        .connect_with(
            endpoint::client(&lobby.identity, lobby.network),
            address,
            &name,
        )
        .map_err(|_| Attempt::Failed)?;
    connecting.await.map_err(|error| match distrust(&error) {
        Some(Distrust::OtherJob) => Attempt::Hopeless(Error::OtherJob { peer: peer.clone() }),
        Some(Distrust::Expired) => Attempt::Hopeless(Error::Expired { peer: peer.clone() }),
        None => Attempt::Failed,
    })
}
