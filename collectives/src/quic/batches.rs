//! A socket that never hands the kernel more than it takes at a time, and hands over again what
//! the kernel did not take for the sake of another packet.
//!
//! quinn joins up to ten packets into one batch, whatever their size, and the kernel refuses a
//! batch of more than 65,535 bytes as a whole. quinn cannot tell: it takes the packets as lost,
//! then the path as unable to carry their size, and falls back to the smallest.
//!
//! When a port refuses a packet, the kernel tells so in place of sending the next one, whoever that
//! is for. quinn would miss it, and send it again after 150 ms if it is the first to a rank.
//!
//! And packets to and from members that have moved have other addresses than quinn knows.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};

use super::moves::Moves;

/// Bytes of UDP payload that the kernel takes in one batch, headers left out.
const BATCH: usize = 65_000;

/// A UDP socket whose batches fit.
#[derive(Debug)]
pub(super) struct Batches {
    inner: Arc<dyn AsyncUdpSocket>,
    /// The same socket, by which a failure to send is seen: `inner` hides it.
    socket: UdpSocket,
    state: UdpSocketState,
    /// The largest packet that was sent in a batch so far.
    packet: AtomicUsize,
    /// Packets that may arrive joined.
    received: usize,
    moves: Arc<Moves>,
}

impl Batches {
    /// Over a socket on which packets of up to `largest` bytes arrive.
    pub(super) fn over(socket: UdpSocket, largest: u16, moves: &Arc<Moves>) -> io::Result<Self> {
        let fit = usize::from(u16::MAX) / usize::from(largest.max(1)) + 1;
        let again = socket.try_clone()?;
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        Ok(Self {
            state: UdpSocketState::new((&again).into())?,
            socket: again,
            received: inner.max_receive_segments().min(fit),
            inner,
            packet: AtomicUsize::new(1),
            moves: moves.clone(),
        })
    }

    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.state.try_send((&self.socket).into(), transmit) {
            Ok(()) => Ok(()),
            // Of another packet, which is told once; or one of this, with which `inner` deals.
            Err(_) => self.inner.try_send(transmit),
        }
    }
}

/// A batch in pieces of whole packets that fit.
fn pieces<'a>(transmit: &Transmit<'a>, packet: usize) -> impl Iterator<Item = Transmit<'a>> {
    let (destination, ecn, src_ip) = (transmit.destination, transmit.ecn, transmit.src_ip);
    let pieces = transmit.contents.chunks(fitting(packet) * packet);
    pieces.map(move |piece| Transmit {
        contents: piece,
        destination,
        ecn,
        segment_size: (piece.len() > packet).then_some(packet),
        src_ip,
    })
}

impl AsyncUdpSocket for Batches {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let transmit = &Transmit {
            destination: self.moves.is_at(transmit.destination),
            src_ip: transmit.src_ip.filter(|own| !self.moves.is_lost(*own)),
            ..*transmit
        };
        let Some(packet) = transmit.segment_size else {
            return self.send(transmit);
        };
        // The path has come to carry more; from the next batch on, quinn joins fewer.
        self.packet.fetch_max(packet, Ordering::Relaxed);
        pieces(transmit, packet).try_for_each(|piece| self.send(&piece))
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(context, buffers, meta);
        if let Poll::Ready(Ok(received)) = received {
            for one in &mut meta[..received] {
                one.addr = self.moves.came_from(one.addr);
            }
        }
        received
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
    use super::*;

    fn batch(contents: &[u8], packet: usize, to: SocketAddr) -> Transmit<'_> {
        Transmit {
            destination: to,
            ecn: None,
            contents,
            segment_size: (contents.len() > packet).then_some(packet),
            src_ip: None,
        }
    }

    fn loopback() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    #[test]
    fn every_batch_fits_the_kernel_and_holds_whole_packets() {
        for packet in [1200, 1452, 6500, 8952, 32_000, 65_507] {
            for packets in 1..=10 {
                // The last packet of a batch may be shorter.
                let contents = vec![0; packet * packets - 7];
                let whole = batch(&contents, packet, ([127, 0, 0, 1], 1).into());
                let mut bytes = 0;
                for piece in pieces(&whole, packet) {
                    let length = piece.contents.len();
                    bytes += length;
                    assert!(length <= 65_507, "{length} bytes at a time");
                    let of = piece.segment_size;
                    assert_eq!(of, (length > packet).then_some(packet));
                }
                assert_eq!(bytes, contents.len());
            }
        }
    }

    #[tokio::test]
    async fn batches_shrink_once_packets_have_grown() {
        let to = loopback();
        let batches = Batches::over(loopback(), 8952, &Arc::default()).unwrap();
        let most = batches.inner.max_transmit_segments();
        assert_eq!(batches.max_transmit_segments(), most.min(64));
        for (packet, fit) in [(1200, 54), (8952, 7), (1200, 7)] {
            let contents = vec![0; 2 * packet];
            let whole = batch(&contents, packet, to.local_addr().unwrap());
            batches.try_send(&whole).unwrap();
            assert_eq!(batches.max_transmit_segments(), most.min(fit));
        }
        assert!(batches.max_receive_segments() <= 8);
    }

    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    #[tokio::test]
    async fn what_one_port_refuses_costs_no_packet_to_another() {
        use super::super::refusals::Refusals;

        let (open, closed, own) = (loopback(), loopback(), loopback());
        let ports = [&closed, &open].map(|socket| socket.local_addr().unwrap());
        drop(closed);
        // Who wants to be told of refusals is told of them in place of sending.
        let _refusals = Refusals::of(&own);
        let batches = Arc::new(Batches::over(own, 1200, &Arc::default()).unwrap());
        let mut poller = batches.clone().create_io_poller();
        std::future::poll_fn(|context| poller.as_mut().poll_writable(context))
            .await
            .unwrap();
        for number in 0..100 {
            for port in ports {
                batches.try_send(&batch(&[number], 1200, port)).unwrap();
            }
        }
        let mut arrived = [0];
        let read = (0..100).all(|number| open.recv(&mut arrived).is_ok() && arrived == [number]);
        assert!(read, "a packet to a port that listens was not sent");
    }
}
