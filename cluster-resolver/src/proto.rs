//! Protocol buffer forms, byte for byte as TensorFlow writes them deterministically.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::error::Error;
use crate::spec::{ClusterSpec, Job, Order};
use crate::task::{MAX_TASK_INDEX, Task};

mod server;

pub use server::{DeviceFilters, ServerDef};

impl ClusterSpec {
    /// The bytes of a `ClusterDef` message: jobs by name, the tasks of each from the largest index
    /// down, as TensorFlow's serializer has them. A spec that was read from such bytes keeps the
    /// order in which they named the jobs. [`from_proto`](Self::from_proto) reads it back.
    #[doc(alias = "as_cluster_def")]
    #[must_use]
    pub fn to_proto(&self) -> Vec<u8> {
        cluster_def(self).encode_to_vec()
    }

    /// Reads the bytes of a `ClusterDef` message. Unknown fields are skipped, and of a repeated
    /// index the last address counts, as protocol buffers have it.
    ///
    /// ```
    /// use meshwork_cluster_resolver::ClusterSpec;
    ///
    /// let spec = ClusterSpec::from_addresses(["a:1", "b:1"])?;
    /// assert_eq!(ClusterSpec::from_proto(&spec.to_proto())?, spec);
    /// # Ok::<(), meshwork_cluster_resolver::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotClusterDef`], [`Error::DuplicateJob`] for a job named twice, and
    /// [`Error::NegativeIndex`].
    pub fn from_proto(bytes: &[u8]) -> Result<Self, Error> {
        let length = bytes.len();
        let message = ClusterDef::decode(bytes).map_err(|_| Error::NotClusterDef { length })?;
        let mut jobs: Vec<Job> = Vec::new();
        for JobDef { name, tasks } in message.job {
            if jobs.iter().any(|job| job.name == name) {
                return Err(Error::DuplicateJob { job: name });
            }
            let mut by_index = BTreeMap::new();
            for TaskEntry { key, value } in tasks {
                let index = key.unwrap_or_default();
                let index = u32::try_from(index).map_err(|_| Error::NegativeIndex {
                    job: name.clone(),
                    index,
                })?;
                by_index.insert(index, value.unwrap_or_default());
            }
            let tasks = by_index;
            jobs.push(Job { name, tasks });
        }
        Ok(Self::from_jobs(jobs, Order::AsRead))
    }
}

fn cluster_def(spec: &ClusterSpec) -> ClusterDef {
    let mut job: Vec<_> = spec.in_order().map(job_def).collect();
    if spec.order() == Order::ByName {
        job.sort_by(|a, b| a.name.cmp(&b.name));
    }
    ClusterDef { job }
}

fn job_def(job: &Job) -> JobDef {
    let tasks = job.tasks.iter().rev();
    JobDef {
        name: job.name.clone(),
        tasks: tasks
            .map(|(&index, address)| TaskEntry {
                key: Some(signed(index)),
                value: Some(address.clone()),
            })
            .collect(),
    }
}

/// Indices up to [`MAX_TASK_INDEX`] fit, and a spec has no others.
fn signed(index: u32) -> i32 {
    debug_assert!(index <= MAX_TASK_INDEX, "{}", Task::new("", index));
    i32::try_from(index).unwrap_or(i32::MAX)
}

#[derive(Clone, PartialEq, prost::Message)]
struct ClusterDef {
    #[prost(message, repeated, tag = "1")]
    job: Vec<JobDef>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct JobDef {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    tasks: Vec<TaskEntry>,
}

/// One entry of a map: on the wire a map is a repeated message, whose order is then ours. Key and
/// value are written even if they are zero or empty.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskEntry {
    #[prost(int32, optional, tag = "1")]
    key: Option<i32>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::Tasks;

    /// The wire form spelled out: lengths below 128 only.
    fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        assert!(length < 128);
        [&[tag << 3 | 2, length], bytes].concat()
    }

    fn job(name: &str, tasks: &[(u8, &str)]) -> Vec<u8> {
        let tasks = tasks.iter().map(|(index, address)| {
            let entry = [&[8, *index], field(2, address.as_bytes()).as_slice()].concat();
            field(2, &entry)
        });
        let name = field(1, name.as_bytes());
        field(1, &[name, tasks.collect::<Vec<_>>().concat()].concat())
    }

    #[test]
    fn jobs_are_written_by_name_and_tasks_from_the_last_down() {
        let spec = ClusterSpec::new([
            ("worker", Tasks::list(["a:1", "b:1"])),
            ("ps", Tasks::map([(5, "p:1")])),
        ]);
        let expected = [
            job("ps", &[(5, "p:1")]),
            job("worker", &[(1, "b:1"), (0, "a:1")]),
        ];
        assert_eq!(spec.unwrap().to_proto(), expected.concat());
    }

    #[test]
    fn a_spec_that_was_read_keeps_the_order_of_its_jobs() {
        let bytes = [job("worker", &[(0, "a:1")]), job("chief", &[(0, "c:1")])].concat();
        let spec = ClusterSpec::from_proto(&bytes).unwrap();
        assert!(spec.jobs().eq(["worker", "chief"]));
        assert_eq!(spec.to_proto(), bytes);
        let other = [job("chief", &[(0, "c:1")]), job("worker", &[(0, "a:1")])].concat();
        assert_eq!(ClusterSpec::from_proto(&other), Ok(spec));
    }

    #[test]
    fn defaults_that_are_left_out_are_read() {
        let task = field(2, &field(2, b"a:1"));
        let bytes = field(1, &[field(1, b"w"), task].concat());
        let spec = ClusterSpec::from_proto(&bytes).unwrap();
        assert_eq!(spec.task_address("w", 0), Ok("a:1"));
        assert_eq!(ClusterSpec::from_proto(&[]), Ok(ClusterSpec::default()));
    }

    #[test]
    fn what_no_cluster_can_be_is_refused() {
        let twice = [job("w", &[(0, "a:1")]), job("w", &[(1, "b:1")])].concat();
        let job = "w".to_owned();
        assert_eq!(
            ClusterSpec::from_proto(&twice),
            Err(Error::DuplicateJob { job })
        );
        let negative = [8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        let bytes = field(1, &[field(1, b"w"), field(2, &negative)].concat());
        let (job, index) = ("w".to_owned(), -1);
        assert_eq!(
            ClusterSpec::from_proto(&bytes),
            Err(Error::NegativeIndex { job, index })
        );
        let length = 2;
        assert_eq!(
            ClusterSpec::from_proto(&[10, 9]),
            Err(Error::NotClusterDef { length })
        );
    }

    proptest! {
        #[test]
        fn bytes_read_back_as_the_spec_that_was_written(
            jobs in proptest::collection::btree_map(
                "\\PC{0,3}",
                proptest::collection::btree_map(0..=MAX_TASK_INDEX, "\\PC{0,3}", 0..4),
                0..4,
            ),
        ) {
            let jobs = jobs.into_iter().map(|(job, tasks)| (job, Tasks::Map(tasks)));
            let spec = ClusterSpec::new(jobs)?;
            let bytes = spec.to_proto();
            let read = ClusterSpec::from_proto(&bytes)?;
            prop_assert_eq!(&read, &spec);
            prop_assert_eq!(read.to_proto(), bytes);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = ClusterSpec::from_proto(&bytes);
        }
    }
}
