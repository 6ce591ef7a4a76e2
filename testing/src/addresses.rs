use std::collections::BTreeSet;
use std::net::{TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Addresses of loopback that were free a moment ago, over UDP and TCP, and that no other test of
/// this process is given.
///
/// ```
/// let [one, other] = meshwork_testing::free_addresses(2).try_into().unwrap();
/// assert!(one.starts_with("127.0.0.1:") && one != other);
/// ```
///
/// # Panics
/// Where loopback has no free port.
#[must_use]
pub fn free_addresses(count: usize) -> Vec<String> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    // A test that has panicked has taken its ports, and no more.
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // All are held until there are enough, or the system would offer the same ones again.
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    while addresses.len() < count {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = socket.local_addr().expect("a bound socket has an address");
        let free = TcpListener::bind(address);
        // Even ones are what Linux takes for connections that other tests make meanwhile.
        let is_odd = address.port() % 2 == 1;
        if is_odd && free.is_ok() && given.insert(address.port()) {
            addresses.push(address.to_string());
        }
        held.push((socket, free));
    }
    addresses
}
