//! Members of a first epoch, all in this process, whose parts tests play; and what other tests need
//! for what takes time.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use meshwork_testing::free_addresses;
use tokio::runtime::Builder;
use tokio::time::timeout;

use super::{Remote, join};
use crate::{GroupConfig, JobSecret, Member, OperationError, Rank, Timeouts, Transport};

/// Long enough for any test to pass, short enough to see one hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// How long a member may be silent: a fourth of the time in which all have to meet.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// Where members meet, and by what they know each other.
pub(super) struct Job {
    addresses: Vec<String>,
    secret: JobSecret,
}

impl Job {
    /// Of so many members.
    pub(super) fn new(world: usize) -> Self {
        Self {
            addresses: free_addresses(world),
            secret: JobSecret::generate().unwrap(),
        }
    }

    /// Meets the others, at the same time as they do.
    pub(super) async fn member(&self, rank: u32) -> Remote {
        let config = self.config(rank);
        join(&config, self.members()).await.unwrap().remote
    }

    /// What a member knows before it meets others.
    pub(super) fn config(&self, rank: u32) -> GroupConfig {
        let (addresses, secret) = (self.addresses.clone(), self.secret.clone());
        let config = GroupConfig::new(addresses, Rank::new(rank), secret).unwrap();
        config
            .with_timeouts(Timeouts::default().with_silence(SILENCE))
            .with_transport(Transport::Quic)
    }

    pub(super) fn members(&self) -> Arc<[Member]> {
        let members = Rank::all(u32::MAX).zip(&self.addresses);
        let members = members.map(|(rank, address)| Member::new(rank, address));
        members.collect()
    }
}

/// Ends the epoch, as a member does that changes it; another may have before.
pub(super) async fn end(remote: &Remote) {
    let peer = remote.place().1[0].clone();
    let message = "it shrinks".to_owned();
    let over = OperationError::Aborted { peer, message };
    remote.give_up(over).await;
}

/// Where the one thread that could look up names is busy until the end, or until it is sent a word.
pub(crate) fn without_look_ups<R>(test: impl AsyncFnOnce(&mpsc::Sender<()>) -> R) -> R {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build();
    let runtime = runtime.unwrap();
    let (busy, until_end) = mpsc::channel();
    runtime.spawn_blocking(move || until_end.recv());
    runtime.block_on(async { timeout(PATIENCE, test(&busy)).await.unwrap() })
}

/// What ends when its time is up: with little time first, and with more where a busy machine did
/// not come to the point by then.
pub(crate) fn in_time<R>(attempt: impl Fn(Duration) -> R, has_come: impl Fn(&R) -> bool) -> R {
    let mut time = Duration::from_millis(300);
    loop {
        let ended = attempt(time);
        if has_come(&ended) || time >= PATIENCE {
            return ended;
        }
        time *= 4;
    }
}
