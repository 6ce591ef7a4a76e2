//! Connections over TCP, where they carry the bytes of operations.
//!
//! ```text
//!   dialler ── QUIC: hello, welcome ─────────────────────── acceptor     both take a secret from it
//!           ── TCP: TLS handshake, both certificates ──────
//!           ── head: rank, group, lane; proof of secret ──>             for this connection alone
//!           <───────────────────────────── proof of secret ──
//! ```
//!
//! So a connection over TCP belongs to the very processes and the very epoch that met over QUIC,
//! and what one connection has proved is of no use on another.

mod limiter;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::Connection;
use ring::hmac;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use zeroize::Zeroizing;

use super::Admission;
use super::accept::report;
use crate::identity::{TCP_ALPN, distrust_over_tcp};
use crate::open_files::{self, Shortage};
use crate::quic::handshake_limiter::site;
use crate::quic::heads::BulkHead;
use crate::quic::streams::{Arrivals, Data, unfinished};
use crate::tasks::spawn_in;
use crate::tls::{self, Failed};
use crate::{DataTransport, JoinError, LossCause, Member, OperationError, Rank};
use limiter::{TcpCaller, TcpLimiter, TurnedAwayLog};

/// Connections over TCP of one member that may wait to be asked for; one that opens more is not
/// heard.
const WAITING: usize = 1024;
/// How long a member is tried that was reached over QUIC.
const REACHING: Duration = Duration::from_secs(5);
/// The pause between two tries, and after a caller could not be taken in.
const PAUSE: Duration = Duration::from_millis(50);

/// What a file is for that a connection takes.
const CONNECTION: &str = "a TLS connection with another rank";

const PROOF_BYTES: usize = 32;
/// Told apart by what they begin with, so that neither end can send the other's proof back.
const DIALS: &[u8] = b"dials";
const ANSWERS: &[u8] = b"answers";
const LABEL: &[u8] = b"EXPORTER-meshwork-bulk";

/// What ties connections over TCP to the connection of a pair of ranks.
#[derive(Clone)]
pub(super) struct TcpBinding {
    /// Tells the connections that one rank has been greeted on apart.
    serial: u64,
    /// Where the other end is.
    site: IpAddr,
    secret: hmac::Key,
}

/// Connections over TCP, and what they have to prove.
#[derive(Default)]
pub(super) struct Tcp {
    /// Of members that have been greeted, in yet or not: the last greeting counts.
    greeted: Mutex<BTreeMap<Rank, TcpBinding>>,
    serials: AtomicU64,
    /// By the serial of the tie, the group's number and the lane.
    arrivals: Arrivals<(u64, u64, u8)>,
}

impl Tcp {
    /// What belongs to this connection from now on.
    fn tcp_binding(&self, connection: &Connection) -> Option<TcpBinding> {
        let mut secret = Zeroizing::new([0_u8; 32]);
        // It fails only for a secret of absurd length.
        connection
            .export_keying_material(&mut *secret, LABEL, &[])
            .ok()?;
        Some(TcpBinding {
            serial: self.serials.fetch_add(1, Ordering::Relaxed),
            site: site(connection.remote_address().ip()),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &*secret),
        })
    }

    /// One connection for each lane of a group, as they arrive. Whoever no longer waits for them
    /// leaves none behind.
    pub(super) async fn lanes(&self, tcp_binding: &TcpBinding, group: u64, lanes: u8) -> Vec<Data> {
        let serial = tcp_binding.serial;
        let _unasked = Unasked {
            tcp: self,
            of: (serial, group),
        };
        let mut arrived = Vec::new();
        for lane in 0..lanes {
            arrived.push(self.arrivals.take((serial, group, lane)).await);
        }
        arrived
    }

    /// Drops what has arrived for a connection that is closed, and expects nothing more.
    pub(super) fn forget(&self, tcp_binding: &TcpBinding) {
        self.greeted()
            .retain(|_, greeted| greeted.serial != tcp_binding.serial);
        self.arrivals
            .retain(|(serial, ..)| *serial != tcp_binding.serial);
    }

    /// Drops what has arrived for a group that is over.
    pub(super) fn forget_group(&self, group: u64) {
        self.arrivals.retain(|(_, of, _)| *of != group);
    }

    /// Expects the connections of a rank that has been greeted, and no more those of an earlier
    /// greeting.
    fn remember_greeting(&self, rank: Rank, tcp_binding: TcpBinding) {
        let before = self.greeted().insert(rank, tcp_binding);
        if let Some(before) = before {
            self.forget(&before);
        }
    }

    /// Who calls from this address, before it has said a word.
    fn caller(&self, address: IpAddr) -> TcpCaller {
        let site = site(address);
        match self.greeted().values().any(|greeted| greeted.site == site) {
            true => TcpCaller::Expected(site),
            false => TcpCaller::Stranger(site),
        }
    }

    /// How many connections wait to be asked for that belong to this one.
    fn waiting(&self, tcp_binding: &TcpBinding) -> usize {
        self.arrivals
            .count(|(serial, ..)| *serial == tcp_binding.serial)
    }

    /// How many wait to be asked for, of all.
    #[cfg(test)]
    pub(super) fn unasked(&self) -> usize {
        self.arrivals.len()
    }

    fn greeted(&self) -> MutexGuard<'_, BTreeMap<Rank, TcpBinding>> {
        // Nothing that holds the lock can panic half-way through a change.
        self.greeted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what has arrived for a group on a connection once nobody waits for it.
struct Unasked<'a> {
    tcp: &'a Tcp,
    /// The serial of the tie, and the group's number.
    of: (u64, u64),
}

impl Drop for Unasked<'_> {
    fn drop(&mut self) {
        let arrivals = &self.tcp.arrivals;
        arrivals.retain(|(serial, group, _)| (*serial, *group) != self.of);
    }
}

/// A lane that is to be opened, and what proves that it may be.
struct LaneClaim {
    head: BulkHead,
    tcp_binding: TcpBinding,
}

impl TcpBinding {
    /// What only who has this tie can say, only for this, and only on this connection.
    fn proof(&self, who: &[u8], head: &[u8; BulkHead::BYTES], binding: &[u8]) -> hmac::Tag {
        hmac::sign(&self.secret, &[who, head, binding].concat())
    }

    /// Whether the other has said it, compared in a time that does not depend on where they differ.
    fn is_proved(
        &self,
        who: &[u8],
        head: &[u8; BulkHead::BYTES],
        binding: &[u8],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        hmac::verify(&self.secret, &[who, head, binding].concat(), proof).is_ok()
    }
}

/// Takes in what members open over TCP, for as long as the epoch lasts.
pub(in crate::quic) async fn take_in(admission: Arc<Admission>, listener: Arc<TcpListener>) {
    let tcp_limiter = Arc::new(TcpLimiter::default());
    // Ends with this, and with it all who are half done.
    let mut callers = JoinSet::new();
    let mut turned_away = TurnedAwayLog::default();
    let mut shortage = Shortage::new(admission.me, CONNECTION, admission.reaching());
    loop {
        while callers.try_join_next().is_some() {}
        let (stream, address) = match listener.accept().await {
            Ok(caller) => caller,
            Err(error) => {
                match open_files::limit_reached(&error) {
                    // Strangers call here too: only who needs the connection gives up.
                    Some(limit) if tls::somebody_waits(&listener) => {
                        let _ = shortage.refused(Instant::now().into_std(), limit);
                    }
                    // The caller has gone.
                    Some(_) | None => shortage.is_over(),
                }
                sleep(PAUSE).await;
                continue;
            }
        };
        shortage.is_over();
        let Some(permit) = tcp_limiter.permit(admission.tcp.caller(address.ip())) else {
            if let Some(count) = turned_away.note(Instant::now().into_std()) {
                tracing::warn!(
                    rank = admission.me.number(),
                    "{count} callers over TCP were turned away: as many as may be at a time have \
                     not proved what they are"
                );
            }
            continue;
        };
        let admission = admission.clone();
        spawn_in(&mut callers, async move {
            let receiving = timeout(permit.patience(), admission.receive(stream, address));
            if let Ok(Err(reason)) = receiving.await {
                tracing::debug!(%address, %reason, "a connection over TCP is turned away");
            }
        });
    }
}

/// Why a connection over TCP came to nothing.
#[derive(Debug, thiserror::Error)]
enum TurnedAway {
    #[error("it broke off: {0}")]
    Handshake(Failed),
    #[error("it does not say what a member of this epoch says")]
    Unproved,
    #[error("too many wait")]
    Crowd,
}

impl<E: Into<Failed>> From<E> for TurnedAway {
    fn from(error: E) -> Self {
        Self::Handshake(error.into())
    }
}

impl Admission {
    /// Puts a member's connection where it is asked for, and tells strangers nothing.
    async fn receive(&self, stream: TcpStream, address: SocketAddr) -> Result<(), TurnedAway> {
        self.tune(&stream);
        let secured = match tls::accept(stream, self.identity.tcp_server()).await {
            Ok(secured) => secured,
            Err(failed) => {
                self.report_distrust(&failed, address).await;
                return Err(failed.into());
            }
        };
        if secured.protocol != TCP_ALPN {
            return Err(TurnedAway::Unproved);
        }
        let (peer, binding) = (secured.peer.clone(), secured.binding);
        let (mut outgoing, mut incoming) = secured.split();
        let (mut head, mut proof) = ([0; BulkHead::BYTES], [0; PROOF_BYTES]);
        incoming.read_exact(&mut head).await?;
        incoming.read_exact(&mut proof).await?;
        let (tcp_binding, claim) = BulkHead::decode(&head)
            .and_then(|claim| Some((self.tie_with(claim.rank)?, claim)))
            .ok_or(TurnedAway::Unproved)?;
        let proved = self.identity.proves(&peer, self.role(claim.rank))
            && tcp_binding.is_proved(DIALS, &head, &binding, &proof)
            && claim.lane < self.lane_count();
        if !proved {
            return Err(TurnedAway::Unproved);
        }
        if self.tcp.waiting(&tcp_binding) >= WAITING {
            return Err(TurnedAway::Crowd);
        }
        let answer = tcp_binding.proof(ANSWERS, &head, &binding);
        outgoing.write_all(answer.as_ref()).await?;
        let name = (tcp_binding.serial, claim.group, claim.lane);
        let data: Data = (Box::new(outgoing), Box::new(incoming));
        self.tcp.arrivals.put(name, data);
        self.drop_if_over(claim, &tcp_binding);
        Ok(())
    }

    /// Drops a lane that has just been put where nobody asks for it any more. Looked at only then,
    /// so that whatever ends from here on takes it along.
    fn drop_if_over(&self, claim: BulkHead, tcp_binding: &TcpBinding) {
        if self.is_over(claim.group) {
            self.tcp.forget_group(claim.group);
        }
        let tie = self.tie_with(claim.rank);
        if tie.is_none_or(|tie| tie.serial != tcp_binding.serial) {
            self.tcp.forget(tcp_binding);
        }
    }

    /// Expects the connections of a caller that is about to be welcomed, where they go over TCP.
    pub(super) fn greet(&self, rank: Rank, connection: &Connection) -> Option<TcpBinding> {
        let tcp_binding = self.new_tcp_binding(connection)?;
        self.tcp.remember_greeting(rank, tcp_binding.clone());
        Some(tcp_binding)
    }

    /// What ties connections over TCP to this one; nothing where there are none.
    pub(super) fn new_tcp_binding(&self, connection: &Connection) -> Option<TcpBinding> {
        match self.data_transport() {
            DataTransport::Quic => None,
            DataTransport::Tls => self.tcp.tcp_binding(connection),
        }
    }

    async fn report_distrust(&self, failed: &Failed, address: SocketAddr) {
        let Failed::Tls(error) = failed else { return };
        if let Some(distrust) = distrust_over_tcp(error) {
            report(self, address, distrust.cause()).await;
        }
    }

    /// What a rank's connections have to prove: of the one that is in, or else that was greeted
    /// last.
    fn tie_with(&self, rank: Rank) -> Option<TcpBinding> {
        let admitted = self.member_tcp_binding(rank);
        admitted.or_else(|| self.tcp.greeted().get(&rank).cloned())
    }

    /// A connection for each lane of a group with a lower rank.
    pub(in crate::quic) async fn tcp_lanes_of(
        self: &Arc<Self>,
        member: &Member,
        group: u64,
    ) -> Result<Vec<Data>, OperationError> {
        let rank = member.rank();
        let gone = || OperationError::lost(member.clone(), LossCause::Disconnected);
        let tcp_binding = self.member_tcp_binding(rank).ok_or_else(gone)?;
        let connection = self
            .connections(rank)
            .and_then(|all| all.into_iter().next());
        let address = connection.ok_or_else(gone)?.remote_address();
        self.reach(member, address, &tcp_binding, group).await
    }

    /// Connects to a member over TCP, once for each lane of a group, all at once, and tries for a
    /// bounded time.
    ///
    /// # Errors
    /// [`JoinError::TcpUnreached`].
    pub(super) async fn reach(
        self: &Arc<Self>,
        peer: &Member,
        address: SocketAddr,
        tcp_binding: &TcpBinding,
        group: u64,
    ) -> Result<Vec<Data>, OperationError> {
        let began = Instant::now();
        // Ends with this, and with it all that is half done.
        let mut calls = JoinSet::new();
        for lane in 0..self.lane_count() {
            let head = BulkHead {
                rank: self.me,
                group,
                lane,
            };
            let claim = LaneClaim {
                head,
                tcp_binding: tcp_binding.clone(),
            };
            let (admission, peer) = (self.clone(), peer.clone());
            spawn_in(&mut calls, async move {
                let reached = admission.reach_lane(&peer, address, &claim, began).await;
                reached.map(|data| (lane, data))
            });
        }
        let mut lanes = BTreeMap::new();
        while let Some(called) = calls.join_next().await {
            let (lane, data) = called.map_err(|_| unfinished())??;
            lanes.insert(lane, data);
        }
        Ok(lanes.into_values().collect())
    }

    /// How long a member is tried.
    fn reaching(&self) -> Duration {
        REACHING.min(self.timeouts.join() / 2)
    }

    /// Tries one lane until it is there, or the time is up that began then.
    async fn reach_lane(
        &self,
        peer: &Member,
        address: SocketAddr,
        claim: &LaneClaim,
        began: Instant,
    ) -> Result<Data, OperationError> {
        let until = began + self.reaching();
        let mut shortage = Shortage::new(self.me, CONNECTION, self.reaching() / 2);
        loop {
            let kind = match timeout_at(until, self.call(peer, address, claim)).await {
                Ok(Ok(lane)) => return Ok(lane),
                Ok(Err(Failed::Io(error))) => {
                    if let Some(limit) = open_files::limit_reached(&error)
                        && let Some(error) = shortage.refused(Instant::now().into_std(), limit)
                    {
                        return Err(error);
                    }
                    error.kind()
                }
                Ok(Err(Failed::Tls(_))) => io::ErrorKind::InvalidData,
                Err(_) => io::ErrorKind::TimedOut,
            };
            if Instant::now() + PAUSE >= until {
                return Err(JoinError::TcpUnreached {
                    rank: self.me,
                    peer: peer.clone(),
                    waited: began.elapsed(),
                    kind,
                }
                .into());
            }
            sleep(PAUSE).await;
        }
    }

    /// One try of one connection.
    async fn call(
        &self,
        peer: &Member,
        address: SocketAddr,
        claim: &LaneClaim,
    ) -> Result<Data, Failed> {
        let name = self.identity.server_name(self.role(peer.rank()));
        let name = name.map_err(|_| io::ErrorKind::InvalidInput)?;
        let stream = tls::dial(address).await?;
        self.tune(&stream);
        let secured = tls::connect(stream, self.identity.tcp_client(), name).await?;
        if secured.protocol != TCP_ALPN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (head, binding) = (claim.head.encode(), secured.binding);
        let (mut outgoing, mut incoming) = secured.split();
        let proof = claim.tcp_binding.proof(DIALS, &head, &binding);
        outgoing
            .write_all(&[&head, proof.as_ref()].concat())
            .await?;
        let mut answer = [0; PROOF_BYTES];
        incoming.read_exact(&mut answer).await?;
        if !claim
            .tcp_binding
            .is_proved(ANSWERS, &head, &binding, &answer)
        {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok((Box::new(outgoing), Box::new(incoming)))
    }

    fn tune(&self, stream: &TcpStream) {
        tls::tune(stream, self.network.congestion(), self.timeouts.silence());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> BulkHead {
        BulkHead {
            rank: Rank::new(3),
            group: u64::MAX - 1,
            lane: 7,
        }
    }

    #[test]
    fn a_proof_is_good_for_one_end_one_head_one_connection_and_one_tie() {
        let tcp_binding = |secret: u8| TcpBinding {
            serial: 0,
            site: IpAddr::from([198, 51, 100, 7]),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &[secret; 32]),
        };
        let (head, mut other) = (head().encode(), head().encode());
        other[16] += 1;
        let (here, there) = ([1; 12], [2; 12]);
        let proof = tcp_binding(1).proof(DIALS, &head, &here);
        let proof = proof.as_ref().try_into().unwrap();
        assert!(tcp_binding(1).is_proved(DIALS, &head, &here, proof));
        assert!(!tcp_binding(1).is_proved(ANSWERS, &head, &here, proof));
        assert!(!tcp_binding(1).is_proved(DIALS, &other, &here, proof));
        assert!(!tcp_binding(1).is_proved(DIALS, &head, &there, proof));
        assert!(!tcp_binding(2).is_proved(DIALS, &head, &here, proof));
    }
}
