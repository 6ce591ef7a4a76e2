//! A wire that can be looked at: forwards datagrams, and what goes over TCP to the same port,
//! between one server and its callers.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards what arrives at its address to the server, and the answers back.
pub(crate) struct Relay {
    address: SocketAddr,
    wire: Wire,
}

impl Relay {
    /// Keeps all that goes through it.
    pub(crate) fn to(server: SocketAddr) -> Self {
        Self::with(server, Some(Arc::default()), usize::MAX)
    }

    #[allow(dead_code, reason = "the soak has this file too, and does not call it")]
    /// Has another address towards the server after each so many datagrams of a caller, as where
    /// address translation forgets, or a caller moves to another network.
    pub(crate) fn moving(server: SocketAddr, every: usize) -> Self {
        Self::with(server, None, every)
    }

    #[allow(dead_code, reason = "the soak has this file too, and does not call it")]
    /// How often it has had another address.
    pub(crate) fn moves(&self) -> usize {
        self.wire.moves.load(Ordering::Relaxed)
    }

    #[allow(dead_code, reason = "the soak has this file too, and alone calls it")]
    /// Keeps nothing, so that anything can go through it for any time.
    pub(crate) fn forgetful(server: SocketAddr) -> Self {
        Self::with(server, None, usize::MAX)
    }

    fn with(server: SocketAddr, log: Option<Log>, every: usize) -> Self {
        let (front, listener) = fronts();
        let address = front.local_addr().unwrap();
        let wire = Wire {
            log,
            cut: Arc::default(),
            moves: Arc::default(),
        };
        let (datagrams, streams) = (wire.clone(), wire.clone());
        // Both end with the test's process; they own nothing that outlives it.
        thread::spawn(move || forward(&front, server, &datagrams, every));
        thread::spawn(move || forward_streams(&listener, server, &streams));
        Self { address, wire }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards nothing from and to this caller any more.
    pub(crate) fn cut(&self, caller: SocketAddr) {
        self.wire.cut.lock().unwrap().insert(caller);
    }

    /// All datagrams so far, in both directions, and all parts of streams.
    pub(crate) fn captured(&self) -> Vec<Vec<u8>> {
        let log = self.wire.log.as_ref();
        log.map_or_else(Vec::new, |log| log.lock().unwrap().clone())
    }

    /// How many of them contain `pattern`.
    pub(crate) fn sightings(&self, pattern: &[u8]) -> usize {
        let shows = |datagram: &&Vec<u8>| {
            datagram
                .windows(pattern.len())
                .any(|window| window == pattern)
        };
        self.captured().iter().filter(shows).count()
    }
}

/// What has gone through.
type Log = Arc<Mutex<Vec<Vec<u8>>>>;

/// What all threads of a relay share.
#[derive(Clone)]
struct Wire {
    log: Option<Log>,
    cut: Arc<Mutex<HashSet<SocketAddr>>>,
    moves: Arc<AtomicUsize>,
}

impl Wire {
    /// Takes note of a datagram from or to the caller, and says whether it gets through.
    fn carries(&self, caller: SocketAddr, datagram: &[u8]) -> bool {
        let through = !self.cut.lock().unwrap().contains(&caller);
        if let (true, Some(log)) = (through, &self.log) {
            log.lock().unwrap().push(datagram.to_vec());
        }
        through
    }
}

/// A port for both.
fn fronts() -> (UdpSocket, TcpListener) {
    loop {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(listener) = TcpListener::bind(front.local_addr().unwrap()) {
            return (front, listener);
        }
    }
}

fn forward_streams(listener: &TcpListener, server: SocketAddr, wire: &Wire) {
    while let Ok((near, caller)) = listener.accept() {
        // A server that is not there, the caller finds out by the end.
        let Ok(far) = TcpStream::connect(server) else {
            continue;
        };
        for (from, to) in [(&near, &far), (&far, &near)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let wire = wire.clone();
            thread::spawn(move || pump(from, to, caller, &wire));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, caller: SocketAddr, wire: &Wire) {
    let mut buffer = [0; 65536];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if wire.carries(caller, &buffer[..len]) && to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn forward(front: &UdpSocket, server: SocketAddr, wire: &Wire, every: usize) {
    let mut backs: HashMap<SocketAddr, (UdpSocket, usize)> = HashMap::new();
    let mut buffer = [0; 65536];
    while let Ok((len, caller)) = front.recv_from(&mut buffer) {
        let open = || (answers(front, caller, server, wire.clone()), 0);
        let back = backs.entry(caller).or_insert_with(open);
        back.1 += 1;
        if back.1 == every {
            // The old one stays open: who sends there gets no answer, not even a refusal.
            *back = open();
            wire.moves.fetch_add(1, Ordering::Relaxed);
        }
        if wire.carries(caller, &buffer[..len]) {
            let _ = back.0.send(&buffer[..len]);
        }
    }
}

/// A socket of its own towards the server for each caller, and a thread for its answers.
fn answers(front: &UdpSocket, caller: SocketAddr, server: SocketAddr, wire: Wire) -> UdpSocket {
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(server).unwrap();
    let (front, listener) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 65536];
        loop {
            match listener.recv(&mut buffer) {
                Ok(len) if wire.carries(caller, &buffer[..len]) => {
                    let _ = front.send_to(&buffer[..len], caller);
                }
                Ok(_) => {}
                // Nobody listens there yet; the caller repeats itself.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    thread::park_timeout(Duration::from_millis(1));
                }
                Err(_) => return,
            }
        }
    });
    back
}
