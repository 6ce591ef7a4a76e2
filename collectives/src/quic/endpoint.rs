use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::GroupConfig;
use crate::identity::Identity;
use crate::{Error, Rank};

/// What one stream may have under way: 1,024 gaps of two packets, the most that quinn can put
/// together again, are never exceeded by 2 MiB.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;
/// Control, data, and the groups that are split from this one.
const STREAMS: u32 = 2 + super::streams::GROUPS as u32;
/// What the kernel may hold of one socket; the usual 208 KiB lose packets at full speed.
const SOCKET_BUFFER: usize = 4 << 20;
/// The largest packet that the search for the path's limit tries: jumbo frames and loopback carry
/// it. quinn hands ten packets at a time to the kernel, which refuses more than 65,535 bytes.
const LARGEST_PACKET: u16 = 6500;
/// QUIC waits three times this before it repeats an unanswered first packet: a peer that starts a
/// moment later is found soon.
const FIRST_GUESS_OF_ROUND_TRIP: Duration = Duration::from_millis(50);
/// Heartbeats decide who is alive; this only ends connections that never became members.
const IDLE: Duration = Duration::from_secs(30);

/// Listens where this rank should: at the override, or at its own address in the member list.
pub(super) async fn listen(config: &GroupConfig, identity: &Identity) -> Result<Endpoint, Error> {
    let rank = config.rank();
    let own = config.own_address();
    let candidates = match config.bind() {
        Some(address) => vec![address],
        None => tokio::net::lookup_host(own)
            .await
            .map_err(|error| Error::Bind {
                rank,
                address: own.to_owned(),
                kind: error.kind(),
            })?
            .collect(),
    };
    let socket = bind_any(rank, own, &candidates)?;
    let mut server = ServerConfig::with_crypto(identity.server.clone());
    server.transport_config(transport());
    endpoint(socket, Some(server))
}

/// An endpoint that only dials, from `any` address of one IP version.
pub(super) fn dialler(any: IpAddr) -> Result<Endpoint, Error> {
    let socket = bind((any, 0).into()).map_err(|error| system("binding a socket", &error))?;
    endpoint(socket, None)
}

pub(super) fn client(identity: &Identity) -> ClientConfig {
    let mut client = ClientConfig::new(identity.client.clone());
    client.transport_config(transport());
    client
}

fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Result<Endpoint, Error> {
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(LARGEST_PACKET)
        .expect("a constant between 1,200 and 65,527");
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime))
        .map_err(|error| system("starting QUIC", &error))
}

/// Binds the first candidate that can be. An address that is valid but not this machine's own, as
/// behind address translation, is replaced by all addresses of the machine.
fn bind_any(rank: Rank, own: &str, candidates: &[SocketAddr]) -> Result<UdpSocket, Error> {
    let mut last = io::ErrorKind::AddrNotAvailable;
    for candidate in candidates {
        match bind(*candidate) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(Error::PortTaken {
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
        let everywhere: SocketAddr = match first {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, first.port()).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, first.port()).into(),
        };
        return bind(everywhere).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::PortTaken {
                rank,
                address: everywhere,
            },
            kind => Error::Bind {
                rank,
                address: own.to_owned(),
                kind,
            },
        });
    }
    Err(Error::Bind {
        rank,
        address: own.to_owned(),
        kind: last,
    })
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

fn transport() -> Arc<TransportConfig> {
    let mut search = MtuDiscoveryConfig::default();
    search.upper_bound(LARGEST_PACKET);
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .mtu_discovery_config(Some(search))
        .initial_rtt(FIRST_GUESS_OF_ROUND_TRIP)
        .max_idle_timeout(IDLE.try_into().ok());
    Arc::new(transport)
}

fn system(what: &'static str, error: &io::Error) -> Error {
    Error::System {
        what,
        kind: error.kind(),
    }
}
