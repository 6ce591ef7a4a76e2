//! A rank's side of a relay: it stays registered, and has a socket on this machine for each peer
//! that is reached by the relay, which to quinn is that peer's address.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::RelayToken;
use super::datagram::{Datagram, HEAD, Nonce, data_head};
use crate::host::{everywhere, is_here};
use crate::identity::fill_random;
use crate::notice::say;
use crate::tasks::{spawn, spawn_in};
use crate::{JoinError, RelayRefusal};

/// The largest packet that goes by a relay: with all heads it fits 1,500 bytes, so that it need not
/// be sent in pieces. QUIC finds out, as a larger one is lost.
const LARGEST: usize = 1400;
/// How often a rank says that it is there: address translation forgets after some tens of seconds.
const OFTEN: Duration = Duration::from_secs(2);
/// And until it is registered.
const AT_FIRST: Duration = Duration::from_millis(500);
/// A relay that has not answered for so long is not there, which is told before peers are lost by
/// it.
const SILENCE: Duration = Duration::from_secs(5);
/// Nor one whose host refuses so many packets in a row.
const REFUSALS: u32 = 2;
/// For how long a relay has to refuse a rank until that is believed. A refusal proves nothing, so
/// anybody on the way may have said it; a relay that serves is asked several times meanwhile.
const STANDS: Duration = Duration::from_secs(3);

/// Keeps this rank registered at a relay for as long as it lives.
pub(crate) struct RelayClient(
    Arc<Shared>,
    /// Those of the tasks that end with it.
    [AbortHandle; 3],
);

struct Shared {
    /// As it was given.
    name: String,
    token: RelayToken,
    member: u32,
    nonce: Nonce,
    /// Towards the relay, from the address that this machine has.
    socket: watch::Sender<Arc<UdpSocket>>,
    /// 0 while there is none.
    session: AtomicU64,
    standing: Mutex<Standing>,
    /// Where the endpoint listens, as seen from this machine.
    endpoint: Mutex<SocketAddr>,
    /// What each peer is to the endpoint.
    ways: Mutex<BTreeMap<u32, Way>>,
    most: usize,
    /// How long the relay's name is looked up.
    limit: Duration,
}

/// What a peer is to the endpoint.
struct Way {
    socket: Arc<UdpSocket>,
    /// Sends on what comes from the endpoint; ends with this.
    _carrying: JoinSet<()>,
}

/// How this rank and the relay stand.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// When the relay has last answered, or was first asked.
    heard: Instant,
    /// Packets since that the relay's host has refused.
    refusals: u32,
    is_silent: bool,
    refused: Option<Refused>,
}

/// That this rank is refused, says somebody in the relay's name.
#[derive(Clone, Copy, Debug)]
struct Refused {
    reason: RelayRefusal,
    /// When it was said first since the rank had a session, and when last.
    since: Instant,
    last: Instant,
}

/// Who uses a relay, how many peers it may have at a time, and how long it looks up the relay's
/// name.
pub(crate) struct Registrant {
    pub(crate) member: u32,
    pub(crate) endpoint: SocketAddr,
    pub(crate) most: u32,
    pub(crate) limit: Duration,
}

impl RelayClient {
    /// Begins to register at the relay with this name.
    pub(crate) async fn open(
        name: &str,
        token: &RelayToken,
        own: Registrant,
    ) -> Result<Self, JoinError> {
        let failed = |error: io::Error| JoinError::Relay {
            relay: name.to_owned(),
            reason: error.to_string(),
        };
        let mut nonce = Nonce::default();
        fill_random(&mut nonce)?;
        let addresses = look_up(name, own.limit).await.map_err(failed)?;
        let socket = connected(&addresses).await.map_err(failed)?;
        let standing = Standing {
            heard: Instant::now(),
            refusals: 0,
            is_silent: false,
            refused: None,
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            token: token.clone(),
            member: own.member,
            nonce,
            socket: watch::Sender::new(Arc::new(socket)),
            session: AtomicU64::new(0),
            standing: Mutex::new(standing),
            endpoint: Mutex::new(on_this_machine(own.endpoint)),
            ways: Mutex::default(),
            most: own.most as usize,
            limit: own.limit,
        });
        let tasks = [
            spawn(shared.clone().stay_registered()),
            spawn(shared.clone().follow()),
            spawn(shared.clone().listen()),
        ];
        Ok(Self(shared, tasks.map(|task| task.abort_handle())))
    }

    /// The relay's address, as it was given.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// The endpoint listens there from now on: for it, peers stay where they are.
    pub(crate) fn begin_at(&self, endpoint: SocketAddr) {
        let endpoint = on_this_machine(endpoint);
        *lock(&self.0.endpoint) = endpoint;
        for way in lock(&self.0.ways).values() {
            // What is not connected carries nothing: its peer is lost in time.
            let _ = SockRef::from(&*way.socket).connect(&endpoint.into());
        }
    }

    /// Whether the relay passes on what this rank sends.
    pub(crate) fn serves(&self) -> bool {
        self.0.session.load(Ordering::Relaxed) != 0
    }

    /// Why the relay does not serve this rank, if it has said so for long enough.
    pub(crate) fn refusal(&self) -> Option<RelayRefusal> {
        let refused = lock(&self.0.standing).refused?;
        let stands = refused.last.saturating_duration_since(refused.since) >= STANDS;
        stands.then_some(refused.reason)
    }

    /// The address that is a peer for this process's endpoint; `None` where the system has no more.
    pub(crate) fn way_to(&self, member: u32) -> Option<SocketAddr> {
        self.0.way(member)?.local_addr().ok()
    }

    /// Whose address this is, if it is one of those.
    pub(crate) fn at(&self, address: SocketAddr) -> Option<u32> {
        let ways = lock(&self.0.ways);
        let mut ways = ways.iter();
        ways.find_map(|(member, way)| (way.socket.local_addr().ok()? == address).then_some(*member))
    }

    /// Gives back what stands for other members than these.
    pub(crate) fn keep(&self, stays: impl Fn(u32) -> bool) {
        lock(&self.0.ways).retain(|member, _| stays(*member));
    }
}

impl Drop for RelayClient {
    fn drop(&mut self) {
        self.1.iter().for_each(AbortHandle::abort);
        self.keep(|_| false);
    }
}

impl Shared {
    async fn stay_registered(self: Arc<Self>) {
        let mut sockets = self.socket.subscribe();
        loop {
            let session = self.session.load(Ordering::Relaxed);
            let hello = Datagram::Hello {
                member: self.member,
                session,
                nonce: self.nonce,
            };
            self.send(&hello).await;
            let pause = if session == 0 { AT_FIRST } else { OFTEN };
            // At once from another address.
            let _ = timeout(pause, sockets.changed()).await;
            self.notice_silence(Instant::now());
        }
    }

    /// Goes on from another address where this machine has lost the one of the socket, and to the
    /// next address of the relay's name while the one in use is silent. Nothing else waits for the
    /// name service.
    async fn follow(self: Arc<Self>) {
        let mut tried: Option<Instant> = None;
        loop {
            sleep(AT_FIRST).await;
            let is_early = tried.is_some_and(|tried| tried.elapsed() < SILENCE);
            if !self.has_moved() && (is_early || !self.is_silent()) {
                continue;
            }
            tried = Some(Instant::now());
            if let Ok(addresses) = look_up(&self.name, self.limit).await {
                self.go_on(addresses).await;
            }
        }
    }

    /// Has a session of its own from there.
    async fn go_on(&self, mut addresses: Vec<SocketAddr>) {
        let is_silent = self.is_silent();
        if !is_silent && !self.has_moved() {
            // It has answered while its name was looked up.
            return;
        }
        let last = self.towards().peer_addr().ok();
        // Of the same address twice, the second would be asked once more.
        let mut seen = BTreeSet::new();
        addresses.retain(|one| seen.insert(*one));
        if let Some(at) = addresses.iter().position(|one| Some(*one) == last) {
            addresses.rotate_left(at + usize::from(is_silent));
        }
        // Without any way there the next look finds the same.
        if let Ok(socket) = connected(&addresses).await {
            self.session.store(0, Ordering::Relaxed);
            self.socket.send_replace(Arc::new(socket));
        }
    }

    /// Whether this machine has lost the address of the socket.
    fn has_moved(&self) -> bool {
        let own = self.towards().local_addr();
        !own.is_ok_and(|own| is_here(own.ip()))
    }

    fn is_silent(&self) -> bool {
        lock(&self.standing).is_silent
    }

    fn towards(&self) -> Arc<UdpSocket> {
        self.socket.borrow().clone()
    }

    /// A datagram that is not sent is lost, and said again.
    async fn send(&self, datagram: &Datagram<'_>) {
        let _ = self.towards().send(&datagram.encode()).await;
    }

    fn notice_silence(&self, now: Instant) {
        let mut standing = lock(&self.standing);
        let is_there = now < standing.heard + SILENCE && standing.refusals < REFUSALS;
        if is_there || standing.is_silent {
            return;
        }
        standing.is_silent = true;
        drop(standing);
        // It may be another one by now, which knows nothing of the session.
        self.session.store(0, Ordering::Relaxed);
        say(format_args!(
            "the relay {} does not answer: ranks are not reached by it; is it running, and its \
             port open for UDP?",
            self.name
        ));
    }

    fn heard(&self) {
        let mut standing = lock(&self.standing);
        (standing.heard, standing.refusals) = (Instant::now(), 0);
        if std::mem::take(&mut standing.is_silent) {
            drop(standing);
            say(format_args!("the relay {} answers", self.name));
        }
    }

    async fn listen(self: Arc<Self>) {
        let mut buffer = vec![0; HEAD + LARGEST + 1];
        let mut sockets = self.socket.subscribe();
        loop {
            let socket = sockets.borrow_and_update().clone();
            let received = tokio::select! {
                received = socket.recv(&mut buffer) => received,
                _ = sockets.changed() => continue,
            };
            match received {
                Ok(len) => self.hear(&buffer[..len]).await,
                Err(error) => {
                    if error.kind() == io::ErrorKind::ConnectionRefused {
                        lock(&self.standing).refusals += 1;
                        self.notice_silence(Instant::now());
                    }
                    sleep(AT_FIRST / 10).await;
                }
            }
        }
    }

    async fn hear(self: &Arc<Self>, bytes: &[u8]) {
        match Datagram::decode(bytes) {
            Some(Datagram::Data {
                session,
                member,
                packet,
            }) if session != 0 && session == self.session.load(Ordering::Relaxed) => {
                if let Some(way) = self.way(member) {
                    // A packet that does not get through is lost, as any may be.
                    let _ = way.send(packet).await;
                }
            }
            Some(Datagram::Challenge { nonce, cookie }) if nonce == self.nonce => {
                let proof = self.token.of_rank(self.member, &nonce, &cookie);
                let register = Datagram::Register {
                    member: self.member,
                    nonce,
                    cookie,
                    proof,
                };
                self.send(&register).await;
            }
            Some(Datagram::Registered {
                nonce,
                session,
                proof,
            }) if self.token.is_of_relay(&nonce, session, &proof) && nonce == self.nonce => {
                self.session.store(session, Ordering::Relaxed);
                lock(&self.standing).refused = None;
                self.heard();
            }
            Some(Datagram::Alive { nonce }) if nonce == self.nonce => self.heard(),
            Some(Datagram::Refused { nonce, reason }) if nonce == self.nonce => {
                self.refused(Instant::now(), reason);
            }
            // Of a session that is over, of another rank, or of no relay at all.
            Some(
                Datagram::Data { .. }
                | Datagram::Challenge { .. }
                | Datagram::Registered { .. }
                | Datagram::Alive { .. }
                | Datagram::Refused { .. }
                | Datagram::Hello { .. }
                | Datagram::Register { .. },
            )
            | None => {}
        }
    }

    /// Counts while there is no session only. One that the relay has forgotten ends by its silence,
    /// as it says nothing else of it.
    fn refused(&self, now: Instant, reason: RelayRefusal) {
        if self.session.load(Ordering::Relaxed) != 0 {
            return;
        }
        self.heard();
        let mut standing = lock(&self.standing);
        let before = standing.refused;
        standing.refused = Some(Refused {
            reason,
            since: before.map_or(now, |before| before.since),
            last: now,
        });
        drop(standing);
        if before.map(|before| before.reason) != Some(reason) {
            let relay = &self.name;
            say(format_args!(
                "the relay {relay} refuses this rank: {reason}"
            ));
        }
    }

    /// The socket that is a peer for the endpoint, which is made when it is first needed.
    fn way(self: &Arc<Self>, member: u32) -> Option<Arc<UdpSocket>> {
        let mut ways = lock(&self.ways);
        if let Some(way) = ways.get(&member) {
            return Some(way.socket.clone());
        }
        // A relay may name anybody.
        (ways.len() < self.most).then_some(())?;
        let socket = Arc::new(beside(*lock(&self.endpoint)).ok()?);
        let mut carrying = JoinSet::new();
        spawn_in(&mut carrying, self.clone().carry(member, socket.clone()));
        let way = Way {
            socket: socket.clone(),
            _carrying: carrying,
        };
        ways.insert(member, way);
        Some(socket)
    }

    /// Sends to the relay what the endpoint sends to a peer.
    async fn carry(self: Arc<Self>, member: u32, way: Arc<UdpSocket>) {
        let mut buffer = vec![0; HEAD + LARGEST + 1];
        loop {
            let Ok(len) = way.recv(&mut buffer[HEAD..]).await else {
                // An endpoint that is gone.
                sleep(AT_FIRST / 10).await;
                continue;
            };
            let session = self.session.load(Ordering::Relaxed);
            if len <= LARGEST && session != 0 {
                buffer[..HEAD].copy_from_slice(&data_head(session, member));
                let _ = self.towards().send(&buffer[..HEAD + len]).await;
            }
        }
    }
}

/// The addresses of the relay, if its name is found in time.
async fn look_up(relay: &str, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    let found = timeout(limit, tokio::net::lookup_host(relay)).await??;
    Ok(found.collect())
}

/// A socket from any port towards the first of these addresses that there is a way to.
async fn connected(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match connected_to(*address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connected_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((everywhere(address.ip()), 0)).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// A socket that exchanges datagrams with the endpoint and nobody else. It has an address that this
/// machine does not lose.
fn beside(endpoint: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind((loopback(endpoint), 0))?;
    socket.connect(endpoint)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

fn on_this_machine(mut endpoint: SocketAddr) -> SocketAddr {
    if endpoint.ip().is_unspecified() {
        endpoint.set_ip(loopback(endpoint));
    }
    endpoint
}

fn loopback(like: SocketAddr) -> IpAddr {
    match like {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    #[cfg(target_os = "linux")]
    use std::sync::mpsc;

    use tokio::task::yield_now;

    use super::*;
    use crate::quic::testing::without_look_ups;
    use crate::{JobSecret, Relay, RelayLimits};

    const REASON: RelayRefusal = RelayRefusal::Token;

    /// A rank's side, and the socket of a relay that says nothing by itself.
    async fn asks() -> (RelayClient, std::net::UdpSocket) {
        let relay = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = relay.local_addr().unwrap().to_string();
        (registers(&name).await.unwrap(), relay)
    }

    async fn registers(name: &str) -> Result<RelayClient, JoinError> {
        let endpoint = ([127, 0, 0, 1], 4000).into();
        RelayClient::open(name, &token(), member(1, endpoint)).await
    }

    fn token() -> RelayToken {
        RelayToken::of(&JobSecret::generate().unwrap())
    }

    fn member(member: u32, endpoint: SocketAddr) -> Registrant {
        Registrant {
            member,
            endpoint,
            most: 2,
            limit: Duration::from_secs(1),
        }
    }

    /// A relay that ends with the test's process, and its address.
    fn runs_at(address: [u8; 4], token: &RelayToken) -> SocketAddr {
        let relay = Relay::bind((address, 0).into(), token.clone(), RelayLimits::default());
        let relay = relay.unwrap();
        let address = relay.address();
        std::thread::spawn(move || relay.run(|_| {}).unwrap());
        address
    }

    /// Waits for what comes sooner or later.
    async fn comes(mut is_there: impl FnMut() -> bool) {
        let waiting = async {
            while !is_there() {
                yield_now().await;
            }
        };
        let came = timeout(Duration::from_secs(20), waiting).await;
        came.expect("it has not come");
    }

    impl RelayClient {
        async fn hears(&self, datagram: Datagram<'_>) {
            self.0.hear(&datagram.encode()).await;
        }

        async fn hears_refusal(&self) {
            let (nonce, reason) = (self.0.nonce, REASON);
            self.hears(Datagram::Refused { nonce, reason }).await;
        }

        async fn is_registered(&self) {
            let (nonce, session) = (self.0.nonce, 7);
            let proof = self.0.token.of_relay(&nonce, session);
            let registered = Datagram::Registered {
                nonce,
                session,
                proof,
            };
            self.hears(registered).await;
        }

        fn session(&self) -> u64 {
            self.0.session.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn a_refusal_is_believed_once_it_stands_and_no_longer_than_until_the_relay_serves() {
        let (client, _relay) = asks().await;
        let now = Instant::now();
        client.hears_refusal().await;
        assert_eq!(client.refusal(), None, "one datagram says nothing");
        client.0.refused(now + STANDS / 2, REASON);
        assert_eq!(client.refusal(), None);
        client.0.refused(now + 2 * STANDS, REASON);
        assert_eq!(client.refusal(), Some(REASON));
        client.is_registered().await;
        assert_eq!((client.session(), client.refusal()), (7, None));
    }

    #[tokio::test]
    async fn who_has_a_session_is_not_refused_before_that_has_ended() {
        let (client, _relay) = asks().await;
        client.is_registered().await;
        let now = Instant::now();
        let refused_for_long = || {
            client.0.refused(now, REASON);
            client.0.refused(now + STANDS, REASON);
        };
        refused_for_long();
        client.hears_refusal().await;
        assert_eq!((client.session(), client.refusal()), (7, None));
        // The relay has forgotten it: nothing that it says then counts as an answer.
        client.0.notice_silence(now + SILENCE);
        assert_eq!((client.session(), client.refusal()), (0, None));
        refused_for_long();
        assert_eq!(client.refusal(), Some(REASON));
    }

    #[test]
    fn a_relay_whose_name_is_looked_up_in_vain_is_an_error_in_time() {
        let opened = without_look_ups(async |_| registers("localhost:9").await);
        let error = opened.err().unwrap();
        let late = io::ErrorKind::TimedOut.to_string();
        assert!(
            matches!(&error, JoinError::Relay { reason, .. } if *reason == late),
            "{error}"
        );
    }

    /// Whose address no machine has.
    #[cfg(target_os = "linux")]
    fn of_elsewhere() -> UdpSocket {
        use socket2::{Domain, Socket, Type};

        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let address: SocketAddr = ([192, 0, 2, 1], 0).into();
        socket.set_freebind_v4(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        UdpSocket::from_std(socket.into()).unwrap()
    }

    /// Just where a machine loses its address a name service may not answer for long.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_relay_that_is_silent_is_named_in_time_while_its_name_is_looked_up() {
        without_look_ups(async |busy| {
            busy.send(()).unwrap();
            let client = registers("localhost:9").await.unwrap();
            // Once it has been looked up, there is nobody to do it again.
            let (_busy, until_end) = mpsc::channel::<()>();
            tokio::task::spawn_blocking(move || until_end.recv());
            client.0.socket.send_replace(Arc::new(of_elsewhere()));
            lock(&client.0.standing).heard = Instant::now().checked_sub(SILENCE).unwrap();
            comes(|| client.0.is_silent()).await;
        });
    }

    /// Nothing has been heard of the relay for so long that it is not there.
    async fn is_silent_for_long(client: &RelayClient) {
        lock(&client.0.standing).heard = Instant::now().checked_sub(SILENCE).unwrap();
        comes(|| client.0.is_silent()).await;
    }

    #[tokio::test]
    async fn a_relay_that_is_silent_is_looked_up_and_asked_from_anew() {
        let (client, _relay) = asks().await;
        let before = client.0.towards().local_addr().unwrap();
        is_silent_for_long(&client).await;
        comes(|| client.0.towards().local_addr().unwrap() != before).await;
    }

    #[tokio::test]
    async fn a_relay_is_found_behind_an_address_of_its_name_that_is_silent() {
        let wall = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let silent = wall.local_addr().unwrap();
        let token = token();
        let relay = runs_at([127, 0, 0, 1], &token);
        let own = member(1, ([127, 0, 0, 1], 4000).into());
        let opened = RelayClient::open(&silent.to_string(), &token, own).await;
        let client = opened.unwrap();
        // Its name has one address.
        client.1[1].abort();
        let addresses = vec![silent, silent, relay];
        client.0.go_on(addresses.clone()).await;
        let towards = || client.0.towards().peer_addr().unwrap();
        assert_eq!(towards(), silent, "it may still answer");
        is_silent_for_long(&client).await;
        client.0.go_on(addresses).await;
        assert_eq!(towards(), relay);
        comes(|| client.serves()).await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_relay_everywhere_answers_from_the_address_by_which_each_rank_knows_it() {
        let token = token();
        let port = runs_at([0, 0, 0, 0], &token).port();
        let mut ranks = Vec::new();
        for number in [1, 2] {
            let endpoint = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let own = member(number, endpoint.local_addr().unwrap());
            // The kernel would answer from 127.0.0.1.
            let name = format!("127.0.0.{}:{port}", number + 1);
            let client = RelayClient::open(&name, &token, own).await.unwrap();
            comes(|| client.serves()).await;
            ranks.push((client, endpoint));
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let peer = u32::try_from(to).unwrap() + 1;
            let way = ranks[from].0.way_to(peer).unwrap();
            ranks[from].1.send_to(b"sealed", way).await.unwrap();
            let mut packet = [0; 9];
            let arrives = ranks[to].1.recv(&mut packet);
            let arrived = timeout(Duration::from_secs(20), arrives).await;
            assert_eq!(&packet[..arrived.unwrap().unwrap()], b"sealed");
        }
    }

    #[tokio::test]
    async fn before_there_is_a_session_no_datagram_makes_a_way() {
        let (client, _relay) = asks().await;
        let packet: &[u8] = &[1];
        let data = |session| Datagram::Data {
            session,
            member: 7,
            packet,
        };
        client.hears(data(0)).await;
        assert!(lock(&client.0.ways).is_empty());
        client.is_registered().await;
        client.hears(data(client.session())).await;
        assert!(lock(&client.0.ways).contains_key(&7));
    }

    async fn closes(socket: Weak<UdpSocket>) {
        comes(|| socket.strong_count() == 0).await;
    }

    #[tokio::test]
    async fn ways_that_are_given_back_are_closed_and_make_room_for_others() {
        let (client, _relay) = asks().await;
        let shared = client.0.clone();
        let way = |member| shared.way(member).map(|socket| Arc::downgrade(&socket));
        let (first, second) = (way(1).unwrap(), way(2).unwrap());
        assert_eq!(client.way_to(3), None);
        client.keep(|member| member == 1);
        closes(second).await;
        assert!(client.way_to(3).is_some());
        assert!(first.ptr_eq(&way(1).unwrap()), "it stays as it was");
        drop(client);
        closes(first).await;
    }
}
