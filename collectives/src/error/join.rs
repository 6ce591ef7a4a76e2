//! Why the members of a group did not meet.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::member::Listed;
use super::unauthenticated::Refused;
use super::{
    ConfigError, Member, Refusal, RelayRefusal, SystemError, UnauthenticatedPeer, show_the_sentence,
};
use crate::Rank;

/// The members of a group did not meet.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Something else listens where this rank should.
    #[error(
        "{rank} cannot listen on {address}: the port is taken; end the process that holds it or give this rank another port"
    )]
    PortTaken {
        /// The rank, this process.
        rank: Rank,
        /// Where it should listen.
        address: SocketAddr,
    },
    /// Something else listens on TCP at the port that this rank has for UDP.
    #[error(
        "{rank} cannot listen on {address} over TCP, as the carrier tls takes: the port is taken; end the process that holds it, give this rank another port, or use the carrier quic"
    )]
    TcpPortTaken {
        /// The rank, this process.
        rank: Rank,
        /// Where it should listen.
        address: SocketAddr,
    },
    /// This rank's address is not one of this machine, or cannot be bound for another reason.
    #[error("{rank} cannot listen on {address}: {kind}; is it an address of this machine?")]
    Bind {
        /// The rank, this process.
        rank: Rank,
        /// Where it should listen.
        address: String,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The name that this rank has in the list, or the host at which all meet, has no address.
    #[error(
        "{rank} is to listen at {address}, which has no address here ({reason}): correct the name, or this machine's name service"
    )]
    OwnName {
        /// The rank, this process.
        rank: Rank,
        /// Where it should listen.
        address: String,
        /// What the look-up ended with.
        reason: String,
    },
    /// A member can only be reached over the other version of IP.
    #[error(
        "{peer} has no {family} address, but {rank} listens on one: give all members addresses of one IP version"
    )]
    AddressFamily {
        /// The rank, this process.
        rank: Rank,
        /// `IPv4` or `IPv6`: what this rank listens on.
        family: &'static str,
        /// The member that lacks it.
        peer: Member,
    },
    /// A member was reached over UDP, but no TLS connection to the same port over TCP came about.
    #[error(
        "{rank} reached {peer} over UDP, but had no TLS connection to it over TCP within {waited:.1?} ({kind}): open the port for TCP too, or use the carrier quic"
    )]
    TcpUnreached {
        /// The rank, this process.
        rank: Rank,
        /// The member.
        peer: Member,
        /// How long this rank tried.
        waited: Duration,
        /// What the last try ended with.
        kind: io::ErrorKind,
    },
    /// Some members did not appear in time.
    #[error(
        "{} did not join within {waited:.1?}{}",
        Listed(missing),
        Refused(refused)
    )]
    NotJoined {
        /// Who is missing.
        missing: Vec<Member>,
        /// How long this rank waited.
        waited: Duration,
        /// Processes that asked to join and were refused meanwhile.
        refused: Vec<UnauthenticatedPeer>,
    },
    /// Rank 0 of a [`Rendezvous`](crate::Rendezvous) has more time than this rank and waits, or it
    /// has ended or gone on without this rank, whose connection was broken.
    #[error(
        "{peer} was reached, but within {waited:.1?} it did not tell where all ranks listen: it waits for others, whom its own error names, or has ended; start all ranks within that time, or raise MESHWORK_JOIN_TIMEOUT"
    )]
    StillWaiting {
        /// Rank 0.
        peer: Member,
        /// How long this rank waited.
        waited: Duration,
    },
    /// The process at a member's address belongs to another job, or has another secret.
    #[error(
        "{peer} belongs to another job: this process and it hold different job secrets, or trust different authorities; give every process of the job the same MESHWORK_JOB_SECRET or authority"
    )]
    OtherJob {
        /// The member whose address it is.
        peer: Member,
    },
    /// The process at a member's address has this job's secret or authority, and a certificate for
    /// another rank or another name of the job: it has another list of members or index, or this
    /// process has, which may have called itself.
    #[error(
        "the process at the address of {peer} is of this job, but its certificate is not that rank's: give all processes the same list of members in the same order, each the index of its own address, and the same MESHWORK_CERTIFICATE_JOB"
    )]
    OtherRank {
        /// The member whose address it is.
        peer: Member,
    },
    /// A certificate is not valid at this time: this process's or the member's.
    #[error(
        "{peer} and this process do not believe each other: a certificate has expired or is not valid yet; set both clocks right, or renew the certificate"
    )]
    Expired {
        /// The member whose address it is.
        peer: Member,
    },
    /// A member, properly identified, refused this process.
    #[error("{peer} refused {rank}: {reason}")]
    Refused {
        /// The rank, this process.
        rank: Rank,
        /// Who refused it.
        peer: Member,
        /// Why.
        reason: Refusal,
    },
    /// The relay has no address, or none that this machine can send to.
    #[error("the relay {relay} is no address that this machine can reach: {reason}")]
    Relay {
        /// As it was given.
        relay: String,
        /// What the system said.
        reason: String,
    },
    /// Something else listens where this process should as a relay.
    #[error(
        "the relay cannot listen on {address}: the port is taken; end the process that holds it or give the relay another port"
    )]
    RelayPortTaken {
        /// Where it should listen.
        address: SocketAddr,
    },
    /// The address of this process as a relay is not one of this machine, or its port takes
    /// privileges.
    #[error(
        "the relay cannot listen on {address}: {kind}; give --listen an address of this machine and a port from 1024 up"
    )]
    RelayBind {
        /// Where it should listen.
        address: SocketAddr,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// A member is not reached directly, and the relay does not serve this rank.
    #[error("{peer} is not reached directly, and the relay {relay} refuses {rank}: {reason}")]
    RelayRefused {
        /// The member.
        peer: Member,
        /// The relay.
        relay: String,
        /// The rank, this process.
        rank: Rank,
        /// Why.
        reason: RelayRefusal,
    },
    /// None of the seeds has an address that this machine can reach.
    #[error("none of the seeds {seeds} is an address that this machine can reach: {reason}")]
    NoSeed {
        /// What was given, with commas between them.
        seeds: String,
        /// What the system said of the last.
        reason: String,
    },
    /// A member that this newcomer asked does not let it in, and nobody else does.
    #[error("the member at {seed} does not let this process in: {reason}")]
    Denied {
        /// Where it is.
        seed: SocketAddr,
        /// Why.
        reason: Refusal,
    },
    /// The process that this newcomer asked belongs to another job, or has another secret.
    #[error(
        "the process at {seed} belongs to another job: this process and it hold different job secrets, or trust different authorities; give every process of the job the same MESHWORK_JOB_SECRET or authority"
    )]
    SeedOfOtherJob {
        /// Where it is.
        seed: SocketAddr,
    },
    /// The process that this newcomer asked has this job's secret or authority, and a certificate
    /// that is not for whom it asked: its address was another member's, or the certificates have
    /// another name of the job, or none for any member.
    #[error(
        "the process at {seed} is of this job, but its certificate is not for the member that was asked there: give all processes the same list of members in the same order and the same MESHWORK_CERTIFICATE_JOB, and certificates of your own the name of Certificates::member_name too"
    )]
    SeedOfOtherRank {
        /// Where it is.
        seed: SocketAddr,
    },
    /// A certificate is not valid at this time: this process's or that of the member that it asked.
    #[error(
        "the process at {seed} and this one do not believe each other: a certificate has expired or is not valid yet; set both clocks right, or renew the certificate"
    )]
    SeedExpired {
        /// Where it is.
        seed: SocketAddr,
    },
    /// The group has no room for this newcomer.
    #[error(
        "the group had the {most} members that it may have for {waited:.1?}: begin it with a larger maximum in MESHWORK_WORKERS, or wait until it has lost one"
    )]
    Full {
        /// The most members that it may have.
        most: u32,
        /// How long this process waited.
        waited: Duration,
    },
    /// This process does not begin the group, but comes in later.
    #[error(
        "{rank} is not one of the {founders} that begin the group: it comes in later, by Group::rejoin"
    )]
    NotAFounder {
        /// This process.
        rank: Rank,
        /// How many begin the group.
        founders: usize,
    },
    /// A process that is to be let in knows of no other.
    #[error(
        "the list has no member but this process, so nobody can let it in: set MESHWORK_SEEDS to addresses of members that run"
    )]
    NobodyToAsk,
    /// Nobody who was asked has answered as a member of this job.
    #[error(
        "none of {} answered as a member of this job within {waited:.1?}: is the job running, are these addresses of its members, and does UDP reach them?",
        Listed(asked)
    )]
    NobodyAnswered {
        /// Whom this process asked.
        asked: Vec<String>,
        /// How long it waited.
        waited: Duration,
    },
    /// Members have answered, and no group let this process in.
    #[error(
        "no group let this process in within {waited:.1?}: its ranks have to call grow meanwhile; where they do so less often, raise MESHWORK_JOIN_TIMEOUT"
    )]
    NotAdmitted {
        /// How long it waited.
        waited: Duration,
    },
    /// This process was started in the place of another, so it has no part in how a group begins:
    /// its predecessor may have voted there, and it would vote again.
    #[error(
        "this process was started again ({restarts} times by MESHWORK_RESTARTS), so it cannot begin a group with most of the members: join by Group::rejoin"
    )]
    StartedAgain {
        /// How often its predecessors have ended.
        restarts: u64,
    },
    /// The operating system refused memory, a thread, a timer or a socket option.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The settings, the secret or the certificates of this process are of no use.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

show_the_sentence!(JoinError);

impl JoinError {
    /// Whether members did not come: the others can go on by [`shrink`](crate::Group::shrink).
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::NotJoined { .. })
    }

    /// The one rank that something is wrong with, if there is one and it is known: who did not
    /// come, or cannot be reached.
    #[must_use]
    pub fn rank_at_fault(&self) -> Option<Rank> {
        match self {
            Self::NotJoined { missing, .. } => match missing.as_slice() {
                [one] => Some(one.rank()),
                _ => None,
            },
            Self::TcpUnreached { peer, .. } | Self::OtherJob { peer } => Some(peer.rank()),
            Self::AddressFamily { peer, .. } => Some(peer.rank()),
            _ => None,
        }
    }

    /// Whether the same program may succeed if it is started again, with nothing else changed:
    /// members that are late, ports that are about to be free.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::PortTaken { .. }
                | Self::TcpPortTaken { .. }
                | Self::RelayPortTaken { .. }
                | Self::OwnName { .. }
                | Self::TcpUnreached { .. }
                | Self::NotJoined { .. }
                | Self::StillWaiting { .. }
                | Self::NobodyAnswered { .. }
                | Self::NotAdmitted { .. }
                | Self::Full { .. }
                | Self::System(_)
        )
    }
}
