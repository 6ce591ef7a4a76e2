//! A connection, set up as every group's is, over a wire in memory that may lose all packets for a
//! while; in virtual time, which goes on when nothing is left to do.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io::IoSliceMut;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, UdpPoller};
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::*;
use crate::identity::Role;
use crate::quic::testing::{in_time, without_look_ups};
use crate::{JobSecret, Timeouts};

/// Of 75 s, which the soak of whole processes has for patience.
const OUTAGE: Duration = Duration::from_secs(32);
/// Far more turns than anything here takes to come to rest.
const TURNS: usize = 50;
/// Less than the windows let through at once.
const PART: usize = 200_000;

/// Time for all ends, which only [`goes_on`](Self::goes_on) moves.
#[derive(Clone, Debug)]
struct Clock(Arc<Mutex<Ticking>>);

#[derive(Debug)]
struct Ticking {
    now: Instant,
    /// For which time each timer waits that does.
    waiting: BTreeMap<u64, (Instant, Waker)>,
    timers: u64,
}

#[derive(Debug)]
struct Timer {
    clock: Clock,
    number: u64,
    at: Instant,
}

impl Clock {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Ticking {
            now: Instant::now(),
            waiting: BTreeMap::new(),
            timers: 0,
        })))
    }

    fn now(&self) -> Instant {
        lock(&self.0).now
    }

    async fn sleep(&self, pause: Duration) {
        let mut timer = self.new_timer(self.now() + pause);
        poll_fn(|context| timer.as_mut().poll(context)).await;
    }

    /// Goes on to the next time that anybody waits for, whenever all is at rest.
    async fn goes_on(&self) {
        loop {
            for _ in 0..TURNS {
                yield_now().await;
            }
            let mut ticking = lock(&self.0);
            let next = ticking.waiting.iter().min_by_key(|(_, (at, _))| *at);
            let number = *next.expect("somebody waits for something").0;
            if let Some((at, waker)) = ticking.waiting.remove(&number) {
                ticking.now = ticking.now.max(at);
                waker.wake();
            }
        }
    }
}

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        self.at = at;
    }

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut ticking = lock(&self.clock.0);
        if self.at <= ticking.now {
            ticking.waiting.remove(&self.number);
            return Poll::Ready(());
        }
        let waits = (self.at, context.waker().clone());
        ticking.waiting.insert(self.number, waits);
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        lock(&self.clock.0).waiting.remove(&self.number);
    }
}

impl Runtime for Clock {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let clock = self.clone();
        let mut ticking = lock(&self.0);
        ticking.timers += 1;
        let number = ticking.timers;
        Box::pin(Timer { clock, number, at })
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(&self, _: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn now(&self) -> Instant {
        Self::now(self)
    }
}

/// Two ends, at the ports 0 and 1.
#[derive(Debug, Default)]
struct Wire {
    is_cut: AtomicBool,
    lost: Mutex<usize>,
    arrived: [Mutex<Arrived>; 2],
}

#[derive(Debug, Default)]
struct Arrived {
    datagrams: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct End {
    wire: Arc<Wire>,
    number: usize,
}

/// An end takes what it is given.
#[derive(Debug)]
struct Writable;

fn at(number: usize) -> SocketAddr {
    let port = u16::try_from(number + 1).unwrap();
    (Ipv4Addr::LOCALHOST, port).into()
}

impl UdpPoller for Writable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for End {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Writable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.wire.is_cut.load(Ordering::Relaxed) {
            *lock(&self.wire.lost) += 1;
            return Ok(());
        }
        let mut other = lock(&self.wire.arrived[1 - self.number]);
        other.datagrams.push_back(transmit.contents.to_vec());
        if let Some(waker) = other.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut own = lock(&self.wire.arrived[self.number]);
        let Some(datagram) = own.datagrams.pop_front() else {
            own.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        buffers[0][..datagram.len()].copy_from_slice(&datagram);
        meta[0] = RecvMeta {
            addr: at(1 - self.number),
            len: datagram.len(),
            stride: datagram.len(),
            ecn: None,
            dst_ip: None,
        };
        Poll::Ready(Ok(1))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(at(self.number))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a connection of members over this wire, the one that dialled first, with their
/// endpoints.
async fn connected(wire: &Arc<Wire>, clock: &Clock) -> [(Connection, Endpoint); 2] {
    let secret = JobSecret::generate().unwrap();
    let identities = [0, 1].map(|rank| {
        let role = Role::Rank(Rank::new(rank));
        Identity::new(&secret, role).unwrap()
    });
    let end = |number, server| {
        let wire = wire.clone();
        let (socket, clock) = (Arc::new(End { wire, number }), Arc::new(clock.clone()));
        Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, clock)
    };
    let network = Network::default();
    let listener = end(0, Some(server(&identities[0], network))).unwrap();
    let dialler = end(1, None).unwrap();
    let name = identities[1].server_name(Role::Rank(Rank::CHIEF)).unwrap();
    let client = client(&identities[1], network);
    let (dialled, accepted) = tokio::join!(
        async {
            let connecting = dialler.connect_with(client, at(0), &name.to_str());
            connecting.unwrap().await.unwrap()
        },
        async { listener.accept().await.unwrap().await.unwrap() }
    );
    trust(&accepted);
    [(dialled, dialler), (accepted, listener)]
}

/// Sends twice, the second time while nothing arrives, and returns how long the other end had to
/// wait for it once something could.
async fn through_an_outage(clock: Clock) -> Duration {
    let wire = Arc::<Wire>::default();
    let [(dialled, _dialler), (accepted, _listener)] = connected(&wire, &clock).await;
    let (mut send, _receive) = dialled.open_bi().await.unwrap();
    let (first, second) = (vec![1; PART], vec![2; PART]);
    send.write_all(&first).await.unwrap();
    let (_send, mut receive) = accepted.accept_bi().await.unwrap();
    let mut arrived = vec![0; PART];
    receive.read_exact(&mut arrived).await.unwrap();
    assert_eq!(arrived, first);

    wire.is_cut.store(true, Ordering::Relaxed);
    let began = clock.now();
    send.write_all(&second).await.unwrap();
    clock.sleep(OUTAGE).await;
    assert!(*lock(&wire.lost) > 0 && clock.now() - began >= OUTAGE);
    wire.is_cut.store(false, Ordering::Relaxed);
    let over = clock.now();
    receive.read_exact(&mut arrived).await.unwrap();
    assert_eq!(arrived, second);
    clock.now() - over
}

#[test]
fn a_connection_whose_link_drops_for_half_a_minute_goes_on_where_it_was() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let waited = runtime.block_on(async {
        let clock = Clock::new();
        tokio::select! {
            waited = through_an_outage(clock.clone()) => waited,
            () = clock.goes_on() => unreachable!("it goes on for ever"),
        }
    });
    println!("it waited for {waited:?} more");
    // What is lost is sent again after twice the time each time: at most as long as it took.
    assert!(waited <= OUTAGE, "{waited:?}");
}

/// Fills streams that nobody reads, and returns what arrives meanwhile on another.
async fn beside_full_streams(clock: Clock) -> [u8; 2] {
    let wire = Arc::<Wire>::default();
    let [(dialled, _dialler), (accepted, _listener)] = connected(&wire, &clock).await;
    let (mut control, _receive) = dialled.open_bi().await.unwrap();
    control.write_all(b"a").await.unwrap();
    let (_send, mut heard) = accepted.accept_bi().await.unwrap();
    let full = vec![0; STREAM_WINDOW as usize];
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (mut send, receive) = dialled.open_bi().await.unwrap();
        send.write_all(&full).await.unwrap();
        streams.push((send, receive));
    }
    control.write_all(b"b").await.unwrap();
    let mut word = [0; 2];
    heard.read_exact(&mut word).await.unwrap();
    word
}

#[test]
fn streams_that_nobody_reads_leave_room_for_control() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let word = runtime.block_on(async {
        let clock = Clock::new();
        tokio::select! {
            word = beside_full_streams(clock.clone()) => word,
            () = clock.goes_on() => unreachable!("it goes on for ever"),
        }
    });
    assert_eq!(word, *b"ab");
}

#[test]
fn nobody_has_room_for_datagrams_that_are_never_read() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let largest = runtime.block_on(async {
        let (wire, clock) = (Arc::default(), Clock::new());
        tokio::select! {
            ends = connected(&wire, &clock) => ends.map(|(end, _)| end.max_datagram_size()),
            () = clock.goes_on() => unreachable!("it goes on for ever"),
        }
    });
    assert_eq!(largest, [None, None]);
}

#[test]
fn a_connection_permits_what_all_its_streams_may_have_under_way() {
    let all = u64::from(STREAMS) * u64::from(STREAM_WINDOW);
    // quinn keeps back what is less than an eighth of a window.
    let told = u64::from(CONNECTION_WINDOW - CONNECTION_WINDOW / 8);
    let control = u64::from(STREAM_WINDOW);
    assert!(told >= all - control / 2, "{told} of {all} bytes");
}

#[test]
fn a_rank_looks_for_its_own_address_no_longer_than_for_the_others() {
    let secret = JobSecret::generate().unwrap();
    let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
    let config = GroupConfig::new(["localhost:0"], Rank::CHIEF, secret).unwrap();
    let timeouts = Timeouts::default().with_join(Duration::from_millis(1));
    let config = config.with_timeouts(timeouts);
    let error = without_look_ups(async |_| listen(&config, &identity).await.err().unwrap());
    let late = io::ErrorKind::TimedOut.to_string();
    assert!(
        matches!(&error, JoinError::OwnName { reason, .. } if *reason == late),
        "{error}"
    );
}

#[test]
fn a_name_of_its_own_that_has_no_address_is_the_name_that_a_rank_complains_of() {
    let secret = JobSecret::generate().unwrap();
    let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
    // A label of more than 63 letters is refused without asking any service.
    let members = [
        format!("{}:4000", "a".repeat(64)),
        "127.0.0.1:4001".to_owned(),
    ];
    let config = GroupConfig::new(&members, Rank::CHIEF, secret).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(listen(&config, &identity)).err().unwrap();
    let text = error.to_string();
    let start = format!(
        "rank 0 is to listen at {}, which has no address",
        members[0]
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(text.contains("correct the name"), "{text}");
    assert!(error.is_retryable(), "{text}");
    // What the standard library says of a look-up by its kind alone.
    assert!(!text.contains("uncategorized"), "{text}");
}

/// Where rank 0 listens of these two, over UDP and TCP.
fn listening(members: [&str; 2]) -> [SocketAddr; 2] {
    let secret = JobSecret::generate().unwrap();
    let identity = Identity::new(&secret, Role::Rank(Rank::CHIEF)).unwrap();
    let network = Network::default().with_data_transport(DataTransport::Tls);
    let config = GroupConfig::new(members, Rank::CHIEF, secret).unwrap();
    let config = config.with_network(network);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listening = listen(&config, &identity).await.unwrap();
        let tcp = listening.listener.unwrap().local_addr();
        [listening.endpoint.local_addr(), tcp].map(Result::unwrap)
    })
}

#[test]
fn a_name_that_means_loopback_here_is_reached_from_other_machines() {
    let unknown = format!("{}:4001", "a".repeat(64));
    for other in ["192.0.2.77:4001", &unknown] {
        for address in listening(["localhost:0", other]) {
            assert!(address.ip().is_unspecified(), "{address} beside {other}");
        }
    }
    for [own, other] in [
        ["localhost:0", "localhost:4001"],
        ["localhost:0", "127.0.0.2:4001"],
        ["127.0.0.1:0", "192.0.2.77:4001"],
    ] {
        for address in listening([own, other]) {
            let ip = address.ip();
            assert!(ip.is_loopback(), "{own} is at {ip} beside {other}");
        }
    }
}

#[test]
fn of_loopback_in_both_versions_of_ip_that_of_the_others_counts() {
    let found: Vec<SocketAddr> = ["[::1]:4000", "127.0.0.1:4000"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for (other, first) in [
        ("192.0.2.77:4001", "0.0.0.0:4000"),
        ("[2001:db8::7]:4001", "[::]:4000"),
    ] {
        let secret = JobSecret::generate().unwrap();
        let config = GroupConfig::new(["h:4000", other], Rank::CHIEF, secret).unwrap();
        let candidates = runtime.block_on(reachable("h:4000", found.clone(), &config));
        assert_eq!(candidates[0], first.parse::<SocketAddr>().unwrap());
    }
}

#[test]
fn a_seed_that_is_looked_for_in_vain_leaves_time_for_the_next() {
    let look = |seeds: &[&str]| {
        let seeds: Vec<String> = seeds.iter().copied().map(str::to_owned).collect();
        without_look_ups(async |_| towards(&seeds, Duration::from_millis(20)).await)
    };
    let found = look(&["localhost:1", "127.0.0.1:1"]).unwrap();
    assert_eq!(found.ip(), Ipv4Addr::LOCALHOST);
    let error = look(&["localhost:1"]).unwrap_err();
    let late = io::ErrorKind::TimedOut.to_string();
    assert!(
        matches!(&error, JoinError::NoSeed { reason, .. } if *reason == late),
        "{error}"
    );
}

#[test]
fn a_seed_alone_may_be_looked_for_as_long_as_there_is_time() {
    let seeds = ["localhost:1".to_owned()];
    let look = |limit: Duration| {
        without_look_ups(async |busy| {
            let look_ups_begin = async {
                sleep(limit * 6 / 10).await;
                busy.send(()).unwrap();
            };
            tokio::join!(towards(&seeds, limit), look_ups_begin).0
        })
    };
    let found = in_time(look, Result::is_ok).unwrap();
    assert_eq!(found.port(), 0);
}
