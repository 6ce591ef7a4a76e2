//! The byte streams between this rank and every other, and operations over them.

mod hierarchy;
mod medium;
mod operation;

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Poll, ready};

use meshwork_accel::Element;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::Rank;
use crate::failure::Failure;

pub(crate) use hierarchy::Hierarchy;
pub(crate) use medium::LinkMedium;
#[cfg(any(test, feature = "testing"))]
pub(crate) use operation::{LinkOperation, Scratch};

/// Bytes to one rank, in order.
pub(crate) type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;

/// Bytes from one rank, in order.
pub(crate) type Incoming = Box<dyn AsyncRead + Send + Unpin>;

/// One rank's streams to and from all others, by rank; its own places are empty.
pub(crate) struct Links {
    pub(crate) outgoing: LinkWriters,
    pub(crate) incoming: LinkReaders,
}

/// The streams to the others.
pub(crate) struct LinkWriters(Vec<Option<Outgoing>>);

/// The streams from the others.
pub(crate) struct LinkReaders(Vec<Option<Incoming>>);

impl Links {
    pub(crate) fn new(streams: impl IntoIterator<Item = Option<(Outgoing, Incoming)>>) -> Self {
        let (outgoing, incoming) = streams.into_iter().map(Option::unzip).unzip();
        Self {
            outgoing: LinkWriters(outgoing),
            incoming: LinkReaders(incoming),
        }
    }
}

impl LinkWriters {
    pub(crate) async fn send(&mut self, to: Rank, bytes: &[u8]) -> Result<(), Failure> {
        let stream = self.0[to.index()].as_mut().ok_or(Failure::LinkBroken(to))?;
        stream
            .write_all(bytes)
            .await
            .map_err(|_| Failure::LinkBroken(to))
    }

    /// Sends some elements of a buffer that is borrowed only while bytes are handed over.
    pub(crate) async fn send_part<T: Element>(
        &mut self,
        to: Rank,
        buffer: &RefCell<&mut [T]>,
        part: Range<usize>,
    ) -> Result<(), Failure> {
        let stream = self.0[to.index()].as_mut().ok_or(Failure::LinkBroken(to))?;
        let mut sent = 0;
        poll_fn(|context| {
            let buffer = buffer.borrow();
            let bytes: &[u8] = bytemuck::cast_slice(&buffer[part.clone()]);
            while sent < bytes.len() {
                match ready!(Pin::new(&mut *stream).poll_write(context, &bytes[sent..])) {
                    Ok(more @ 1..) => sent += more,
                    Ok(0) | Err(_) => return Poll::Ready(Err(Failure::LinkBroken(to))),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl LinkReaders {
    /// Fills the whole of `into`.
    pub(crate) async fn receive(&mut self, from: Rank, into: &mut [u8]) -> Result<(), Failure> {
        let stream = self.0[from.index()]
            .as_mut()
            .ok_or(Failure::LinkBroken(from))?;
        stream
            .read_exact(into)
            .await
            .map(drop)
            .map_err(|_| Failure::LinkBroken(from))
    }

    /// Fills some elements of a buffer that is borrowed only while bytes are taken over. Elements
    /// of which not all bytes are values are left as they are.
    pub(crate) async fn receive_part<T: Element>(
        &mut self,
        from: Rank,
        buffer: &RefCell<&mut [T]>,
        part: Range<usize>,
    ) -> Result<(), Failure> {
        let stream = self.0[from.index()]
            .as_mut()
            .ok_or(Failure::LinkBroken(from))?;
        let mut received = 0;
        poll_fn(|context| {
            let mut buffer = buffer.borrow_mut();
            let bytes = T::bytes_mut(&mut buffer[part.clone()]);
            let bytes = bytes.expect("elements of which all bytes are values");
            while received < bytes.len() {
                let mut rest = ReadBuf::new(&mut bytes[received..]);
                let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut rest));
                match rest.filled().len() {
                    more @ 1.. if read.is_ok() => received += more,
                    _ => return Poll::Ready(Err(Failure::LinkBroken(from))),
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}
