//! Trainings run step by step, with whoever is there.

mod session;

use std::env;
use std::time::Instant;

use meshwork_cluster_resolver::{ClusterResolver, EnvironmentResolver};
use meshwork_collectives::{
    self as collectives, ConfigError, Group, GroupConfig, JobIdentity, OperationError, Rank,
    Timeouts, TwoMemberPolicy,
};

use super::alone::warn_where_others_are_meant;
use super::elastic::poll_interval::PollInterval;
use super::etcd::seeds_from_env;
use super::{MultiWorkerMirroredStrategy, cluster_of, config, has_others, place_in};
use crate::{CommunicationOptions, Error, Training};
use session::Session;

/// The state of a strategy whose workers may change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elastic {
    poll_interval: PollInterval,
    looked: Instant,
}

/// How a process joins a job whose workers may change.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum JoinMode {
    /// With all the others, when the job begins; most are enough where one is lost before all have
    /// met, or does not come within [`Timeouts::join`]. Of a job that begins with fewer workers
    /// than are listed, the others come in later all the same.
    Founding,
    /// In the place of one that was lost, or as one more, while the others train.
    Late,
}

impl MultiWorkerMirroredStrategy {
    /// As [`from_env`](Self::from_env), for a job that continues when workers are lost and admits
    /// new ones: see [`train`](Self::train).
    ///
    /// `MESHWORK_RESTARTS` says how often this process was started before, as `meshwork run
    /// --elastic` sets it: from 1 on it waits to be let in by those who train.
    ///
    /// A job may grow: with `MESHWORK_WORKERS=2:5` the first two workers of the cluster begin it,
    /// and there may come to be five; those listed behind them come in later, and so does any
    /// process that has the addresses of some workers in `MESHWORK_SEEDS` instead of a cluster.
    ///
    /// With the feature `etcd`, workers register in the etcd that `MESHWORK_ETCD` names, and a
    /// process with `MESHWORK_SEEDS=etcd` gets their addresses from there.
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env), and [`Error::Group`] when MESHWORK_RESTARTS is no
    /// number or no worker admits this process within [`Timeouts::join`].
    pub fn elastic_from_env() -> Result<Self, Error> {
        #[cfg(not(feature = "status"))]
        super::no_status::check_env()?;
        #[cfg(not(feature = "etcd"))]
        super::etcd::check_env()?;
        let strategy = Self::elastic_from_cluster_env()?;
        #[cfg(feature = "etcd")]
        let strategy = strategy.registered_from_env()?;
        #[cfg(feature = "status")]
        let strategy = strategy.with_status_from_env()?;
        Ok(strategy)
    }

    fn elastic_from_cluster_env() -> Result<Self, Error> {
        let options = CommunicationOptions::new()
            .with_timeouts(Timeouts::from_env()?)
            .with_pair(TwoMemberPolicy::from_env()?);
        let limit = options.timeouts().join();
        if let Some(seeds) = seeds_from_env(limit)? {
            let config = GroupConfig::newcomer(seeds, JobIdentity::from_env()?)?;
            let group = Group::rejoin(&config.with_environment()?)?;
            return Ok(Self::with(group, options, None)?.made_elastic());
        }
        let entry = JoinMode::from_env()?.unwrap_or(JoinMode::Founding);
        let may_grow = env::var_os(GroupConfig::WORKERS_ENV).is_some();
        let cluster = cluster_of(
            &EnvironmentResolver::from_env(),
            JobIdentity::from_env,
            limit,
        )?;
        if cluster.is_none() {
            warn_where_others_are_meant();
        }
        let Some(cluster) = cluster.filter(|cluster| may_grow || has_others(cluster)) else {
            return Ok(Self::alone()?.made_elastic());
        };
        let config = config(&cluster.0, JobIdentity::from_env()?)?.with_environment()?;
        Ok(Self::with(entry.join(&config)?, options, Some(cluster))?.made_elastic())
    }

    /// As [`new`](Self::new), for a job that continues when workers are lost and admits new ones:
    /// see [`train`](Self::train).
    ///
    /// # Errors
    /// Those of [`new`](Self::new), and [`Error::Group`] when no worker admits this
    /// process within [`Timeouts::join`].
    pub fn elastic(
        resolver: &dyn ClusterResolver,
        identity: impl Into<JobIdentity>,
        options: CommunicationOptions,
        entry: JoinMode,
    ) -> Result<Self, Error> {
        let identity = identity.into();
        let known = || Ok(identity.clone());
        let Some(cluster) = place_in(resolver, known, options.timeouts().join())? else {
            return Ok(Self::alone()?.with_options(options).made_elastic());
        };
        let config = config(&cluster.0, identity)?
            .with_timeouts(options.timeouts())
            .with_pair(options.pair());
        Ok(Self::with(entry.join(&config)?, options, Some(cluster))?.made_elastic())
    }

    /// Makes the steps of `training` until there are none left.
    ///
    /// All workers begin with the chief's state. In a job that is [`elastic`](Self::elastic), a
    /// worker that is lost costs at most the step in flight: those who are left agree on who they
    /// are, take over the most advanced state, and make the step again with all of its samples. A
    /// process that waits for admission gets the state at a step boundary; the workers look for
    /// newcomers about four times in a second. The chief may change each time.
    ///
    /// Continuing takes more than half of the current workers, or exactly half with rank 0. Of two,
    /// one continues alone if it knows from the kernel that the other's process has ended; see
    /// [`CommunicationOptions::with_pair`].
    ///
    /// # Errors
    /// Those of `training` that are this worker's own, which the others learn; the loss of a worker
    /// where the job is not elastic, or too few are left to make the steps that are missing.
    /// [`Error::ReplicasDiverged`] ends the training on all workers, as none of them knows whose
    /// copy is right.
    pub fn train<T: Training>(&mut self, training: &mut T) -> Result<(), T::Error> {
        Session::new(self, training).run()
    }

    /// Whether workers may be lost and others come in.
    #[must_use]
    pub fn is_elastic(&self) -> bool {
        self.elastic.is_some()
    }

    /// Whether there is nobody left to go on with, or none that knows this worker.
    pub(crate) fn others_are_gone(&self) -> bool {
        let failure = self.group.failure();
        failure.is_some_and(|error| others_have_ended(&error, self.rank()))
    }

    pub(crate) fn made_elastic(mut self) -> Self {
        self.elastic = Some(Elastic::new());
        self
    }
}

impl Elastic {
    fn new() -> Self {
        Self::at(PollInterval::new())
    }

    fn at(poll_interval: PollInterval) -> Self {
        Self {
            poll_interval,
            looked: Instant::now(),
        }
    }
}

impl JoinMode {
    fn join(self, config: &GroupConfig) -> Result<Group, collectives::Error> {
        match self {
            Self::Founding if config.is_founder() => Group::connect_majority(config),
            Self::Founding | Self::Late => Group::rejoin(config),
        }
    }

    /// As the environment says; `None` if it does not speak of workers that come and go.
    ///
    /// `MESHWORK_SEEDS` makes a newcomer of this process; the launcher sets `MESHWORK_RESTARTS`
    /// where it starts workers again; and with `MESHWORK_WORKERS` a job may grow.
    ///
    /// # Errors
    /// [`Error::Group`] for restarts that are no number.
    pub fn from_env() -> Result<Option<Self>, Error> {
        if env::var_os(GroupConfig::SEEDS_ENV).is_some() {
            return Ok(Some(Self::Late));
        }
        if let Some(restarts) = env::var_os(GroupConfig::RESTARTS_ENV) {
            return Self::after(&restarts.to_string_lossy()).map(Some);
        }
        let may_grow = env::var_os(GroupConfig::WORKERS_ENV).is_some();
        Ok(may_grow.then_some(Self::Founding))
    }

    fn after(restarts: &str) -> Result<Self, Error> {
        match restarts.parse() {
            Ok(0_u64) => Ok(Self::Founding),
            Ok(_) => Ok(Self::Late),
            Err(_) => Err(ConfigError::Restarts {
                value: restarts.to_owned(),
            }
            .into()),
        }
    }
}

/// How the text of [`Error::ReplicasDiverged`] begins.
const DIVERGED: &str = "the copies of the model are not equal any more";

/// Whether the text of an error says that copies of the model differ. A group tells others only a
/// text, in which a program's own error may have put more before it.
pub(super) fn says_diverged(text: &str) -> bool {
    text.contains(DIVERGED)
}

/// Whether a group that ended with this error can go on without the lost ranks, seen from rank
/// `own`. Not where copies differ: whoever says so first may have the right one.
pub(super) fn others_can_go_on(error: &OperationError, own: Rank) -> bool {
    match error {
        OperationError::Aborted { message, .. } if says_diverged(message) => false,
        OperationError::Aborted { peer, .. } => peer.rank() != own,
        error => error.is_loss(),
    }
}

/// Whether a group that ended with this error has no others left, seen from rank `own`.
pub(super) fn others_have_ended(error: &OperationError, own: Rank) -> bool {
    let is_alone = matches!(
        error,
        OperationError::NoMajority { .. } | OperationError::Excluded { .. }
    );
    is_alone || others_can_go_on(error, own)
}

#[cfg(test)]
mod tests;
