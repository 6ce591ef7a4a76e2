//! Reserves a UDP port on 127.0.0.1 for each worker by binding it, and releases them all right
//! before the workers start.

use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

use meshwork_collectives::Rank;

use crate::LaunchError;

/// One UDP port of 127.0.0.1 per rank, held until [released](ReservedPorts::release).
#[derive(Debug)]
pub(crate) struct ReservedPorts {
    held: Vec<(UdpSocket, SocketAddr)>,
}

impl ReservedPorts {
    /// Lets go of all ports at once; their addresses in order of rank.
    pub(crate) fn release(self) -> Vec<String> {
        let addresses = self.held.into_iter().map(|(_, address)| address);
        addresses.map(|address| address.to_string()).collect()
    }
}

/// Holds the ports from `base` on, or any free ones.
///
/// # Errors
/// [`LaunchError::PortRange`], [`LaunchError::PortTaken`], [`LaunchError::NoFreePort`]
pub(crate) fn reserve(workers: usize, base: Option<u16>) -> Result<ReservedPorts, LaunchError> {
    let held = match base {
        Some(base) => numbered(base, workers)?
            .zip(Rank::all(u32::MAX))
            .map(|(port, rank)| {
                hold(port).map_err(|source| LaunchError::PortTaken { port, rank, source })
            })
            .collect::<Result<_, _>>()?,
        None => {
            let mut free = free_ports();
            let any = |rank| {
                // Where these are all taken, the system may know of others.
                let held = free.next().map_or_else(|| hold(0), Ok);
                held.map_err(|source| LaunchError::NoFreePort {
                    rank,
                    workers,
                    source,
                })
            };
            let ranks = Rank::all(u32::MAX).take(workers);
            ranks.map(any).collect::<Result<_, _>>()?
        }
    };
    Ok(ReservedPorts { held })
}

/// A port for each worker on other hosts, from `base` on or by chance, above those that Linux hands
/// out by itself. Whether they are free is known to those hosts only, where a worker that finds its
/// port taken says so.
///
/// # Errors
/// [`LaunchError::PortRange`]
pub(crate) fn elsewhere(
    workers: usize,
    base: Option<u16>,
) -> Result<impl Iterator<Item = u16>, LaunchError> {
    const FIRST: u16 = 61_000;
    let room = u64::from(u16::MAX - FIRST).saturating_sub(workers as u64) + 1;
    let chance = RandomState::new().hash_one(std::process::id()) % room;
    let chance = u16::try_from(chance).expect("less than the ports there are");
    numbered(base.unwrap_or(FIRST + chance), workers)
}

fn numbered(base: u16, workers: usize) -> Result<impl Iterator<Item = u16>, LaunchError> {
    let last = workers
        .checked_sub(1)
        .and_then(|further| u16::try_from(further).ok())
        .and_then(|further| base.checked_add(further))
        .filter(|_| base != 0)
        .ok_or(LaunchError::PortRange { base, workers })?;
    Ok(base..=last)
}

fn hold(port: u16) -> std::io::Result<(UdpSocket, SocketAddr)> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Ports that are free over UDP and TCP: workers may use both. They are none that systems give to
/// sockets that call others, and jobs that start at the same time look from different ones on, for
/// a port is free again until its worker takes it.
fn free_ports() -> impl Iterator<Item = (UdpSocket, SocketAddr)> {
    const PORTS: Range<u16> = 16_384..32_768;
    const BETWEEN_JOBS: u32 = 251;
    let first = std::process::id().wrapping_mul(BETWEEN_JOBS) as usize % PORTS.len();
    let ports = PORTS.cycle().skip(first).take(PORTS.len());
    let held = ports.filter_map(|port| hold(port).ok());
    held.filter(|(_, address)| TcpListener::bind(address).is_ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_range_of_ports_starts_above_0_and_ends_at_65535() {
        for base in [0, 1, 2, 4000, 65_532, 65_533, 65_535] {
            for workers in 1..=4_usize {
                let fits = base != 0 && usize::from(base) + workers <= 65_536;
                let ports = numbered(base, workers).map(Iterator::collect::<Vec<_>>);
                assert_eq!(ports.is_ok(), fits, "{base}, {workers}");
                if let Ok(ports) = ports {
                    assert_eq!((ports[0], ports.len()), (base, workers));
                }
            }
        }
    }

    #[test]
    fn free_ports_are_distinct() {
        let addresses = reserve(32, None).unwrap().release();
        let distinct: BTreeSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), 32);
        assert!(!distinct.contains(&"127.0.0.1:0".to_owned()));
    }

    #[test]
    fn ports_of_other_hosts_fit_whatever_chance_says() {
        for workers in [1, 2, 1024] {
            let ports: Vec<_> = elsewhere(workers, None).unwrap().collect();
            assert!(
                (ports.len(), ports[0] >= 61_000) == (workers, true),
                "{ports:?}"
            );
        }
        assert_eq!(elsewhere(2, Some(7)).unwrap().collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn a_taken_port_is_named_with_its_rank() {
        let (_socket, address) = hold(0).unwrap();
        let port = address.port();
        let refused = reserve(1, Some(port)).unwrap_err();
        assert!(
            matches!(refused, LaunchError::PortTaken { port: p, rank: Rank::CHIEF, .. } if p == port),
            "{refused}"
        );
    }
}
