//! Everything that can go wrong with a group, one variant for each cause, with what it names and
//! the remedy.
//!
//! Why a single operation stopped is a [`Failure`](crate::failure::Failure).

mod loss;
mod member;
mod refusal;
mod unauthenticated;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::Rank;
use crate::contract::Call;
use crate::wire::WireError;

pub use loss::LossCause;
use loss::{Completed, Told};
use member::Listed;
pub use member::Member;
pub use refusal::Refusal;
use unauthenticated::Refused;
pub use unauthenticated::{UnauthenticatedCause, UnauthenticatedPeer};

/// Everything that can go wrong with a group.
///
/// After an error from a collective the group is over: every later call returns the same error,
/// and the buffer of the failed call holds unspecified values.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller gave a rank or root that its group does not have.
    #[error("{rank} is outside a group of {world} ranks, numbered from 0")]
    RankOutside {
        /// The rank that was given.
        rank: Rank,
        /// Ranks in the group.
        world: u32,
    },
    /// The caller listed no member, or more than a group can have.
    #[error("a group of {members} members cannot be formed: it takes 1 to {limit}")]
    WorldSize {
        /// Members listed.
        members: usize,
        /// The most there can be.
        limit: u32,
    },
    /// A blocking call was made on a thread of an asynchronous runtime, where it would stall tasks.
    /// tokio's threads for blocking work count too, as they cannot be told apart.
    #[error(
        "a blocking collective was called from asynchronous code: move it to a thread of its own, by std::thread::spawn"
    )]
    InsideAsync,
    /// No job secret was handed over.
    #[error(
        "no job secret: set MESHWORK_JOB_SECRET or MESHWORK_JOB_SECRET_FILE to the same 64 hexadecimal digits in every process of the job ('meshwork secret' makes new ones, 'meshwork run' hands them over)"
    )]
    SecretMissing,
    /// The job secret is no 64 hexadecimal digits; the value itself is never shown.
    #[error(
        "the job secret has {length} characters, of which {wrong} are no hexadecimal digits: it takes exactly 64 digits, as 'meshwork secret' prints them"
    )]
    SecretMalformed {
        /// Characters found.
        length: usize,
        /// How many are no hexadecimal digits.
        wrong: usize,
    },
    /// The file that should hold the job secret cannot be read.
    #[error("the job secret file {path} cannot be read: {kind}")]
    SecretFile {
        /// The file.
        path: String,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// A file of this user that holds a secret is open to others too; nothing was taken from it.
    #[error(
        "the file {path} holds a secret and has mode {mode:04o}, so that others than its owner can read or change it: run 'chmod 600 {path}'"
    )]
    FileMode {
        /// The file.
        path: String,
        /// Its permissions.
        mode: u32,
    },
    /// The caller asked for packets of a size that QUIC or UDP does not have.
    #[error(
        "packets of up to {bytes} bytes cannot be sent: the bound takes {least} to {most} bytes"
    )]
    PacketSize {
        /// The bound that was given, in bytes of UDP payload.
        bytes: u16,
        /// The least it can be.
        least: u16,
        /// The most it can be.
        most: u16,
    },
    /// The caller asked for no connection between two ranks, or for too many.
    #[error("{connections} connections between two ranks are not possible: it takes 1 to {most}")]
    Connections {
        /// How many were asked for.
        connections: u8,
        /// The most there can be.
        most: u8,
    },
    /// A setting taken from the environment is no number of seconds.
    #[error("{variable} is {value:?}: it takes a number of seconds above 0, such as 30 or 1.5")]
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The number of restarts, taken from the environment, is none.
    #[error("MESHWORK_RESTARTS is {value:?}: it takes a whole number, 0 for a first start")]
    Restarts {
        /// Its value.
        value: String,
    },
    /// The transport, taken from the environment, has no such name.
    #[error("MESHWORK_TRANSPORT is {value:?}: it takes auto or quic")]
    TransportName {
        /// Its value.
        value: String,
    },
    /// The carrier, taken from the environment, has no such name.
    #[error("MESHWORK_CARRIER is {value:?}: it takes quic or tls")]
    DataTransportName {
        /// Its value.
        value: String,
    },
    /// The process id of the launcher, taken from the environment, is none.
    #[error(
        "MESHWORK_LAUNCHER_PID is {value:?}: it takes a process id, and is set by the launcher only"
    )]
    Launcher {
        /// Its value.
        value: String,
    },
    /// The operating system gave no randomness, or the cryptography library refused a key.
    #[error("this process's identity could not be made: {what} failed")]
    Identity {
        /// The step that failed.
        what: &'static str,
    },
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
    /// The process at a member's address belongs to another job, or has another secret.
    #[error(
        "{peer} belongs to another job: this process and it hold different job secrets; give every process of the job the same MESHWORK_JOB_SECRET"
    )]
    OtherJob {
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
    /// A word that should name the job cannot be part of a name.
    #[error(
        "{job:?} cannot name a job in certificates: it takes 1 to 63 letters, digits and hyphens, no hyphen first or last"
    )]
    JobName {
        /// The word.
        job: String,
    },
    /// A file of the user's own certificates is of no use.
    #[error("{path} holds {what}: it takes PEM, as 'openssl' and most authorities write it")]
    Certificate {
        /// The file.
        path: String,
        /// What was found.
        what: &'static str,
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
    /// A rank is gone. Everybody's operations end.
    #[error("{peer} was lost: {cause}{}{}", Told(cause, *heard, *reporter), Completed(*completed))]
    RankLost {
        /// The rank that is gone.
        peer: Member,
        /// How it was noticed.
        cause: LossCause,
        /// Who noticed it, if it was not this rank.
        reporter: Option<Rank>,
        /// How long before, whoever noticed it had last heard a sign of life; `None` where that
        /// rank expects none from it, or was not asked.
        heard: Option<Duration>,
        /// Operations of this epoch that this rank had completed in the group whose call returns
        /// the error. What all survivors have completed,
        /// [`Epoch::completed_before`](crate::Epoch::completed_before) says after
        /// [`shrink`](crate::Group::shrink).
        completed: u64,
    },
    /// What is left of an epoch is no majority of it, so it may not go on: the others may have.
    #[error(
        "{present} of the {members} ranks of epoch {epoch} can reach each other, which is no majority: they do not go on, as the others may"
    )]
    NoMajority {
        /// The epoch that is over.
        epoch: u64,
        /// Ranks that this one could reach, itself among them.
        present: usize,
        /// Ranks of that epoch.
        members: usize,
    },
    /// The others have gone on without this rank, which they could not reach or did not wait for.
    #[error(
        "the others went on without this rank after epoch {epoch}: start its process again to be let in anew"
    )]
    Excluded {
        /// The last epoch that this rank was in.
        epoch: u64,
    },
    /// No group let this process in.
    #[error(
        "no group let this process in within {waited:.1?}: its ranks have to call grow meanwhile"
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
    /// The caller asked a group to shrink or grow that cannot.
    #[error(
        "only a group of processes that was joined can shrink and grow, not one of threads or one that was split"
    )]
    NoEpochs,
    /// A rank, possibly this one, ended the group with a reason.
    #[error("{peer} ended the group: {message}")]
    Aborted {
        /// The rank that ended it.
        peer: Member,
        /// Its reason.
        message: String,
    },
    /// The launcher that started this process is gone, so nobody looks after the job any more.
    #[error("the launcher (process {process}) ended, so this rank ends too")]
    LauncherLost {
        /// The launcher's process id.
        process: u32,
    },
    /// Two ranks called different operations, or wait for each other in operations of different
    /// groups. Every rank gets this error, whether or not it is one of the two.
    #[error(
        "{rank} called {mine}, but {peer} called {theirs}: all ranks must make the same calls in the same order"
    )]
    Disagreement {
        /// One rank: this one, if it is among those that disagree.
        rank: Rank,
        /// Its call.
        mine: Box<Call>,
        /// Another rank.
        peer: Rank,
        /// That rank's call.
        theirs: Box<Call>,
    },
    /// An operation was not finished in time, though nobody is known to be dead.
    #[error(
        "{call} was not finished within {waited:.1?}: {rank} waits for {peer}, which is alive but does not answer; is it in another call, or slower than the operation time-out?"
    )]
    TimedOut {
        /// The operation.
        call: Box<Call>,
        /// This rank.
        rank: Rank,
        /// Whom it waits for.
        peer: Rank,
        /// How long it waited.
        waited: Duration,
    },
    /// This rank's device failed in the midst of an operation, which ends the group; the others are
    /// told by [`Aborted`](Self::Aborted).
    #[error("the device of {rank} failed: {error}")]
    Device {
        /// This rank.
        rank: Rank,
        /// What it failed with.
        error: Box<meshwork_accel::Error>,
    },
    /// A communicator of devices was made for members that have changed since.
    #[error(
        "the communicator was made in epoch {made}, and the group is in epoch {now}: make another by Group::over"
    )]
    CommunicatorOutdated {
        /// The epoch that it was made in.
        made: u64,
        /// The group's epoch.
        now: u64,
    },
    /// A route was lent to another group than the one that made its communicator.
    #[error(
        "the communicator of this route is of another group: make one of this group by Group::device_route"
    )]
    CommunicatorOfOtherGroup,
    /// The op of a reduction means nothing for its elements, or the buffers of a call hold elements
    /// of different types; nothing was sent.
    #[error(transparent)]
    Unsupported(#[from] meshwork_accel::Error),
    /// A peer sent bytes that are no frame of this protocol.
    #[error("{peer} sent something that is not understood: {error}")]
    Protocol {
        /// Who sent it.
        peer: Rank,
        /// What is wrong with it.
        error: WireError,
    },
    /// Two ranks have different numbers for what one sends the other.
    #[error(
        "{peer} has {offered} elements for {rank}, which expects {expected}: give both the same number"
    )]
    Uneven {
        /// This rank.
        rank: Rank,
        /// Who offers.
        peer: Rank,
        /// Elements that it offers.
        offered: u64,
        /// Elements that this rank expects.
        expected: u64,
    },
    /// A buffer has another length than the operation asks for.
    #[error("the {buffer} of {operation} has {found} elements, but this call takes {expected}")]
    Length {
        /// The operation.
        operation: &'static str,
        /// Which of its buffers or lists.
        buffer: &'static str,
        /// How many elements it has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// A rank would send to itself, or receive from itself.
    #[error("{rank} is this rank: a message goes to another one")]
    OwnRank {
        /// The rank, this process.
        rank: Rank,
    },
    /// The targets of a permutation leave a rank out, or name one that does not exist.
    #[error(
        "the targets of a permutation name {target} twice, or it is outside the group: name each rank once"
    )]
    NoPermutation {
        /// The first target that is wrong.
        target: Rank,
    },
    /// The memory of a rank of the same host cannot be reached.
    #[error(
        "the registered memory of {peer} cannot be mapped: {kind}; is it limited for this process?"
    )]
    Memory {
        /// Whose.
        peer: Rank,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// A dump of a group's last operations cannot be read.
    #[error(
        "the {field} of a dump cannot be read: it is none, was cut off, or comes from another version"
    )]
    Dump {
        /// What of it.
        field: &'static str,
    },
    /// The operating system refused a thread, a timer or a socket option.
    #[error("the group could not be set up: {what} failed: {kind}")]
    System {
        /// The step.
        what: &'static str,
        /// What the system said.
        kind: io::ErrorKind,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_rank_the_place_and_the_remedy() {
        let member = Member::new(Rank::new(2), "10.0.0.3:4000");
        let cases = [
            (
                Error::lost(member.clone(), LossCause::Died),
                "rank 2 (10.0.0.3:4000) was lost: its process ended",
            ),
            (
                Error::RankLost {
                    peer: member.clone(),
                    cause: LossCause::Silent(Duration::from_millis(1500)),
                    reporter: Some(Rank::new(1)),
                    heard: Some(Duration::from_millis(1500)),
                    completed: 0,
                },
                "rank 2 (10.0.0.3:4000) was lost: nothing was heard of it for 1.5s (reported by rank 1)",
            ),
            (
                Error::RankLost {
                    peer: member.clone(),
                    cause: LossCause::Disconnected,
                    reporter: None,
                    heard: Some(Duration::from_millis(120)),
                    completed: 17,
                },
                "rank 2 (10.0.0.3:4000) was lost: its connection closed without a goodbye (last heard of 120.0ms before); 17 operations were completed here",
            ),
            (
                Error::NotJoined {
                    missing: vec![member],
                    waited: Duration::from_secs(30),
                    refused: vec![],
                },
                "rank 2 (10.0.0.3:4000) did not join within 30.0s; is every process started, and can its address be reached?",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_long_list_of_missing_ranks_is_cut() {
        let missing = Rank::all(12).map(|rank| Member::new(rank, "h:1")).collect();
        let error = Error::NotJoined {
            missing,
            waited: Duration::from_secs(1),
            refused: vec![],
        };
        assert!(
            error
                .to_string()
                .contains("rank 7 (h:1) and 4 more did not join"),
            "{error}"
        );
    }
}
