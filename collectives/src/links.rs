//! The byte streams between this rank and every other: all that an operation needs of a transport.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Rank;

/// Bytes to one rank, in order.
pub(crate) type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

/// Bytes from one rank, in order.
pub(crate) type Incoming = Box<dyn AsyncRead + Send + Unpin>;

/// One rank's streams to and from all others, by rank; its own places are empty.
pub(crate) struct Links {
    pub(crate) outgoing: Outlets,
    pub(crate) incoming: Inlets,
}

/// The streams to the others.
pub(crate) struct Outlets(Vec<Option<Outgoing>>);

/// The streams from the others.
pub(crate) struct Inlets(Vec<Option<Incoming>>);

/// A stream ended or was reset. Why is for membership to say.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Broken(pub(crate) Rank);

impl Links {
    pub(crate) fn new(streams: impl IntoIterator<Item = Option<(Outgoing, Incoming)>>) -> Self {
        let (outgoing, incoming) = streams.into_iter().map(Option::unzip).unzip();
        Self {
            outgoing: Outlets(outgoing),
            incoming: Inlets(incoming),
        }
    }
}

impl Outlets {
    pub(crate) async fn send(&mut self, to: Rank, bytes: &[u8]) -> Result<(), Broken> {
        let stream = self.0[to.index()].as_mut().ok_or(Broken(to))?;
        stream.write_all(bytes).await.map_err(|_| Broken(to))
    }
}

impl Inlets {
    /// Fills the whole of `into`.
    pub(crate) async fn receive(&mut self, from: Rank, into: &mut [u8]) -> Result<(), Broken> {
        let stream = self.0[from.index()].as_mut().ok_or(Broken(from))?;
        stream
            .read_exact(into)
            .await
            .map(drop)
            .map_err(|_| Broken(from))
    }
}
