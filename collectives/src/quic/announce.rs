use std::time::Duration;

use quinn::Endpoint;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{TURNED_AWAY, control, endpoint};
use crate::identity::{Identity, Role};
use crate::membership::tell as verdict;
use crate::wire::Message;
use crate::{Error, JobSecret, LossCause, Member, Rank};

/// The pause between two attempts to reach a rank that does not listen yet.
const PAUSE: Duration = Duration::from_millis(20);
const ATTEMPT: Duration = Duration::from_millis(300);

/// Tells the ranks of a job that one of them is lost, as the launcher that saw it end.
///
/// Ranks that have not met yet cannot notice each other's end; with this they fail at once and
/// name the lost one, instead of waiting for their join deadline. `members` are the addresses of
/// all ranks in order. Ranks that are not reached within `deadline` are left alone: they have
/// ended themselves, or are no Meshwork programs.
///
/// # Errors
/// [`Error::Identity`], [`Error::System`] when nobody could be told because of this process.
pub fn announce_loss(
    members: &[String],
    secret: &JobSecret,
    lost: Rank,
    deadline: Duration,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::System {
            what: "starting a runtime",
            kind: error.kind(),
        })?;
    let identity = std::sync::Arc::new(Identity::new(secret, Role::Launcher)?);
    runtime.block_on(async {
        let mut telling = JoinSet::new();
        for (rank, address) in Rank::all(u32::MAX).zip(members.iter().cloned()) {
            if rank != lost {
                telling.spawn(tell(identity.clone(), rank, address, lost));
            }
        }
        let _ = timeout(deadline, telling.join_all()).await;
    });
    Ok(())
}

/// Tries until the rank has been told; the caller's deadline ends it.
async fn tell(identity: std::sync::Arc<Identity>, rank: Rank, address: String, lost: Rank) {
    loop {
        if let Ok(Some(())) = timeout(ATTEMPT, attempt(&identity, rank, &address, lost)).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

async fn attempt(identity: &Identity, rank: Rank, address: &str, lost: Rank) -> Option<()> {
    let address = tokio::net::lookup_host(address).await.ok()?.next()?;
    let dialler: Endpoint = endpoint::dialler(address).ok()?;
    let name = identity
        .server_name(Role::Rank(rank))
        .ok()?
        .to_str()
        .into_owned();
    let connection = dialler
        .connect_with(endpoint::client(identity), address, &name)
        .ok()?
        .await
        .ok()?;
    let (mut send, _receive) = connection.open_bi().await.ok()?;
    let error = Error::RankLost {
        peer: Member::new(lost, ""),
        cause: LossCause::Died,
        reporter: None,
    };
    let abort = verdict(&error, lost);
    control::write(&mut send, &Message::Abort(abort))
        .await
        .ok()?;
    send.finish().ok()?;
    // Answered when the rank has received it all.
    let _ = send.stopped().await;
    connection.close(TURNED_AWAY, b"");
    Some(())
}
