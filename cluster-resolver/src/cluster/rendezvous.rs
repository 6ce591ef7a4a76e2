//! Where the processes of a job meet that know one address only.

use crate::cluster::Cluster;
use crate::error::{Error, LauncherError};
use crate::spec::ClusterSpec;

/// The one address that all processes of a job know, and what this process has to say there.
///
/// Who goes there is not known to this crate: `meshwork_collectives::Rendezvous` does, and
/// [`Cluster::with_addresses`] takes what it brings.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias("rdzv_endpoint", "MASTER_ADDR"))]
pub struct RendezvousEndpoint {
    pub(crate) address: String,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) port: u16,
}

impl RendezvousEndpoint {
    /// Where the process of rank 0 listens first, `host:port` as all reach it, by UDP.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The rank of this process.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The port at which this process listens afterwards: no other of its host has the same.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Cluster {
    /// Where the processes have to meet before anybody knows who is in the cluster; `None` where
    /// that is known, or cannot be.
    #[must_use]
    pub fn rendezvous(&self) -> Option<&RendezvousEndpoint> {
        self.rendezvous.as_ref()
    }

    /// The same cluster after its processes have met: all are workers, at these addresses in order
    /// of rank.
    ///
    /// # Errors
    /// [`LauncherError::Met`] where they are not as many as were to meet; [`Error::Address`].
    pub fn with_addresses(mut self, addresses: Vec<String>) -> Result<Self, Error> {
        if let Some(endpoint) = self.rendezvous.take()
            && endpoint.world as usize != addresses.len()
        {
            let (world, met) = (endpoint.world, addresses.len());
            return Err(LauncherError::Met { world, met }.into());
        }
        self.spec = Ok(ClusterSpec::from_addresses(addresses)?);
        Ok(self)
    }
}
