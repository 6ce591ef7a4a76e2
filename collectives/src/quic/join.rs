use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quinn::{Connection, ConnectionError, Endpoint, Incoming, RecvStream, SendStream};
use ring::digest;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::control::{self, NoMessage};
use super::{ABORT, GOODBYE, TURNED_AWAY, endpoint, member, resolve};
use crate::identity::{Identity, Role, is_other_job};
use crate::links::{self, Links};
use crate::membership::Event;
use crate::wire::{Hello, Message, Refusal as WireRefusal};
use crate::{Error, Member, Rank, Refusal, Stranger, StrangerCause, host};

/// Handshakes that may be half done at a time; more are turned away and try again.
const HALF_OPEN: usize = 64;
/// How long a caller may take to prove who it is.
const PROVING: Duration = Duration::from_secs(10);
/// How long one attempt to reach a rank may take before a new one starts afresh.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The pause between two attempts that fail at once.
const PAUSE: Duration = Duration::from_millis(50);
/// Messages that may wait for a slow control stream; heartbeats beyond it are dropped.
const WAITING: usize = 16;
/// Stands at the head of a data stream, so that the acceptor sees the stream at once.
const DATA: [u8; 4] = *b"DATA";

/// Where members are admitted: shared by all that dial and accept.
pub(super) struct Lobby {
    me: Rank,
    members: Arc<[Member]>,
    identity: Identity,
    hello: Hello,
    events: mpsc::Sender<Event>,
    seats: Mutex<Vec<Option<Seat>>>,
}

/// A member that has been admitted.
struct Seat {
    connection: Connection,
    messages: mpsc::Sender<Message>,
    /// Taken when the group begins.
    data: Option<(SendStream, RecvStream)>,
}

/// A connection whose two ends have agreed on everything.
struct Admitted {
    connection: Connection,
    hello: Hello,
    control: (SendStream, RecvStream),
    data: (SendStream, RecvStream),
}

impl Lobby {
    pub(super) fn new(
        me: Rank,
        members: Arc<[Member]>,
        identity: Identity,
        events: mpsc::Sender<Event>,
    ) -> Arc<Self> {
        let hello = Hello {
            rank: me.number(),
            world: u32::try_from(members.len()).expect("a group checks its size before it joins"),
            members: fingerprint(&members),
            process: std::process::id(),
            host: host::host(),
        };
        let seats = Mutex::new(members.iter().map(|_| None).collect());
        Arc::new(Self {
            me,
            members,
            identity,
            hello,
            events,
            seats,
        })
    }

    /// The data streams of all members, once they are all in.
    pub(super) fn links(&self) -> Links {
        let mut seats = self.seats();
        let streams = seats.iter_mut().map(|seat| {
            let (send, receive) = seat.as_mut()?.data.take()?;
            let streams: (links::Outgoing, links::Incoming) = (Box::new(send), Box::new(receive));
            Some(streams)
        });
        Links::new(streams.collect::<Vec<_>>())
    }

    /// Sends a message to a member, without waiting. An abort closes the connection and travels
    /// as its reason, so that it arrives even where a stream is stuck.
    pub(super) fn tell(&self, rank: Rank, message: Message) {
        let seats = self.seats();
        let Some(seat) = &seats[rank.index()] else {
            return;
        };
        match message {
            Message::Abort(_) => seat.connection.close(ABORT, &message.encode()),
            message => {
                let _ = seat.messages.try_send(message);
            }
        }
    }

    /// Ends all connections of a group that has finished.
    pub(super) fn close_all(&self) {
        for seat in self.seats().iter().flatten() {
            seat.connection.close(GOODBYE, b"");
        }
    }

    fn admit(&self, rank: Rank, admitted: Admitted) {
        let Admitted {
            connection,
            hello,
            control: (send, receive),
            data,
        } = admitted;
        let (messages, outgoing) = mpsc::channel(WAITING);
        let mut seats = self.seats();
        if seats[rank.index()].is_some() {
            connection.close(TURNED_AWAY, b"");
            return;
        }
        tracing::debug!("connected to {rank}");
        seats[rank.index()] = Some(Seat {
            connection: connection.clone(),
            messages,
            data: Some(data),
        });
        drop(seats);
        tokio::spawn(control::speak(send, outgoing));
        let events = self.events.clone();
        let (process, shares_host) = (hello.process, self.shares_host(&hello));
        tokio::spawn(async move {
            // First of all events of this rank: nobody can be lost who has not joined.
            let _ = events.send(Event::Joined(rank)).await;
            tokio::join!(
                control::listen(rank, receive, events.clone()),
                control::until_closed(rank, connection, events.clone()),
                async {
                    if shares_host && host::process_ended(process).await.is_ok() {
                        let _ = events.send(Event::Died(rank)).await;
                    }
                },
            );
        });
    }

    fn shares_host(&self, hello: &Hello) -> bool {
        !hello.host.is_empty() && hello.host == self.hello.host
    }

    /// Whether `hello` fits this group; the certificate has been checked before.
    fn examine(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.world != self.hello.world {
            return Err(Refusal::World {
                expected: self.hello.world,
                found: hello.world,
            });
        }
        if hello.members != self.hello.members {
            return Err(Refusal::Members);
        }
        Ok(())
    }

    fn seats(&self) -> std::sync::MutexGuard<'_, Vec<Option<Seat>>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets in whoever proves to be a member, and tells the membership whom it did not let in.
pub(super) async fn accept(lobby: Arc<Lobby>, endpoint: Endpoint) {
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

impl From<ConnectionError> for NoMessage {
    fn from(_: ConnectionError) -> Self {
        Self::Ended
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
        let message = Message::Refusal(encode(refusal));
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

/// Starts to dial every rank below this one.
pub(super) fn dial_lower_ranks(lobby: &Arc<Lobby>, endpoint: &Endpoint) {
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
    loop {
        match timeout(ATTEMPT, attempt(lobby, endpoint, rank)).await {
            Ok(Ok(admitted)) => return Ok(admitted),
            Ok(Err(Attempt::Hopeless(error))) => return Err(error),
            Ok(Err(Attempt::Failed)) => sleep(PAUSE).await,
            Err(_) => {}
        }
    }
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

async fn attempt(lobby: &Lobby, endpoint: &Endpoint, rank: Rank) -> Result<Admitted, Attempt> {
    let peer = member(&lobby.members, rank);
    let address = peer_address(lobby, endpoint, &peer).await?;
    let connection = connect(&lobby.identity, endpoint, (address, &peer)).await?;
    let mut control = connection.open_bi().await?;
    control::write(&mut control.0, &Message::Hello(lobby.hello.clone())).await?;
    let hello = match control::read(&mut control.1).await? {
        Message::Welcome(hello) => hello,
        Message::Refusal(refusal) => {
            connection.close(TURNED_AWAY, b"");
            return Err(Attempt::Hopeless(Error::Refused {
                rank: lobby.me,
                peer,
                reason: decode(&refusal),
            }));
        }
        _ => return Err(Attempt::Failed),
    };
    let mut data = connection.open_bi().await?;
    data.0
        .write_all(&DATA)
        .await
        .map_err(|_| NoMessage::Ended)?;
    Ok(Admitted {
        connection,
        hello,
        control,
        data,
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
    identity: &Identity,
    endpoint: &Endpoint,
    (address, peer): (SocketAddr, &Member),
) -> Result<Connection, Attempt> {
    let name = identity
        .server_name(Role::Rank(peer.rank()))
        .map_err(Attempt::Hopeless)?
        .to_str()
        .into_owned();
    let connecting = endpoint
        .connect_with(endpoint::client(identity), address, &name)
        .map_err(|_| Attempt::Failed)?;
    connecting
        .await
        .map_err(|error| match is_other_job(&error) {
            true => Attempt::Hopeless(Error::OtherJob { peer: peer.clone() }),
            false => Attempt::Failed,
        })
}

/// Ends the group when the launcher ends, so that no rank is left behind.
pub(super) fn watch_launcher(lobby: &Arc<Lobby>, launcher: Option<u32>) {
    let Some(process) = launcher else { return };
    let events = lobby.events.clone();
    tokio::spawn(async move {
        if host::process_ended(process).await.is_ok() {
            let _ = events
                .send(Event::GiveUp(Error::LauncherLost { process }))
                .await;
        }
    });
}

fn fingerprint(members: &[Member]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for member in members {
        context.update(member.address().as_bytes());
        context.update(b"\n");
    }
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(context.finish().as_ref());
    fingerprint
}

fn encode(refusal: Refusal) -> WireRefusal {
    let (code, expected, found) = match refusal {
        Refusal::World { expected, found } => (1, expected, found),
        Refusal::Members => (2, 0, 0),
        Refusal::RankTaken => (3, 0, 0),
        Refusal::RankUnproved { claimed } => (4, 0, claimed),
        Refusal::RankUnexpected { claimed } => (5, 0, claimed),
    };
    WireRefusal {
        code,
        expected,
        found,
    }
}

fn decode(refusal: &WireRefusal) -> Refusal {
    let WireRefusal {
        code,
        expected,
        found,
    } = *refusal;
    match code {
        1 => Refusal::World { expected, found },
        2 => Refusal::Members,
        3 => Refusal::RankTaken,
        4 => Refusal::RankUnproved { claimed: found },
        _ => Refusal::RankUnexpected { claimed: found },
    }
}
