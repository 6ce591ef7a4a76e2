//! What can be seen from this machine alone.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

use meshwork_collectives::{DataTransport, Rank};

use super::findings::{Facts, Member, SecretSource};

/// Looks at the members' names, and at this machine as the host of `rank`.
pub(super) fn at(members: &[String], rank: Rank, carrier: DataTransport) -> Facts {
    let members: Vec<Member> = Rank::all(u32::MAX)
        .zip(members)
        .map(|(rank, address)| Member {
            rank,
            address: address.clone(),
            found: address
                .to_socket_addrs()
                .map(Iterator::collect)
                .map_err(|error| error.kind()),
        })
        .collect();
    let own = members.iter().find(|member| member.rank == rank);
    let own: Vec<SocketAddr> = own
        .and_then(|member| member.found.clone().ok())
        .unwrap_or_default();
    let local = own.iter().copied().find(|address| is_local(address.ip()));
    Facts {
        rank,
        port: local.map(|address| (address, taken(address))),
        tcp_port: local
            .filter(|_| carrier == DataTransport::Tls)
            .map(|address| (address, taken_for_tcp(address))),
        mtu: local.and_then(|address| mtu(address.ip())),
        receive_buffer: limit("rmem_max"),
        send_buffer: limit("wmem_max"),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        members,
        secret: SecretSource::of_environment(),
        not_joined: None,
    }
}

/// Whether this machine has the address: the system lets a socket have it.
pub(super) fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Why the port cannot be had, if so.
fn taken(address: SocketAddr) -> Option<io::ErrorKind> {
    UdpSocket::bind(address).err().map(|error| error.kind())
}

/// The same for TCP, at the same number.
fn taken_for_tcp(address: SocketAddr) -> Option<io::ErrorKind> {
    TcpListener::bind(address).err().map(|error| error.kind())
}

/// A limit of the kernel, in bytes, where it tells.
fn limit(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Bytes of the largest packet of the interface that has the address, where the kernel tells.
fn mtu(ip: IpAddr) -> Option<u64> {
    let name = match ip {
        ip if ip.is_loopback() => "lo".to_owned(),
        IpAddr::V4(ip) => interface(&fs::read_to_string("/proc/net/route").ok()?, ip)?,
        IpAddr::V6(_) => return None,
    };
    let text = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    text.trim().parse().ok()
}

/// The interface by whose route, the most specific one, the address is reached.
fn interface(routes: &str, ip: Ipv4Addr) -> Option<String> {
    // The kernel prints addresses in hexadecimal, the first byte last.
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::swap_bytes);
    let route = |line: &str| {
        let mut fields = line.split_whitespace();
        let (name, to) = (fields.next()?, number(fields.next()?)?);
        let mask = number(fields.nth(5)?)?;
        (ip.to_bits() & mask == to).then(|| (mask, name.to_owned()))
    };
    let best = routes.lines().skip(1).filter_map(route).max()?;
    Some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_route_names_the_interface() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                      eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n\
                      eth2\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let by = |ip: [u8; 4]| interface(routes, ip.into());
        assert_eq!(by([10, 1, 2, 3]).as_deref(), Some("eth2"));
        assert_eq!(by([10, 2, 2, 3]).as_deref(), Some("eth1"));
        assert_eq!(by([192, 0, 2, 9]).as_deref(), Some("eth0"));
        assert_eq!(interface("", [10, 0, 0, 1].into()), None);
        assert_eq!(interface("a\nb c\n", [10, 0, 0, 1].into()), None);
    }

    #[test]
    fn the_port_for_tcp_is_looked_at_where_tcp_carries_the_bytes() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let members = [held.local_addr().unwrap().to_string()];
        let tcp = |carrier| at(&members, Rank::CHIEF, carrier).tcp_port;
        assert_eq!(tcp(DataTransport::Quic), None);
        let taken = (held.local_addr().unwrap(), Some(io::ErrorKind::AddrInUse));
        assert_eq!(tcp(DataTransport::Tls), Some(taken));
        drop(held);
        assert_eq!(tcp(DataTransport::Tls), Some((taken.0, None)));
    }

    #[test]
    fn this_machine_has_the_loopback_address_and_no_documentation_address() {
        assert!(is_local(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_local(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}
