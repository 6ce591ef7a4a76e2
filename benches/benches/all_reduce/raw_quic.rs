//! What a two-rank all-reduce over QUIC is measured by: one stream of quinn that both ends fill.
//!
//! A ring of two ranks moves as many bytes in each direction as the buffer has; so does one
//! exchange here. Windows, largest packet, socket buffers, cipher and threads are those of a group.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream,
    ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::Builder;

use crate::lock_step::{LockStep, Span};

const LARGEST_PACKET: u16 = 6500;
const SOCKET_BUFFER: usize = 4 << 20;
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// What both ends do next.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) bytes: usize,
    pub(crate) repeats: u64,
}

/// One end before it is connected.
enum End {
    Dials {
        socket: Socket,
        to: SocketAddr,
        trusted: CertificateDer<'static>,
    },
    Accepts {
        socket: Socket,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    },
}

/// Two ends of one connection, on a thread each.
pub(crate) fn pair() -> LockStep<Order> {
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()])
        .expect("localhost is a valid name");
    let certificate = identity.cert.der().clone();
    let accepting = socket();
    let address = accepting.local_addr().expect("bound sockets have one");
    let ends = vec![
        End::Dials {
            socket: socket(),
            to: address.as_socket().expect("it is an address of loopback"),
            trusted: certificate.clone(),
        },
        End::Accepts {
            socket: accepting,
            certificate,
            key: PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into()),
        },
    ];
    LockStep::start(ends, serve)
}

fn serve(end: End, orders: Receiver<Order>, spans: Sender<Span>) {
    // Threads as in a group: what this end has written goes out while it waits for an order.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("threads can be had");
    let (_endpoint, mut outgoing, mut incoming) = runtime.block_on(connect(end));
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for Order { bytes, repeats } in orders {
        sent.resize(bytes, 1);
        received.resize(bytes, 2);
        let mut exchange = |bytes: usize| {
            runtime.block_on(async {
                let write = async { outgoing.write_all(&sent[..bytes]).await.is_ok() };
                let read = async { incoming.read_exact(&mut received[..bytes]).await.is_ok() };
                assert_eq!(tokio::join!(write, read), (true, true), "the end is there");
            });
        };
        // Both ends are ready when each has heard of the other.
        exchange(1);
        let start = Instant::now();
        for _ in 0..repeats {
            exchange(bytes);
        }
        let end = Instant::now();
        if spans.send(Span { start, end }).is_err() {
            break;
        }
    }
}

async fn connect(end: End) -> (Endpoint, SendStream, RecvStream) {
    match end {
        End::Dials {
            socket,
            to,
            trusted,
        } => {
            let mut roots = RootCertStore::empty();
            roots.add(trusted).expect("the certificate is well formed");
            let mut config = ClientConfig::with_root_certificates(Arc::new(roots))
                .expect("the roots are not empty");
            config.transport_config(transport());
            let endpoint = endpoint(socket, None);
            let connecting = endpoint.connect_with(config, to, "localhost");
            let connection = connecting
                .expect("the address can be dialled")
                .await
                .expect("the other end answers");
            let (mut outgoing, incoming) = connection.open_bi().await.expect("it is connected");
            // A stream exists for the other end when its first byte arrives.
            outgoing.write_all(&[0]).await.expect("it is connected");
            (endpoint, outgoing, incoming)
        }
        End::Accepts {
            socket,
            certificate,
            key,
        } => {
            let mut config = ServerConfig::with_single_cert(vec![certificate], key)
                .expect("certificate and key belong together");
            config.transport_config(transport());
            let endpoint = endpoint(socket, Some(config));
            let dialled = endpoint.accept().await.expect("the endpoint is open");
            let connection = dialled.await.expect("the other end finishes its handshake");
            let (outgoing, mut incoming) = connection.accept_bi().await.expect("it is connected");
            let first = incoming.read_exact(&mut [0]).await;
            first.expect("the other end has written it");
            (endpoint, outgoing, incoming)
        }
    }
}

fn socket() -> Socket {
    let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
        .expect("the system has UDP sockets");
    // The kernel may allow less, to a group's sockets as to these.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    let bound = socket.bind(&loopback.into());
    bound.expect("loopback has a free port");
    socket
}

fn endpoint(socket: Socket, server: Option<ServerConfig>) -> Endpoint {
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(LARGEST_PACKET)
        .expect("it is a size that packets can have");
    Endpoint::new(config, server, socket.into(), Arc::new(TokioRuntime))
        .expect("the socket is bound")
}

fn transport() -> Arc<TransportConfig> {
    let mut search = MtuDiscoveryConfig::default();
    search.upper_bound(LARGEST_PACKET);
    let mut transport = TransportConfig::default();
    transport
        .mtu_discovery_config(Some(search))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        // Nothing is sent while other benchmarks run.
        .max_idle_timeout(None);
    Arc::new(transport)
}
