//! What can be wrong with a service, its answer, and the credentials for it.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::address::AddressProblem;
use crate::text::{Quoted, Shortened, ShortenedUrl};

/// Why a service could not be asked, or why its answer is no cluster.
///
/// URLs appear without user name and password; tokens and keys do not appear at all. Nothing is
/// changed by a failing call.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The system has no thread or no event queue to spare for the request.
    #[error("no request can be made ({kind}): raise the limits on threads and open files")]
    NoRuntime {
        /// What the system said.
        kind: io::ErrorKind,
    },
    /// The system's certificates cannot be read, so no server could be trusted.
    #[error("no TLS connection can be made: install the system's CA certificates")]
    NoTls,
    /// A base URL is none.
    #[error(
        "{} is no URL of a service: write it such as https://host:port",
        Quoted(url)
    )]
    Url {
        /// The text in its place.
        url: String,
    },
    /// No attempt got an answer before the deadline.
    #[error(
        "{} gave no answer in {attempts} attempts over {:.1} s: {problem}",
        ShortenedUrl(url),
        waited.as_secs_f64()
    )]
    Unreachable {
        /// The URL.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// How long, from the first attempt to the last.
        waited: Duration,
        /// What was wrong the last time.
        problem: ServiceErrorKind,
    },
    /// The service answered, and said no.
    #[error(
        "{} answered {status}{}: {}",
        ShortenedUrl(url),
        Said(said),
        remedy(*status)
    )]
    Refused {
        /// The URL.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the service said about it, as far as it did.
        said: String,
    },
    /// The answer is not the JSON text that the service promises.
    #[error(
        "{} answered {} instead of JSON: check that this address is the service's",
        ShortenedUrl(url),
        Quoted(found)
    )]
    NotJson {
        /// The URL.
        url: String,
        /// The beginning of the answer.
        found: String,
    },
    /// A field of the answer is missing or of the wrong kind.
    #[error(
        "{} in the answer of {} is {}, not {expected}: check that this address is the service's",
        Shortened(field),
        ShortenedUrl(url),
        Shortened(found)
    )]
    Field {
        /// The URL.
        url: String,
        /// The field, such as `networkInterfaces[0].networkIP`.
        field: String,
        /// The value found, as JSON; `absent` if there is none.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// No credentials can be had.
    #[error("no credentials from {}: {problem}", Shortened(source_name))]
    Credentials {
        /// The file, or the URL.
        source_name: String,
        /// What is wrong with it.
        problem: CredentialsProblem,
    },
    /// The file that describes how to reach a Kubernetes cluster is unusable.
    #[error("{}: {problem}", Shortened(&place.display().to_string()))]
    ClusterAccess {
        /// The file.
        place: PathBuf,
        /// What is wrong with it.
        problem: AccessProblem,
    },
    /// An environment variable that an HTTP resolver reads is malformed.
    #[error("{variable} is {}: make it {expected}", Quoted(found))]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Neither the program nor the metadata server knows the project or the zone.
    #[error("the metadata server has no {path}: give project and zone to the resolver")]
    MetadataAbsent {
        /// What it was asked for.
        path: String,
    },
    /// Nothing says which TPU is meant.
    #[error("no TPU is named: give a name to the resolver, or set TPU_NAME or TPU_CONFIG")]
    TpuUnnamed,
    /// A resolver was given a number of TPUs other than one.
    #[error(
        "{count} TPUs are named: give one, or the name of a queued resource that holds several"
    )]
    TpuCount {
        /// How many were given.
        count: usize,
    },
    /// The address of a TPU worker cannot be connected to.
    #[error("TPU address {} {problem}", Quoted(address))]
    TpuAddress {
        /// The address, as given.
        address: String,
        /// What is wrong with it, and what to write instead.
        problem: AddressProblem,
    },
    /// A coordinator has a name and no address, or the name of the workers' job.
    #[error("coordinator {} {problem}", Quoted(name))]
    Coordinator {
        /// Its name, as given.
        name: String,
        /// What is wrong.
        problem: CoordinatorProblem,
    },
    /// The TPU, or the queued resource that it belongs to, does not run now.
    #[error(
        "TPU {} is {}, not {wanted}: wait until it is, or create it again",
        Shortened(name),
        Shortened(state)
    )]
    TpuNotReady {
        /// Its name.
        name: String,
        /// Its state, as the service calls it; empty if it has none.
        state: String,
        /// The state it should have.
        wanted: &'static str,
    },
    /// The TPU runs, and is not healthy.
    #[error(
        "TPU {} has the health {}: wait until it is HEALTHY, or restart it",
        Shortened(name),
        Shortened(health)
    )]
    TpuUnhealthy {
        /// Its name.
        name: String,
        /// Its health, as the service calls it.
        health: String,
    },
    /// The TPU has several slices, and a variable that tells its workers apart is not set.
    #[error(
        "{variable} is not set, and {workers} workers are numbered within {slices} slices: set it, \
         or give the task id to the resolver"
    )]
    TpuTaskUnknown {
        /// The variable.
        variable: &'static str,
        /// How many workers all slices have.
        workers: usize,
        /// How many slices there are.
        slices: usize,
    },
    /// The TPU's accelerators cannot be shared out evenly.
    #[error(
        "{cores} TPU cores cannot be shared evenly by {hosts} hosts: check the accelerator type"
    )]
    UnevenCores {
        /// All cores.
        cores: u32,
        /// All hosts.
        hosts: usize,
    },
    /// The master's jobs do not say which one holds the TPUs.
    #[error(
        "the TPU job is unclear among {} jobs: have one, and a coordinator at most",
        jobs.len()
    )]
    MasterJob {
        /// The jobs.
        jobs: Vec<String>,
    },
    /// The software of a TPU worker could not be changed.
    #[error(
        "TPU worker {} does not know the version {}: choose another",
        ShortenedUrl(worker),
        Quoted(version)
    )]
    TpuVersion {
        /// The URL of the worker.
        worker: String,
        /// The version asked for.
        version: String,
    },
    /// A pod of the cluster does not run now.
    #[error(
        "pod {} is {}, not Running: wait until it is, or delete it",
        Shortened(pod),
        Shortened(phase)
    )]
    PodNotRunning {
        /// Namespace and name.
        pod: String,
        /// Its phase.
        phase: String,
    },
    /// A pod runs, and has no address.
    #[error(
        "pod {} has no IP address: wait until its node reports one",
        Shortened(pod)
    )]
    PodWithoutAddress {
        /// Namespace and name.
        pod: String,
    },
    /// Two pods of one job carry the same index.
    #[error(
        "pods {} and {} both have the index {index} of job {}: select one set of pods for each job",
        Shortened(first),
        Shortened(second),
        Quoted(job)
    )]
    PodIndexTwice {
        /// The job.
        job: String,
        /// The index.
        index: u32,
        /// One pod.
        first: String,
        /// The other pod.
        second: String,
    },
}

/// Why an attempt got no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ServiceErrorKind {
    /// The host has no address, or name service does not work yet.
    NoAddress,
    /// Nothing listens there, or the way is closed.
    NoConnection,
    /// The server's certificate is not trusted, or it speaks no TLS.
    NoTrust,
    /// The time was over.
    TooSlow,
    /// The answer broke off.
    BrokenOff,
    /// The answer is longer than any answer of this service.
    TooLong,
    /// The issuer of credentials is out of order.
    NoToken,
    /// The service answered that it cannot answer now; its HTTP status.
    Busy(u16),
}

/// What is wrong with a source of credentials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CredentialsProblem {
    /// The file cannot be read.
    Unreadable(io::ErrorKind),
    /// The file is not JSON.
    NotJson,
    /// The file is of no kind that is known here.
    UnknownKind,
    /// Fields of it are missing or malformed.
    Malformed,
    /// Its issuer gave no token for it.
    Rejected,
}

/// What is wrong with the description of a Kubernetes cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum AccessProblem {
    /// The file cannot be read.
    Unreadable(io::ErrorKind),
    /// It is no kubeconfig.
    Malformed,
    /// It has no such context, or the context refers to nothing.
    NoContext,
    /// It has no usable certificate, key or token.
    BadCredentials,
    /// The process does not run in a cluster: `KUBERNETES_SERVICE_HOST` is not set.
    NotInCluster,
}

/// What is wrong with the coordinator of a TPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CoordinatorProblem {
    /// It has a name only.
    NoAddress,
    /// It has an address only.
    NoName,
    /// It is called as the workers are.
    NameOfWorkers,
}

impl ServiceError {
    /// Whether the same question may be answered later without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { problem, .. } => !matches!(
                problem,
                ServiceErrorKind::TooLong | ServiceErrorKind::NoTrust
            ),
            Self::TpuNotReady { state, .. } => !Self::is_gone(state),
            other => matches!(
                other,
                Self::NoRuntime { .. }
                    | Self::TpuUnhealthy { .. }
                    | Self::PodNotRunning { .. }
                    | Self::PodWithoutAddress { .. }
                    | Self::Refused { status: 410, .. }
            ),
        }
    }

    /// Whether a node or queued resource in this state stays away without somebody doing something.
    pub(crate) fn is_gone(state: &str) -> bool {
        matches!(
            state,
            "TERMINATED" | "PREEMPTED" | "DELETING" | "HIDDEN" | "STOPPED" | "FAILED" | "SUSPENDED"
        )
    }
}

impl Display for ServiceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoAddress => "the host has no address, so check its name and name service",
            Self::NoConnection => "nothing answers there, so check host, port and firewalls",
            Self::NoTrust => "its certificate is not trusted, so check address and CA",
            Self::TooSlow => "it was too slow, so allow more time",
            Self::BrokenOff => "the answer broke off, so check what lies between",
            Self::TooLong => "the answer is too long, so check that this address is the service's",
            Self::NoToken => "the issuer of credentials gave no token, so try later",
            Self::Busy(status) => {
                return write!(f, "it answered {status}, so try later or less often");
            }
        };
        f.write_str(text)
    }
}

impl Display for CredentialsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(kind) => write!(f, "it cannot be read ({kind}), so check the path"),
            Self::NotJson => f.write_str("it is not JSON, so download it again"),
            Self::UnknownKind => f.write_str("its type is not known, so use a service account key"),
            Self::Malformed => f.write_str("fields are missing or malformed, so make it again"),
            Self::Rejected => f.write_str("it gave no token, so check the account and its rights"),
        }
    }
}

impl Display for AccessProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(kind) => write!(f, "it cannot be read ({kind}), so check the path"),
            Self::Malformed => f.write_str("it is no kubeconfig, so write it again"),
            Self::NoContext => f.write_str("it lacks this context, so choose one that it has"),
            Self::BadCredentials => f.write_str("its credentials are unusable, so renew them"),
            Self::NotInCluster => f.write_str(
                "this process runs in no cluster, so name a kubeconfig or run it in a pod",
            ),
        }
    }
}

impl Display for CoordinatorProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "has no address: write host:port",
            Self::NoName => "has no name: give it one, such as coordinator",
            Self::NameOfWorkers => "is called as the workers' job: give it another name",
        })
    }
}

/// What a service said, if anything.
struct Said<'a>(&'a str);

impl Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", Shortened(self.0))
    }
}

fn remedy(status: u16) -> &'static str {
    match status {
        300..=399 => "it sends elsewhere, where credentials are not sent: use the final address",
        401 => "renew the credentials",
        403 => "give the account the right to read this",
        404 => "check the name, project, zone or namespace",
        410 => "ask again",
        _ => "check the request against the service's documentation",
    }
}
