use std::time::Duration;

use crate::service::call;
use crate::service::seen::{self, Seen};
use crate::{
    ClusterResolver, ClusterSpec, Error, Explanation, Origin, Patience, Question, Signal, Stop,
    Tasks, Variables,
};

mod access;
mod ask;
mod pods;
mod watch;

pub use access::KubernetesAccess;

use ask::Namespace;
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
/// The process is the task whose pod is called as `POD_NAME` or `HOSTNAME` says, unless the program
/// says which one it is.
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
    task_type: Option<String>,
    task_id: Option<u32>,
    rpc_layer: Option<String>,
    access: KubernetesAccess,
    namespace: Namespace,
    patience: Patience,
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
            task_type: None,
            task_id: None,
            rpc_layer: Some("grpc".to_owned()),
            access: KubernetesAccess::default(),
            namespace: Namespace::default(),
            patience: Patience::default(),
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

    /// The job of this process.
    #[must_use]
    pub fn with_task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// The index of this process in its job.
    #[must_use]
    pub fn with_task_id(mut self, task_id: u32) -> Self {
        self.task_id = Some(task_id);
        self
    }

    /// The protocol put before addresses; an empty one asks for none.
    #[must_use]
    pub fn with_rpc_layer(mut self, rpc_layer: impl Into<String>) -> Self {
        self.rpc_layer = Some(rpc_layer.into());
        self
    }

    /// No protocol is put before addresses.
    #[must_use]
    pub fn without_rpc_layer(mut self) -> Self {
        self.rpc_layer = None;
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
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
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

    fn look(&self, notes: &mut Explanation) -> Result<Seen, Error> {
        let own = self.own_pod()?;
        let jobs = self.selectors();
        let session = self.begin(notes)?;
        let found = call::run(async {
            let server = session.connect().await?;
            let mut found = Vec::new();
            for (job, selectors) in &jobs {
                let mut groups = Vec::new();
                for selector in selectors {
                    let (pods, url) = server.list(selector).await?;
                    note_pods(notes, &url, &pods);
                    groups.push(pods);
                }
                found.push((job.clone(), pods::arrange(job, groups)?));
            }
            Ok(found)
        })?;
        let mut own_task = None;
        let mut spec = Vec::new();
        for (job, members) in found {
            let is_own = |member: &&Member| own.as_ref().is_some_and(|own| own.is(member));
            if let Some(member) = members.iter().find(is_own).filter(|_| own_task.is_none()) {
                own_task = Some((job.clone(), member.index));
            }
            let tasks = self.tasks(&members);
            spec.push((job, tasks));
        }
        self.note_own(notes, own.as_ref(), own_task.as_ref());
        let (job, index) = own_task.unzip();
        Ok(Seen {
            spec: ClusterSpec::new(spec)?,
            task_type: self.task_type.clone().or(job),
            task_id: self.task_id.or(index),
            rpc_layer: self.rpc_layer.clone(),
            ..Seen::default()
        })
    }

    fn tasks(&self, members: &[Member]) -> Tasks {
        let each = members.iter();
        Tasks::map(each.map(|member| (member.index, member.address(self.port))))
    }

    /// The name of the pod that this process runs in, if the environment tells.
    fn own_pod(&self) -> Result<Option<OwnPod>, Error> {
        if self.task_type.is_some() && self.task_id.is_some() {
            return Ok(None);
        }
        let set = |name| Ok::<_, Error>(self.variables.read(name)?.filter(|text| !text.is_empty()));
        for variable in ["POD_NAME", "HOSTNAME"] {
            if let Some(name) = set(variable)? {
                let namespace = set("POD_NAMESPACE")?;
                return Ok(Some(OwnPod {
                    variable,
                    name,
                    namespace,
                }));
            }
        }
        Ok(None)
    }

    fn note_own(
        &self,
        notes: &mut Explanation,
        own: Option<&OwnPod>,
        task: Option<&(String, u32)>,
    ) {
        let program = |field| Origin::program().field(field);
        if let Some(job) = &self.task_type {
            notes.read(Question::Task, program("task type"), job.clone());
        }
        if let Some(index) = self.task_id {
            notes.read(Question::Task, program("task id"), index.to_string());
        }
        let Some(own) = own else {
            return;
        };
        let origin = Origin::variable(own.variable);
        match task {
            Some(_) => notes.read(Question::Task, origin, own.name.clone()),
            None => {
                let why = "no pod of the cluster is called so";
                notes.ignore(Question::Task, origin, own.name.clone(), why);
            }
        }
    }

    /// What is known about the task of this process, looking only if that may tell more.
    fn own_task(&self) -> Result<(Option<String>, Option<u32>), Error> {
        match self.own_pod()? {
            Some(_) => {
                let seen = self.look(&mut Explanation::default())?;
                Ok((seen.task_type, seen.task_id))
            }
            None => Ok((self.task_type.clone(), self.task_id)),
        }
    }
}

impl Default for KubernetesResolver {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterResolver for KubernetesResolver {
    fn cluster_spec(&self) -> Result<ClusterSpec, Error> {
        Ok(self.look(&mut Explanation::default())?.spec)
    }

    fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        let said = (
            task_type.is_some() || self.task_type.is_some(),
            task_id.is_some() || self.task_id.is_some(),
        );
        if said != (true, true) && self.own_pod()?.is_none() {
            return Ok(String::new());
        }
        let seen = self.look(&mut Explanation::default())?;
        seen.master(task_type, task_id, rpc_layer)
    }

    fn task_type(&self) -> Result<Option<String>, Error> {
        Ok(self.own_task()?.0)
    }

    fn task_id(&self) -> Result<Option<u32>, Error> {
        Ok(self.own_task()?.1)
    }

    fn rpc_layer(&self) -> Result<Option<String>, Error> {
        Ok(self.rpc_layer.clone())
    }

    fn explain(&self) -> Explanation {
        let mut notes = Explanation::default();
        let looked = self.look(&mut notes);
        seen::settle(&mut notes, looked, |seen| seen.master(None, None, None));
        notes
    }

    /// Watches the pods of every selector; a change that does not touch the cluster is passed over.
    fn wait_for_change(
        &self,
        seen: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<Signal, Error> {
        self.watch_pods(seen, time, stop)
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
    fn is(&self, member: &Member) -> bool {
        let namespace = self.namespace.as_deref();
        member.pod.name() == self.name
            && namespace.is_none_or(|namespace| namespace == member.pod.namespace())
    }
}

fn note_pods(notes: &mut Explanation, url: &str, pods: &[Pod]) {
    for pod in pods {
        let origin = Origin::url(url).field(pod.label());
        match pod.standing() {
            Ok(Some(host)) => notes.read(Question::Cluster, origin, host),
            Ok(None) => {
                let why = "it is finished or being deleted";
                notes.ignore(Question::Cluster, origin, pod.phase(), why);
            }
            Err(_) => notes.read(Question::Cluster, origin, pod.phase()),
        }
    }
}
