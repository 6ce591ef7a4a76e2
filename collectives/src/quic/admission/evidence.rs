//! What tells that a member has ended before its silence does: the kernel of this host, or the
//! kernel of its own.
//!
//! ```text
//!   same host    pidfd ──────────────────────────────> it has ended
//!                /proc, when it is asked for ────────> it is stopped, or runs
//!   other host   packets to its port ── refused ─────> nobody listens there any more
//! ```
//!
//! A firewall may refuse datagrams for a member that lives, so a port that has refused one while
//! its member was just admitted proves nothing later.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::{Admission, lock};
use crate::Rank;
use crate::host::{self, ProcessState, everywhere};
use crate::membership::Event;
use crate::quic::refusals::{Refusals, Refused};
use crate::tasks::spawn;

/// How long a refusal may be on its way; where none comes, a datagram has arrived or is lost.
const REFUSAL: Duration = Duration::from_millis(100);

/// What a look at a member tells.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::quic) enum Sight {
    Stopped,
    Runs,
    PortClosed,
}

/// Where a member can be looked at.
#[derive(Clone)]
pub(in crate::quic) enum Whereabouts {
    /// On this host, as this process.
    Process(u32),
    /// On another, behind this port.
    Port {
        address: SocketAddr,
        /// What came back of the packets to it.
        refused: Arc<Refused>,
        /// Whether it has refused a datagram though the member was there.
        misleading: Arc<AtomicBool>,
    },
}

impl Whereabouts {
    /// On another host, at the other end of a connection.
    pub(in crate::quic) fn port(refusals: &Refusals, address: SocketAddr) -> Self {
        Self::Port {
            address,
            refused: refusals.watch(address),
            misleading: Arc::default(),
        }
    }

    /// Finds out what a port is worth whose member is there.
    pub(in crate::quic) async fn test(self) {
        if let Self::Port {
            address,
            misleading,
            ..
        } = self
        {
            misleading.store(refuses(address).await, Ordering::Relaxed);
        }
    }

    async fn examine(self, rank: Rank) -> Option<Event> {
        Some(match self.look().await? {
            Sight::Stopped => Event::Stopped(rank),
            Sight::Runs => Event::Heard(rank),
            Sight::PortClosed => Event::PortClosed(rank),
        })
    }

    /// What a look tells, if anything.
    pub(in crate::quic) async fn look(self) -> Option<Sight> {
        match self {
            Self::Process(process) => match host::process_state(process).ok()? {
                ProcessState::Stopped => Some(Sight::Stopped),
                ProcessState::Runs => Some(Sight::Runs),
            },
            Self::Port { misleading, .. } if misleading.load(Ordering::Relaxed) => None,
            Self::Port {
                address, refused, ..
            } => {
                let closed = refused.is_closed(Instant::now())
                    || refuses(address).await && refuses(address).await;
                closed.then_some(Sight::PortClosed)
            }
        }
    }
}

impl Admission {
    /// Looks for evidence of what became of a member.
    pub(in crate::quic) fn look_for(&self, rank: Rank) {
        let admitted = self.admitted();
        let Some(member) = admitted.get(&rank) else {
            return;
        };
        let (whereabouts, events) = (member.whereabouts.clone(), self.events.clone());
        spawn(async move {
            if let Some(event) = whereabouts.examine(rank).await {
                let _ = events.send(event).await;
            }
        });
    }

    /// Waits for the process of a member to end, if that can be told; of a member on another host,
    /// finds out what its port is worth.
    pub(super) async fn watch(&self, rank: Rank, whereabouts: Whereabouts) -> Option<Event> {
        match whereabouts {
            Whereabouts::Process(process) => match host::process_ended(process).await {
                Ok(()) => {
                    lock(&self.ended).insert(rank);
                    Some(Event::Died(rank))
                }
                Err(_) => Some(Event::Unwatched(rank)),
            },
            port @ Whereabouts::Port { .. } => {
                port.test().await;
                None
            }
        }
    }
}

/// Whether the host of this address says that nobody listens there.
pub(super) async fn refuses(address: SocketAddr) -> bool {
    let answer = timeout(REFUSAL, call(address)).await;
    answer.is_ok_and(|called| called.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused))
}

/// Sends a datagram that means nothing to anybody, and waits: only an error comes back.
async fn call(address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((everywhere(address.ip()), 0)).await?;
    socket.connect(address).await?;
    socket.send(&[0]).await?;
    socket.recv(&mut [0]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(address: SocketAddr) -> Whereabouts {
        Whereabouts::Port {
            address,
            refused: Arc::default(),
            misleading: Arc::default(),
        }
    }

    async fn looked(whereabouts: Whereabouts) -> String {
        let event = whereabouts.examine(Rank::new(1)).await;
        event.map_or_else(String::new, |event| format!("{event:?}"))
    }

    #[tokio::test]
    async fn a_port_refuses_exactly_when_nobody_listens() {
        let open = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = open.local_addr().unwrap();
        assert!(!refuses(address).await);
        assert_eq!(looked(port(address)).await, "");
        drop(open);
        let expected = format!("{:?}", Event::PortClosed(Rank::new(1)));
        assert_eq!(looked(port(address)).await, expected);
    }

    #[tokio::test]
    async fn a_port_that_refuses_while_its_member_is_there_proves_nothing() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let whereabouts = port(closed.local_addr().unwrap());
        drop(closed);
        if let Whereabouts::Port { misleading, .. } = &whereabouts {
            misleading.store(true, Ordering::Relaxed);
        }
        assert_eq!(looked(whereabouts).await, "");
    }

    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    #[tokio::test]
    async fn a_process_that_runs_is_a_sign_of_life() {
        let own = Whereabouts::Process(std::process::id());
        let expected = format!("{:?}", Event::Heard(Rank::new(1)));
        assert_eq!(looked(own).await, expected);
        assert_eq!(looked(Whereabouts::Process(0)).await, "");
    }
}
