//! A wire that can be looked at: forwards datagrams between one server and its callers.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards what arrives at its address to the server, and the answers back; keeps all of it.
pub(crate) struct Relay {
    address: SocketAddr,
    captured: Arc<Mutex<Vec<Vec<u8>>>>,
    cut: Arc<Mutex<HashSet<SocketAddr>>>,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap();
        let captured = Arc::new(Mutex::new(Vec::new()));
        let cut = Arc::default();
        let wire = Wire {
            log: captured.clone(),
            cut: Arc::clone(&cut),
        };
        // Ends with the test's process; it owns nothing that outlives it.
        thread::spawn(move || forward(&front, server, &wire));
        Self {
            address,
            captured,
            cut,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards nothing from and to this caller any more.
    pub(crate) fn cut(&self, caller: SocketAddr) {
        self.cut.lock().unwrap().insert(caller);
    }

    /// All datagrams so far, in both directions.
    pub(crate) fn captured(&self) -> Vec<Vec<u8>> {
        self.captured.lock().unwrap().clone()
    }

    /// How many datagrams contain `pattern`.
    pub(crate) fn sightings(&self, pattern: &[u8]) -> usize {
        let shows = |datagram: &&Vec<u8>| {
            datagram
                .windows(pattern.len())
                .any(|window| window == pattern)
        };
        self.captured().iter().filter(shows).count()
    }
}

/// What all threads of a relay share.
#[derive(Clone)]
struct Wire {
    log: Arc<Mutex<Vec<Vec<u8>>>>,
    cut: Arc<Mutex<HashSet<SocketAddr>>>,
}

impl Wire {
    /// Takes note of a datagram from or to the caller, and says whether it gets through.
    fn carries(&self, caller: SocketAddr, datagram: &[u8]) -> bool {
        let through = !self.cut.lock().unwrap().contains(&caller);
        if through {
            self.log.lock().unwrap().push(datagram.to_vec());
        }
        through
    }
}

fn forward(front: &UdpSocket, server: SocketAddr, wire: &Wire) {
    let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut buffer = [0; 65536];
    while let Ok((len, caller)) = front.recv_from(&mut buffer) {
        let back = backs
            .entry(caller)
            .or_insert_with(|| answers(front, caller, server, wire.clone()));
        if wire.carries(caller, &buffer[..len]) {
            let _ = back.send(&buffer[..len]);
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
