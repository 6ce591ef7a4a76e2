//! From what was seen and measured to what is wrong, and what to do about it.

use std::io::ErrorKind;
use std::net::SocketAddr;

use meshwork_collectives::{ConfigError, Error, JoinError, Rank};

use super::pairs::RankPair;

mod secret;

pub(super) use secret::SecretSource;

/// Facts observed from this machine.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) rank: Rank,
    pub(super) members: Vec<Member>,
    /// This rank's address, if this machine has it, and why it cannot listen there, if so.
    pub(super) port: Option<(SocketAddr, Option<ErrorKind>)>,
    /// The same for TCP, where that carries the bytes of operations.
    pub(super) tcp_port: Option<(SocketAddr, Option<ErrorKind>)>,
    /// Bytes of the largest packet that goes out of here.
    pub(super) mtu: Option<u64>,
    /// Bytes that the kernel lets a socket keep.
    pub(super) receive_buffer: Option<u64>,
    pub(super) send_buffer: Option<u64>,
    /// Cores that this process may run on.
    pub(super) cores: usize,
    /// Where this process has its secret or certificate from, if it has one.
    pub(super) secret: Option<SecretSource>,
    /// Why the ranks did not meet, if so.
    pub(super) not_joined: Option<Error>,
}

/// A member of the job, and the addresses that its name has here.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) rank: Rank,
    pub(super) address: String,
    pub(super) found: Result<Vec<SocketAddr>, ErrorKind>,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Level {
    Fine,
    Warning,
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) subject: &'static str,
    pub(super) what: String,
    pub(super) remedy: Option<String>,
}

/// Bytes that the transport asks of the kernel for each socket.
const BUFFER: u64 = 4 << 20;
/// The least packet that QUIC needs (RFC 9000, section 14), with the heads of IPv6 and UDP.
const LEAST_MTU: u64 = 1200 + 40 + 8;
/// Seconds that clocks may be apart before times of different hosts cannot be compared.
const CLOCKS: f64 = 0.1;
/// Seconds after which a certificate may look as if it were not valid yet.
const CERTIFICATES: f64 = 3600.0;
/// How much worse than the middle a pair must be to be mentioned.
const WORSE: f64 = 4.0;

/// Judges everything, in a fixed order.
pub(super) fn findings(facts: &Facts, pairs: &[RankPair]) -> Vec<Finding> {
    let mut found = vec![names(facts), families(facts), reach(facts), port(facts)];
    found.extend(tcp_port(facts));
    found.extend(mtu(facts));
    found.extend(buffer("receive", "rmem_max", facts.receive_buffer));
    found.extend(buffer("send", "wmem_max", facts.send_buffer));
    found.push(cores(facts));
    found.push(meeting(facts));
    found.extend(secret::secret(facts));
    found.extend(clocks(pairs));
    found.extend(links(pairs));
    found
}

fn fine(subject: &'static str, what: impl Into<String>) -> Finding {
    Finding {
        level: Level::Fine,
        subject,
        what: what.into(),
        remedy: None,
    }
}

fn wrong(
    level: Level,
    subject: &'static str,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        level,
        subject,
        what: what.into(),
        remedy: Some(remedy.into()),
    }
}

fn names(facts: &Facts) -> Finding {
    let unknown = facts.members.iter().find(|member| match &member.found {
        Ok(found) => found.is_empty(),
        Err(_) => true,
    });
    match unknown {
        Some(Member {
            rank,
            address,
            found,
        }) => wrong(
            Level::Problem,
            "names",
            match found {
                Ok(_) => format!("{rank} ({address}) has no address"),
                Err(kind) => format!("{rank} ({address}) cannot be looked up: {kind}"),
            },
            "correct the name and the port, or let this machine's name service know it",
        ),
        None => fine("names", "every member's name has an address"),
    }
}

fn families(facts: &Facts) -> Finding {
    let all = |holds: fn(&SocketAddr) -> bool| {
        facts
            .members
            .iter()
            .filter_map(|member| member.found.as_ref().ok())
            .all(|found| found.iter().any(holds))
    };
    match (all(SocketAddr::is_ipv4), all(SocketAddr::is_ipv6)) {
        (false, false) => wrong(
            Level::Problem,
            "address family",
            "no version of IP is common to all members",
            "give all members addresses of one version",
        ),
        (true, _) => fine("address family", "all members have an IPv4 address"),
        (false, true) => fine("address family", "all members have an IPv6 address"),
    }
}

fn reach(facts: &Facts) -> Finding {
    let loopback = |member: &&Member| {
        let found = member.found.as_ref();
        found.is_ok_and(|found| found.iter().all(|address| address.ip().is_loopback()))
    };
    let inside: Vec<&Member> = facts.members.iter().filter(loopback).collect();
    let own = facts.members.get(facts.rank.index()).and_then(host);
    let is_own_name =
        |member: &&Member| host(member) == own && member.address.parse::<SocketAddr>().is_err();
    match inside.first() {
        // It is listened at all addresses for that.
        Some(member) if inside.len() < facts.members.len() && inside.iter().all(is_own_name) => {
            wrong(
                Level::Warning,
                "addresses",
                format!(
                    "{} ({}) means loopback on this machine, its own: others find it only where it means an address of its network there",
                    member.rank, member.address
                ),
                "look for a line with 127.0.1.1 in /etc/hosts, and run the doctor on the others too",
            )
        }
        Some(member) if inside.len() < facts.members.len() => wrong(
            Level::Problem,
            "addresses",
            format!(
                "{} ({}) is a loopback address, which other machines cannot reach",
                member.rank, member.address
            ),
            "name the machine by an address of its network; look for a line with 127.0.1.1 in /etc/hosts",
        ),
        _ => fine(
            "addresses",
            "all members are on one side of the loopback interface",
        ),
    }
}

fn host(member: &Member) -> Option<&str> {
    Some(member.address.rsplit_once(':')?.0)
}

fn port(facts: &Facts) -> Finding {
    let (rank, world) = (facts.rank, facts.members.len());
    if rank.index() >= world {
        return wrong(
            Level::Problem,
            "port",
            format!("{rank} is outside a group of {world} ranks, numbered from 0"),
            "correct --rank or the list",
        );
    }
    match facts.port {
        Some((address, None)) => fine("port", format!("{rank} can listen on {address} (UDP)")),
        Some((address, Some(ErrorKind::AddrInUse))) => wrong(
            Level::Problem,
            "port",
            format!("{rank} cannot listen on {address}: the UDP port is taken"),
            "end the process that holds it ('ss -lunp' shows it), or give this rank another port",
        ),
        Some((address, Some(kind))) => wrong(
            Level::Problem,
            "port",
            format!("{rank} cannot listen on {address}: {kind}"),
            "ports below 1024 take a privilege; give this rank a higher one",
        ),
        None => wrong(
            Level::Warning,
            "port",
            format!("this machine has none of the addresses of {rank}"),
            "behind address translation this is right; otherwise correct the list, or --rank",
        ),
    }
}

fn tcp_port(facts: &Facts) -> Option<Finding> {
    let rank = facts.rank;
    let (address, taken) = facts.tcp_port?;
    Some(match taken {
        None => fine("tcp port", format!("{rank} can listen on {address} (TCP)")),
        Some(ErrorKind::AddrInUse) => wrong(
            Level::Problem,
            "tcp port",
            format!("{rank} cannot listen on {address}: the TCP port is taken"),
            "end the process that holds it ('ss -ltnp' shows it), give this rank another port, or let QUIC carry \
             the bytes (MESHWORK_CARRIER=quic)",
        ),
        Some(kind) => wrong(
            Level::Problem,
            "tcp port",
            format!("{rank} cannot listen on {address} over TCP: {kind}"),
            "allow it, or let QUIC carry the bytes (MESHWORK_CARRIER=quic)",
        ),
    })
}

fn mtu(facts: &Facts) -> Option<Finding> {
    let bytes = facts.mtu?;
    Some(match bytes < LEAST_MTU {
        true => wrong(
            Level::Problem,
            "mtu",
            format!("packets of at most {bytes} bytes go out, but QUIC takes {LEAST_MTU}"),
            format!("raise the interface's MTU to {LEAST_MTU} at least ('ip link set … mtu')"),
        ),
        false => fine("mtu", format!("packets of up to {bytes} bytes go out")),
    })
}

fn buffer(way: &str, name: &str, bytes: Option<u64>) -> Option<Finding> {
    let bytes = bytes?;
    Some(match bytes < BUFFER {
        true => wrong(
            Level::Warning,
            "udp buffers",
            format!(
                "a socket can keep {bytes} bytes to {way}, fewer than {BUFFER}: fast links lose packets"
            ),
            format!("sysctl -w net.core.{name}={BUFFER}"),
        ),
        false => fine(
            "udp buffers",
            format!("a socket can keep {bytes} bytes to {way}"),
        ),
    })
}

fn cores(facts: &Facts) -> Finding {
    let own = facts
        .members
        .iter()
        .find(|member| member.rank == facts.rank);
    let host = |member: &Member| {
        let found = member.found.as_ref().ok()?.first()?;
        Some(found.ip())
    };
    let here = own.and_then(host);
    let ranks = facts
        .members
        .iter()
        .filter(|member| here.is_some() && host(member) == here)
        .count()
        .max(1);
    let cores = facts.cores;
    match ranks > cores {
        true => wrong(
            Level::Warning,
            "cores",
            format!("{ranks} ranks share {cores} cores of this machine: they wait for each other"),
            "start no more ranks than cores, or expect a share of their speed",
        ),
        false => fine("cores", format!("{cores} cores here for {ranks} ranks")),
    }
}

fn meeting(facts: &Facts) -> Finding {
    match &facts.not_joined {
        None => fine("join", "all ranks met, encrypted and authenticated"),
        Some(error @ Error::Config(ConfigError::SecretMissing)) => wrong(
            Level::Warning,
            "join",
            "the ranks were not brought together",
            error.to_string(),
        ),
        // It says itself what to do about it.
        Some(
            error @ (Error::Config(_)
            | Error::Join(
                JoinError::Config(_) | JoinError::OtherRank { .. } | JoinError::OwnName { .. },
            )),
        ) => wrong(
            Level::Problem,
            "join",
            error.to_string(),
            "correct it on this host, and run 'meshwork doctor' again",
        ),
        Some(error) => wrong(
            Level::Problem,
            "join",
            error.to_string(),
            "run 'meshwork doctor' on every host at the same time; let UDP through to its port",
        ),
    }
}

fn clocks(pairs: &[RankPair]) -> Option<Finding> {
    let worst = pairs
        .iter()
        .max_by(|one, other| one.clock.abs().total_cmp(&other.clock.abs()))?;
    let (apart, one, other) = (worst.clock.abs(), worst.one, worst.other);
    let what = format!("the clocks of {one} and {other} are {apart:.3} s apart");
    let remedy = "let a time service (NTP) run on every host";
    Some(if apart >= CERTIFICATES {
        wrong(Level::Problem, "clocks", what, remedy)
    } else if apart >= CLOCKS {
        wrong(Level::Warning, "clocks", what, remedy)
    } else {
        fine("clocks", format!("{what}, the most of all pairs"))
    })
}

/// Pairs that are much worse than most.
fn links(pairs: &[RankPair]) -> Vec<Finding> {
    // With one or two pairs there is no telling which is the odd one.
    if pairs.len() < 3 {
        return Vec::new();
    }
    let latency = middle(pairs, |pair| pair.latency);
    let bandwidth = middle(pairs, |pair| pair.bandwidth);
    let mut found = Vec::new();
    for pair in pairs {
        let RankPair { one, other, .. } = pair;
        if pair.latency > WORSE * latency {
            found.push(wrong(
                Level::Warning,
                "latency",
                format!(
                    "{one} and {other} take {:.0} µs one way, most pairs {:.0} µs",
                    pair.latency * 1e6,
                    latency * 1e6
                ),
                "see whether they are on another site or host, or a core is taken",
            ));
        }
        if pair.bandwidth * WORSE < bandwidth {
            found.push(wrong(
                Level::Warning,
                "bandwidth",
                format!(
                    "{one} and {other} exchange {:.2} GB/s, most pairs {:.2} GB/s",
                    pair.bandwidth / 1e9,
                    bandwidth / 1e9
                ),
                "see whether their link is slow, lossy or shared",
            ));
        }
    }
    found
}

fn middle(pairs: &[RankPair], number: impl Fn(&RankPair) -> f64) -> f64 {
    let mut numbers: Vec<f64> = pairs.iter().map(number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

#[cfg(test)]
mod tests;
