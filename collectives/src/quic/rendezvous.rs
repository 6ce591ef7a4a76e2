//! How processes that know one address of their job learn those of all, before they are a group.
//!
//! ```text
//!    rank 2 ── "rank 2 of 3, at port 61002" ──> rank 0, at the address that all know
//!    rank 1 ── "rank 1 of 3, at port 61001" ──>   │
//!                                                 │ all have come
//!    ranks 1, 2 <── "h0:61000, 10.0.0.2:61001, 10.0.0.3:61002" ──┘
//! ```
//!
//! Mutual TLS under the job's secret or certificates, as everywhere: a stranger learns nothing, and
//! is not heard. Whoever comes is reached by others where rank 0 sees it.

mod guest;
mod host;
mod registrations;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use super::resolve;
use crate::host::everywhere;
use crate::identity::{Identity, Role};
use crate::{ConfigError, JobIdentity, JoinError, Member, Rank, SystemError, Timeouts, config};

/// A meeting of processes that know one address only, that of rank 0, and each its own rank.
///
/// The ports at which the group listens afterwards are others than that of the meeting. Rank 0 may
/// end like any other rank once the group has begun.
///
/// ```
/// use meshwork_collectives::{JobSecret, Rank, Rendezvous};
///
/// let alone = Rendezvous::new("127.0.0.1:29500", Rank::CHIEF, 1, 61_000)?;
/// let addresses = alone.meet(JobSecret::generate()?)?;
/// assert_eq!(addresses, ["127.0.0.1:61000"]);
/// # Ok::<(), meshwork_collectives::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias("MASTER_ADDR", "TCPStore", "rdzv_endpoint"))]
pub struct Rendezvous {
    address: String,
    rank: Rank,
    world: u32,
    port: u16,
    limit: Duration,
}

impl Rendezvous {
    /// This process is `rank` of `world`, and is going to listen at `port` of its host. Rank 0
    /// listens at `address` first, `host:port` as all reach it, by UDP.
    ///
    /// # Errors
    /// [`ConfigError::WorldSize`] for no ranks or too many, [`ConfigError::RankOutside`].
    pub fn new(
        address: impl Into<String>,
        rank: Rank,
        world: u32,
        port: u16,
    ) -> Result<Self, ConfigError> {
        let world = config::world(world as usize)?;
        config::inside(rank, world)?;
        Ok(Self {
            address: address.into(),
            rank,
            world,
            port,
            limit: Timeouts::default().join(),
        })
    }

    /// Waits so long for the others, instead of 30 s: from a millisecond to a day. A rank that has
    /// reached rank 0 gives it 5 s more to say who is missing, and calls it again meanwhile if
    /// their connection breaks. Once all have come, rank 0 waits for such a call up to 13 s, but no
    /// longer than half of this time, as the others wait for it in the group; where some have not
    /// come, 5 s.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Timeouts::default().with_join(limit).join();
        self
    }

    /// Waits until all have come; the addresses of all, `host:port` in order of rank. One that has
    /// come and ended since is named by the group that the others begin.
    ///
    /// # Errors
    /// [`JoinError::NotJoined`] with the ranks that have not come in time, which rank 0 tells to
    /// all who have; [`JoinError::StillWaiting`] where this rank has reached rank 0 and not been
    /// told by it;
    /// [`JoinError::Refused`] for a process that does not belong to the others,
    /// [`JoinError::OtherJob`], [`JoinError::OtherRank`], [`JoinError::Expired`]; for rank 0
    /// [`JoinError::OwnName`], [`JoinError::PortTaken`] and [`JoinError::Bind`];
    /// [`JoinError::System`], [`JoinError::Config`].
    pub fn meet(&self, identity: impl Into<JobIdentity>) -> Result<Vec<String>, JoinError> {
        let identity = Identity::of_job(&identity.into(), Role::Rank(self.rank))?;
        // On a thread of its own, so that it may be called from anywhere.
        thread::scope(|scope| {
            let meeting = thread::Builder::new()
                .name("rendezvous".to_owned())
                .spawn_scoped(scope, || self.on_this_thread(&identity))
                .map_err(|error| SystemError::new("starting a thread", error.kind()))?;
            meeting.join().expect("a rendezvous does not panic")
        })
    }

    fn on_this_thread(&self, identity: &Identity) -> Result<Vec<String>, JoinError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| SystemError::new("starting a runtime", error.kind()))?;
        let met = runtime.block_on(async {
            match self.rank {
                Rank::CHIEF => host::receive_all(self, identity).await,
                _ => guest::register(self, identity, || look_up(&self.address)).await,
            }
        });
        // A name that is still being looked up must not hold the program back.
        runtime.shutdown_background();
        met
    }

    /// Rank 0, as it is named until its own address is known.
    fn host(&self) -> Member {
        Member::new(Rank::CHIEF, self.address.clone())
    }

    /// The address without its port, in brackets if it has colons.
    fn host_name(&self) -> &str {
        self.address
            .rsplit_once(':')
            .map_or(self.address.as_str(), |(name, _)| name)
    }
}

/// The first address of a name.
async fn look_up(address: &str) -> io::Result<SocketAddr> {
    let none = || io::ErrorKind::AddrNotAvailable.into();
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    match resolve(address, any).await? {
        Some(found) => Ok(found),
        None => {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
            resolve(address, any).await?.ok_or_else(none)
        }
    }
}

#[cfg(test)]
mod tests;
