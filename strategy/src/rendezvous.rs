//! From what a launcher tells to the addresses of all workers.

use std::time::Duration;

use meshwork_cluster_resolver::Cluster;
use meshwork_collectives::{self as collectives, ConfigError, JobIdentity, Rank, Rendezvous};

use crate::Error;

/// The cluster after its processes have met, where they have to: launchers such as torchrun tell
/// all of them one address only. Any other cluster is returned as it is, at once, and by what this
/// process proves that it belongs to the job is not asked for.
///
/// All processes of the job call it. Strategies do by themselves.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, EnvironmentResolver, Variables};
/// use meshwork_strategy::{JobIdentity, rendezvous};
/// use std::time::Duration;
///
/// let variables = Variables::fixed([
///     ("TF_CONFIG", r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#),
/// ]);
/// let cluster = EnvironmentResolver::from_variables(variables).snapshot()?;
/// let cluster = rendezvous(cluster, JobIdentity::from_env, Duration::from_secs(30))?;
/// assert_eq!(cluster.placement()?.addresses(), ["a:1"]);
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
///
/// # Errors
/// [`Error::Group`] as [`Rendezvous::meet`] has them, with who has not come within `limit`.
pub fn rendezvous(
    cluster: Cluster,
    identity: impl FnOnce() -> Result<JobIdentity, ConfigError>,
    limit: Duration,
) -> Result<Cluster, Error> {
    let Some(endpoint) = cluster.rendezvous() else {
        return Ok(cluster);
    };
    let rank = Rank::new(endpoint.rank());
    let rendezvous = Rendezvous::new(endpoint.address(), rank, endpoint.world(), endpoint.port());
    let rendezvous = rendezvous.map_err(collectives::Error::from)?;
    let met = rendezvous.with_limit(limit).meet(identity()?);
    Ok(cluster.with_addresses(met.map_err(collectives::Error::from)?)?)
}
