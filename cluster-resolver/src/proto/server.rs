//! Messages about one process of a cluster.

use std::collections::BTreeMap;

use prost::Message as _;

use super::{ClusterDef, cluster_def, signed};
use crate::error::Error;
use crate::spec::ClusterSpec;
use crate::task::{MAX_TASK_INDEX, Task};

/// A cluster, and which of its tasks a process is: what a TensorFlow server is started with.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterSpec, ServerDef};
///
/// let spec = ClusterSpec::from_addresses(["a:1"])?;
/// let server = ServerDef::new(spec, None, None)?;
/// assert_eq!((server.job_name(), server.task_index()), ("worker", 0));
/// assert_eq!(server.protocol(), "grpc");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerDef {
    cluster: ClusterSpec,
    task: Task,
    protocol: String,
}

impl ServerDef {
    /// A server for this task. A job may be left out if the cluster has one alone, an index if the
    /// job has one task alone. Whether the cluster has a task that is given is not checked.
    ///
    /// # Errors
    /// [`Error::NoServerJob`], [`Error::NoServerIndex`] for what cannot be left out,
    /// [`Error::UnknownJob`], [`Error::TaskIndexTooLarge`].
    pub fn new(
        cluster: ClusterSpec,
        job_name: Option<&str>,
        task_index: Option<u32>,
    ) -> Result<Self, Error> {
        let job = match job_name {
            Some(job) => job.to_owned(),
            None => only_job(&cluster)?,
        };
        let index = match task_index {
            Some(index) => index,
            None => only_index(&cluster, &job)?,
        };
        let task = Task::new(job, index);
        if index > MAX_TASK_INDEX {
            return Err(Error::TaskIndexTooLarge { task });
        }
        Ok(Self {
            cluster,
            task,
            protocol: "grpc".to_owned(),
        })
    }

    /// The protocol that the server speaks, `grpc` if not given.
    #[must_use]
    pub fn with_protocol(mut self, protocol: impl Into<String>) -> Self {
        self.protocol = protocol.into();
        self
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// The job of the server.
    #[must_use]
    pub fn job_name(&self) -> &str {
        self.task.job()
    }

    /// The index of the server in its job.
    #[must_use]
    pub fn task_index(&self) -> u32 {
        self.task.index()
    }

    /// The protocol that the server speaks.
    #[must_use]
    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    /// The bytes of a `ServerDef` message.
    #[must_use]
    pub fn to_proto(&self) -> Vec<u8> {
        let message = ServerMessage {
            cluster: Some(cluster_def(&self.cluster)),
            job_name: self.task.job().to_owned(),
            task_index: signed(self.task.index()),
            protocol: self.protocol.clone(),
        };
        message.encode_to_vec()
    }
}

fn only_job(cluster: &ClusterSpec) -> Result<String, Error> {
    let mut jobs = cluster.jobs();
    match (jobs.next(), jobs.next()) {
        (Some(only), None) => Ok(only.to_owned()),
        _ => Err(Error::NoServerJob {
            known: cluster.jobs().map(str::to_owned).collect(),
        }),
    }
}

fn only_index(cluster: &ClusterSpec, job: &str) -> Result<u32, Error> {
    let indices: Vec<_> = cluster.task_indices(job)?.collect();
    match indices[..] {
        [only] => Ok(only),
        _ => Err(Error::NoServerIndex {
            job: job.to_owned(),
            indices,
        }),
    }
}

/// Which devices of the cluster each task may see, as patterns such as `/job:ps`.
///
/// ```
/// use meshwork_cluster_resolver::{DeviceFilters, Task};
///
/// let mut filters = DeviceFilters::default();
/// filters.set(Task::new("worker", 1), ["/job:ps", "/job:worker/task:1"])?;
/// assert_eq!(filters.of(&Task::new("worker", 1)).len(), 2);
/// assert_eq!(filters.of(&Task::new("worker", 0)).len(), 0);
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[doc(alias = "ClusterDeviceFilters")]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeviceFilters {
    jobs: BTreeMap<String, BTreeMap<u32, Vec<String>>>,
}

impl DeviceFilters {
    /// Sets the filters of a task, in place of those it had; none let it see everything.
    ///
    /// # Errors
    /// [`Error::TaskIndexTooLarge`].
    #[doc(alias = "set_device_filters")]
    pub fn set(
        &mut self,
        task: Task,
        filters: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<(), Error> {
        if task.index() > MAX_TASK_INDEX {
            return Err(Error::TaskIndexTooLarge { task });
        }
        let tasks = self.jobs.entry(task.job().to_owned()).or_default();
        tasks.insert(task.index(), filters.into_iter().map(Into::into).collect());
        Ok(())
    }

    /// The filters of a task, in the order given.
    #[must_use]
    pub fn of(&self, task: &Task) -> &[String] {
        let tasks = self.jobs.get(task.job());
        let filters = tasks.and_then(|tasks| tasks.get(&task.index()));
        filters.map_or(&[], Vec::as_slice)
    }

    /// The bytes of a `ClusterDeviceFilters` message: jobs by name, tasks from the largest index
    /// down, those without filters left out.
    #[must_use]
    pub fn to_proto(&self) -> Vec<u8> {
        let job = |(name, tasks): (&String, &BTreeMap<u32, Vec<String>>)| {
            let tasks = tasks
                .iter()
                .rev()
                .filter(|(_, filters)| !filters.is_empty());
            let entry = |(&index, filters): (&u32, &Vec<String>)| FilterEntry {
                key: Some(signed(index)),
                value: Some(TaskFilters {
                    device_filters: filters.clone(),
                }),
            };
            JobFilters {
                name: name.clone(),
                tasks: tasks.map(entry).collect(),
            }
        };
        let jobs = self.jobs.iter().map(job).collect();
        FiltersMessage { jobs }.encode_to_vec()
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ServerMessage {
    #[prost(message, optional, tag = "1")]
    cluster: Option<ClusterDef>,
    #[prost(string, tag = "2")]
    job_name: String,
    #[prost(int32, tag = "3")]
    task_index: i32,
    #[prost(string, tag = "5")]
    protocol: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FiltersMessage {
    #[prost(message, repeated, tag = "1")]
    jobs: Vec<JobFilters>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct JobFilters {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    tasks: Vec<FilterEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FilterEntry {
    #[prost(int32, optional, tag = "1")]
    key: Option<i32>,
    #[prost(message, optional, tag = "2")]
    value: Option<TaskFilters>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TaskFilters {
    #[prost(string, repeated, tag = "1")]
    device_filters: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tasks;

    fn sample() -> ClusterSpec {
        let jobs = [
            ("worker", Tasks::list(["a:1", "b:1"])),
            ("ps", Tasks::map([(5, "p:1")])),
        ];
        ClusterSpec::new(jobs).unwrap()
    }

    #[test]
    fn an_only_job_and_an_only_index_may_be_left_out() {
        let server = ServerDef::new(sample(), Some("ps"), None).unwrap();
        assert_eq!((server.job_name(), server.task_index()), ("ps", 5));
        let known = vec!["worker".to_owned(), "ps".to_owned()];
        let expected = Err(Error::NoServerJob { known });
        assert_eq!(ServerDef::new(sample(), None, Some(0)), expected);
        let (job, indices) = ("worker".to_owned(), vec![0, 1]);
        let expected = Err(Error::NoServerIndex { job, indices });
        assert_eq!(ServerDef::new(sample(), Some("worker"), None), expected);
        assert!(matches!(
            ServerDef::new(sample(), Some("chief"), None),
            Err(Error::UnknownJob { .. })
        ));
    }

    #[test]
    fn a_task_that_is_given_need_not_be_in_the_cluster() {
        let server = ServerDef::new(sample(), Some("chief"), Some(9)).unwrap();
        assert_eq!((server.job_name(), server.task_index()), ("chief", 9));
        assert!(matches!(
            ServerDef::new(sample(), Some("chief"), Some(1 << 31)),
            Err(Error::TaskIndexTooLarge { .. })
        ));
    }

    #[test]
    fn later_filters_of_a_task_replace_earlier_ones() {
        let task = Task::new("ps", 3);
        let mut filters = DeviceFilters::default();
        filters.set(task.clone(), ["/job:ps"]).unwrap();
        let none: [&str; 0] = [];
        filters.set(task.clone(), none).unwrap();
        assert_eq!(filters.of(&task).len(), 0);
        // The job without its task.
        assert_eq!(filters.to_proto(), [10, 4, 10, 2, b'p', b's']);
    }
}
