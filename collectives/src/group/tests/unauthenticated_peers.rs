//! Strangers of every kind ask to join a group that goes on reducing, and none gets in or disturbs
//! it.

mod tcp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint};
use rustls::RootCertStore;
use tokio::runtime::Runtime;

use super::*;
use crate::config::Bounds;
use crate::identity::{ALPN, Authority, Credentials, Role};

/// Two ranks that reduce, each a sum that is checked, until the siege is over.
struct Siege {
    addresses: Vec<String>,
    secret: JobSecret,
    /// A word asks for a step.
    asks: mpsc::Sender<()>,
    /// A word for each step that was asked for.
    steps: Mutex<mpsc::Receiver<()>>,
}

/// The other ends of a siege's channels.
struct Steps {
    asks: Mutex<mpsc::Receiver<()>>,
    done: mpsc::Sender<()>,
}

/// Between steps that nobody asks for. A group that does nothing else takes the cores of others.
const PACE: Duration = Duration::from_millis(5);

/// Runs `attack` against a group that must not notice.
fn besieged(attack: impl FnOnce(&Siege) + Send) {
    besieged_over(DataTransport::Quic, attack);
}

fn besieged_over(data_transport: DataTransport, attack: impl FnOnce(&Siege) + Send) {
    let network = Network::default().with_data_transport(data_transport);
    besieged_as(|config| config.with_network(network), attack);
}

fn besieged_as(
    configured: impl Fn(GroupConfig) -> GroupConfig,
    attack: impl FnOnce(&Siege) + Send,
) {
    let (addresses, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let (siege, steps) = Siege::with_steps(&addresses, &secret);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for rank in Rank::all(2) {
            let config = config(&addresses, rank, &secret).with_transport(Transport::Quic);
            let config = configured(config);
            let (steps, over) = (&steps, &over);
            scope.spawn(move || reduce(Group::connect(&config).unwrap(), over, steps));
        }
        siege.goes_on();
        attack(&siege);
        siege.goes_on();
        over.store(true, Ordering::SeqCst);
    });
}

fn reduce(mut group: Group, over: &AtomicBool, steps: &Steps) {
    let is_chief = group.rank() == Rank::CHIEF;
    loop {
        let is_asked = is_chief && steps.asks.lock().unwrap().recv_timeout(PACE).is_ok();
        let mut buffer = [1.0_f32; 5000];
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        assert!(buffer.iter().all(|sum| *sum == 2.0));
        let mut word = [u8::from(over.load(Ordering::SeqCst))];
        group.broadcast(&mut word, Rank::CHIEF).unwrap();
        if word == [1] {
            return group.leave().unwrap();
        }
        if is_asked {
            steps.done.send(()).unwrap();
        }
    }
}

impl Siege {
    /// Of a group that makes no steps.
    fn of(addresses: &[String], secret: &JobSecret) -> Self {
        Self::with_steps(addresses, secret).0
    }

    fn with_steps(addresses: &[String], secret: &JobSecret) -> (Self, Steps) {
        let (asks, asked) = mpsc::channel();
        let (done, steps) = mpsc::channel();
        let siege = Self {
            addresses: addresses.to_vec(),
            secret: secret.clone(),
            asks,
            steps: Mutex::new(steps),
        };
        let asks = Mutex::new(asked);
        (siege, Steps { asks, done })
    }

    /// The group makes ten more steps.
    fn goes_on(&self) {
        let steps = self.steps.lock().unwrap();
        for _ in 0..10 {
            self.asks.send(()).unwrap();
            steps.recv_timeout(PATIENCE).unwrap();
        }
    }

    /// Asks to join at rank 0 with these credentials, or none.
    async fn join_request(
        &self,
        endpoint: &Endpoint,
        credentials: Option<Credentials>,
    ) -> Result<Connection, quinn::ConnectionError> {
        let authority = Authority::derive(&self.secret).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut tls = match credentials {
            Some(credentials) => builder
                .with_client_auth_cert(credentials.chain, credentials.key.clone_key())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let quic = QuicClientConfig::try_from(tls).unwrap();
        let name = format!("rank-0.{}.meshwork.invalid", self.secret.job());
        let address = self.addresses[0].parse().unwrap();
        let client = ClientConfig::new(Arc::new(quic));
        let connecting = endpoint.connect_with(client, address, &name);
        connecting.unwrap().await
    }

    /// Begins so many handshakes with rank 0 that never end, and then does this.
    fn half_open(&self, count: usize, meanwhile: impl FnOnce()) {
        let runtime = runtime();
        let inside = runtime.enter();
        // What the clients send gets through; what they should hear does not.
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        let deaf = Self::of(&[front.local_addr().unwrap().to_string()], &self.secret);
        let endpoint = client();
        runtime.block_on(async {
            let join_requests = (0..count).map(|_| deaf.join_request(&endpoint, None));
            let mut join_requests: Vec<_> = join_requests.map(Box::pin).collect();
            let mut buffer = [0; 1500];
            for join_request in &mut join_requests {
                // Begins, and cannot end.
                assert!(futures_now(join_request.as_mut()).await.is_none());
            }
            front.set_read_timeout(Some(PATIENCE)).unwrap();
            for _ in 0..count {
                tokio::task::yield_now().await;
                let length = front.recv(&mut buffer).unwrap();
                back.send_to(&buffer[..length], &self.addresses[0]).unwrap();
            }
        });
        drop(inside);
        meanwhile();
    }

    /// Credentials of a rank of this job, issued at this time.
    fn credentials(&self, rank: u32, now: SystemTime) -> Credentials {
        let authority = Authority::derive(&self.secret).unwrap();
        authority
            .credentials(Role::Rank(Rank::new(rank)), now)
            .unwrap()
    }
}

fn client() -> Endpoint {
    Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Bytes that look like nothing, the same in each run.
fn noise() -> impl FnMut() -> u8 {
    let mut state = 0x1234_5678_u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()[3]
    }
}

#[test]
fn datagrams_of_noise_change_nothing() {
    besieged(|siege| {
        let (socket, mut noise) = (UdpSocket::bind("127.0.0.1:0").unwrap(), noise());
        for length in (0..1400).chain((0..600).map(|_| 1200)) {
            let mut datagram: Vec<u8> = (0..length).map(|_| noise()).collect();
            if let Some(first) = datagram.first_mut().filter(|_| length % 2 == 0) {
                // The first byte of a handshake packet (RFC 9000, section 17.2).
                *first |= 0xc0;
            }
            for address in &siege.addresses {
                // The kernel may have no room: a datagram less.
                let _ = socket.send_to(&datagram, address);
            }
        }
    });
}

#[test]
fn who_has_no_certificate_or_an_expired_one_is_refused() {
    besieged(|siege| {
        let runtime = runtime();
        let _inside = runtime.enter();
        let endpoint = client();
        let expired = siege.credentials(1, SystemTime::now() - Duration::from_secs(3 * 86_400));
        for credentials in [None, Some(expired)] {
            let refused = runtime.block_on(async {
                // In TLS 1.3 a client is done before its certificate is looked at.
                match siege.join_request(&endpoint, credentials).await {
                    Ok(connection) => connection.closed().await,
                    Err(error) => error,
                }
            });
            let closed = matches!(refused, quinn::ConnectionError::ConnectionClosed(_));
            assert!(closed, "{refused:?}");
        }
    });
}

#[test]
fn a_member_that_claims_another_rank_or_talks_nonsense_is_refused() {
    besieged(|siege| {
        let runtime = runtime();
        let _inside = runtime.enter();
        let endpoint = client();
        let mut huge = crate::wire::Message::Heartbeat.encode();
        huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let hello = crate::wire::Message::Goodbye.encode();
        let mut noise = noise();
        let random: Vec<u8> = (0..5000).map(|_| noise()).collect();
        // Endless lengths, half a greeting, a greeting that is none, noise.
        for bytes in [&huge[..], &hello[..7], &hello[..], &random[..]] {
            runtime.block_on(async {
                let credentials = siege.credentials(1, SystemTime::now());
                let connection = siege
                    .join_request(&endpoint, Some(credentials))
                    .await
                    .unwrap();
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                // What is sent may find the other side gone.
                let _ = send.write_all(bytes).await;
                let _ = send.finish();
                let answer = receive.read_to_end(64).await;
                assert!(
                    !matches!(&answer, Ok(bytes) if !bytes.is_empty()),
                    "{answer:?}"
                );
            });
        }
    });
}

#[test]
fn a_member_of_another_release_is_told_the_version_that_is_spoken_here() {
    besieged(|siege| {
        let runtime = runtime();
        let _inside = runtime.enter();
        let endpoint = client();
        let mut hello = crate::wire::Message::Goodbye.encode();
        hello[4] = 1;
        let head = runtime.block_on(async {
            let credentials = siege.credentials(1, SystemTime::now());
            let connection = siege
                .join_request(&endpoint, Some(credentials))
                .await
                .unwrap();
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(&hello).await.unwrap();
            let mut head = [0; 5];
            receive.read_exact(&mut head).await.unwrap();
            head
        });
        assert_eq!(head[..4], *b"MSHW");
        assert_eq!(head[4], crate::wire::VERSION);
    });
}

#[test]
fn who_says_nothing_for_long_keeps_nobody_out() {
    besieged(|siege| {
        let runtime = runtime();
        let _inside = runtime.enter();
        let endpoint = client();
        let silent: Vec<Connection> = (0..100)
            .filter_map(|_| {
                let credentials = siege.credentials(1, SystemTime::now());
                runtime
                    .block_on(siege.join_request(&endpoint, Some(credentials)))
                    .ok()
            })
            .collect();
        assert!(!silent.is_empty());
        siege.goes_on();
    });
}

#[test]
fn who_says_nothing_keeps_no_member_from_joining() {
    let (addresses, secret) = (free_addresses(2), JobSecret::generate().unwrap());
    let join = |rank| config(&addresses, Rank::new(rank), &secret);
    thread::scope(|scope| {
        let waits = join(0);
        let first = scope.spawn(move || Group::connect(&waits).unwrap());
        let siege = Siege::of(&addresses, &secret);
        let runtime = runtime();
        let inside = runtime.enter();
        let endpoint = client();
        let mut silent = Vec::new();
        // Those who come first find nobody.
        while silent.len() < 64 {
            let credentials = siege.credentials(1, SystemTime::now());
            silent.extend(
                runtime
                    .block_on(siege.join_request(&endpoint, Some(credentials)))
                    .ok(),
            );
        }
        for _ in 0..40 {
            let credentials = siege.credentials(1, SystemTime::now());
            silent.extend(
                runtime
                    .block_on(siege.join_request(&endpoint, Some(credentials)))
                    .ok(),
            );
        }
        // A group is not joined inside of a runtime.
        drop(inside);
        let began = Instant::now();
        let second = Group::connect(&join(1)).unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        drop((first.join().unwrap(), second));
    });
}

#[test]
fn who_writes_byte_by_byte_and_never_ends_is_cut_off() {
    // A member that is too slow for it calls again.
    let bounds = Bounds {
        joining: Duration::from_secs(1),
        ..Bounds::default()
    };
    besieged_as(
        |config| config.with_bounds(bounds),
        |siege| {
            let runtime = runtime();
            let _inside = runtime.enter();
            let endpoint = client();
            let mut greeting = crate::wire::Message::Heartbeat.encode();
            // A body that never comes.
            greeting[8..12].copy_from_slice(&1000_u32.to_le_bytes());
            let began = Instant::now();
            runtime.block_on(async {
                let credentials = siege.credentials(1, SystemTime::now());
                let connection = siege
                    .join_request(&endpoint, Some(credentials))
                    .await
                    .unwrap();
                let (mut send, _receive) = connection.open_bi().await.unwrap();
                for byte in greeting {
                    // A byte for every few steps of the group.
                    siege.goes_on();
                    if send.write_all(&[byte]).await.is_err() {
                        break;
                    }
                }
                let cut = tokio::time::timeout(PATIENCE, connection.closed()).await;
                assert!(cut.is_ok(), "still open after {:?}", began.elapsed());
            });
        },
    );
}

#[test]
fn a_thousand_half_open_handshakes_take_little_memory() {
    if !growth::is_alone() {
        return;
    }
    besieged(|siege| {
        let before = growth::resident();
        siege.half_open(1000, || siege.goes_on());
        let grown = growth::resident().saturating_sub(before);
        assert!(grown < 96 << 20, "{grown} bytes more");
    });
}

#[test]
fn half_open_handshakes_keep_no_member_from_the_next_epoch() {
    let (addresses, secret) = (free_addresses(3), JobSecret::generate().unwrap());
    let mut groups = each(Rank::all(3), |rank| {
        Group::connect(&config(&addresses, rank, &secret)).unwrap()
    });
    drop(groups.remove(1));
    for group in &mut groups {
        assert!(group.barrier().is_err());
    }
    let siege = Siege::of(&addresses, &secret);
    let mut third = groups.pop().unwrap();
    thread::scope(|scope| {
        // It takes calls from now on, and waits for the other.
        scope.spawn(|| groups[0].shrink().unwrap());
        siege.half_open(1100, || {
            let began = Instant::now();
            third.shrink().unwrap();
            let took = began.elapsed();
            assert!(took < Duration::from_secs(5), "{took:?}");
        });
    });
}

/// What a future comes to if it is looked at once.
async fn futures_now<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
