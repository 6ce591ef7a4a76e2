//! One byte stream over several: a stripe to each in turn.
//!
//! ```text
//!    bytes    0 ────────── 1 ────────── 2 ────────── 3 ── …     stripes
//!    stream   a            b            a            b
//! ```
//!
//! Both ends count the same bytes, so nothing but the bytes themselves is sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a stripe: many packets, and little beside what a stream may have under way.
const STRIPE: usize = 64 * 1024;

/// One direction of a striped stream.
#[derive(Debug)]
pub(super) struct Stripes<S> {
    streams: Vec<S>,
    /// Whose turn it is.
    turn: usize,
    /// What is left of the stripe.
    left: usize,
}

impl<S> Stripes<S> {
    /// Over these streams, of which there is at least one, in the same order at both ends.
    pub(super) fn over(streams: Vec<S>) -> Self {
        Self {
            streams,
            turn: 0,
            left: STRIPE,
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.left -= bytes;
        if self.left == 0 {
            self.turn = (self.turn + 1) % self.streams.len();
            self.left = STRIPE;
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stripes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stripe = &bytes[..bytes.len().min(self.left)];
        let turn = self.turn;
        let stream = Pin::new(&mut self.streams[turn]);
        let written = ready!(stream.poll_write(context, stripe))?;
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for stream in &mut self.streams {
            ready!(Pin::new(stream).poll_flush(context))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        for stream in &mut self.streams {
            ready!(Pin::new(stream).poll_shutdown(context))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stripes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining().min(self.left);
        let turn = self.turn;
        let mut stripe = ReadBuf::new(buffer.initialize_unfilled_to(room));
        let stream = Pin::new(&mut self.streams[turn]);
        ready!(stream.poll_read(context, &mut stripe))?;
        let read = stripe.filled().len();
        buffer.advance(read);
        self.advance(read);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Both ends of a striped stream over pipes of these capacities.
    fn pipes(capacities: &[usize]) -> (Stripes<DuplexStream>, Stripes<DuplexStream>) {
        let (near, far) = capacities.iter().map(|bytes| duplex(*bytes)).unzip();
        (Stripes::over(near), Stripes::over(far))
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bytes_arrive_in_order_however_they_are_cut(
            capacities in prop::collection::vec(1_usize..100_000, 1..5),
            written in prop::collection::vec(0_usize..150_000, 1..6),
            read in 1_usize..200_000,
        ) {
            let (mut near, mut far) = pipes(&capacities);
            let total: usize = written.iter().sum();
            let sent: Vec<u8> = (0..251).cycle().take(total).collect();
            let mut received = vec![0; total];
            runtime().block_on(async {
                let write = async {
                    let mut rest = &sent[..];
                    for bytes in written {
                        let (now, later) = rest.split_at(bytes);
                        near.write_all(now).await.unwrap();
                        rest = later;
                    }
                };
                let read = async {
                    for part in received.chunks_mut(read) {
                        far.read_exact(part).await.unwrap();
                    }
                };
                tokio::join!(write, read);
            });
            prop_assert!(sent == received);
        }
    }

    #[test]
    fn each_stream_carries_every_other_stripe() {
        let (mut near, far) = pipes(&[8 * STRIPE, 8 * STRIPE]);
        let sent: Vec<u8> = (0..5_u8).flat_map(|stripe| vec![stripe; STRIPE]).collect();
        let carried = runtime().block_on(async {
            near.write_all(&sent).await.unwrap();
            near.shutdown().await.unwrap();
            let mut carried = Vec::new();
            for mut stream in far.streams {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await.unwrap();
                bytes.dedup();
                carried.push(bytes);
            }
            carried
        });
        assert_eq!(carried, [vec![0, 2, 4], vec![1, 3]]);
    }

    #[test]
    fn the_end_of_one_stream_is_the_end_of_all() {
        let (near, mut far) = pipes(&[16, 16]);
        drop(near);
        let ended = runtime().block_on(far.read_exact(&mut [0; 8]));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
