//! What a cluster means for one process of a training job: its rank, and whom it trains with.
//!
//! Four jobs have a part in training: `chief` (at most one task), `worker`, `ps` and `evaluator`
//! (at most one). Chief and workers train together and have ranks, the chief first and then the
//! workers by index; without a chief, worker 0 is the chief.
//!
//! # Where TensorFlow differs
//!
//! - A `chief` job without tasks counts as no chief. TensorFlow then appoints nobody, and waits for
//!   a leader that does not exist.
//! - Indices with holes are refused. TensorFlow compares an index with the number of addresses, so
//!   that of workers 1 and 5 it takes for present worker 0, which is not, and refuses worker 5.
//! - Addresses of tasks that train must be of the form `host:port` and distinct. TensorFlow finds
//!   out when it connects, or does not.
//! - An evaluator has no rank. TensorFlow numbers evaluators too, though none of them takes part in
//!   a reduction.

use std::collections::BTreeMap;

use crate::address;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::resolver::ClusterResolver;
use crate::spec::ClusterSpec;
use crate::task::Task;

mod roles;

pub use roles::{collective_leader, coordination_leader, id_in_cluster, is_chief, worker_count};

/// The place of one process among those that train together.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterSpec, WorkerPlacement};
///
/// let spec = ClusterSpec::from_addresses(["a:2222", "b:2222", "c:2222"])?;
/// let placement = WorkerPlacement::new(&spec, "worker", 2)?;
/// assert_eq!((placement.rank(), placement.world()), (2, 3));
/// assert!(!placement.is_chief());
///
/// let error = WorkerPlacement::new(&spec, "worker", 7).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "task worker:7 is outside the cluster, which has 3 workers (0..=2): use an index it has, \
///      or add the address of worker:7"
/// );
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkerPlacement {
    rank: u32,
    world: u32,
    addresses: Vec<String>,
}

impl WorkerPlacement {
    /// The place of this task in this cluster.
    ///
    /// # Errors
    /// First about the cluster: [`Error::UnknownRole`], [`Error::TooManyTasks`],
    /// [`Error::MissingTask`]. Then about the task: [`Error::UnknownJob`], [`Error::UnknownTask`],
    /// [`Error::NotTraining`]. Then about the addresses of those that train:
    /// [`Error::Address`], [`Error::DuplicateAddress`]. The empty cluster has no tasks, so a
    /// process that runs alone asks no placement.
    pub fn new(spec: &ClusterSpec, task_type: &str, task_id: u32) -> Result<Self, Error> {
        check_roles(spec)?;
        let (chiefs, workers) = (ranks_in(spec, CHIEF)?, ranks_in(spec, WORKER)?);
        spec.task_address(task_type, task_id)?;
        let rank = match task_type {
            CHIEF => task_id,
            WORKER => chiefs + task_id,
            _ => {
                let task = Task::new(task_type, task_id);
                return Err(Error::NotTraining { task });
            }
        };
        Ok(Self {
            rank,
            world: chiefs + workers,
            addresses: addresses_in_rank_order(spec, chiefs, workers)?,
        })
    }

    /// The place of the task that the resolver says this process is.
    ///
    /// # Errors
    /// Those of [`snapshot`](ClusterResolver::snapshot) and of [`Cluster::placement`].
    pub fn resolve(resolver: &dyn ClusterResolver) -> Result<Self, Error> {
        resolver.snapshot()?.placement()
    }

    /// The rank of this process, `0..world`.
    #[doc(alias = "id_in_cluster")]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes train together.
    #[doc(alias = "worker_count")]
    #[must_use]
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Whether this process is the one that reports and saves for all: the one with rank 0.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        self.rank == 0
    }

    /// The address of each process that trains, in rank order, as given in the cluster.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }
}

impl Cluster {
    /// The place of this process among those that train together.
    ///
    /// # Errors
    /// Those of [`spec`](Self::spec) and [`task`](Self::task), and those of
    /// [`WorkerPlacement::new`].
    pub fn placement(&self) -> Result<WorkerPlacement, Error> {
        let (spec, task) = (self.spec()?, self.task()?);
        WorkerPlacement::new(spec, task.job(), task.index())
    }
}

fn check_roles(spec: &ClusterSpec) -> Result<(), Error> {
    if let Some(job) = spec.jobs().find(|job| !ROLES.contains(job)) {
        return Err(Error::UnknownRole {
            job: job.to_owned(),
        });
    }
    for job in [CHIEF, EVALUATOR] {
        let count = spec.num_tasks(job).unwrap_or(0);
        if count > 1 {
            return Err(Error::TooManyTasks { job, count });
        }
    }
    Ok(())
}

/// How many ranks a job fills, after a check that its indices have no holes; none for a job that
/// the cluster does not have.
fn ranks_in(spec: &ClusterSpec, job: &str) -> Result<u32, Error> {
    let Ok(indices) = spec.task_indices(job) else {
        return Ok(0);
    };
    let indices: Vec<u32> = indices.collect();
    let Some(&last) = indices.last() else {
        return Ok(0);
    };
    match (0..)
        .zip(&indices)
        .find(|(expected, index)| expected != *index)
    {
        None => Ok(last + 1),
        Some((missing, _)) => Err(Error::MissingTask {
            missing: Task::new(job, missing),
            last: Task::new(job, last),
        }),
    }
}

fn addresses_in_rank_order(
    spec: &ClusterSpec,
    chiefs: u32,
    workers: u32,
) -> Result<Vec<String>, Error> {
    let chiefs = (0..chiefs).map(|index| Task::new(CHIEF, index));
    let workers = (0..workers).map(|index| Task::new(WORKER, index));
    let mut addresses = Vec::new();
    let mut owners = BTreeMap::new();
    for task in chiefs.chain(workers) {
        let address = spec.task_address(task.job(), task.index())?;
        let endpoint = address::parse(address).map_err(|problem| Error::Address {
            task: task.clone(),
            address: address.to_owned(),
            problem,
        })?;
        if let Some(first) = owners.insert(endpoint, task.clone()) {
            return Err(Error::DuplicateAddress {
                first,
                second: task,
                address: address.to_owned(),
            });
        }
        addresses.push(address.to_owned());
    }
    Ok(addresses)
}

const CHIEF: &str = "chief";
const WORKER: &str = "worker";
const EVALUATOR: &str = "evaluator";
const ROLES: [&str; 4] = [CHIEF, WORKER, "ps", EVALUATOR];

#[cfg(test)]
mod tests;
