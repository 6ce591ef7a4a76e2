use std::iter;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that systems give to nobody who asks for any, as sockets do that call others: between
/// being found free and being taken, one of those may be gone.
const PORTS: Range<u16> = 16_384..32_768;
/// Processes that run at the same time look from different ports on.
const BETWEEN_PROCESSES: u32 = 251;

/// The `TF_CONFIG` of the worker number `index` of those with these addresses.
#[must_use]
pub fn tf_config(addresses: &[String], index: usize) -> String {
    format!(
        r#"{{"cluster":{{"worker":{addresses:?}}},"task":{{"type":"worker","index":{index}}}}}"#
    )
}

/// Addresses of loopback that were free a moment ago, over UDP and TCP, and that no other test of
/// this process is given.
///
/// ```
/// let [one, other] = meshwork_testing::free_addresses(2).try_into().unwrap();
/// assert!(one.starts_with("127.0.0.1:") && one != other);
/// ```
///
/// # Panics
/// Where loopback has too few free ports.
#[must_use]
pub fn free_addresses(count: usize) -> Vec<String> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(BETWEEN_PROCESSES);
    let ports = iter::repeat_with(|| first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed)));
    let addresses: Vec<String> = ports
        .take(PORTS.len())
        .filter_map(|number| PORTS.clone().nth(number as usize % PORTS.len()))
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .filter(|address| UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok())
        .map(|address| address.to_string())
        .take(count)
        .collect();
    assert_eq!(addresses.len(), count, "loopback has too few free ports");
    addresses
}
