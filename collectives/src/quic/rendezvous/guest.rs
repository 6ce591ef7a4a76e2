//! A rank other than 0: it calls until it is answered.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quinn::{Connection, Endpoint};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Rendezvous, everywhere};
use crate::identity::{Identity, Role, distrust};
use crate::quic::control::{self, NoMessage};
use crate::quic::renewal::Shown;
use crate::quic::{TURNED_AWAY, endpoint};
use crate::wire::{Absence, Message, Registration, Stranger, WireError};
use crate::{JoinError, Member, Rank, Refusal};

/// How long an attempt to reach rank 0 may take before a new one starts afresh.
pub(super) const ATTEMPT: Duration = Duration::from_secs(3);
/// How long rank 0 may be silent before it is called again: it may have ended, and been started
/// again. If it was only slow, it takes this rank in once more.
pub(super) const SILENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts that fail at once.
const PAUSE: Duration = Duration::from_millis(50);
/// What a rank that has reached rank 0 waits longer than rank 0 does, which says who is missing.
const GRACE: Duration = Duration::from_secs(5);

pub(super) enum Attempt {
    /// Another attempt may succeed: rank 0 is not there yet.
    Failed,
    /// None will.
    Hopeless(JoinError),
}

impl From<NoMessage> for Attempt {
    fn from(_: NoMessage) -> Self {
        Self::Failed
    }
}

/// Tells rank 0, where it is looked up, at which port this one is going to listen, until it tells
/// where all do.
pub(super) async fn register<F: Future<Output = io::Result<SocketAddr>>>(
    rendezvous: &Rendezvous,
    identity: &Identity,
    look_up: impl Fn() -> F,
) -> Result<Vec<String>, JoinError> {
    let shown = Shown {
        rank: rendezvous.rank,
        identity,
        // Nobody calls a guest.
        server: None,
    };
    let registering = until_told(rendezvous, identity, look_up);
    shown.renew_during(registering).await
}

async fn until_told<F: Future<Output = io::Result<SocketAddr>>>(
    rendezvous: &Rendezvous,
    identity: &Identity,
    look_up: impl Fn() -> F,
) -> Result<Vec<String>, JoinError> {
    let mut until = Instant::now() + rendezvous.limit;
    let (last, mut too_late) = (until + GRACE, rendezvous.unreached());
    loop {
        let calling = timeout_at(until, call(rendezvous, identity, &look_up)).await;
        let Ok(reached) = calling else {
            return Err(too_late);
        };
        let (endpoint, connection) = reached?;
        (until, too_late) = (last, rendezvous.unanswered());
        let answer = timeout_at(last, ask(rendezvous, &connection)).await;
        // Rank 0 is sure then that all has arrived.
        connection.close(TURNED_AWAY, b"");
        endpoint.wait_idle().await;
        match answer {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(Attempt::Hopeless(error))) => return Err(error),
            Ok(Err(Attempt::Failed)) => sleep(PAUSE).await,
            Err(_) => return Err(too_late),
        }
    }
}

/// Calls rank 0, where it is looked up, until it is reached.
async fn call<F: Future<Output = io::Result<SocketAddr>>>(
    rendezvous: &Rendezvous,
    identity: &Identity,
    look_up: impl Fn() -> F,
) -> Result<(Endpoint, Connection), JoinError> {
    loop {
        // A look-up that began afresh would take as long again, so an attempt begins after it.
        if let Ok(address) = look_up().await {
            match timeout(ATTEMPT, reach(rendezvous, identity, address)).await {
                Ok(Ok(reached)) => return Ok(reached),
                Ok(Err(Attempt::Hopeless(error))) => return Err(error),
                Ok(Err(Attempt::Failed)) | Err(_) => {}
            }
        }
        sleep(PAUSE).await;
    }
}

pub(super) async fn reach(
    rendezvous: &Rendezvous,
    identity: &Identity,
    address: SocketAddr,
) -> Result<(Endpoint, Connection), Attempt> {
    let endpoint = endpoint::dialler(everywhere(address.ip())).map_err(Attempt::Hopeless)?;
    let name = identity.server_name(Role::Rank(Rank::CHIEF));
    let name = name.map_err(|error| Attempt::Hopeless(error.into()))?;
    let client = endpoint::impatient_client(identity, SILENCE);
    let connecting = endpoint.connect_with(client, address, &name.to_str());
    let connecting = connecting.map_err(|_| Attempt::Failed)?;
    let connection = connecting.await.map_err(|error| {
        let distrust = distrust(&error).map(|distrust| distrust.error(rendezvous.host()));
        distrust.map_or(Attempt::Failed, Attempt::Hopeless)
    })?;
    Ok((endpoint, connection))
}

async fn ask(rendezvous: &Rendezvous, connection: &Connection) -> Result<Vec<String>, Attempt> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(NoMessage::from)?;
    let registration = Registration {
        rank: rendezvous.rank.number(),
        world: rendezvous.world,
        port: rendezvous.port,
    };
    control::write(&mut send, &Message::Register(registration)).await?;
    let (world, mut addresses) = (rendezvous.world as usize, Vec::new());
    while addresses.len() < world {
        match control::read(&mut receive).await {
            Ok(Message::Addresses(batch))
                if batch.first as usize == addresses.len()
                    && (1..=world - addresses.len()).contains(&batch.addresses.len()) =>
            {
                addresses.extend(batch.addresses);
            }
            Ok(Message::Absent(absence)) => return Err(rendezvous.without(&absence)),
            Ok(Message::Refusal(refusal)) => return Err(rendezvous.refused(refusal.into())),
            Err(NoMessage::Malformed(WireError::Version { found, expected })) => {
                let (expected, found) = (found, expected);
                return Err(rendezvous.refused(Refusal::Version { expected, found }));
            }
            // Rank 0 says nothing else; who does is no rank 0.
            Ok(_) | Err(_) => return Err(Attempt::Failed),
        }
    }
    Ok(addresses)
}

impl Rendezvous {
    fn unreached(&self) -> JoinError {
        JoinError::NotJoined {
            missing: vec![self.host()],
            waited: self.limit,
            refused: Vec::new(),
        }
    }

    fn unanswered(&self) -> JoinError {
        JoinError::StillWaiting {
            peer: self.host(),
            waited: self.limit + GRACE,
        }
    }

    fn without(&self, absence: &Absence) -> Attempt {
        let missing = absence
            .ranks
            .iter()
            .map(|rank| Member::unknown(Rank::new(*rank)));
        Attempt::Hopeless(JoinError::NotJoined {
            missing: missing.collect(),
            waited: self.limit,
            refused: absence.refused.iter().filter_map(Stranger::peer).collect(),
        })
    }

    fn refused(&self, reason: Refusal) -> Attempt {
        Attempt::Hopeless(JoinError::Refused {
            rank: self.rank,
            peer: self.host(),
            reason,
        })
    }
}
