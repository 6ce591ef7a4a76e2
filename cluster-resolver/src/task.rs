//! The name of one task.

use std::fmt::{self, Display};

use crate::text::Shortened;

/// The largest task index a cluster may name: indices travel as signed 32-bit integers.
pub const MAX_TASK_INDEX: u32 = i32::MAX.unsigned_abs();

/// The name of one task: its job and its index in that job, written `worker:7`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Task {
    job: String,
    index: u32,
}

impl Task {
    /// The task with this index in this job; whether a cluster has it is for the cluster to say.
    ///
    /// ```
    /// assert_eq!(meshwork_cluster_resolver::Task::new("worker", 7).to_string(), "worker:7");
    /// ```
    #[must_use]
    pub fn new(job: impl Into<String>, index: u32) -> Self {
        Self {
            job: job.into(),
            index,
        }
    }

    /// The job, which TensorFlow also calls the task type.
    #[doc(alias = "task_type")]
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The index in the job, which TensorFlow also calls the task id.
    #[doc(alias = "task_id")]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
}

impl Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Shortened(&self.job), self.index)
    }
}
