//! Why a process is refused that asks to take part: by a member, or by a relay.

use std::fmt::{self, Display};

use crate::DataTransport;

/// Why a member refuses a process that proved to belong to the job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The two were built from different releases.
    Version {
        /// The version of the protocol that the refuser speaks.
        expected: u8,
        /// The one that the refused one speaks.
        found: u8,
    },
    /// The two were started with member lists of different length.
    World {
        /// Ranks in the refuser's group.
        expected: u32,
        /// Ranks in the refused one's group.
        found: u32,
    },
    /// The two were started with different member lists of equal length.
    Members,
    /// The two were started with different numbers of connections for each pair of ranks.
    Connections {
        /// Connections that the refuser was started with.
        expected: u32,
        /// Connections that the refused one was started with.
        found: u32,
    },
    /// The two were started with different carriers of the bytes of operations.
    DataTransport {
        /// What the refuser was started with.
        expected: DataTransport,
        /// What the refused one was started with.
        found: DataTransport,
    },
    /// A newcomer runs another program than the group.
    Program,
    /// Another process of that rank is already in, or has been.
    RankTaken,
    /// The certificate is for another rank than the one it speaks for.
    RankUnproved {
        /// The rank it speaks for.
        claimed: u32,
    },
    /// The rank is outside the group, or the one that should have dialled.
    RankUnexpected {
        /// The rank it speaks for.
        claimed: u32,
    },
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { expected, found } => write!(
                f,
                "it speaks protocol version {expected} and this process {found}; build all from one release"
            ),
            Self::World { expected, found } => write!(
                f,
                "it was started for {expected} ranks and this process for {found}; give all the same cluster"
            ),
            Self::Members => f.write_str(
                "the two were started with different member addresses; give all the same cluster",
            ),
            Self::Connections { expected, found } => write!(
                f,
                "it was started with {expected} connections for each pair of ranks and this process with {found}; give all the same number"
            ),
            Self::DataTransport { expected, found } => write!(
                f,
                "it was started with the carrier {expected} and this process with {found}; give all the same"
            ),
            Self::Program => f.write_str(
                "it runs another program than this process; start the program of the job, or set MESHWORK_PROGRAM to the same word in all processes where one program has several builds",
            ),
            Self::RankTaken => f.write_str(
                "another process of this rank has joined already; give each process its own task index, and let one that is started again rejoin",
            ),
            Self::RankUnproved { claimed } => {
                write!(f, "the certificate does not prove rank {claimed}")
            }
            Self::RankUnexpected { claimed } => write!(f, "rank {claimed} was not expected to call"),
        }
    }
}

/// Why a relay does not serve a rank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum RelayRefusal {
    /// The rank has another token than the relay.
    Token,
    /// The relay serves as many ranks as it may.
    Full,
}

impl Display for RelayRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => {
                "it has the token of another job; give it that of `meshwork relay-token`"
            }
            Self::Full => "it serves as many ranks as it may; start it with more",
        })
    }
}
