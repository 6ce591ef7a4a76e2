//! What can go wrong with etcd, where newcomers find a job.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::service::{ServiceError, ServiceErrorKind};
use crate::address::AddressProblem;
use crate::text::{Quoted, Shortened, ShortenedUrl};

/// Why the members of a job could not be found in etcd, or this one not be registered there.
///
/// URLs appear without user name and password; passwords and tokens do not appear at all.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EtcdError {
    /// The client itself cannot be made: a URL is none, or the system refuses.
    #[error(transparent)]
    Client(#[from] ServiceError),
    /// etcd gave no answer, another than it promises, or said no for a reason without a case here.
    #[error("{operation} {} in etcd: {problem}", Shortened(key))]
    Service {
        /// What was tried.
        operation: EtcdOperation,
        /// The key or the prefix that it was about.
        key: String,
        /// What was wrong, and with which URL.
        problem: ServiceError,
    },
    /// The user is unknown, or the password is another one.
    #[error(
        "etcd at {} does not let user {} in ({}): check MESHWORK_ETCD_USER and its password",
        ShortenedUrl(endpoint),
        Quoted(user),
        Shortened(said)
    )]
    SignIn {
        /// The URL.
        endpoint: String,
        /// The user.
        user: String,
        /// What etcd said.
        said: String,
    },
    /// etcd has users, and was not told one.
    #[error(
        "{operation} {} takes a user of etcd at {}: set MESHWORK_ETCD_USER and \
         MESHWORK_ETCD_PASSWORD_FILE",
        Shortened(key),
        ShortenedUrl(endpoint)
    )]
    NoUser {
        /// What was tried.
        operation: EtcdOperation,
        /// The key or the prefix.
        key: String,
        /// The URL.
        endpoint: String,
    },
    /// The user may not do this.
    #[error(
        "{operation} {} is not allowed by etcd at {}: grant the user's role to read and write \
         the keys with this prefix",
        Shortened(key),
        ShortenedUrl(endpoint)
    )]
    Forbidden {
        /// What was tried.
        operation: EtcdOperation,
        /// The key or the prefix.
        key: String,
        /// The URL.
        endpoint: String,
    },
    /// The server has nothing at the address of etcd's JSON gateway.
    #[error(
        "{} is no JSON gateway of etcd: name the client URL of an etcd from 3.4 on that does not \
         run with --enable-grpc-gateway=false",
        ShortenedUrl(endpoint)
    )]
    NoGateway {
        /// The URL.
        endpoint: String,
    },
    /// A lease ended before its owner did; the owner registers again by itself.
    #[error(
        "etcd at {} let the lease of {} end, which lasts {} s: registering again; if this recurs, \
         check the way to etcd, or make the lease longer",
        ShortenedUrl(endpoint),
        Shortened(key),
        time_to_live.as_secs()
    )]
    LeaseLost {
        /// The URLs.
        endpoint: String,
        /// The key.
        key: String,
        /// How long a lease lasts without a sign of life.
        time_to_live: Duration,
    },
    /// Nobody has registered, for as long as this process may wait.
    #[error(
        "etcd at {} has no member under {} after {:.1} s ({entries} entries without an address): \
         start the job's members with the same MESHWORK_ETCD and MESHWORK_ETCD_PREFIX",
        ShortenedUrl(endpoint),
        Quoted(prefix),
        waited.as_secs_f64()
    )]
    NoMembers {
        /// The URLs.
        endpoint: String,
        /// The job's prefix.
        prefix: String,
        /// Entries there that hold no address.
        entries: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// The prefix cannot belong to one job alone.
    #[error(
        "{} is no prefix for a job in etcd: write one that no other job has, such as \
         /meshwork/my-job",
        Quoted(prefix)
    )]
    Prefix {
        /// The text in its place.
        prefix: String,
    },
    /// A lease would last no whole second.
    #[error("a lease of {given:?} is too short: make it at least {least:?}")]
    TimeToLive {
        /// What was given.
        given: Duration,
        /// The least that is taken.
        least: Duration,
    },
    /// Others could not connect to the address that this process wants to register.
    #[error("address {} {problem}", Quoted(address))]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it, and what to write instead.
        problem: AddressProblem,
    },
    /// The password would be sent in clear text to another machine.
    #[error(
        "the password of {} would go to {} in clear text: use an https:// URL, or no user",
        Quoted(user),
        ShortenedUrl(endpoint)
    )]
    PasswordInClear {
        /// The user.
        user: String,
        /// The URL.
        endpoint: String,
    },
    /// A variable is missing that another one needs.
    #[error("{variable} is not set, which {because} needs: set it")]
    Unset {
        /// The variable.
        variable: &'static str,
        /// The one that needs it.
        because: &'static str,
    },
    /// A file cannot be read.
    #[error("{} cannot be read ({kind}): check the path that {variable} names", Shortened(&file.display().to_string()))]
    File {
        /// The variable that names it.
        variable: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The authorities for etcd's certificate cannot be used.
    #[error(
        "the authorities for etcd are no certificates: give a PEM file with CERTIFICATE blocks"
    )]
    Authorities,
}

/// What is tried with etcd.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EtcdOperation {
    /// Getting a token for a user.
    SignIn,
    /// Asking who has registered.
    List,
    /// Writing this process's address, with a lease.
    Register,
    /// Saying that this process is still there.
    KeepAlive,
    /// Taking this process's address out.
    Remove,
}

impl EtcdError {
    /// Whether the same may succeed later without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            // The file of authorities is read again.
            Self::Service {
                problem:
                    ServiceError::Unreachable {
                        problem: ServiceErrorKind::NoTrust,
                        ..
                    },
                ..
            } => true,
            Self::Client(problem) | Self::Service { problem, .. } => problem.is_transient(),
            Self::LeaseLost { .. } | Self::NoMembers { .. } => true,
            Self::SignIn { .. }
            | Self::NoUser { .. }
            | Self::Forbidden { .. }
            | Self::NoGateway { .. }
            | Self::Prefix { .. }
            | Self::TimeToLive { .. }
            | Self::Address { .. }
            | Self::PasswordInClear { .. }
            | Self::Unset { .. }
            | Self::File { .. }
            | Self::Authorities => false,
        }
    }
}

impl Display for EtcdOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SignIn => "signing in for",
            Self::List => "listing",
            Self::Register => "registering",
            Self::KeepAlive => "keeping alive",
            Self::Remove => "removing",
        })
    }
}
