//! Instance groups of Google Compute Engine.

use std::panic;

use reqwest::Url;
use serde_json::json;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, MasterRule};
use crate::error::{Error, ServiceError};
use crate::explanation::{Explanation, Origin, Question};
use crate::google::{GoogleCredentials, Session, Settings};
use crate::resolver::ClusterResolver;
use crate::service::call;
use crate::service::http::{Endpoint, Request, base_url, below};
use crate::service::retry::RetryPolicy;
use crate::spec::{ClusterSpec, Tasks};
use crate::text::url_without_secrets;
use crate::variables::Variables;

mod group;

use group::{Instance, Member};

/// The running machines of an instance group of Google Compute Engine.
///
/// Tasks are numbered by the machines' names, counting numbers in them by value: `w9` comes before
/// `w10`. A group without running machines is a job without tasks. The address of a machine is that
/// of its first network interface, in brackets if it has IPv6 only.
///
/// The base URL is that of the service, or what `CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE` says as
/// it does for Google's own tools, or the program.
///
/// ```no_run
/// use meshwork_cluster_resolver::{ClusterResolver, GceResolver};
///
/// let resolver = GceResolver::new("my-project", "us-west1-b", "workers", 2222)
///     .with_own_task_id();
/// println!("{}", resolver.explain());
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// - It sorts addresses as text, so that an index follows neither name nor number.
/// - It fails for an empty group, and where the last page is empty.
/// - Its request has a parameter that the service refuses, so it works with stand-ins only.
#[doc(alias = "GCEClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GceResolver {
    project: String,
    zone: String,
    instance_group: String,
    port: u16,
    job_name: String,
    task_id: TaskId,
    compute_url: Option<Endpoint>,
    settings: Settings,
}

/// Which task of the job this process is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TaskId {
    First,
    OfThisMachine,
}

impl GceResolver {
    /// The group with this name in this zone of this project; each task listens on this port.
    ///
    /// The process is task 0 of the job `worker`, the protocol is `grpc`, as in TensorFlow.
    pub fn new(
        project: impl Into<String>,
        zone: impl Into<String>,
        instance_group: impl Into<String>,
        port: u16,
    ) -> Self {
        Self {
            project: project.into(),
            zone: zone.into(),
            instance_group: instance_group.into(),
            port,
            job_name: "worker".to_owned(),
            task_id: TaskId::First,
            compute_url: None,
            settings: Settings::default(),
        }
    }

    /// The job that the machines are the tasks of, and this process too; `worker` unless said.
    #[must_use]
    pub fn with_job_name(mut self, job_name: impl Into<String>) -> Self {
        self.job_name = job_name.into();
        self
    }

    /// The index of this process is that of the machine it runs on, which the metadata server
    /// names; none if the machine does not belong to the group.
    #[must_use]
    pub fn with_own_task_id(mut self) -> Self {
        self.task_id = TaskId::OfThisMachine;
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

    /// Where the Compute API is, up to and with its version, such as
    /// `https://compute.googleapis.com/compute/v1`.
    #[must_use]
    pub fn with_compute_url(mut self, url: impl Into<String>) -> Self {
        self.compute_url = Some(Endpoint::new(url));
        self
    }

    /// Where the metadata server is, such as `http://metadata.google.internal`.
    #[must_use]
    pub fn with_metadata_url(mut self, url: impl Into<String>) -> Self {
        self.settings.metadata_url = Some(Endpoint::new(url));
        self
    }

    /// The machines, and which of them this one is.
    fn ask_once(&self, evidence: &mut Explanation) -> Result<(ClusterSpec, Option<u32>), Error> {
        let session = self.settings.begin()?;
        let base = base_url(&self.base(evidence)?)?;
        self.note_arguments(evidence);
        let (members, own) = call::run(self.ask(session, &base, evidence))?;
        let task_id = match self.task_id {
            TaskId::First => Some(0),
            TaskId::OfThisMachine => own.and_then(|own| group::position(&members, &own)),
        };
        let addresses = members.into_iter().map(|member| member.address(self.port));
        let job = (self.job_name.clone(), Tasks::list(addresses));
        Ok((ClusterSpec::new([job])?, task_id))
    }

    /// The members in the order of their tasks, and the name of this machine if it is asked for.
    async fn ask(
        &self,
        mut session: Session,
        base: &Url,
        evidence: &mut Explanation,
    ) -> Result<(Vec<Member>, Option<String>), ServiceError> {
        let own = match self.task_id {
            TaskId::First => None,
            TaskId::OfThisMachine => {
                session
                    .metadata("instance/name", evidence, Question::Task)
                    .await?
            }
        };
        let mut members = Vec::new();
        let mut waiting = self.list(&mut session, base).await?.into_iter();
        let mut asked = JoinSet::new();
        loop {
            for instance in waiting.by_ref().take(AT_ONCE - asked.len()) {
                let url = below(base, self.in_zone(["instances", instance.name()]))?;
                let session = session.clone();
                asked.spawn(async move {
                    let (url, answer) = session.signed(Request::get(url)).await?;
                    Member::read(instance, &url, &answer)
                });
            }
            match asked.join_next().await {
                Some(Ok(member)) => members.push(member?),
                Some(Err(panicked)) => panic::resume_unwind(panicked.into_panic()),
                None => break,
            }
        }
        group::sort(&mut members);
        for member in &members {
            let value = format!("{}: {}", member.name(), member.host());
            evidence.read(Question::Cluster, member.origin(), value);
        }
        Ok((members, own))
    }

    async fn list(&self, session: &mut Session, base: &Url) -> Result<Vec<Instance>, ServiceError> {
        let path = self.in_zone(["instanceGroups", &self.instance_group]);
        let url = below(base, path.into_iter().chain(["listInstances"]))?;
        let body = json!({"instanceState": "RUNNING"});
        let mut instances = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let mut request = Request::post(url.clone())
                .with_body(&body)
                .with_query("orderBy", "name");
            if let Some(token) = &token {
                request = request.with_query("pageToken", token);
            }
            let (url, answer) = session.authorized(request).await?;
            let page = group::Page::read(&url, &answer)?;
            instances.extend(page.instances);
            let next = page.next.filter(|next| token.as_ref() != Some(next));
            match next {
                Some(next) => token = Some(next),
                None => return Ok(instances),
            }
        }
    }

    fn in_zone<'a>(&'a self, rest: [&'a str; 2]) -> [&'a str; 6] {
        [
            "projects",
            &self.project,
            "zones",
            &self.zone,
            rest[0],
            rest[1],
        ]
    }

    fn base(&self, evidence: &mut Explanation) -> Result<String, Error> {
        let set = self.settings.variables.read_nonempty(VARIABLE)?;
        Ok(match (&self.compute_url, set) {
            (Some(url), _) => url.as_str().to_owned(),
            (None, Some(url)) => {
                let shown = url_without_secrets(&url);
                evidence.read(Question::Cluster, Origin::variable(VARIABLE), shown);
                url
            }
            (None, None) => "https://compute.googleapis.com/compute/v1".to_owned(),
        })
    }

    fn note_arguments(&self, evidence: &mut Explanation) {
        let group = format!("{}/{}/{}", self.project, self.zone, self.instance_group);
        let program = |field| Origin::program().field(field);
        evidence.read(Question::Cluster, program("instance group"), group);
        evidence.read(Question::Cluster, program("port"), self.port.to_string());
        evidence.read(Question::Task, program("job name"), self.job_name.clone());
        if self.task_id == TaskId::First {
            let default = Origin::default_value().field("task id");
            evidence.read(Question::Task, default, "0");
        }
    }
}

impl ClusterResolver for GceResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let now = Self {
            settings: self.settings.snapshot(),
            ..self.clone()
        };
        let mut evidence = Explanation::default();
        let (spec, task_id) = match now.ask_once(&mut evidence) {
            Ok((spec, task_id)) => (Ok(spec), Ok(task_id)),
            Err(error) => match self.task_id {
                TaskId::First => (Err(error), Ok(Some(0))),
                TaskId::OfThisMachine => (Err(error.clone()), Err(error)),
            },
        };
        Ok(Cluster {
            spec,
            task_type: Ok(Some(self.job_name.clone())),
            task_id,
            rpc_layer: Ok(Some("grpc".to_owned())),
            master: MasterRule::OwnTaskIfKnown,
            evidence,
            ..Cluster::default()
        })
    }
}

/// Machines asked about at a time.
const AT_ONCE: usize = 16;

const VARIABLE: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE";
