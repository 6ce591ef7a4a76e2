//! Everything that one look at a source told, and what follows from it.
//!
//! An answer may be there where another is not: the task of a process is known while the cluster is
//! not, or the other way round. So each answer is kept with its own error. What is not here: how a
//! source is asked, which is for the resolvers.

use std::collections::BTreeMap;

use crate::error::{Error, TaskPart};
use crate::explanation::{Explanation, Question};
use crate::spec::{ClusterSpec, Counts};
use crate::task::Task;

mod master;
mod rendezvous;

pub(crate) use master::MasterRule;
pub use rendezvous::RendezvousEndpoint;

/// How many accelerators a task has, by device type such as `GPU`.
pub type Accelerators = BTreeMap<String, u32>;

/// A cluster as it was at one moment: who is in it, which task this process is, and how that came
/// to be known.
///
/// It is what [`ClusterResolver::snapshot`](crate::ClusterResolver::snapshot) answers. All of it
/// comes from one look, so its answers fit each other; asking them costs nothing. Each one has its
/// own error, which is the same each time.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, TfConfigResolver};
///
/// let resolver = TfConfigResolver::from_json(
///     r#"{"cluster": {"worker": ["w0:2222", "w1:2222"]}, "task": {"type": "worker", "index": 1}}"#,
/// );
/// let cluster = resolver.snapshot()?;
/// assert_eq!(cluster.spec()?.num_tasks("worker")?, 2);
/// assert_eq!(cluster.task()?.to_string(), "worker:1");
/// assert_eq!(cluster.placement()?.rank(), 1);
/// assert_eq!(cluster.master(None, None, Some("grpc"))?, "grpc://w1:2222");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cluster {
    pub(crate) spec: Result<ClusterSpec, Error>,
    pub(crate) task_type: Result<Option<String>, Error>,
    pub(crate) task_id: Result<Option<u32>, Error>,
    pub(crate) rpc_layer: Result<Option<String>, Error>,
    pub(crate) environment: Option<String>,
    /// `None` if nobody knows, which is an answer where this process has a master.
    pub(crate) accelerators: Option<Result<Accelerators, Error>>,
    pub(crate) master: MasterRule,
    pub(crate) rendezvous: Option<RendezvousEndpoint>,
    /// What was looked at.
    pub(crate) evidence: Explanation,
}

impl Cluster {
    /// This cluster, of which nothing else is known.
    #[must_use]
    pub fn new(spec: ClusterSpec) -> Self {
        Self {
            spec: Ok(spec),
            task_type: Ok(None),
            task_id: Ok(None),
            rpc_layer: Ok(None),
            environment: None,
            accelerators: Some(Ok(Accelerators::new())),
            master: MasterRule::OwnTask,
            rendezvous: None,
            evidence: Explanation::default(),
        }
    }

    /// A cluster of which nothing is known, for this reason.
    #[must_use]
    pub fn unknown(error: Error) -> Self {
        Self {
            task_type: Err(error.clone()),
            task_id: Err(error.clone()),
            rpc_layer: Err(error.clone()),
            accelerators: Some(Err(error.clone())),
            spec: Err(error),
            ..Self::default()
        }
    }

    /// What a source has found that cannot know of accelerators.
    pub(crate) fn without_accelerators(found: Result<Self, Error>) -> Self {
        let found = found.map(|cluster| Self {
            accelerators: None,
            ..cluster
        });
        found.unwrap_or_else(Self::unknown)
    }

    /// This process is this task.
    #[must_use]
    pub fn with_task(mut self, task: &Task) -> Self {
        self.task_type = Ok(Some(task.job().to_owned()));
        self.task_id = Ok(Some(task.index()));
        self
    }

    /// The accelerators of each task.
    #[must_use]
    pub fn with_num_accelerators(mut self, accelerators: Accelerators) -> Self {
        self.accelerators = Some(Ok(accelerators));
        self
    }

    /// What was looked at to know all this.
    #[must_use]
    pub fn with_evidence(mut self, evidence: Explanation) -> Self {
        self.evidence = evidence;
        self
    }

    /// Who is in the cluster; empty when the process runs alone.
    ///
    /// # Errors
    /// Whatever kept the source from being read or understood.
    #[doc(alias = "cluster_spec")]
    pub fn spec(&self) -> Result<&ClusterSpec, Error> {
        self.spec.as_ref().map_err(Clone::clone)
    }

    /// The task of this process.
    ///
    /// # Errors
    /// Those of [`task_type`](Self::task_type) and [`task_id`](Self::task_id), and
    /// [`Error::TaskUnknown`] if the source does not say.
    pub fn task(&self) -> Result<Task, Error> {
        let missing = |part| move || Error::TaskUnknown { part };
        let job = self.task_type()?.ok_or_else(missing(TaskPart::Type))?;
        let index = self.task_id()?.ok_or_else(missing(TaskPart::Id))?;
        Ok(Task::new(job, index))
    }

    /// The job of this process, `None` if the source does not say.
    ///
    /// # Errors
    /// Whatever kept the source from being read or understood.
    pub fn task_type(&self) -> Result<Option<&str>, Error> {
        let job = self.task_type.as_ref().map_err(Clone::clone)?;
        Ok(job.as_deref())
    }

    /// The index of this process in its job, `None` if the source does not say.
    ///
    /// # Errors
    /// Whatever kept the source from being read or understood.
    pub fn task_id(&self) -> Result<Option<u32>, Error> {
        self.task_id.clone()
    }

    /// The protocol that [`master`](Self::master) puts before addresses, such as `grpc`.
    ///
    /// # Errors
    /// Whatever kept the source from being read or understood.
    pub fn rpc_layer(&self) -> Result<Option<&str>, Error> {
        let layer = self.rpc_layer.as_ref().map_err(Clone::clone)?;
        Ok(layer.as_deref())
    }

    /// The kind of place the process runs in, such as `google`, if somebody said so.
    #[must_use]
    pub fn environment(&self) -> Option<&str> {
        self.environment.as_deref()
    }

    /// The accelerators of each task as far as the source knows them; a source that knows nothing
    /// answers an empty map, and then it is for the backend to count the local devices.
    ///
    /// # Errors
    /// Whatever kept the source from being read or understood.
    pub fn num_accelerators(&self) -> Result<Accelerators, Error> {
        match &self.accelerators {
            Some(known) => known.clone(),
            None => self.master(None, None, None).map(|_| Accelerators::new()),
        }
    }

    /// How all this came to be known: what was looked at, what was ignored and why, and each answer
    /// or why there is none.
    #[must_use]
    pub fn explanation(&self) -> Explanation {
        let mut explanation = self.evidence.clone();
        let spec = self.spec().map(|spec| Counts(spec).to_string());
        explanation.settle(Question::Cluster, spec);
        explanation.settle(Question::Task, self.shown_task());
        explanation.settle(Question::Master, self.master(None, None, None));
        if let Some(layer) = self.rpc_layer().transpose() {
            explanation.settle(Question::RpcLayer, layer);
        }
        if let Some(environment) = self.environment() {
            explanation.conclude(Question::Environment, environment);
        }
        let accelerators = self.num_accelerators().map(|each| {
            let each = each.iter().map(|(kind, count)| format!("{count} {kind}"));
            let each: Vec<_> = each.collect();
            or_not_known(each.join(", "))
        });
        explanation.settle(Question::Accelerators, accelerators);
        explanation
    }

    fn shown_task(&self) -> Result<String, Error> {
        Ok(match (self.task_type()?, self.task_id()?) {
            (None, None) => or_not_known(String::new()),
            (job, index) => {
                let index = index.map_or_else(|| "?".to_owned(), |index| index.to_string());
                format!("{}:{index}", job.unwrap_or("?"))
            }
        })
    }
}

impl Default for Cluster {
    /// The empty cluster, in which this process is alone.
    fn default() -> Self {
        Self::new(ClusterSpec::default())
    }
}

fn or_not_known(text: String) -> String {
    if text.is_empty() {
        "not known".to_owned()
    } else {
        text
    }
}
