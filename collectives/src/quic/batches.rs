//! A socket that never hands the kernel more than it takes at a time.
//!
//! quinn joins up to ten packets into one batch, whatever their size, and the kernel refuses a
//! batch of more than 65,535 bytes as a whole. quinn cannot tell: it takes the packets as lost,
//! then the path as unable to carry their size, and falls back to the smallest.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Bytes of UDP payload that the kernel takes in one batch, headers left out.
const BATCH: usize = 65_000;

/// A UDP socket whose batches fit.
#[derive(Debug)]
pub(super) struct Batches {
    inner: Arc<dyn AsyncUdpSocket>,
    /// The largest packet that was sent in a batch so far.
    packet: AtomicUsize,
    /// Packets that may arrive joined.
    received: usize,
}

impl Batches {
    /// Over a socket on which packets of up to `largest` bytes arrive.
    pub(super) fn over(inner: Arc<dyn AsyncUdpSocket>, largest: u16) -> Self {
        let fit = usize::from(u16::MAX) / usize::from(largest.max(1)) + 1;
        Self {
            received: inner.max_receive_segments().min(fit),
            inner,
            packet: AtomicUsize::new(1),
        }
    }

    /// Sends a batch in pieces of whole packets that fit.
    fn in_pieces(&self, transmit: &Transmit<'_>, packet: usize) -> io::Result<()> {
        for piece in transmit.contents.chunks(fitting(packet) * packet) {
            self.inner.try_send(&Transmit {
                contents: piece,
                destination: transmit.destination,
                ecn: transmit.ecn,
                segment_size: (piece.len() > packet).then_some(packet),
                src_ip: transmit.src_ip,
            })?;
        }
        Ok(())
    }
}

impl AsyncUdpSocket for Batches {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Some(packet) = transmit.segment_size else {
            return self.inner.try_send(transmit);
        };
        // The path has come to carry more; from the next batch on, quinn joins fewer.
        self.packet.fetch_max(packet, Ordering::Relaxed);
        if transmit.contents.len() <= BATCH {
            return self.inner.try_send(transmit);
        }
        self.in_pieces(transmit, packet)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        let fitting = fitting(self.packet.load(Ordering::Relaxed));
        self.inner.max_transmit_segments().min(fitting)
    }

    fn max_receive_segments(&self) -> usize {
        self.received
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Packets of this size that the kernel takes at a time.
fn fitting(packet: usize) -> usize {
    (BATCH / packet.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes down what is sent: lengths, and of which packets.
    #[derive(Debug, Default)]
    struct Witness(Mutex<Vec<(usize, Option<usize>)>>);

    impl AsyncUdpSocket for Witness {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unreachable!("nothing waits here")
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            let sent = (transmit.contents.len(), transmit.segment_size);
            self.0.lock().unwrap().push(sent);
            Ok(())
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            _: &mut [IoSliceMut<'_>],
            _: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn max_transmit_segments(&self) -> usize {
            64
        }

        fn max_receive_segments(&self) -> usize {
            64
        }
    }

    #[test]
    fn every_batch_fits_the_kernel_and_holds_whole_packets() {
        for packet in [1200, 1452, 6500, 8952, 32_000, 65_507] {
            for packets in 1..=10 {
                let witness = Arc::new(Witness::default());
                let batches = Batches::over(witness.clone(), 8952);
                // The last packet of a batch may be shorter.
                let contents = vec![0; packet * packets - 7];
                let transmit = Transmit {
                    destination: ([127, 0, 0, 1], 1).into(),
                    ecn: None,
                    contents: &contents,
                    segment_size: (packets > 1).then_some(packet),
                    src_ip: None,
                };
                batches.try_send(&transmit).unwrap();
                let sent = witness.0.lock().unwrap();
                assert_eq!(
                    sent.iter().map(|(bytes, _)| bytes).sum::<usize>(),
                    contents.len()
                );
                for (bytes, of) in sent.iter() {
                    assert!(*bytes <= 65_507, "{bytes} bytes at a time");
                    assert!(of.is_none_or(|of| of == packet && *bytes > packet));
                }
            }
        }
    }

    #[test]
    fn batches_shrink_once_packets_have_grown() {
        let batches = Batches::over(Arc::new(Witness::default()), 8952);
        assert_eq!(batches.max_transmit_segments(), 64);
        for (packet, fit) in [(1200, 54), (8952, 7), (1200, 7)] {
            let contents = vec![0; 2 * packet];
            let transmit = Transmit {
                destination: ([127, 0, 0, 1], 1).into(),
                ecn: None,
                contents: &contents,
                segment_size: Some(packet),
                src_ip: None,
            };
            batches.try_send(&transmit).unwrap();
            assert_eq!(batches.max_transmit_segments(), fit);
        }
        assert_eq!(batches.max_receive_segments(), 8);
    }
}
