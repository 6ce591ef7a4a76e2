//! The UDP socket and quinn's settings: windows, streams, timeouts, packet sizes, certificates.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use super::batches::Batches;
use super::moves::Moves;
use super::refusals::Refusals;
use crate::config::{Congestion, GroupConfig, Network};
use crate::host::{self, everywhere};
use crate::identity::Identity;
use crate::{DataTransport, JoinError, Rank, SystemError, tls};

/// What one stream may have under way: 1,024 gaps of two packets, the most that quinn can put
/// together again, are never exceeded by 2 MiB.
const STREAM_WINDOW: u32 = 2 << 20;
/// What all streams of a connection may have under way together: as much as each of them may, so
/// that none waits for another, and control never for bytes of operations that nobody reads. It is
/// a permission, and takes memory only for streams that are backed up. quinn tells of room that is
/// free again by eighths of this, so an eighth is besides.
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW / 7 * 8;
/// Control, data, and the groups that are split from this one: of these each end may have as many
/// as it can use, which the other has not made yet, or has dropped.
const STREAMS: u32 = 2 + 2 * super::streams::GROUPS as u32;
/// What all streams of a connection may have under way together whose caller has not proved to be a
/// member: any certificate of the authority ends the handshake. The longest message is shorter, so
/// it is enough too for the one stream of a line between two epochs, or of a rendezvous.
const UNPROVED_WINDOW: u32 = 256 << 10;
/// Control, and data behind it.
const UNPROVED_STREAMS: u32 = 2;
/// What the kernel may hold of one socket; the usual 208 KiB lose packets at full speed.
const SOCKET_BUFFER: usize = 4 << 20;
/// QUIC waits three times this before it repeats an unanswered first packet: a peer that starts a
/// moment later is found soon.
const FIRST_GUESS_OF_ROUND_TRIP: Duration = Duration::from_millis(50);
/// Callers that may wait to be looked at, and the bytes that each may have sent by then.
const INCOMING: usize = 1024;
const INCOMING_BYTES: u64 = 64 << 10;
/// Membership decides who is lost, and callers that prove nothing have their own deadline: no
/// patience is longer than this.
const IDLE: Duration = Duration::from_secs(86_400);

/// What this machine itself knows of a name, as by `/etc/hosts`, is found within that.
const KNOWN_HERE: Duration = Duration::from_secs(1);

/// Ports that the system is asked for until one is free for both UDP and TCP.
const TRIES: usize = 16;

/// Where a process listens.
pub(super) struct Listening {
    pub(super) endpoint: Endpoint,
    /// Where members are that the endpoint knows by another address.
    pub(super) moves: Arc<Moves>,
    /// What comes back of the packets that the endpoint sends.
    pub(super) refusals: Refusals,
    /// Over TCP, where that carries the bytes of operations.
    pub(super) listener: Option<TcpListener>,
    /// Where others reach it.
    pub(super) address: String,
}

/// Listens where this rank should: at the override, or at its own address in the member list; over
/// TCP too, at the same port, where that carries the bytes of operations. Looks up names no longer
/// than members may take to appear.
pub(super) async fn listen(
    config: &GroupConfig,
    identity: &Identity,
) -> Result<Listening, JoinError> {
    let (rank, limit) = (config.rank(), config.timeouts().join());
    let (own, candidates) = match (config.own_address(), config.bind()) {
        (Some(own), Some(address)) => (own, vec![address]),
        (Some(own), None) => {
            let failed = |error: io::Error| JoinError::OwnName {
                rank,
                address: own.to_owned(),
                reason: error.to_string(),
            };
            let found = found_within(limit, lookup_host(own)).await;
            let found = found.map_err(failed)?.collect();
            (own, reachable(own, found, config).await)
        }
        (None, Some(address)) => ("", vec![address]),
        (None, None) => ("", vec![towards(config.seeds(), limit).await?]),
    };
    let (socket, listener) = match config.network().data_transport() {
        DataTransport::Quic => (bind_any(rank, own, &candidates)?, None),
        DataTransport::Tls => bind_both(rank, own, &candidates)?,
    };
    let address = match own {
        "" => {
            let address = socket.local_addr();
            address
                .map_err(|error| system("looking at a socket", &error))?
                .to_string()
        }
        own => own.to_owned(),
    };
    let server = server(identity, config.network());
    let refusals = Refusals::of(&socket);
    let moves = Arc::default();
    let endpoint = endpoint(socket, config.network(), Some(server), &moves)?;
    Ok(Listening {
        endpoint,
        moves,
        refusals,
        listener,
        address,
    })
}

/// Where a rank listens whose own address means these. A name that means loopback here, as that of
/// the machine does in the `/etc/hosts` that installers write, is another address on others: where
/// there are any it listens at all addresses.
async fn reachable(own: &str, mut found: Vec<SocketAddr>, config: &GroupConfig) -> Vec<SocketAddr> {
    if own.parse::<SocketAddr>().is_ok() || !means_loopback(&found) {
        return found;
    }
    let others = config.listed().iter().chain(config.seeds());
    let until = Instant::now() + KNOWN_HERE.min(config.timeouts().join());
    let Some(other) = elsewhere(own, others.map(String::as_str), until).await else {
        return found;
    };
    // Loopback may be of both versions of IP, the job is of one.
    found.sort_by_key(|own| other.iter().all(|other| other.is_ipv4() != own.is_ipv4()));
    let all = |address: SocketAddr| SocketAddr::new(everywhere(address.ip()), address.port());
    found.into_iter().map(all).collect()
}

/// Whether these are addresses that only this machine reaches.
pub(super) fn means_loopback(found: &[SocketAddr]) -> bool {
    let mut ips = found.iter().map(|address| address.ip().to_canonical());
    !found.is_empty() && ips.all(|ip| ip.is_loopback())
}

/// The addresses of the first of these members that is not on this machine: neither by the host of
/// its `own` address nor by loopback. None are known of a name that is not found in time.
pub(super) async fn elsewhere<'a>(
    own: &'a str,
    members: impl Iterator<Item = &'a str>,
    until: Instant,
) -> Option<Vec<SocketAddr>> {
    let host = |address: &'a str| address.rsplit_once(':').map_or(address, |(host, _)| host);
    let mut here = BTreeSet::from([host(own)]);
    for member in members {
        if !here.insert(host(member)) {
            continue;
        }
        let found = timeout_at(until, lookup_host(member)).await;
        let found = found.ok().and_then(Result::ok);
        let found: Vec<SocketAddr> = found.into_iter().flatten().collect();
        if !means_loopback(&found) {
            return Some(found);
        }
    }
    None
}

/// The address of this machine from which the first seed is reached that is an address at all, and
/// any port.
async fn towards(seeds: &[String], limit: Duration) -> Result<SocketAddr, JoinError> {
    let (until, mut last) = (Instant::now() + limit, io::ErrorKind::NotFound.into());
    let count = u32::try_from(seeds.len()).unwrap_or(u32::MAX);
    for (left, seed) in (1..=count).rev().zip(seeds) {
        // As much is left for each of the others.
        let patience = until.saturating_duration_since(Instant::now()) / left;
        match found_within(patience, from_here_to(seed)).await {
            Ok(address) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(JoinError::NoSeed {
        seeds: seeds.join(","),
        reason: last.to_string(),
    })
}

/// What is looked up, if it is found in time.
pub(super) async fn found_within<T>(
    limit: Duration,
    found: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout(limit, found).await?
}

/// The address of this machine from which another is reached, and any port.
pub(super) async fn from_here_to(seed: &str) -> io::Result<SocketAddr> {
    let mut found = lookup_host(seed).await?;
    let seed = found.next().ok_or(io::ErrorKind::NotFound)?;
    Ok((host::from_here_to(seed)?, 0).into())
}

/// How connections that others begin are answered, until they are [trusted](trust).
pub(super) fn server(identity: &Identity, network: Network) -> ServerConfig {
    let mut transport = transport_config(network);
    transport
        .receive_window(VarInt::from_u32(UNPROVED_WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(UNPROVED_STREAMS));
    let mut server = ServerConfig::with_crypto(identity.server());
    server
        .transport_config(Arc::new(transport))
        .max_incoming(INCOMING)
        .incoming_buffer_size(INCOMING_BYTES)
        .incoming_buffer_size_total(INCOMING as u64 * INCOMING_BYTES / 8);
    server
}

/// Gives a caller that has proved to be a member of the epoch the room of one.
pub(super) fn trust(connection: &Connection) {
    connection.set_receive_window(VarInt::from_u32(CONNECTION_WINDOW));
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS));
}

/// An endpoint that only dials, from `any` address of one IP version.
pub(super) fn dialler(any: IpAddr) -> Result<Endpoint, JoinError> {
    let socket = bind((any, 0).into()).map_err(|error| system("binding a socket", &error))?;
    endpoint(socket, Network::default(), None, &Arc::default())
}

/// An endpoint that answers at this address.
pub(super) fn listener(address: SocketAddr, server: ServerConfig) -> io::Result<Endpoint> {
    let config = EndpointConfig::default();
    Endpoint::new(config, Some(server), bind(address)?, Arc::new(TokioRuntime))
}

pub(super) fn client(identity: &Identity, network: Network) -> ClientConfig {
    client_by(identity, transport_config(network))
}

/// One whose connections ask for a sign of life when so much time has gone by without any.
pub(super) fn attentive_client(
    identity: &Identity,
    network: Network,
    pause: Duration,
) -> ClientConfig {
    let mut transport = transport_config(network);
    transport.keep_alive_interval(Some(pause));
    client_by(identity, transport)
}

/// One whose connections end when so much time has gone by without a sign of life, for which they
/// ask before.
pub(super) fn impatient_client(identity: &Identity, silence: Duration) -> ClientConfig {
    let mut transport = transport_config(Network::default());
    transport
        .keep_alive_interval(Some(silence / 4))
        .max_idle_timeout(silence.try_into().ok());
    client_by(identity, transport)
}

fn client_by(identity: &Identity, transport: TransportConfig) -> ClientConfig {
    let mut client = ClientConfig::new(identity.client());
    client.transport_config(Arc::new(transport));
    client
}

/// Has an endpoint go on at any address of this machine, and any port.
pub(super) fn rebind(endpoint: &Endpoint, network: Network, moves: &Arc<Moves>) -> io::Result<()> {
    let before = endpoint.local_addr()?;
    let socket = bind((everywhere(before.ip()), 0).into())?;
    let socket = Batches::over(socket, arriving(network), moves)?;
    endpoint.rebind_abstract(Arc::new(socket))
}

/// The largest packet that may come: a smaller bound of its own is no reason to refuse what others
/// may send.
fn arriving(network: Network) -> u16 {
    let largest = network.largest_packet();
    largest.max(Network::default().largest_packet())
}

fn endpoint(
    socket: UdpSocket,
    network: Network,
    server: Option<ServerConfig>,
    moves: &Arc<Moves>,
) -> Result<Endpoint, JoinError> {
    let arriving = arriving(network);
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(arriving)
        .expect("a network's packets have 1,200 to 65,507 bytes");
    let starting = |error| system("starting QUIC", &error);
    let socket = Arc::new(Batches::over(socket, arriving, moves).map_err(starting)?);
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
        .map_err(starting)
}

/// Binds the first candidate that can be. An address that is valid but not this machine's own, as
/// behind address translation, is replaced by all addresses of the machine.
fn bind_any(rank: Rank, own: &str, candidates: &[SocketAddr]) -> Result<UdpSocket, JoinError> {
    let mut last = io::ErrorKind::AddrNotAvailable;
    for candidate in candidates {
        match bind(*candidate) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(JoinError::PortTaken {
                    rank,
                    address: *candidate,
                });
            }
            Err(error) => last = error.kind(),
        }
    }
    if last == io::ErrorKind::AddrNotAvailable
        && let Some(first) = candidates.first()
    {
        let everywhere: SocketAddr = (everywhere(first.ip()), first.port()).into();
        return bind(everywhere).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => JoinError::PortTaken {
                rank,
                address: everywhere,
            },
            kind => JoinError::Bind {
                rank,
                address: own.to_owned(),
                kind,
            },
        });
    }
    Err(JoinError::Bind {
        rank,
        address: own.to_owned(),
        kind: last,
    })
}

/// One port for both.
fn bind_both(
    rank: Rank,
    own: &str,
    candidates: &[SocketAddr],
) -> Result<(UdpSocket, Option<TcpListener>), JoinError> {
    let chosen = candidates.iter().all(|candidate| candidate.port() == 0);
    // Held until there is a good one, or the system would offer the same again.
    let mut held = Vec::new();
    loop {
        let socket = bind_any(rank, own, candidates)?;
        let address = socket.local_addr();
        let address = address.map_err(|error| system("looking at a socket", &error))?;
        match tls::listen(address) {
            Ok(listener) => return Ok((socket, Some(listener))),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                return Err(JoinError::Bind {
                    rank,
                    address: own.to_owned(),
                    kind: error.kind(),
                });
            }
            Err(_) if !chosen || held.len() == TRIES => {
                return Err(JoinError::TcpPortTaken { rank, address });
            }
            Err(_) => held.push(socket),
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // The kernel may allow less; slower, but no reason to fail.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn transport_config(network: Network) -> TransportConfig {
    let mut search = MtuDiscoveryConfig::default();
    search.upper_bound(network.largest_packet());
    let congestion: Arc<dyn ControllerFactory + Send + Sync> = match network.congestion() {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None)
        .mtu_discovery_config(Some(search))
        .congestion_controller_factory(congestion)
        .initial_rtt(FIRST_GUESS_OF_ROUND_TRIP)
        .max_idle_timeout(IDLE.try_into().ok());
    transport
}

fn system(what: &'static str, error: &io::Error) -> JoinError {
    SystemError::new(what, error.kind()).into()
}

#[cfg(test)]
mod tests;
