//! What tells that a member has ended before its silence does: the kernel of this host, or the
//! kernel of its own.
//!
//! ```text
//!   same host    pidfd ──────────────────────────────> it has ended
//!                /proc, when it is asked for ────────> it is stopped, or runs
//!   other host   packets to its port ── refused ─────> nobody listens there any more
//! ```
//!
//! What counts at once are refusals of the connection's own packets. A firewall may refuse
//! datagrams from elsewhere for a member that lives, so a port is asked by such only after a longer
//! silence, and not if it has refused one while its member was just admitted. Nor does a port prove
//! anything that its member has left, as where address translation forgets: who has moved is judged
//! by silence. Packets of a connection that are authentic are a sign of life whatever they carry: a
//! heartbeat may wait for room behind the bytes of operations.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quinn::Connection;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use super::{Admission, lock};
use crate::host::{self, ProcessState, everywhere};
use crate::membership::Event;
use crate::open_files::{self, Shortage};
use crate::quic::moves::Moves;
use crate::quic::node::Node;
use crate::quic::refusals::Refused;
use crate::tasks::spawn;
use crate::wire::Hello;
use crate::{OperationError, Rank};

/// How long a refusal may be on its way; where none comes, a datagram has arrived or is lost.
const REFUSAL: Duration = Duration::from_millis(100);
/// Until a packet to the member is refused, as one goes to it with each sign of life.
const NEXT: Duration = Duration::from_millis(40);
/// After how much silence other datagrams than the connection's own ask, and other packets than
/// signs of life count.
const LONG: Duration = Duration::from_millis(200);
/// What a file is for that watches a member.
const WATCHING: &str = "watching the process of another rank";

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
        /// Who has moved beneath QUIC.
        moves: Arc<Moves>,
        /// How often this end had challenged the other there.
        challenges: u64,
        /// Whether it has refused a datagram though the member was there.
        misleading: Arc<AtomicBool>,
        /// How much the member had sent when it was last looked for.
        seen: Arc<AtomicU64>,
    },
}

impl Whereabouts {
    /// On another host, at the other end of a connection.
    pub(in crate::quic) fn port(node: &Node, connection: &Connection) -> Self {
        let address = connection.remote_address();
        Self::Port {
            address,
            challenges: challenges(connection),
            moves: node.moves.clone(),
            refused: node.refusals.watch(address),
            misleading: Arc::default(),
            seen: Arc::default(),
        }
    }

    /// Whether the member has sent anything since it was last looked for.
    fn has_sent(&self, connection: &Connection) -> bool {
        let Self::Port { seen, .. } = self else {
            return false;
        };
        let frames = connection.stats().frame_rx;
        let sent = frames.acks + frames.stream;
        seen.swap(sent, Ordering::Relaxed) != sent
    }

    /// Whether the member has been seen elsewhere since, over this connection: what the port says
    /// tells nothing of it then. It may seem to be there again, as the connection goes back while
    /// the new way is not proved.
    pub(in crate::quic) fn is_left(&self, connection: &Connection) -> bool {
        match self {
            Self::Process(_) => false,
            Self::Port {
                challenges: before, ..
            } => challenges(connection) > *before,
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

    async fn examine(self, rank: Rank, heard: Instant) -> Option<Event> {
        Some(match self.look(heard).await? {
            Sight::Stopped => Event::Stopped(rank),
            Sight::Runs => Event::Heard(rank),
            Sight::PortClosed => Event::PortClosed { rank, heard },
        })
    }

    /// What a look tells, if anything, of a member that was last heard then.
    pub(in crate::quic) async fn look(self, heard: Instant) -> Option<Sight> {
        match self {
            Self::Process(process) => match host::process_state(process).ok()? {
                ProcessState::Stopped => Some(Sight::Stopped),
                ProcessState::Runs => Some(Sight::Runs),
            },
            Self::Port { misleading, .. } if misleading.load(Ordering::Relaxed) => None,
            Self::Port { address, moves, .. } if moves.is_at(address) != address => None,
            Self::Port {
                address, refused, ..
            } => {
                let another = refused.another();
                let closed = refused.is_closed(heard)
                    || match heard.elapsed() >= LONG {
                        true => refuses(address).await && refuses(address).await,
                        false => timeout(NEXT, another).await.is_ok() && refused.is_closed(heard),
                    };
                closed.then_some(Sight::PortClosed)
            }
        }
    }
}

impl Admission {
    /// Looks for evidence of what became of a member that was last heard then.
    pub(in crate::quic) fn look_for(&self, rank: Rank, heard: Instant) {
        let admitted = self.admitted();
        let Some(member) = admitted.get(&rank) else {
            return;
        };
        let (whereabouts, events) = (member.whereabouts.clone(), self.events.clone());
        let connections = member.control_sender.connections();
        let has_sent = connections
            .first()
            .is_some_and(|first| whereabouts.has_sent(first));
        if has_sent && heard.elapsed() >= LONG {
            spawn(async move { events.send(Event::Heard(rank)).await });
            return;
        }
        if connections
            .iter()
            .any(|connection| whereabouts.is_left(connection))
        {
            return;
        }
        spawn(async move {
            if let Some(event) = whereabouts.examine(rank, heard).await {
                let _ = events.send(event).await;
            }
        });
    }

    /// Where a member can be looked at that has just said this over a connection. Whoever speaks
    /// lives: if this kernel knows no such process, it is another kernel's, and has only a host of
    /// the same name. Then its port tells, and its silence.
    pub(super) fn whereabouts(&self, said: &Hello, connection: &Connection) -> Whereabouts {
        let shares_host = !said.host.is_empty() && said.host == self.hello.host;
        match shares_host && host::has_process(said.process) {
            true => Whereabouts::Process(said.process),
            false => Whereabouts::port(&self.node, connection),
        }
    }

    /// Waits for the process of a member to end, if that can be told; of a member on another host,
    /// finds out what its port is worth.
    pub(super) async fn watch(&self, rank: Rank, whereabouts: Whereabouts) -> Option<Event> {
        match whereabouts {
            Whereabouts::Process(process) => {
                let shortage = Shortage::new(self.me, WATCHING, self.timeouts.silence());
                match watched(shortage, || host::process_ended(process)).await {
                    Watched::Ended => {
                        lock(&self.ended).insert(rank);
                        Some(Event::Died(rank))
                    }
                    Watched::Refused => Some(Event::Unwatched(rank)),
                    Watched::WithoutFile(error) => Some(Event::GiveUp(error)),
                }
            }
            port @ Whereabouts::Port { .. } => {
                let _ = self.events.send(Event::Unwatched(rank)).await;
                port.test().await;
                None
            }
        }
    }
}

/// How often this end has challenged the other of a connection to show where it is, which it does
/// only when packets of it come from elsewhere.
fn challenges(connection: &Connection) -> u64 {
    connection.stats().frame_tx.path_challenge
}

/// What came of watching a process.
#[derive(Debug, Eq, PartialEq)]
enum Watched {
    Ended,
    /// The kernel watches no processes.
    Refused,
    /// It may, but there was no file for it.
    WithoutFile(OperationError),
}

/// Watches until the process has ended. Where a file is wanting, silence must not take its place:
/// the other end counts on the kernel too, and sends no signs of life.
async fn watched<W: Future<Output = io::Result<()>>>(
    mut shortage: Shortage,
    watch: impl Fn() -> W,
) -> Watched {
    loop {
        let Err(error) = watch().await else {
            return Watched::Ended;
        };
        let Some(limit) = open_files::limit_reached(&error) else {
            return Watched::Refused;
        };
        if let Some(error) = shortage.refused(Instant::now(), limit) {
            return Watched::WithoutFile(error);
        }
        sleep(Shortage::PAUSE).await;
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

/// Ends the group when the launcher ends, so that no rank is left behind.
pub(in crate::quic) fn watch_launcher(admission: &Arc<Admission>, launcher: Option<u32>) {
    let Some(process) = launcher else { return };
    let events = admission.events.clone();
    spawn(async move {
        if host::process_ended(process).await.is_ok() {
            let _ = events
                .send(Event::GiveUp(OperationError::LauncherLost { process }))
                .await;
        }
    });
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    use std::cell::Cell;

    use super::*;
    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    use crate::quic::testing::Job;
    use crate::wire::MemberProcess;

    fn port(address: SocketAddr) -> Whereabouts {
        Whereabouts::Port {
            address,
            challenges: 0,
            moves: Arc::default(),
            refused: Arc::default(),
            misleading: Arc::default(),
            seen: Arc::default(),
        }
    }

    async fn looked(whereabouts: Whereabouts) -> String {
        let heard = Instant::now().checked_sub(LONG).unwrap();
        let event = whereabouts.examine(Rank::new(1), heard).await;
        event.map_or_else(String::new, |event| format!("{event:?}"))
    }

    #[tokio::test]
    async fn a_port_refuses_exactly_when_nobody_listens() {
        let open = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = open.local_addr().unwrap();
        assert!(!refuses(address).await);
        assert_eq!(looked(port(address)).await, "");
        drop(open);
        assert_eq!(
            port(address).look(Instant::now()).await,
            None,
            "too soon to ask"
        );
        let found = looked(port(address)).await;
        assert!(found.starts_with("PortClosed"), "{found}");
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

    #[tokio::test]
    async fn a_port_whose_member_has_moved_beneath_quic_proves_nothing() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = closed.local_addr().unwrap();
        let whereabouts = port(address);
        drop(closed);
        if let Whereabouts::Port { moves, .. } = &whereabouts {
            let member = MemberProcess {
                member_id: 1,
                incarnation: 1,
            };
            assert!(moves.note(member, address, ([192, 0, 2, 1], 4000).into()));
        }
        assert_eq!(looked(whereabouts).await, "");
    }

    /// What comes of watching where so many tries fail for want of a file.
    #[cfg(unix)]
    async fn watched_after(fails: u32, then: io::Result<()>, patience: Duration) -> Watched {
        let (left, then) = (Cell::new(fails), Cell::new(Some(then)));
        let watch = || {
            let fails = left.get() > 0;
            left.set(left.get().saturating_sub(1));
            std::future::ready(match fails {
                true => Err(rustix::io::Errno::MFILE.into()),
                false => then.take().unwrap(),
            })
        };
        watched(Shortage::new(Rank::CHIEF, WATCHING, patience), watch).await
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_process_is_watched_as_soon_as_there_is_a_file_for_it() {
        let patience = Duration::from_secs(60);
        assert_eq!(watched_after(3, Ok(()), patience).await, Watched::Ended);
        let refused = || Err(io::ErrorKind::Unsupported.into());
        assert_eq!(
            watched_after(0, refused(), patience).await,
            Watched::Refused
        );
        assert_eq!(
            watched_after(2, refused(), patience).await,
            Watched::Refused
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_rank_that_cannot_watch_for_want_of_a_file_says_so_and_takes_nobody_for_lost() {
        let watched = watched_after(u32::MAX, Ok(()), Duration::from_millis(100)).await;
        let Watched::WithoutFile(error) = watched else {
            panic!("{watched:?}");
        };
        let text = error.to_string();
        assert!(
            text.contains(WATCHING) && text.contains("'ulimit -n'"),
            "{text}"
        );
    }

    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    #[tokio::test]
    async fn who_speaks_and_is_no_process_of_this_kernel_is_looked_at_as_on_another_host() {
        let job = Job::new(2);
        let (own, other) = tokio::join!(job.member(0), job.member(1));
        let connection = own.connection(Rank::new(1)).unwrap();
        let whereabouts = |process| {
            let said = Hello {
                process,
                ..own.admission.hello.clone()
            };
            own.admission.whereabouts(&said, &connection)
        };
        let here = whereabouts(std::process::id());
        assert!(matches!(here, Whereabouts::Process(_)));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let elsewhere = whereabouts(child.id());
        assert!(matches!(elsewhere, Whereabouts::Port { .. }));
        drop(other);
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
