//! The pods of a Kubernetes cluster.

use std::time::Duration;

use crate::cluster::{Cluster, MasterRule};
use crate::error::Error;
use crate::explanation::{Explanation, Origin, Question};
use crate::resolver::{ClusterResolver, Stop, WatchSignal};
use crate::service::call;
use crate::service::retry::RetryPolicy;
use crate::spec::{ClusterSpec, Tasks};
use crate::task::Task;
use crate::variables::Variables;

mod access;
mod ask;
mod pods;
mod watch;

pub use access::KubernetesAccess;

use ask::{Namespace, Session};
use pods::{Member, Pod};

/// The running pods of a Kubernetes cluster, chosen by label selectors for each job.
///
/// The address of a task is its pod's IP, which with host networking is the host's. A task has the
/// index that its pod carries: the completion index of an indexed Job, the ordinal of a
/// StatefulSet, and the likes of other controllers. Where not all pods of a job carry one, they are
/// numbered by name within each selector, counting numbers in names by value.
///
/// Pods that are finished or being deleted have no part in the cluster. One that does not run yet
/// is an error that passes, since a cluster without it would be another one.
///
/// Inside a cluster, pods are looked for in the process's own namespace; elsewhere in all of them.
/// The process is the task whose pod is called as `POD_NAME` or `HOSTNAME` says, in the namespace
/// that `POD_NAMESPACE` says, else in that of the service account by which the cluster is asked.
/// Where neither is known and pods of several namespaces are called so, it is none of them.
///
/// ```no_run
/// use meshwork_cluster_resolver::{ClusterResolver, KubernetesResolver};
///
/// let resolver = KubernetesResolver::new()
///     .with_job("worker", ["app=trainer,role=worker"])
///     .with_job("ps", ["app=trainer,role=ps"])
///     .with_port(2222);
/// println!("{}", resolver.explain());
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// - It answers the IP of each pod's host, so that two pods of one host have one address.
/// - One finished pod makes every answer fail.
/// - Indices follow names as text, `w10` before `w9`, and shift when a pod is missing.
/// - It looks for a kubeconfig even inside a cluster, where there is none.
#[doc(alias = "KubernetesClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KubernetesResolver {
    jobs: Vec<(String, Vec<String>)>,
    port: u16,
    access: KubernetesAccess,
    namespace: Namespace,
    retry: RetryPolicy,
    variables: Variables,
}

impl KubernetesResolver {
    /// The pods with the label `job-name=tensorflow` are the job `worker`, their port is 8470, the
    /// protocol is `grpc`, as in TensorFlow.
    #[must_use]
    pub fn new() -> Self {
        Self {
            jobs: Vec::new(),
            port: 8470,
            access: KubernetesAccess::default(),
            namespace: Namespace::default(),
            retry: RetryPolicy::default(),
            variables: Variables::default(),
        }
    }

    /// One more job, whose tasks are the pods that any of these label selectors chooses, those of
    /// the first one first. A pod that several choose is one task.
    #[must_use]
    pub fn with_job(
        mut self,
        job: impl Into<String>,
        selectors: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let selectors = selectors.into_iter().map(Into::into).collect();
        self.jobs.push((job.into(), selectors));
        self
    }

    /// The port on which every task listens.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// How to reach the cluster; found in the environment unless said.
    #[must_use]
    pub fn with_access(mut self, access: KubernetesAccess) -> Self {
        self.access = access;
        self
    }

    /// The pods of this namespace only.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Namespace::Named(namespace.into());
        self
    }

    /// The pods of all namespaces, inside a cluster too.
    #[must_use]
    pub fn in_all_namespaces(mut self) -> Self {
        self.namespace = Namespace::All;
        self
    }

    /// How long the service may take; 30 s unless said.
    #[must_use]
    pub fn with_retry_policy(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The variables that the environment is read from; those of the process unless said.
    #[must_use]
    pub fn with_variables(mut self, variables: Variables) -> Self {
        self.variables = variables;
        self
    }

    /// The jobs with their selectors.
    fn selectors(&self) -> Vec<(String, Vec<String>)> {
        if self.jobs.is_empty() {
            return vec![("worker".to_owned(), vec!["job-name=tensorflow".to_owned()])];
        }
        self.jobs.clone()
    }

    /// The pods, and the task that the own one is.
    fn ask_once(
        &self,
        session: Session,
        own: Option<&OwnPod>,
        evidence: &mut Explanation,
    ) -> Result<(ClusterSpec, Option<Task>), Error> {
        let jobs = self.selectors();
        let (found, home) = call::run(async {
            let server = session.connect().await?;
            let mut found = Vec::new();
            for (job, selectors) in &jobs {
                let mut groups = Vec::new();
                for selector in selectors {
                    let (pods, url) = server.list(selector).await?;
                    note_pods(evidence, &url, &pods);
                    groups.push(pods);
                }
                found.push((job.clone(), pods::arrange(job, groups)?));
            }
            Ok((found, server.home))
        })?;
        let own_task = own.and_then(|own| own.task(home.as_deref(), &found, evidence));
        let jobs = found.into_iter();
        let jobs = jobs.map(|(job, members)| (job, self.tasks(&members)));
        Ok((ClusterSpec::new(jobs)?, own_task))
    }

    fn tasks(&self, members: &[Member]) -> Tasks {
        let each = members.iter();
        Tasks::map(each.map(|member| (member.index, member.address(self.port))))
    }

    /// The name of the pod that this process runs in, if the environment tells.
    fn own_pod(&self) -> Result<Option<OwnPod>, Error> {
        for variable in ["POD_NAME", "HOSTNAME"] {
            if let Some(name) = self.variables.read_nonempty(variable)? {
                let namespace = self.variables.read_nonempty("POD_NAMESPACE")?;
                return Ok(Some(OwnPod {
                    variable,
                    name,
                    namespace,
                }));
            }
        }
        Ok(None)
    }
}

impl Default for KubernetesResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterResolver for KubernetesResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let now = Self {
            variables: self.variables.snapshot(),
            ..self.clone()
        };
        let mut evidence = Explanation::default();
        let own = now.own_pod();
        let named = own.as_ref().ok().and_then(Option::as_ref);
        let found = now
            .begin(&mut evidence)
            .and_then(|session| now.ask_once(session, named, &mut evidence));
        let task = match (own, &found) {
            (Err(error), _) => Err(error),
            // Without a name there is no task to be found, whatever the service says.
            (Ok(None), _) => Ok(None),
            (Ok(Some(_)), Ok((_, task))) => Ok(task.clone()),
            (Ok(Some(_)), Err(error)) => Err(error.clone()),
        };
        Ok(Cluster {
            spec: found.map(|(spec, _)| spec),
            task_id: task
                .as_ref()
                .map(|task| task.as_ref().map(Task::index))
                .map_err(Clone::clone),
            task_type: task.map(|task| task.map(|task| task.job().to_owned())),
            rpc_layer: Ok(Some("grpc".to_owned())),
            master: MasterRule::OwnTaskIfKnown,
            evidence,
            ..Cluster::default()
        })
    }

    /// Watches the pods of every selector; a change that does not touch the cluster is passed over.
    fn wait_for_change(
        &self,
        known: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        self.watch_pods(known, time, stop)
    }
}

/// The pod that this process runs in.
#[derive(Clone, Debug)]
struct OwnPod {
    variable: &'static str,
    name: String,
    namespace: Option<String>,
}

impl OwnPod {
    /// The task that it is, where the service account is of this namespace.
    fn task(
        &self,
        home: Option<&str>,
        jobs: &[(String, Vec<Member>)],
        evidence: &mut Explanation,
    ) -> Option<Task> {
        let (origin, name) = (Origin::variable(self.variable), self.name.clone());
        match self.find(home, jobs) {
            Ok(task) => {
                evidence.read(Question::Task, origin, name);
                Some(task)
            }
            Err(why) => {
                evidence.ignore(Question::Task, origin, name, why);
                None
            }
        }
    }

    /// The same, or why it is none. Names are unique in one namespace only.
    fn find(
        &self,
        home: Option<&str>,
        jobs: &[(String, Vec<Member>)],
    ) -> Result<Task, &'static str> {
        let namespace = self.namespace.as_deref().or(home);
        let members = jobs
            .iter()
            .flat_map(|(job, members)| members.iter().map(move |member| (job, member)));
        let mut own = members.filter(|(_, member)| {
            member.pod.name() == self.name
                && namespace.is_none_or(|namespace| namespace == member.pod.namespace())
        });
        let (job, first) = own.next().ok_or("no pod of the cluster is called so")?;
        if own.any(|(_, other)| other.pod.namespace() != first.pod.namespace()) {
            return Err("pods of several namespaces are called so, and POD_NAMESPACE is not set");
        }
        Ok(Task::new(job.clone(), first.index))
    }
}

fn note_pods(evidence: &mut Explanation, url: &str, pods: &[Pod]) {
    for pod in pods {
        let origin = Origin::url(url).field(pod.label());
        match pod.standing() {
            Ok(Some(host)) => evidence.read(Question::Cluster, origin, host),
            Ok(None) => {
                let why = "it is finished or being deleted";
                evidence.ignore(Question::Cluster, origin, pod.phase(), why);
            }
            Err(_) => evidence.read(Question::Cluster, origin, pod.phase()),
        }
    }
}

#[cfg(test)]
mod tests;
