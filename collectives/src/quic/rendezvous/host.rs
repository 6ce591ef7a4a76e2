//! Rank 0: it listens until all have come or the time is over, then tells them all.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, ConnectionError, Endpoint, Incoming, SendStream, StoppedError};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::guest::{ATTEMPT, SILENCE};
use super::registrations::{Registrations, is_of_one_link};
use super::{Rendezvous, everywhere, look_up};
use crate::identity::{Identity, Role, distrust};
use crate::notice::say;
use crate::quic::control::{self, NoMessage};
use crate::quic::handshake_limiter::{HandshakeLimiter, HandshakePermit};
use crate::quic::renewal::Shown;
use crate::quic::{TURNED_AWAY, endpoint};
use crate::tasks::spawn_in;
use crate::wire::{
    ABSENT_LIMIT, Absence, AddressBatch, Message, Registration, Stranger, WireError,
};
use crate::{JoinError, Member, Network, Rank, Refusal, UnauthenticatedCause, UnauthenticatedPeer};

/// How long a guest may take to receive its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a guest whose connection is dead may take to see that, and to call again.
const AGAIN: Duration = SILENCE.saturating_add(ATTEMPT);
/// Guests that are remembered as turned away.
const REFUSED: usize = 16;

/// Somebody who holds the secret.
struct Guest {
    connection: Connection,
    answer: SendStream,
    /// Its place among the callers; none while it waits for an answer that is not known yet.
    permit: Option<HandshakePermit>,
}

/// How a call ended.
enum Call {
    /// Somebody who said this, or is refused for what it said.
    Came(Guest, Result<Registration, Refusal>),
    Refused(UnauthenticatedPeer),
    /// This rank has its answer.
    Told(Rank),
    /// Nobody waits for an answer any more.
    Over,
}

/// Takes in all others and tells each the addresses of all; or who is missing.
pub(super) async fn receive_all(
    rendezvous: &Rendezvous,
    identity: &Identity,
) -> Result<Vec<String>, JoinError> {
    let until = Instant::now() + rendezvous.limit;
    let endpoint = listen(rendezvous, identity, until).await?;
    let shown = Shown {
        rank: Rank::CHIEF,
        identity,
        server: Some((&endpoint, Network::default())),
    };
    let receiving = async {
        let mut reception = Reception::new(rendezvous, identity);
        // Either way, who is missing says how it ended.
        let all_come = reception.hear_until(&endpoint, |here| here.known.missing().is_empty());
        let _ = timeout_at(until, all_come).await;
        reception.answer_all(&endpoint).await
    };
    let met = shown.renew_during(receiving).await;
    endpoint.close(TURNED_AWAY, b"");
    endpoint.wait_idle().await;
    met
}

/// Who has come so far.
struct Reception<'a> {
    rendezvous: &'a Rendezvous,
    identity: &'a Identity,
    known: Registrations,
    /// What all who belong here are told, once that is known.
    answer: Option<Arc<[Message]>>,
    /// Those who wait for it.
    guests: BTreeMap<Rank, Guest>,
    /// Who has come and does not have it yet.
    untold: BTreeSet<Rank>,
    refused: Vec<UnauthenticatedPeer>,
    limiter: Arc<HandshakeLimiter>,
    /// Those who have not said who they are yet, or are being told something.
    calls: JoinSet<Call>,
}

impl<'a> Reception<'a> {
    fn new(rendezvous: &'a Rendezvous, identity: &'a Identity) -> Self {
        let own = format!("{}:{}", rendezvous.host_name(), rendezvous.port);
        Self {
            rendezvous,
            identity,
            known: Registrations::new(rendezvous.world, own),
            answer: None,
            guests: BTreeMap::new(),
            untold: BTreeSet::new(),
            refused: Vec::new(),
            limiter: Arc::default(),
            calls: JoinSet::new(),
        }
    }

    async fn hear_until(&mut self, endpoint: &Endpoint, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            tokio::select! {
                incoming = endpoint.accept() => {
                    let Some(incoming) = incoming else { return };
                    if let Some((incoming, permit)) = self.limiter.admit(incoming) {
                        spawn_in(&mut self.calls, hear(incoming, permit));
                    }
                }
                Some(call) = self.calls.join_next() => match call.unwrap_or(Call::Over) {
                    Call::Came(guest, said) => self.take_in(guest, said),
                    Call::Refused(peer) => self.note(peer),
                    Call::Told(rank) => {
                        self.untold.remove(&rank);
                    }
                    Call::Over => {}
                }
            }
        }
    }

    /// Welcomes a guest that belongs here, and tells any other at once why it does not.
    fn take_in(&mut self, mut guest: Guest, said: Result<Registration, Refusal>) {
        let taken = said.and_then(|said| self.register(&guest.connection, said));
        let refusal = match taken {
            Ok(rank) => return self.welcome(rank, guest),
            Err(refusal) => refusal,
        };
        self.note(UnauthenticatedPeer::new(
            guest.connection.remote_address(),
            UnauthenticatedCause::Refused(refusal),
        ));
        let place = guest.permit.as_ref();
        let patience = place.map_or(ANSWER, HandshakePermit::patience).min(ANSWER);
        spawn_in(&mut self.calls, async move {
            let why = [Message::Refusal(refusal.into())];
            let _ = timeout(patience, guest.tell(&why)).await;
            Call::Over
        });
    }

    /// Tells a guest what all are told, or keeps it until that is known.
    fn welcome(&mut self, rank: Rank, mut guest: Guest) {
        let Some(answer) = self.answer.clone() else {
            guest.permit = None;
            // A rank calls again when its connection has broken, which may not be known here.
            if let Some(before) = self.guests.insert(rank, guest) {
                before.connection.close(TURNED_AWAY, b"");
            }
            return;
        };
        spawn_in(&mut self.calls, async move {
            match guest.tell(&answer).await {
                true => Call::Told(rank),
                false => Call::Over,
            }
        });
    }

    /// Remembers where a rank of this job is going to listen.
    fn register(&mut self, connection: &Connection, said: Registration) -> Result<Rank, Refusal> {
        let (claimed, from) = (said.rank, connection.remote_address());
        let rank = Rank::new(claimed);
        if !self.identity.is(connection, Role::Rank(rank)) {
            return Err(Refusal::RankUnproved { claimed });
        }
        let host = self.rendezvous.host_name();
        self.known.register(said, from, host)?;
        self.untold.insert(rank);
        if is_of_one_link(from) {
            say(format_args!(
                "rank {claimed} comes from {}, a link-local address, which no other rank can \
                 dial: give all another address of rank 0 than {}",
                from.ip(),
                self.rendezvous.address
            ));
        }
        Ok(rank)
    }

    fn note(&mut self, peer: UnauthenticatedPeer) {
        if self.refused.len() < REFUSED {
            self.refused.push(peer);
        }
    }

    /// Tells each guest the addresses of all, or who is missing. One whose connection is dead calls
    /// again; if it does not, this rank goes on all the same, and the group names that one.
    async fn answer_all(mut self, endpoint: &Endpoint) -> Result<Vec<String>, JoinError> {
        let (met, missing) = (self.known.complete(), self.known.missing());
        let (answer, patience): (Arc<[Message]>, _) = match &met {
            // The others wait in the group by now, for rank 0 too, and no longer than the limit.
            Some(addresses) => (
                batches(addresses).collect(),
                (AGAIN + ANSWER).min(self.rendezvous.limit / 2),
            ),
            None => (self.absence(&missing), ANSWER),
        };
        self.answer = Some(answer);
        for (rank, guest) in mem::take(&mut self.guests) {
            self.welcome(rank, guest);
        }
        let all_told = self.hear_until(endpoint, |here| here.untold.is_empty());
        let _ = timeout(patience, all_told).await;
        let Some(addresses) = met else {
            return Err(JoinError::NotJoined {
                missing: missing.into_iter().map(Member::unknown).collect(),
                waited: self.rendezvous.limit,
                refused: self.refused,
            });
        };
        for rank in self.untold {
            say(format_args!(
                "{} has come, but was not there for {patience:.1?} to be told where all ranks \
                 listen: look at whether its process has ended",
                Member::new(rank, &addresses[rank.index()])
            ));
        }
        Ok(addresses)
    }

    fn absence(&self, missing: &[Rank]) -> Arc<[Message]> {
        let missing = missing.iter().take(ABSENT_LIMIT);
        let refused = self.refused.iter();
        let absence = Absence {
            ranks: missing.map(|rank| rank.number()).collect(),
            refused: refused.map(Stranger::from).collect(),
        };
        [Message::Absent(absence)].into()
    }
}

impl Guest {
    /// Whether the guest has received it all.
    async fn tell(&mut self, messages: &[Message]) -> bool {
        for message in messages {
            if control::write(&mut self.answer, message).await.is_err() {
                return false;
            }
        }
        // It fails only where it was done before.
        let _ = self.answer.finish();
        match self.answer.stopped().await {
            // It reads what has arrived, even if the connection ends before.
            Ok(_) => true,
            // It closes when it has read all, which may come before it says that all has arrived.
            Err(StoppedError::ConnectionLost(ConnectionError::ApplicationClosed(close))) => {
                close.error_code == TURNED_AWAY
            }
            Err(_) => false,
        }
    }
}

async fn listen(
    rendezvous: &Rendezvous,
    identity: &Identity,
    until: Instant,
) -> Result<Endpoint, JoinError> {
    let rank = Rank::CHIEF;
    let limit = until.saturating_duration_since(Instant::now());
    let found = endpoint::found_within(limit, look_up(&rendezvous.address)).await;
    let address = found.map_err(|error| JoinError::OwnName {
        rank,
        address: rendezvous.address.clone(),
        reason: error.to_string(),
    })?;
    // The name may be that of an address translation, or mean this host alone on this host.
    let address = SocketAddr::new(everywhere(address.ip()), address.port());
    endpoint::listener(address, endpoint::server(identity, Network::default())).map_err(|error| {
        match error.kind() {
            std::io::ErrorKind::AddrInUse => JoinError::PortTaken { rank, address },
            kind => JoinError::Bind {
                rank,
                address: rendezvous.address.clone(),
                kind,
            },
        }
    })
}

/// Lets a caller say who it is.
async fn hear(incoming: Incoming, permit: HandshakePermit) -> Call {
    let (from, patience) = (incoming.remote_address(), permit.patience());
    let hearing = async {
        let connection = match incoming.await {
            Ok(connection) => connection,
            Err(error) => {
                let distrust = distrust(&error).ok_or(NoMessage::Ended)?;
                let peer = UnauthenticatedPeer::new(from, distrust.cause());
                return Ok::<_, NoMessage>(Call::Refused(peer));
            }
        };
        let (answer, mut receive) = connection.accept_bi().await?;
        let said = match control::read(&mut receive).await {
            Ok(Message::Register(said)) => Ok(said),
            Err(NoMessage::Malformed(WireError::Version { found, expected })) => {
                Err(Refusal::Version { expected, found })
            }
            // A rank of a group that meets elsewhere, a launcher with bad news, or nobody.
            Ok(_) | Err(_) => return Ok(Call::Over),
        };
        let permit = Some(permit);
        let guest = Guest {
            connection,
            answer,
            permit,
        };
        Ok(Call::Came(guest, said))
    };
    match timeout(patience, hearing).await {
        Ok(Ok(call)) => call,
        Ok(Err(_)) | Err(_) => Call::Over,
    }
}

fn batches(addresses: &[String]) -> impl Iterator<Item = Message> + '_ {
    let firsts = (0_u32..).step_by(AddressBatch::MOST);
    let batches = firsts.zip(addresses.chunks(AddressBatch::MOST));
    batches.map(|(first, addresses)| {
        Message::Addresses(AddressBatch {
            first,
            addresses: addresses.to_vec(),
        })
    })
}

#[cfg(test)]
mod tests;
