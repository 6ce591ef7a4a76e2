//! How a launcher tells the ranks of a job that one of them has ended.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quinn::Endpoint;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{TURNED_AWAY, control, endpoint};
use crate::identity::{Identity, Role};
use crate::membership::tell as verdict;
use crate::tasks::spawn_in;
use crate::wire::Message;
use crate::{
    JobSecret, JoinError, LossCause, Member, Network, OperationError, Rank, SystemError, config,
    overlay,
};

/// The pause between two attempts to reach a rank that does not listen yet.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT: Duration = Duration::from_millis(300);
/// Ranks that are dialled at a time: those who are told tell others, if calls of the launcher leave
/// them the time.
const AT_ONCE: usize = 8;

/// Tells the ranks of a job that one of them is lost, as the launcher that saw it end.
///
/// Ranks that have not met yet cannot notice each other's end; with this they fail at once and name
/// the lost one, instead of waiting for their join deadline. Its neighbours are told first: where
/// the group has met, they pass it on. `members` are the addresses of all ranks in order, and
/// `lost` is a place among them, whatever rank that has by now. Ranks that are not reached within
/// `deadline` are left alone: they have ended themselves, or are no Meshwork programs.
///
/// # Errors
/// [`JoinError::Config`] without an identity, or for no members or too many; [`JoinError::System`]
/// when nobody could be told because of this process.
pub fn announce_loss(
    members: &[String],
    secret: &JobSecret,
    lost: Rank,
    deadline: Duration,
) -> Result<(), JoinError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| SystemError::new("starting a runtime", error.kind()))?;
    let told = runtime.block_on(async {
        let herald = Arc::new(LossAnnouncer::new(secret, lost, members)?);
        let mut telling = JoinSet::new();
        for _ in 0..AT_ONCE {
            spawn_in(&mut telling, herald.clone().take_turns());
        }
        let _ = timeout(deadline, telling.join_all()).await;
        Ok(())
    });
    // A name that is still being looked up must not hold the launcher back.
    runtime.shutdown_background();
    told
}

/// What it takes to tell any rank.
struct LossAnnouncer {
    identity: Identity,
    /// For each version of IP that this machine has.
    diallers: Vec<Endpoint>,
    message: Message,
    members: Vec<String>,
    /// Whom to tell next.
    turns: Mutex<VecDeque<Rank>>,
}

impl LossAnnouncer {
    fn new(secret: &JobSecret, lost: Rank, members: &[String]) -> Result<Self, JoinError> {
        let peer = Member::new(lost, "");
        let loss = OperationError::lost(peer, LossCause::Died);
        let any = [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
        ];
        Ok(Self {
            identity: Identity::new(secret, Role::Launcher)?,
            diallers: any
                .into_iter()
                .filter_map(|any| endpoint::dialler(any).ok())
                .collect(),
            message: Message::Abort(verdict(&loss, lost)),
            members: members.to_vec(),
            turns: Mutex::new(turns(lost, config::world(members.len())?)),
        })
    }

    /// Tells whoever is next until all have been told; the caller's deadline ends it. Who cannot be
    /// reached has another turn after all others.
    async fn take_turns(self: Arc<Self>) {
        while let Some(rank) = self.next() {
            let address = &self.members[rank.index()];
            let told = timeout(ATTEMPT, self.attempt(rank, address)).await;
            if !matches!(told, Ok(Some(()))) {
                sleep(PAUSE).await;
                self.turns().push_back(rank);
            }
        }
    }

    fn next(&self) -> Option<Rank> {
        self.turns().pop_front()
    }

    fn turns(&self) -> MutexGuard<'_, VecDeque<Rank>> {
        // Nothing that holds the lock can panic.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, rank: Rank, address: &str) -> Option<()> {
        let address = tokio::net::lookup_host(address).await.ok()?.next()?;
        let reaches = |dialler: &&Endpoint| {
            dialler
                .local_addr()
                .is_ok_and(|own| own.is_ipv4() == address.is_ipv4())
        };
        let dialler = self.diallers.iter().find(reaches)?;
        let name = self
            .identity
            .server_name(Role::Rank(rank))
            .ok()?
            .to_str()
            .into_owned();
        let client = endpoint::client(&self.identity, Network::default());
        let connection = dialler
            .connect_with(client, address, &name)
            .ok()?
            .await
            .ok()?;
        let (mut send, _receive) = connection.open_bi().await.ok()?;
        control::write(&mut send, &self.message).await.ok()?;
        send.finish().ok()?;
        // Answered when the rank has received it all.
        let _ = send.stopped().await;
        connection.close(TURNED_AWAY, b"");
        Some(())
    }
}

/// All ranks but the lost one, its neighbours first.
fn turns(lost: Rank, world: u32) -> VecDeque<Rank> {
    let neighbours = overlay::neighbours(lost, world);
    let others = Rank::all(world).filter(|rank| *rank != lost && !neighbours.contains(rank));
    let others: Vec<Rank> = others.collect();
    neighbours.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_else_has_one_turn_and_neighbours_have_the_first() {
        for world in 1..=70 {
            for lost in [0, world / 3, world - 1].map(Rank::new) {
                let turns = turns(lost, world);
                let neighbours = overlay::neighbours(lost, world);
                let first = turns.iter().take(neighbours.len());
                assert!(first.eq(&neighbours), "{lost} of {world}");
                let mut all: Vec<Rank> = turns.into_iter().chain([lost]).collect();
                all.sort();
                assert!(all.into_iter().eq(Rank::all(world)), "{lost} of {world}");
            }
        }
    }
}
