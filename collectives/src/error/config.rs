//! What is wrong with how a process was configured.

use std::io;

use super::{SystemError, show_the_sentence};
use crate::Rank;

use super::certificate::CertificateProblem;

/// A process cannot begin: its settings, its secret or its certificates are of no use.
///
/// Trying again changes nothing: somebody has to.
#[derive(Clone, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The caller listed no member, or more than a group can have.
    #[error("a group of {members} members cannot be formed: it takes 1 to {limit}")]
    WorldSize {
        /// Members listed.
        members: usize,
        /// The most there can be.
        limit: u32,
    },
    /// The caller gave a rank or root that its group does not have.
    #[error("{rank} is outside a group of {world} ranks, numbered from 0")]
    RankOutside {
        /// The rank that was given.
        rank: Rank,
        /// Ranks in the group.
        world: u32,
    },
    /// A group cannot begin with so few members, or grow to so many.
    #[error(
        "a group that begins with {least} of {listed} listed members and grows to {most} is not possible: it begins with 1 to {listed}, and grows from there to {limit} at the most"
    )]
    Workers {
        /// Members that it should begin with.
        least: u32,
        /// The most that it should come to have.
        most: u32,
        /// Members that are listed.
        listed: u32,
        /// The most there can be.
        limit: u32,
    },
    /// How many members a group begins with, taken from the environment, is no range.
    #[error("MESHWORK_WORKERS is {value:?}: it takes MIN:MAX, such as 2:5")]
    WorkersFormat {
        /// Its value.
        value: String,
    },
    /// A newcomer was told of no member that it could ask.
    #[error(
        "a newcomer has nobody to ask: name the address of at least one member, in MESHWORK_SEEDS or by GroupConfig::newcomer"
    )]
    NoSeeds,
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
    #[error(
        "the job secret file {path} cannot be read: {kind}; have in it what 'meshwork secret' prints, for this user to read, or name another"
    )]
    SecretFile {
        /// The file.
        path: String,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The input that should bring the job secret cannot be read.
    #[error("the job secret cannot be read from its input: {kind}")]
    SecretUnread {
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
    /// The budget of connections, taken from the environment, is no number.
    #[error(
        "MESHWORK_CONNECTION_BUDGET is {value:?}: it takes a whole number of other ranks, such as 40"
    )]
    ConnectionBudget {
        /// Its value.
        value: String,
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
    /// Which of two ranks may go on alone, taken from the environment, has no such name.
    #[error("MESHWORK_PAIR is {value:?}: it takes proven, chief or stop")]
    TwoMemberPolicyName {
        /// Its value.
        value: String,
    },
    /// The carrier, taken from the environment, has no such name.
    #[error("MESHWORK_CARRIER is {value:?}: it takes quic or tls")]
    DataTransportName {
        /// Its value.
        value: String,
    },
    /// The token of a relay has another form.
    #[error(
        "the token of the relay has {length} characters and is not 64 hexadecimal digits: take what `meshwork relay-token` prints"
    )]
    RelayTokenMalformed {
        /// Its length in characters; the digits themselves are not shown.
        length: usize,
    },
    /// A relay is to be used, and there is nothing to make its token of.
    #[error(
        "the relay {relay} takes a token, and without a job secret there is none: set MESHWORK_RELAY_TOKEN here and at the relay"
    )]
    RelayTokenMissing {
        /// The relay.
        relay: String,
    },
    /// A relay is to be used for connections over TCP.
    #[error("the relay {relay} carries no TCP: use the carrier quic")]
    RelayCarrier {
        /// The relay.
        relay: String,
    },
    /// The process id of the launcher, taken from the environment, is none.
    #[error(
        "MESHWORK_LAUNCHER_PID is {value:?}: it takes a process id, and is set by the launcher only"
    )]
    Launcher {
        /// Its value.
        value: String,
    },
    /// This process may not have as many files open as its rank takes.
    #[error(
        "a rank of {world} takes up to {needed} open files and this process may have {limit}, its hard limit: raise it where the session, service or container is started"
    )]
    OpenFiles {
        /// Ranks in the group.
        world: u32,
        /// Files that the process may have open at a time, those of its program among them.
        needed: u64,
        /// The limit (`RLIMIT_NOFILE`, hard: the soft one is raised).
        limit: u64,
    },
    /// A word that should name the job cannot be part of a name.
    #[error(
        "{job:?} cannot name a job in certificates: it takes 1 to 63 letters, digits and hyphens, no hyphen first or last"
    )]
    JobName {
        /// The word.
        job: String,
    },
    /// Of the variables for the user's own certificates only some are set.
    #[error(
        "certificates take four variables, of which {} {} not set: set all four, or none of them for the job secret",
        missing.join(" and "),
        if missing.len() == 1 { "is" } else { "are" }
    )]
    CertificatesIncomplete {
        /// Those that are not set.
        missing: Vec<&'static str>,
    },
    /// A file of the user's own certificates is of no use.
    #[error("{path} holds {what}: it takes PEM, as 'openssl' and most authorities write it")]
    Certificate {
        /// The file.
        path: String,
        /// What was found.
        what: &'static str,
    },
    /// A certificate of the user's own does not prove who this process is.
    #[error("{path} does not prove that this process is {name}: {problem}")]
    CertificateProof {
        /// The file.
        path: String,
        /// The DNS name that the certificate has to be for.
        name: String,
        /// Why the others would refuse it.
        problem: CertificateProblem,
    },
    /// The operating system gave no randomness, or the cryptography library refused a key.
    #[error("this process's identity could not be made: {what} failed")]
    Identity {
        /// The step that failed.
        what: &'static str,
    },
    /// The operating system refused memory, a thread, a timer or a socket option.
    #[error(transparent)]
    System(#[from] SystemError),
}

show_the_sentence!(ConfigError);
