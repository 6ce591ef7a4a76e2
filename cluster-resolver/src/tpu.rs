//! Nodes and queued resources of Cloud TPU.

use std::time::{Instant, SystemTime};

use crate::cluster::{Cluster, MasterRule};
use crate::error::{Error, ServiceError};
use crate::explanation::{Explanation, Question};
use crate::google::{GoogleCredentials, Settings};
use crate::resolver::ClusterResolver;
use crate::service::http::Endpoint;
use crate::service::retry::RetryPolicy;
use crate::variables::Variables;

mod accelerators;
mod local;
mod node;
mod query;
mod software;
mod target;
mod wait;

pub use accelerators::{TpuDevices, tpu_cores_of_topology, tpu_cores_of_type, tpu_master_job};
pub use node::{FatalMemory, Readiness, TpuNode, TpuSymptom};
pub use software::RestartType;
pub use target::{TpuKind, TpuName, TpuTarget};
pub use wait::ReadyWait;

use target::Given;

/// The workers of a Cloud TPU: the hosts of a node, or of all nodes of a queued resource.
///
/// The TPU is the one that the program names, else the one that `KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS`,
/// `TPU_NAME`, `TPU_CONFIG` or `TPU_WORKER_HOSTNAMES` names, in this order. A name is one of these:
///
/// - `local`, the TPU of this machine, which needs no cluster;
/// - `grpc://host:port,…`, workers at these addresses, port 8470 unless said;
/// - the name of a node, or its whole path `projects/…/locations/…/nodes/…`;
/// - `queuedResources/NAME`, or that whole path: all nodes of a queued resource.
///
/// Project and zone are those of the program, of `TPU_CONFIG` or of this machine. The process is
/// task 0 of its job, or the one that `TPU_WORKER_ID` says, or whatever the program says it is. Of
/// a queued resource with several nodes `MEGASCALE_SLICE_ID` has to say which one the process is
/// in, as `TPU_WORKER_ID` numbers the workers of each; without both the task is not known.
///
/// The API is where its description says that `TPU_API_DISCOVERY_URL` names, or at
/// `CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU`, or where it always is, unless the program knows better.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, TpuResolver, Variables};
///
/// let endpoints = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "grpc://10.0.0.1:8470,grpc://[fd20::2]");
/// let resolver = TpuResolver::new().with_variables(Variables::fixed([endpoints]));
/// let spec = resolver.cluster_spec()?;
/// assert_eq!(spec.task_address("worker", 1)?, "[fd20::2]:8470");
/// assert_eq!(resolver.master(None, None, None)?, "grpc://10.0.0.1:8470");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// - It does not look at the health of a node, and gives up at the first answer that fails.
/// - It cuts IPv6 addresses into pieces, and takes addresses without a host.
/// - A coordinator that is called as the workers replaces them.
#[doc(alias = "TPUClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TpuResolver {
    given: Given,
    job_name: String,
    coordinator_name: Option<String>,
    coordinator_address: Option<String>,
    discovery_url: Option<Endpoint>,
    api_url: Option<Endpoint>,
    software_port: u16,
    settings: Settings,
}

impl TpuResolver {
    /// The TPU that the environment names.
    #[must_use]
    pub fn new() -> Self {
        Self {
            given: Given::default(),
            job_name: "worker".to_owned(),
            coordinator_name: None,
            coordinator_address: None,
            discovery_url: None,
            api_url: None,
            software_port: software::DEFAULT_PORT,
            settings: Settings::default(),
        }
    }

    /// The only TPU of a list, which is how TensorFlow may be given one.
    ///
    /// # Errors
    /// [`ServiceError::TpuCount`] for a list of another length.
    pub fn of_list(tpus: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let mut tpus: Vec<String> = tpus.into_iter().map(Into::into).collect();
        match (tpus.pop(), tpus.len()) {
            (Some(only), 0) => Ok(Self::new().with_tpu(only)),
            (last, others) => {
                let count = others + usize::from(last.is_some());
                Err(ServiceError::TpuCount { count }.into())
            }
        }
    }

    /// This TPU, whatever the environment names; an empty name counts as none.
    #[must_use]
    pub fn with_tpu(mut self, tpu: impl Into<String>) -> Self {
        self.given.tpu = Some(tpu.into());
        self
    }

    /// The project it belongs to; an empty one counts as unknown.
    #[must_use]
    pub fn with_project(mut self, project: impl Into<String>) -> Self {
        self.given.project = Some(project.into()).filter(|project| !project.is_empty());
        self
    }

    /// The zone it is in; an empty one counts as unknown.
    #[must_use]
    pub fn with_zone(mut self, zone: impl Into<String>) -> Self {
        self.given.zone = Some(zone.into()).filter(|zone| !zone.is_empty());
        self
    }

    /// The job that the hosts are the tasks of; `worker` unless said.
    #[must_use]
    pub fn with_job_name(mut self, job_name: impl Into<String>) -> Self {
        self.job_name = job_name.into();
        self
    }

    /// The name of a job with one task, the coordinator. It needs an address too.
    #[must_use]
    pub fn with_coordinator_name(mut self, name: impl Into<String>) -> Self {
        self.coordinator_name = Some(name.into());
        self
    }

    /// The address of the coordinator, which needs a name too; an empty one counts as none.
    #[must_use]
    pub fn with_coordinator_address(mut self, address: impl Into<String>) -> Self {
        self.coordinator_address = Some(address.into());
        self
    }

    /// Where the description of the API is, with `{api}` and `{apiVersion}` in the places of its
    /// name and version; `TPU_API_DISCOVERY_URL` comes before it.
    #[must_use]
    pub fn with_discovery_url(mut self, url: impl Into<String>) -> Self {
        self.discovery_url = Some(Endpoint::new(url));
        self
    }

    /// Where the API is, such as `https://tpu.googleapis.com`, whatever a description says.
    #[must_use]
    pub fn with_api_url(mut self, url: impl Into<String>) -> Self {
        self.api_url = Some(Endpoint::new(url));
        self
    }

    /// Where the metadata server is, such as `http://metadata.google.internal`.
    #[must_use]
    pub fn with_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.settings.metadata_url = Some(Endpoint::new(url));
        self
    }

    /// The port on which workers take questions about their software; 8475 unless said.
    #[must_use]
    pub fn with_software_port(mut self, port: u16) -> Self {
        self.software_port = port;
        self
    }

    /// Whose rights the questions have; application default credentials unless said.
    #[must_use]
    pub fn with_credentials(mut self, credentials: GoogleCredentials) -> Self {
        self.settings.credentials = credentials;
        self
    }

    /// How long the service may take; 30 s unless said.
    #[must_use]
    pub fn with_retry_policy(mut self, retry: RetryPolicy) -> Self {
        self.settings.retry = retry;
        self
    }

    /// The variables that the environment is read from; those of the process unless said.
    #[must_use]
    pub fn with_variables(mut self, variables: Variables) -> Self {
        self.settings.variables = variables;
        self
    }

    /// The TPU that is meant, found without asking a service.
    ///
    /// # Errors
    /// [`ServiceError::TpuUnnamed`], [`ServiceError::TpuAddress`], and [`ServiceError::Variable`]
    /// for a malformed `TPU_CONFIG`.
    pub fn target(&self) -> Result<TpuTarget, Error> {
        target::find(
            &self.given,
            &self.settings.variables,
            &mut Explanation::default(),
        )
    }

    /// Where the description of the API is looked for, if anybody said so.
    ///
    /// # Errors
    /// [`Error::NotUnicode`].
    pub fn discovery_url(&self) -> Result<Option<String>, Error> {
        let set = self.settings.variables.read_nonempty(query::DISCOVERY)?;
        let given = self.discovery_url.as_ref().map(Endpoint::as_str);
        Ok(set.or_else(|| given.map(str::to_owned)))
    }

    /// The task that other tasks meet at, such as `/job:worker/task:0`.
    #[must_use]
    pub fn coordination_leader(&self) -> String {
        format!("/job:{}/task:0", self.job_name)
    }

    /// The nodes as the API describes them now, whatever their state; none for a TPU that is not
    /// named to the API.
    ///
    /// # Errors
    /// Whatever keeps the API from answering; [`ServiceError::TpuNotReady`] for a queued resource
    /// that is not granted.
    pub fn nodes(&self) -> Result<Vec<TpuNode>, Error> {
        self.fetch(&mut Explanation::default())
    }

    /// Waits until the TPU runs and is healthy. A TPU that is not named to the API is taken to be.
    ///
    /// Each look has the resolver's retry policy, or what is left of the wait where that is less.
    ///
    /// # Errors
    /// What was wrong the last time, once the time is over; at once for a TPU that is gone, and for
    /// whatever does not pass by itself.
    #[doc(alias = "wait_for_healthy")]
    pub fn wait_until_ready(&self, mut wait: ReadyWait) -> Result<(), Error> {
        let begun = Instant::now();
        let mut known = None;
        loop {
            let left = wait.left(begun.elapsed());
            let cut_short = left < self.settings.retry.deadline();
            let mut looking = self.clone();
            looking.settings.retry = self.settings.retry.within(left);
            let error = match looking.lack() {
                Ok(None) => return Ok(()),
                Ok(Some(lack)) => Error::from(lack),
                Err(error) => error,
            };
            let pause = wait.pause(begun.elapsed());
            match pause.filter(|_| may_pass(&error)) {
                Some(pause) => std::thread::sleep(pause),
                // A look that the deadline ended says less than the one before it.
                None if cut_short && is_silence(&error) => return Err(known.unwrap_or(error)),
                None => return Err(error),
            }
            known = Some(error);
        }
    }

    /// Whether it may consist of several nodes.
    fn may_have_slices(&self) -> bool {
        let queued = TpuKind::QueuedResource;
        matches!(self.target(), Ok(TpuTarget::Named(name)) if name.kind() == queued)
    }

    /// What the TPU lacks to be ready.
    fn lack(&self) -> Result<Option<ServiceError>, Error> {
        Ok(self.nodes()?.iter().find_map(TpuNode::lack))
    }

    /// Whether work on the TPU can go on after a failure; always for one not named to the API.
    ///
    /// # Errors
    /// Those of [`nodes`](Self::nodes).
    #[doc(alias = "recoverable")]
    pub fn is_recoverable(&self, fatal: FatalMemory) -> Result<bool, Error> {
        let now = SystemTime::now();
        let nodes = self.nodes()?;
        Ok(nodes.iter().all(|node| node.is_recoverable(now, fatal)))
    }
}

/// Whether waiting may help.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Service(error) => error.is_transient(),
        _ => false,
    }
}

fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Service(ServiceError::Unreachable { .. })) && may_pass(error)
}

impl Default for TpuResolver {
    fn default() -> Self {
        Self::new()
    }
}

/// The master is the task that a call names by job and index, or this process, or the first of its
/// job where it has no index: always with `grpc://`, whatever layer is asked for, and empty for a
/// TPU of this machine.
impl ClusterResolver for TpuResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let now = Self {
            settings: self.settings.snapshot(),
            ..self.clone()
        };
        let mut evidence = Explanation::default();
        let asked = now.ask_once(&mut evidence);
        let task_id = match &asked {
            Ok(asked) => now.own_index(&asked.slices, &mut evidence),
            // How many workers come before it is not known.
            Err(error) if now.may_have_slices() => Err(error.clone()),
            Err(_) => now.own_index(&[], &mut evidence),
        };
        let (spec, accelerators) = match asked {
            Ok(asked) => (Ok(asked.spec), Ok(asked.accelerators)),
            Err(error) => (Err(error.clone()), Err(error)),
        };
        let rpc_layer = query::LAYER;
        if spec.as_ref().is_ok_and(|spec| !spec.is_empty()) {
            evidence.conclude(Question::RpcLayer, rpc_layer);
        }
        Ok(Cluster {
            spec,
            task_type: Ok(Some(self.job_name.clone())),
            task_id,
            accelerators: Some(accelerators),
            master: MasterRule::WholeTask { rpc_layer },
            evidence,
            ..Cluster::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::ServiceErrorKind;
    use crate::service::MOST_BYTES;
    use crate::service::stand_in::StandIn;

    #[test]
    fn an_answer_that_is_too_long_is_not_waited_for() {
        let server = StandIn::start(|_| (200, " ".repeat(MOST_BYTES + 1)));
        let minute = Duration::from_secs(60);
        let resolver = TpuResolver::new()
            .with_tpu("t")
            .with_project("p")
            .with_zone("z")
            .with_api_url(server.url())
            .with_credentials(GoogleCredentials::token("t"))
            .with_retry_policy(RetryPolicy::new(minute).with_attempt_timeout(minute))
            .with_variables(Variables::fixed([("A", "b")]));
        let wait = ReadyWait::new(minute).steady(minute / 3);
        let Err(Error::Service(ServiceError::Unreachable { problem, .. })) =
            resolver.wait_until_ready(wait)
        else {
            panic!("it waited for another answer");
        };
        assert_eq!(problem, ServiceErrorKind::TooLong);
        assert_eq!(server.asked(), 1);
    }
}
