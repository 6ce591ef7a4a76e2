//! Newcomers find the job in etcd, where its workers have registered.

use std::time::Duration;

use meshwork_collectives::GroupConfig;

#[cfg(feature = "etcd")]
use meshwork_cluster_resolver::{
    self as cluster_resolver, EtcdError, EtcdMembers, RetryPolicy, Variables,
};

#[cfg(feature = "etcd")]
use super::MultiWorkerMirroredStrategy;
use crate::Error;

/// What stands in `MESHWORK_SEEDS` for the workers that are registered in etcd.
const ETCD: &str = "etcd";

/// Addresses of some workers of the job that this process is to come into, where it is a newcomer.
pub(super) fn seeds_from_env(limit: Duration) -> Result<Option<Vec<String>>, Error> {
    let seeds = GroupConfig::seeds_from_env();
    match seeds.as_deref() {
        Some([only]) if only == ETCD => registered(limit).map(Some),
        Some(_) | None => Ok(seeds),
    }
}

#[cfg(feature = "etcd")]
fn registered(limit: Duration) -> Result<Vec<String>, Error> {
    let members = members(limit)?.ok_or_else(|| {
        cluster_resolver::Error::from(EtcdError::Unset {
            variable: EtcdMembers::ENDPOINTS_ENV,
            because: "MESHWORK_SEEDS=etcd",
        })
    })?;
    Ok(members.addresses().map_err(cluster_resolver::Error::from)?)
}

#[cfg(not(feature = "etcd"))]
fn registered(_: Duration) -> Result<Vec<String>, Error> {
    let variable = GroupConfig::SEEDS_ENV;
    Err(Error::WithoutEtcd { variable })
}

/// Refuses to leave out what was asked for.
#[cfg(not(feature = "etcd"))]
pub(super) fn check_env() -> Result<(), Error> {
    let variable = "MESHWORK_ETCD";
    match std::env::var_os(variable) {
        Some(_) => Err(Error::WithoutEtcd { variable }),
        None => Ok(()),
    }
}

#[cfg(feature = "etcd")]
fn members(limit: Duration) -> Result<Option<EtcdMembers>, Error> {
    let members = EtcdMembers::from_variables(&Variables::of_process())?;
    let retry = RetryPolicy::new(limit).with_attempt_timeout(ATTEMPT);
    Ok(members.map(|members| members.with_retry_policy(retry)))
}

#[cfg(feature = "etcd")]
impl MultiWorkerMirroredStrategy {
    /// Registers this worker in the etcd that the environment names, until the strategy is dropped.
    ///
    /// A training does not depend on etcd: where that cannot be reached, it goes on with a warning.
    pub(super) fn registered_from_env(mut self) -> Result<Self, Error> {
        let members = members(REGISTERING);
        let Some(members) = self.abort_on_error(members)? else {
            return Ok(self);
        };
        let own = &self.group.members()[self.group.rank().number() as usize];
        let report = |trouble: &EtcdError| tracing::warn!("{trouble}");
        let registration = members.register(own.address(), report);
        let registration =
            registration.map_err(|error| Error::from(cluster_resolver::Error::from(error)));
        self.registration = Some(self.abort_on_error(registration)?);
        Ok(self)
    }
}

/// How long one client URL may take to answer before another is asked.
#[cfg(feature = "etcd")]
const ATTEMPT: Duration = Duration::from_secs(5);

/// How long the others wait for a worker that cannot register at first.
#[cfg(feature = "etcd")]
const REGISTERING: Duration = Duration::from_secs(5);
