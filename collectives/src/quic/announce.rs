//! How a launcher tells the ranks of a job that one of them has ended.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use quinn::Endpoint;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{TURNED_AWAY, control, endpoint};
use crate::identity::{Identity, Role};
use crate::membership::tell as verdict;
use crate::wire::Message;
use crate::{JobSecret, JoinError, LossCause, Member, Network, OperationError, Rank, SystemError};

/// The pause between two attempts to reach a rank that does not listen yet.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT: Duration = Duration::from_millis(300);

/// Tells the ranks of a job that one of them is lost, as the launcher that saw it end.
///
/// Ranks that have not met yet cannot notice each other's end; with this they fail at once and name
/// the lost one, instead of waiting for their join deadline. `members` are the addresses of all
/// ranks in order, and `lost` is a place among them, whatever rank that has by now. Ranks that are
/// not reached within `deadline` are left alone: they have ended themselves, or are no Meshwork
/// programs.
///
/// # Errors
/// [`ConfigError::Identity`](crate::ConfigError::Identity),
/// [`OperationError::System`](crate::OperationError::System) when nobody could be told because of
/// this process.
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
        let herald = Arc::new(LossAnnouncer::new(secret, lost)?);
        let mut telling = JoinSet::new();
        for (rank, address) in Rank::all(u32::MAX).zip(members.iter().cloned()) {
            if rank != lost {
                telling.spawn(herald.clone().tell(rank, address));
            }
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
}

impl LossAnnouncer {
    fn new(secret: &JobSecret, lost: Rank) -> Result<Self, JoinError> {
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
        })
    }

    /// Tries until the rank has been told; the caller's deadline ends it.
    async fn tell(self: Arc<Self>, rank: Rank, address: String) {
        while !matches!(
            timeout(ATTEMPT, self.attempt(rank, &address)).await,
            Ok(Some(()))
        ) {
            sleep(PAUSE).await;
        }
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
