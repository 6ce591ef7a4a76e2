//! What keeps a rank from saying how it fares, and what keeps another from hearing it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A rank cannot serve its status.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be read.
    #[error("MESHWORK_STATUS={value} is no address and port: write it as 127.0.0.1:9464")]
    Address {
        /// What it says.
        value: String,
    },
    /// Other hosts could ask, and nothing tells who may.
    #[error(
        "{address} can be reached from other hosts: name a file with a token in \
         MESHWORK_STATUS_TOKEN_FILE, or listen at 127.0.0.1"
    )]
    NoToken {
        /// Where to listen.
        address: SocketAddr,
    },
    /// The token cannot be used.
    #[error(
        "the token in {} has {length} bytes: it takes {least} to {most} without spaces",
        path.display()
    )]
    Token {
        /// Its file.
        path: PathBuf,
        /// Its length; 0 where it has other characters than visible ASCII.
        length: usize,
        /// The least that it takes.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The ports do not suffice.
    #[error("rank {local_rank} of this host would need port {port} + {local_rank}: begin lower")]
    Port {
        /// The first rank's port.
        port: u16,
        /// The rank's number among those of its host.
        local_rank: u32,
    },
    /// A file cannot be read or written.
    #[error("{} cannot be used: {kind}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        kind: io::ErrorKind,
    },
    /// The address cannot be listened at.
    #[error("no status at {address}, {kind}: choose another port in MESHWORK_STATUS, or 0 for any")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        kind: io::ErrorKind,
    },
    /// No thread can be started.
    #[error("no thread for the status: {kind}")]
    Thread {
        /// Why.
        kind: io::ErrorKind,
    },
    /// Kubeflow Trainer's address cannot be used.
    #[error(
        "KUBEFLOW_TRAINER_SERVER_URL={value} takes no reports: it takes https://, a host and a path, \
         as Trainer sets it"
    )]
    TrainJobAddress {
        /// What it says.
        value: String,
    },
    /// Of Kubeflow Trainer's variables only some are set.
    #[error(
        "reports to a TrainJob take three variables, of which {} {} not set: leave all as Trainer sets \
         them, or unset all",
        missing.join(" and "),
        if missing.len() == 1 { "is" } else { "are" }
    )]
    TrainJobVariables {
        /// Those that are not set.
        missing: Vec<&'static str>,
    },
    /// Spans cannot be sent as the variables of OpenTelemetry say.
    #[cfg(feature = "opentelemetry")]
    #[error("no spans can be exported, see the variables that begin with OTEL_: {said}")]
    Collector {
        /// What the exporter says.
        said: String,
    },
}

/// A rank did not say how it fares.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// Nobody listens there, or cannot be reached.
    #[error("{address} cannot be reached: {kind}")]
    Unreached {
        /// Where.
        address: String,
        /// Why.
        kind: io::ErrorKind,
    },
    /// It has not answered in time: it is stopped, or very busy.
    #[error("{address} has not answered within {patience:?}")]
    Silent {
        /// Where.
        address: String,
        /// How long it had.
        patience: Duration,
    },
    /// It refused.
    #[error("{address} refused with {status}: {text}")]
    Refused {
        /// Where.
        address: String,
        /// The status of HTTP.
        status: u16,
        /// What it said.
        text: String,
    },
    /// Whoever listens there is no rank.
    #[error("{address} gives no answer of HTTP: is it the port of a rank's status?")]
    NoHttp {
        /// Where.
        address: String,
    },
    /// It says more than any rank does.
    #[error("the answer of {address} does not end within {limit} bytes")]
    Unfinished {
        /// Where.
        address: String,
        /// The most that is read.
        limit: usize,
    },
}
