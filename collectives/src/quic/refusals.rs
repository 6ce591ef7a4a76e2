//! Hosts that say that nobody listens at a port to which packets were sent.
//!
//! The kernel keeps what comes back in the error queue of the socket. A datagram that asks is not
//! enough: a host sends another one six refusals at once and then one a second, and the packets
//! that are on their way to a process that dies take all of these.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;

use crate::tasks::spawn;

/// How much later than its refusals something of a process may be heard that was on its way when
/// it ended: less than until its next sign of life.
const LATE: Duration = Duration::from_millis(20);

/// What came back to one socket, from ports that somebody watches.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    watched: Arc<Mutex<BTreeMap<SocketAddr, Weak<Refused>>>>,
    task: Option<AbortHandle>,
}

/// When one port refused the last two packets.
#[derive(Debug, Default)]
pub(super) struct Refused {
    last: Mutex<[Option<Instant>; 2]>,
    another: Notify,
}

impl Refused {
    /// Whether it has refused two packets since its member was heard. Who is heard long after them
    /// lives: a firewall that begins anew may refuse a few.
    pub(super) fn is_closed(&self, heard: Instant) -> bool {
        let later = |at: &Option<Instant>| at.is_some_and(|at| at + LATE > heard);
        lock(&self.last).iter().all(later)
    }

    /// Until it refuses another packet, from this call on.
    pub(super) fn another(&self) -> Notified<'_> {
        self.another.notified()
    }

    #[cfg_attr(
        any(not(target_os = "linux"), meshwork_portable),
        expect(dead_code, reason = "only Linux hands refused packets on")
    )]
    pub(super) fn note(&self, now: Instant) {
        let mut last = lock(&self.last);
        *last = [last[1], Some(now)];
        drop(last);
        self.another.notify_waiters();
    }
}

impl Refusals {
    /// Listens to what comes back to this socket; to nothing where it cannot.
    pub(super) fn of(socket: &UdpSocket) -> Self {
        let mut refusals = Self::default();
        match errors::queue(socket) {
            Ok(queue) => {
                let listening = spawn(errors::listen(queue, refusals.watched.clone()));
                refusals.task = Some(listening.abort_handle());
            }
            Err(error) => tracing::debug!(%error, "refused packets are not noticed"),
        }
        refusals
    }

    /// What comes back from this port from now on, for as long as it is held.
    pub(super) fn watch(&self, address: SocketAddr) -> Arc<Refused> {
        let mut watched = lock(&self.watched);
        watched.retain(|_, refused| refused.strong_count() > 0);
        let known = watched.get(&address).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let refused = Arc::default();
            watched.insert(address, Arc::downgrade(&refused));
            refused
        })
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds one of these locks can panic half-way through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(target_os = "linux", not(meshwork_portable)))]
mod errors {
    use std::io::IoSliceMut;
    use std::net::{SocketAddrV4, SocketAddrV6};
    use std::os::fd::AsRawFd;

    use nix::cmsg_space;
    use nix::errno::Errno;
    use nix::libc::{SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, sock_extended_err, sockaddr_in6};
    use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};
    use tokio::io::Interest;

    use super::{Arc, BTreeMap, Instant, Mutex, Refused, SocketAddr, UdpSocket, Weak, io, lock};

    /// A second handle to a socket, for its errors.
    pub(super) fn queue(socket: &UdpSocket) -> io::Result<tokio::net::UdpSocket> {
        match socket.local_addr()? {
            SocketAddr::V4(_) => setsockopt(socket, Ipv4RecvErr, &true)?,
            SocketAddr::V6(_) => setsockopt(socket, Ipv6RecvErr, &true)?,
        }
        tokio::net::UdpSocket::from_std(socket.try_clone()?)
    }

    pub(super) async fn listen(
        queue: tokio::net::UdpSocket,
        watched: Arc<Mutex<BTreeMap<SocketAddr, Weak<Refused>>>>,
    ) {
        while queue.ready(Interest::ERROR).await.is_ok() {
            let refused = match queue.try_io(Interest::ERROR, || take(&queue)) {
                Ok(refused) => refused,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => {
                    tracing::debug!(%error, "refused packets are not noticed any more");
                    return;
                }
            };
            let port = refused.and_then(|address| lock(&watched).get(&address)?.upgrade());
            if let Some(port) = port {
                port.note(Instant::now());
            }
        }
    }

    /// Takes one error out of the queue: who refused a packet, if it is that.
    fn take(queue: &tokio::net::UdpSocket) -> io::Result<Option<SocketAddr>> {
        // The endpoint has the kernel tell more of each packet.
        let mut space = cmsg_space!(sock_extended_err, sockaddr_in6, [u8; 256]);
        let mut packet = [0];
        let mut into = [IoSliceMut::new(&mut packet)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrStorage>(queue.as_raw_fd(), &mut into, Some(&mut space), flags)?;
        let refuses = |message: ControlMessageOwned| match message {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                let from_afar = [SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin);
                from_afar && Errno::from_raw(error.ee_errno.cast_signed()) == Errno::ECONNREFUSED
            }
            _ => false,
        };
        let refused = message.cmsgs().is_ok_and(|mut all| all.any(refuses));
        let to = message.address.filter(|_| refused);
        Ok(to.and_then(|to| {
            let v4 = to.as_sockaddr_in().map(|to| SocketAddrV4::from(*to).into());
            v4.or_else(|| {
                to.as_sockaddr_in6()
                    .map(|to| SocketAddrV6::from(*to).into())
            })
        }))
    }
}

#[cfg(any(not(target_os = "linux"), meshwork_portable))]
mod errors {
    use super::{Arc, BTreeMap, Mutex, Refused, SocketAddr, UdpSocket, Weak, io};

    /// Not to be had here.
    pub(super) fn queue(_: &UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) async fn listen(_: (), _: Arc<Mutex<BTreeMap<SocketAddr, Weak<Refused>>>>) {}
}

#[cfg(all(test, target_os = "linux", not(meshwork_portable)))]
mod tests {
    use super::*;

    #[test]
    fn two_refusals_count_until_their_member_is_heard_again() {
        let (refused, began) = (Refused::default(), Instant::now());
        assert!(!refused.is_closed(began));
        refused.note(began + LATE);
        assert!(!refused.is_closed(began));
        refused.note(began + 2 * LATE);
        assert!(refused.is_closed(began) && refused.is_closed(began + LATE));
        assert!(!refused.is_closed(began + 2 * LATE));
        refused.note(began + 3 * LATE);
        assert!(refused.is_closed(began + 2 * LATE));
    }

    #[tokio::test]
    async fn the_port_of_a_socket_that_is_gone_refuses_and_others_do_not() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(socket) = UdpSocket::bind(any) else {
                // Not every machine has this version of IP.
                continue;
            };
            let [open, closed] = [0, 1].map(|_| UdpSocket::bind(any).unwrap());
            socket.set_nonblocking(true).unwrap();
            let refusals = Refusals::of(&socket);
            // As an endpoint has it, with all that it wants to be told.
            let state = quinn::udp::UdpSocketState::new((&socket).into());
            assert!(state.is_ok(), "{any}");
            let addresses = [&open, &closed].map(|socket| socket.local_addr().unwrap());
            let ports = addresses.map(|address| refusals.watch(address));
            drop(closed);
            let began = Instant::now();
            while !ports[1].is_closed(began) {
                assert!(began.elapsed() < Duration::from_secs(30), "{any}");
                for address in addresses {
                    // A refusal of the packet before is an error of this one.
                    let _ = socket.send_to(&[0], address);
                }
                tokio::task::yield_now().await;
            }
            assert!(!ports[0].is_closed(began), "{any}");
        }
    }
}
