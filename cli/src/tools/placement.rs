//! Which process of a job this one is, for commands that work as one.

use meshwork_cluster_resolver::{ClusterResolver, EnvironmentResolver, WorkerPlacement};
use meshwork_collectives::{JobIdentity, Timeouts};
use meshwork_strategy::{Error, rendezvous};

/// The place of this process as the environment tells, after a rendezvous if it takes one.
pub(crate) fn placement() -> Result<WorkerPlacement, Error> {
    let cluster = EnvironmentResolver::from_env().snapshot()?;
    let limit = Timeouts::from_env()?.join();
    let cluster = rendezvous(cluster, JobIdentity::from_env, limit)?;
    Ok(cluster.placement()?)
}
