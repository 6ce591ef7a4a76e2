//! Streams whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Closable;

/// One direction of a stream over a connection that may be closed.
pub(crate) struct Counted<S> {
    stream: S,
    connection: Arc<Closable>,
}

impl<S> Counted<S> {
    pub(crate) fn new(stream: S, connection: Arc<Closable>) -> Self {
        Self { stream, connection }
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Closable {
        &self.connection
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        if let Ok(count) = written {
            let sent = &self.connection.sent;
            sent.fetch_add(count as u64, Ordering::Relaxed);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, into));
        let count = into.filled().len() - before;
        let received = &self.connection.received;
        received.fetch_add(count as u64, Ordering::Relaxed);
        Poll::Ready(read)
    }
}
