//! What carries the bytes of operations between two ranks: its names, and its code on the wire.

use std::fmt::{self, Display};

/// What carries the bytes of operations between two ranks. Whatever it is, both ends have proved
/// themselves, every byte is encrypted, and who is lost is found out over QUIC.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DataTransport {
    /// Streams of the QUIC connection, over UDP: one port, and on paths with large packets as fast
    /// as TCP.
    #[default]
    Quic,
    /// TLS 1.3 over TCP, for paths with packets of 1,500 bytes: there the kernel's segmentation
    /// takes much less time for a byte. Each rank then also listens on TCP, at the port that it has
    /// for UDP, and that has to be open too. A connection that has carried bytes keeps up to 2 MiB
    /// of memory.
    Tls,
}

impl DataTransport {
    /// The environment variable for it: `quic` or `tls`, the same in all processes of a job.
    pub const ENV: &'static str = "MESHWORK_CARRIER";

    /// The one of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Quic, Self::Tls]
            .into_iter()
            .find(|data_transport| data_transport.name() == name)
    }

    /// Its name, which stays what it is.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tls => "tls",
        }
    }

    /// What stands for it on the wire.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Quic => 0,
            Self::Tls => 1,
        }
    }

    /// Inverse of [`DataTransport::code`].
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        [Self::Quic, Self::Tls]
            .into_iter()
            .find(|data_transport| u32::from(data_transport.code()) == code)
    }
}

impl Display for DataTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
