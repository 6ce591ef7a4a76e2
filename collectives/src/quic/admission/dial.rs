//! The dialling side of a connection: again and again until the lower rank answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connection, ConnectionError, Endpoint, VarInt};
use tokio::time::{sleep, timeout};

use super::{Admission, MemberConnection, TcpBinding, lock};
use crate::identity::distrust;
use crate::membership::Event;
use crate::quic::control::{self, NoMessage};
use crate::quic::heads::DataHead;
use crate::quic::refusals::Refused;
use crate::quic::streams::{self, Stream};
use crate::quic::ways::Way;
use crate::quic::{TURNED_AWAY, endpoint, resolve};
use crate::tasks::spawn;
use crate::wire::{Hello, Lane, Message, WireError};
use crate::{JoinError, LossCause, Member, OperationError, Rank, SystemError, overlay};

/// How long the first attempt to reach a rank may take before a new one starts afresh; each later
/// one may take twice as long, up to [`PATIENT`] times: machines with many ranks are slow.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);
const PATIENT: u32 = 8;
/// The pause between two attempts that fail at once.
const PAUSE: Duration = Duration::from_millis(50);
/// The pauses after which a port that refused the first packet is called again: whoever is to
/// listen there begins at this moment too, and QUIC repeats its packet after 150 ms.
const SOON_IN_MS: [u64; 4] = [5, 10, 20, 40];

impl Admission {
    /// Starts to dial the neighbours below this rank; those above dial it.
    pub(in crate::quic) fn dial_neighbours(self: &Arc<Self>) {
        for rank in overlay::neighbours(self.me, self.hello.world) {
            if rank < self.me {
                self.dial_once(rank);
            }
        }
    }

    /// Starts to dial a rank below this one, unless that has been done before.
    pub(super) fn dial_once(self: &Arc<Self>, rank: Rank) {
        if !lock(&self.opening).dials(rank) {
            return;
        }
        let admission = self.clone();
        spawn(async move {
            match dial(&admission, &admission.node.endpoint, rank).await {
                Ok(admitted) => admission.admit(rank, admitted),
                Err(error) => {
                    let _ = admission.events.send(Event::GiveUp(error)).await;
                }
            }
        });
    }
}

/// Dials until it is answered; the membership's join deadline ends it otherwise.
async fn dial(
    admission: &Arc<Admission>,
    endpoint: &Endpoint,
    rank: Rank,
) -> Result<MemberConnection, OperationError> {
    let (began, ways) = (Instant::now(), &admission.node.ways);
    let mut way = Way::Direct;
    if let Some(kept) = admission.kept_with(rank) {
        match greet_again(admission, endpoint, rank, kept).await {
            Ok(admitted) => return Ok(admitted),
            Err(Attempt::Hopeless(error)) => return Err(error),
            Err(Attempt::Failed | Attempt::Slow) => {}
        }
    }
    // Nobody listens any more once the group is over.
    for number in (0_u32..).take_while(|_| !admission.events.is_closed()) {
        way = ways.next(admission.member_id(rank), began.elapsed(), way);
        match attempt(admission, endpoint, rank, Try { number, way }).await {
            Ok(admitted) => return Ok(admitted),
            Err(Attempt::Hopeless(error)) => return Err(error),
            Err(Attempt::Failed) => sleep(PAUSE).await,
            Err(Attempt::Slow) => {}
        }
    }
    Err(SystemError::new("dialling", std::io::ErrorKind::TimedOut).into())
}

/// Greets a neighbour on the connection from the epoch before, as on a new one. If that comes to
/// nothing, the connection is given up.
async fn greet_again(
    admission: &Admission,
    endpoint: &Endpoint,
    rank: Rank,
    kept: Connection,
) -> Result<MemberConnection, Attempt> {
    let peer = admission.member(rank);
    let greeting = async {
        let greeted = greet_on(admission, &peer, kept.clone()).await?;
        over_streams(admission, endpoint, &peer, 0, greeted).await
    };
    // It leaves most of the time in which all are to meet to a new connection.
    let limit = ATTEMPT.min(admission.timeouts.silence());
    let admitted = match timeout(limit, greeting).await {
        Ok(admitted) => admitted,
        Err(_) => Err(Attempt::Slow),
    };
    if admitted.is_err() {
        kept.close(TURNED_AWAY, &[]);
    }
    admitted
}

#[derive(Debug)]
pub(super) enum Attempt {
    /// Another attempt may succeed: the peer is not there yet.
    Failed,
    /// The same, and long enough ago.
    Slow,
    /// None will.
    Hopeless(OperationError),
}

impl<E: Into<NoMessage>> From<E> for Attempt {
    fn from(_: E) -> Self {
        Self::Failed
    }
}

/// Which attempt it is, and in which way.
#[derive(Clone, Copy)]
struct Try {
    number: u32,
    way: Way,
}

async fn attempt(
    admission: &Arc<Admission>,
    endpoint: &Endpoint,
    rank: Rank,
    this: Try,
) -> Result<MemberConnection, Attempt> {
    let Try { number, way } = this;
    let peer = admission.member(rank);
    let ways = &admission.node.ways;
    if let (Way::ByRelay(_), Some((relay, reason))) = (way, ways.refusal()) {
        let rank = admission.me;
        let refused = JoinError::RelayRefused {
            peer,
            relay,
            rank,
            reason,
        };
        return Err(Attempt::Hopeless(refused.into()));
    }
    let limit = ways.limit(way, ATTEMPT * PATIENT.min(1 << number.min(PATIENT)));
    let greeted = timeout(limit, greet(admission, endpoint, &peer, way)).await;
    let greeted = greeted.map_err(|_| Attempt::Slow)??;
    match admission.new_tcp_binding(&greeted.connection) {
        Some(tcp_binding) => over_tcp(admission, &peer, greeted, tcp_binding).await,
        None => {
            // Attempt 0 is the greeting on a connection that was kept.
            let lanes_of = number.saturating_add(1);
            let streams = over_streams(admission, endpoint, &peer, lanes_of, greeted);
            timeout(limit, streams).await.map_err(|_| Attempt::Slow)?
        }
    }
}

/// A connection on which both have said who they are.
pub(super) struct Greeted {
    connection: Connection,
    hello: Hello,
    control: Stream,
}

impl Greeted {
    /// Goes no further.
    pub(super) fn close(&self, code: VarInt) {
        self.connection.close(code, b"");
    }
}

pub(super) async fn greet(
    admission: &Admission,
    endpoint: &Endpoint,
    peer: &Member,
    way: Way,
) -> Result<Greeted, Attempt> {
    let address = match way {
        Way::Direct => peer_address(admission, endpoint, peer).await?,
        Way::ByRelay(address) => address,
    };
    let connection = connect(admission, endpoint, address, peer).await?;
    greet_on(admission, peer, connection).await
}

pub(super) async fn greet_on(
    admission: &Admission,
    peer: &Member,
    connection: Connection,
) -> Result<Greeted, Attempt> {
    let mut control = connection.open_bi().await?;
    control::write(&mut control.0, &Message::Hello(admission.hello.clone())).await?;
    let said = control::read(&mut control.1).await;
    match said.map_err(|none| hopeless_version(none, peer))? {
        // Whoever was there before has ended.
        Message::Welcome(hello) if !admission.meets(peer.rank(), hello.incarnation) => Err(
            Attempt::Hopeless(OperationError::lost(peer.clone(), LossCause::Died)),
        ),
        Message::Welcome(hello) => Ok(Greeted {
            connection,
            hello,
            control,
        }),
        Message::Refusal(refusal) => {
            connection.close(TURNED_AWAY, b"");
            Err(Attempt::Hopeless(
                JoinError::Refused {
                    rank: admission.me,
                    peer: peer.clone(),
                    reason: refusal.into(),
                }
                .into(),
            ))
        }
        _ => Err(Attempt::Failed),
    }
}

/// Another version stays another version, however often it is asked.
fn hopeless_version(none: NoMessage, peer: &Member) -> Attempt {
    match none {
        NoMessage::Malformed(error @ WireError::Version { .. }) => {
            let peer = peer.rank();
            Attempt::Hopeless(OperationError::Protocol { peer, error })
        }
        NoMessage::Ended | NoMessage::Malformed(_) => Attempt::Failed,
    }
}

/// Opens the data stream and the further connections.
pub(super) async fn over_streams(
    admission: &Admission,
    endpoint: &Endpoint,
    peer: &Member,
    number: u32,
    greeted: Greeted,
) -> Result<MemberConnection, Attempt> {
    let Greeted {
        connection,
        hello,
        control,
    } = greeted;
    let address = connection.remote_address();
    let mut first = connection.open_bi().await?;
    let head = DataHead { attempt: number }.encode();
    first
        .0
        .write_all(&head)
        .await
        .map_err(|_| NoMessage::Ended)?;
    let (mut connections, mut data) = (vec![connection], vec![streams::data(first)]);
    for index in 1..admission.lane_count() {
        let connection = connect(admission, endpoint, address, peer).await?;
        let mut stream = connection.open_bi().await?;
        let lane = Lane {
            rank: admission.me.number(),
            attempt: number,
            index,
        };
        control::write(&mut stream.0, &Message::Lane(lane)).await?;
        connections.push(connection);
        data.push(streams::data(stream));
    }
    Ok(MemberConnection {
        connections,
        hello,
        control,
        data,
        tcp_binding: None,
    })
}

/// Connects over TCP, which a member that was reached over UDP must allow too.
async fn over_tcp(
    admission: &Arc<Admission>,
    peer: &Member,
    greeted: Greeted,
    tcp_binding: TcpBinding,
) -> Result<MemberConnection, Attempt> {
    let Greeted {
        connection,
        hello,
        control,
    } = greeted;
    let address = connection.remote_address();
    let data = tokio::select! {
        data = admission.reach(peer, address, &tcp_binding, 0) => data.map_err(Attempt::Hopeless)?,
        // It is over, or has let another in: that is no matter of TCP.
        _ = connection.closed() => return Err(Attempt::Failed),
    };
    Ok(MemberConnection {
        connections: vec![connection],
        hello,
        control,
        data,
        tcp_binding: Some(tcp_binding),
    })
}

async fn peer_address(
    admission: &Admission,
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
        Attempt::Hopeless(
            JoinError::AddressFamily {
                rank: admission.me,
                family,
                peer: peer.clone(),
            }
            .into(),
        )
    })
}

pub(super) async fn connect(
    admission: &Admission,
    endpoint: &Endpoint,
    address: SocketAddr,
    peer: &Member,
) -> Result<Connection, Attempt> {
    let name = admission
        .identity
        .server_name(admission.role(peer.rank()))
        .map_err(|error| Attempt::Hopeless(JoinError::from(error).into()))?
        .to_str()
        .into_owned();
    let connected = call(admission, endpoint, address, &name).await?;
    let connection = connected.map_err(|error| match distrust(&error) {
        Some(distrust) => Attempt::Hopeless(distrust.error(peer.clone()).into()),
        None => Attempt::Failed,
    })?;
    admission.node.connection_counters.dialled();
    Ok(connection)
}

async fn call(
    admission: &Admission,
    endpoint: &Endpoint,
    address: SocketAddr,
    name: &str,
) -> Result<Result<Connection, ConnectionError>, Attempt> {
    // Held only here: what a port refused before its member was there is no evidence later.
    let port = admission.node.refusals.watch(address);
    let begin = || async {
        let client = endpoint::client(&admission.identity, admission.network);
        let connecting = endpoint.connect_with(client, address, name);
        Ok(connecting.map_err(|_| Attempt::Failed)?.await)
    };
    again_while_refused(&port, begin).await
}

/// Begins anew, soon and a few times, where the port refuses what was begun.
async fn again_while_refused<F: Future>(port: &Refused, begin: impl Fn() -> F) -> F::Output {
    for pause in SOON_IN_MS.map(Duration::from_millis) {
        let refused = port.another();
        tokio::select! {
            ended = begin() => return ended,
            () = refused => sleep(pause).await,
        }
    }
    begin().await
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;

    /// How often is begun until the call with this number is answered, while a port refuses.
    async fn begun(answered: usize, refuses: impl AsyncFn(&Refused)) -> usize {
        let (port, calls) = (Refused::default(), Cell::new(0));
        let begin = || async {
            calls.set(calls.get() + 1);
            if calls.get() != answered {
                pending::<()>().await;
            }
        };
        tokio::select! {
            () = again_while_refused(&port, begin) => {}
            () = refuses(&port) => {}
        }
        calls.get()
    }

    #[tokio::test]
    async fn a_port_is_called_again_when_it_refuses_a_few_times_and_not_before() {
        let always = async |port: &Refused| loop {
            port.note(Instant::now());
            yield_now().await;
        };
        assert_eq!(begun(3, always).await, 3);
        let never = async |_: &Refused| {
            for _ in 0..100 {
                yield_now().await;
            }
        };
        assert_eq!(begun(3, never).await, 1);
        // Then QUIC goes on by itself.
        let long = async |port: &Refused| {
            let began = Instant::now();
            while began.elapsed() < 2 * Duration::from_millis(SOON_IN_MS.iter().sum()) {
                port.note(Instant::now());
                yield_now().await;
            }
        };
        assert!(begun(usize::MAX, long).await <= SOON_IN_MS.len() + 1);
    }
}
