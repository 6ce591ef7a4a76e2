//! Jobs, tasks and addresses: who is in a cluster, whoever says so.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use crate::error::Error;
use crate::task::{MAX_TASK_INDEX, Task};
use crate::text::{Shortened, write_list};

/// Jobs, their tasks, and the address of each task.
///
/// Jobs keep the order in which they were given. Addresses are text and are not looked into here:
/// what a training job may use is for [`multi_worker`](crate::multi_worker) to judge.
///
/// Two specs are equal when they name the same addresses for the same tasks of the same jobs; the
/// order of the jobs does not count, a job without tasks does.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterSpec, Tasks};
///
/// let spec = ClusterSpec::new([
///     ("worker", Tasks::list(["w0:2222", "w1:2222"])),
///     ("ps", Tasks::map([(3, "p3:2222")])),
/// ])?;
/// assert_eq!(spec.jobs().collect::<Vec<_>>(), ["worker", "ps"]);
/// assert_eq!(spec.task_address("ps", 3)?, "p3:2222");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClusterSpec {
    jobs: Vec<Job>,
    #[cfg(feature = "protobuf")]
    order: Order,
}

/// How jobs are written out as a message.
#[cfg(feature = "protobuf")]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Order {
    /// By name.
    #[default]
    ByName,
    /// As they were read from one.
    AsRead,
}

/// The addresses of one job's tasks, as they are given to [`ClusterSpec::new`] and read back by
/// [`ClusterSpec::as_dict`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Tasks {
    /// Task `i` has the `i`-th address.
    List(Vec<String>),
    /// Each task has the address under its index; indices may have holes.
    Map(BTreeMap<u32, String>),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) tasks: BTreeMap<u32, String>,
}

impl Tasks {
    /// Tasks numbered from 0 in the order of their addresses.
    pub fn list(addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::List(addresses.into_iter().map(Into::into).collect())
    }

    /// Tasks with the indices they come with; a repeated index keeps its last address, as in a map.
    pub fn map(tasks: impl IntoIterator<Item = (u32, impl Into<String>)>) -> Self {
        let tasks = tasks.into_iter();
        Self::Map(
            tasks
                .map(|(index, address)| (index, address.into()))
                .collect(),
        )
    }
}

impl ClusterSpec {
    /// A cluster of these jobs, in this order.
    ///
    /// # Errors
    /// [`Error::DuplicateJob`] for a job named twice, [`Error::TaskIndexTooLarge`] for an index
    /// above [`MAX_TASK_INDEX`].
    pub fn new(jobs: impl IntoIterator<Item = (impl Into<String>, Tasks)>) -> Result<Self, Error> {
        let mut spec = Self::default();
        for (name, tasks) in jobs {
            let name = name.into();
            if spec.job(&name).is_ok() {
                return Err(Error::DuplicateJob { job: name });
            }
            let tasks = match tasks {
                Tasks::List(addresses) => (0..).zip(addresses).collect(),
                Tasks::Map(tasks) => tasks,
            };
            if let Some((&index, _)) = tasks.last_key_value()
                && index > MAX_TASK_INDEX
            {
                let task = Task::new(name, index);
                return Err(Error::TaskIndexTooLarge { task });
            }
            spec.jobs.push(Job { name, tasks });
        }
        Ok(spec)
    }

    /// A cluster of one job, `worker`, with a task for each address, numbered from 0.
    ///
    /// # Errors
    /// [`Error::TaskIndexTooLarge`] for more than 2³¹ addresses.
    pub fn from_addresses(
        addresses: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, Error> {
        Self::new([("worker", Tasks::list(addresses))])
    }

    /// Whether the cluster has no job at all, which is how a process that runs alone looks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The names of the jobs, in the order they were given.
    pub fn jobs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.jobs.iter().map(|job| job.name.as_str())
    }

    /// How many tasks this job has; holes between indices do not count.
    ///
    /// # Errors
    /// [`Error::UnknownJob`].
    pub fn num_tasks(&self, job: &str) -> Result<usize, Error> {
        Ok(self.job(job)?.tasks.len())
    }

    /// The indices of this job's tasks, ascending.
    ///
    /// # Errors
    /// [`Error::UnknownJob`].
    pub fn task_indices(&self, job: &str) -> Result<impl ExactSizeIterator<Item = u32>, Error> {
        Ok(self.job(job)?.tasks.keys().copied())
    }

    /// The address of one task.
    ///
    /// # Errors
    /// [`Error::UnknownJob`], and [`Error::UnknownTask`] for an index the job does not have.
    pub fn task_address(&self, job: &str, index: u32) -> Result<&str, Error> {
        let tasks = &self.job(job)?.tasks;
        tasks
            .get(&index)
            .map(String::as_str)
            .ok_or_else(|| Error::UnknownTask {
                task: Task::new(job, index),
                indices: tasks.keys().copied().collect(),
            })
    }

    /// The addresses of this job's tasks from index 0 to the largest one, `None` where there is a
    /// hole; nothing for a job without tasks, where TensorFlow raises an error.
    ///
    /// # Errors
    /// [`Error::UnknownJob`].
    pub fn job_tasks(&self, job: &str) -> Result<impl Iterator<Item = Option<&str>>, Error> {
        let tasks = &self.job(job)?.tasks;
        let slots = tasks.last_key_value().map_or(0, |(&last, _)| last + 1);
        Ok((0..slots).map(|index| tasks.get(&index).map(String::as_str)))
    }

    /// Every task as job, index and address: jobs in the order of [`jobs`](Self::jobs), the tasks
    /// of each by index.
    pub fn tasks(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.jobs.iter().flat_map(|job| {
            let tasks = job.tasks.iter();
            tasks.map(|(&index, address)| (job.name.as_str(), index, address.as_str()))
        })
    }

    /// Each job with its tasks, in the order of [`jobs`](Self::jobs): a list where the indices run
    /// from 0 without holes, a map otherwise and for a job without tasks. [`ClusterSpec::new`]
    /// makes an equal spec out of it.
    #[must_use]
    pub fn as_dict(&self) -> Vec<(&str, Tasks)> {
        self.jobs
            .iter()
            .map(|job| (job.name.as_str(), job.as_tasks()))
            .collect()
    }

    /// Jobs with distinct names, and tasks within [`MAX_TASK_INDEX`].
    #[cfg(feature = "protobuf")]
    pub(crate) fn from_jobs(jobs: Vec<Job>, order: Order) -> Self {
        Self { jobs, order }
    }

    #[cfg(feature = "protobuf")]
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    #[cfg(feature = "protobuf")]
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    fn job(&self, name: &str) -> Result<&Job, Error> {
        self.jobs
            .iter()
            .find(|job| job.name == name)
            .ok_or_else(|| Error::UnknownJob {
                job: name.to_owned(),
                known: self.jobs().map(str::to_owned).collect(),
            })
    }
}

impl PartialEq for ClusterSpec {
    fn eq(&self, other: &Self) -> bool {
        // Names are distinct within a spec, so equal lengths make inclusion equality.
        self.jobs.len() == other.jobs.len() && self.jobs.iter().all(|job| other.jobs.contains(job))
    }
}

impl Eq for ClusterSpec {}

/// The jobs of a cluster with how many tasks each has: `chief 1, worker 3`.
pub(crate) struct Counts<'a>(pub(crate) &'a ClusterSpec);

impl Display for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no jobs");
        }
        let jobs = self.0.jobs().map(|job| {
            let count = self.0.num_tasks(job).unwrap_or_default();
            format!("{} {count}", Shortened(job))
        });
        write_list(f, jobs)
    }
}

impl Job {
    fn as_tasks(&self) -> Tasks {
        let dense =
            !self.tasks.is_empty() && self.tasks.keys().copied().eq((0..).take(self.tasks.len()));
        if dense {
            Tasks::List(self.tasks.values().cloned().collect())
        } else {
            Tasks::Map(self.tasks.clone())
        }
    }
}

#[cfg(test)]
mod tests;
