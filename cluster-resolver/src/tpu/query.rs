//! Questions to the Cloud TPU API, and what the answers make of the cluster.

use reqwest::Url;

use super::node::TpuNode;
use super::target::{TpuKind, TpuName, TpuTarget};
use super::{TpuResolver, accelerators, local, target};
use crate::cluster::Accelerators;
use crate::error::{CoordinatorProblem, Error, ServiceError};
use crate::explanation::{Explanation, Origin, Question};
use crate::google::Session;
use crate::service::answer::Answer;
use crate::service::call;
use crate::service::http::{Request, base_url, below};
use crate::spec::{ClusterSpec, Tasks};
use crate::text::url_without_secrets;

/// What is known of where the API is.
enum Api {
    /// Its base URL.
    At(String),
    /// The URL of its description, with places for name and version.
    DescribedAt(String),
}

/// What one look told.
#[derive(Default)]
pub(super) struct Asked {
    /// The workers.
    pub(super) spec: ClusterSpec,
    /// Those of each worker.
    pub(super) accelerators: Accelerators,
    /// How many workers each node has, in the order of their tasks; empty if no node was asked for.
    pub(super) slices: Vec<usize>,
}

/// A variable that numbers something.
#[derive(Clone, Copy)]
struct Numbered {
    variable: &'static str,
    expected: &'static str,
}

impl TpuResolver {
    /// The workers, and the accelerators of each.
    pub(super) fn ask_once(&self, evidence: &mut Explanation) -> Result<Asked, Error> {
        let variables = &self.settings.variables;
        let mut slices = Vec::new();
        let (workers, cores) = match target::find(&self.given, variables, evidence)? {
            TpuTarget::Local => {
                return Ok(Asked {
                    accelerators: local(evidence),
                    ..Asked::default()
                });
            }
            TpuTarget::Addresses(addresses) => {
                let named = variables.read_nonempty(TYPE)?;
                if let Some(name) = &named {
                    evidence.read(Question::Accelerators, Origin::variable(TYPE), name.clone());
                }
                let cores = named.as_deref().and_then(accelerators::tpu_cores_of_type);
                (addresses, cores)
            }
            TpuTarget::Named(name) => {
                let nodes = self.describe(name, evidence)?;
                let mut workers = Vec::new();
                for node in &nodes {
                    let own = node.workers()?;
                    slices.push(own.len());
                    for (address, origin) in own {
                        evidence.read(Question::Cluster, origin, address.clone());
                        workers.push(address);
                    }
                }
                (workers, cores_of(&nodes))
            }
        };
        let accelerators = match cores {
            Some(cores) if !workers.is_empty() => {
                let each = accelerators::share(cores, workers.len())?;
                Accelerators::from([(TPU.to_owned(), each)])
            }
            _ => Accelerators::new(),
        };
        Ok(Asked {
            spec: self.cluster(workers)?,
            accelerators,
            slices,
        })
    }

    /// The nodes that the TPU consists of, whatever their state.
    pub(super) fn fetch(&self, evidence: &mut Explanation) -> Result<Vec<TpuNode>, Error> {
        match target::find(&self.given, &self.settings.variables, evidence)? {
            TpuTarget::Named(name) => self.describe(name, evidence),
            TpuTarget::Local | TpuTarget::Addresses(_) => Ok(Vec::new()),
        }
    }

    /// The index of this process in its job, which has the workers of these slices. Whoever says
    /// nothing is the first, as long as there is one slice.
    pub(super) fn own_index(
        &self,
        slices: &[usize],
        evidence: &mut Explanation,
    ) -> Result<Option<u32>, Error> {
        if slices.len() > 1 {
            return self.index_among(slices, evidence);
        }
        let worker = self.number(WORKER, evidence)?;
        if worker.is_none() {
            evidence.read(Question::Task, Origin::default_value(), "0");
        }
        Ok(worker.or(Some(0)))
    }

    /// The same among several slices: variables number workers within each of them.
    fn index_among(
        &self,
        slices: &[usize],
        evidence: &mut Explanation,
    ) -> Result<Option<u32>, Error> {
        let unknown = |of: Numbered| ServiceError::TpuTaskUnknown {
            variable: of.variable,
            workers: slices.iter().sum(),
            slices: slices.len(),
        };
        let slice = self.number(SLICE, evidence)?;
        let slice = slice.ok_or_else(|| unknown(SLICE))?;
        let own = slices.get(slice as usize).copied();
        let own = own.ok_or_else(|| SLICE.wrong(slice.to_string()))?;
        let worker = match self.number(WORKER, evidence)? {
            Some(worker) if (worker as usize) < own => worker,
            Some(worker) => return Err(WORKER.wrong(worker.to_string()).into()),
            // Its slice has no other.
            None if own == 1 => 0,
            None => return Err(unknown(WORKER).into()),
        };
        let before: usize = slices[..slice as usize].iter().sum();
        // No cluster has more tasks than that.
        Ok(u32::try_from(before + worker as usize).ok())
    }

    /// The number that a variable is set to.
    fn number(&self, of: Numbered, evidence: &mut Explanation) -> Result<Option<u32>, Error> {
        let Some(text) = self.settings.variables.read_nonempty(of.variable)? else {
            return Ok(None);
        };
        evidence.read(Question::Task, Origin::variable(of.variable), text.clone());
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| digits);
        Ok(Some(number.ok_or_else(|| of.wrong(text))?))
    }

    fn describe(&self, name: TpuName, evidence: &mut Explanation) -> Result<Vec<TpuNode>, Error> {
        let session = self.settings.begin()?;
        let api = self.api(evidence)?;
        Ok(call::run(self.ask(session, name, api, evidence))?)
    }

    /// What is known of where the API is: the program's word on that, else a description that the
    /// environment or the program names, else the environment's word, else where it always is.
    fn api(&self, evidence: &mut Explanation) -> Result<Api, Error> {
        let mut set = |name| {
            let value = self.settings.variables.read_nonempty(name)?;
            if let Some(url) = &value {
                let shown = url_without_secrets(url);
                evidence.read(Question::Cluster, Origin::variable(name), shown);
            }
            Ok::<_, Error>(value)
        };
        if let Some(url) = &self.api_url {
            return Ok(Api::At(url.as_str().to_owned()));
        }
        if let Some(url) = set(DISCOVERY)? {
            return Ok(Api::DescribedAt(url));
        }
        if let Some(url) = &self.discovery_url {
            return Ok(Api::DescribedAt(url.as_str().to_owned()));
        }
        let url = set(OVERRIDE)?.unwrap_or_else(|| "https://tpu.googleapis.com".to_owned());
        Ok(Api::At(url))
    }

    async fn ask(
        &self,
        mut session: Session,
        name: TpuName,
        api: Api,
        evidence: &mut Explanation,
    ) -> Result<Vec<TpuNode>, ServiceError> {
        let (kind, id) = (name.kind, name.name.clone());
        let version = match kind {
            TpuKind::Node => "v1",
            TpuKind::QueuedResource => "v2",
        };
        let (project, zone) = place(name, &session, evidence).await?;
        let root = root(&session, api, version, evidence).await?;
        let request = |kind: TpuKind, id: &str| {
            let place = [version, "projects", &project, "locations", &zone];
            let url = below(&root, place.into_iter().chain([kind.collection(), id]))?;
            Ok::<_, ServiceError>(Request::get(url).with_query("alt", "json"))
        };
        let mut ids = vec![id];
        if kind == TpuKind::QueuedResource {
            let (url, answer) = session.authorized(request(kind, &ids[0])?).await?;
            ids = granted(&ids[0], &Answer::new(&url, &answer))?;
            let origin = Origin::url(&url).field("tpu.nodeSpec");
            evidence.read(Question::Cluster, origin, ids.join(", "));
        }
        let mut nodes = Vec::new();
        for id in &ids {
            let (url, answer) = session.authorized(request(TpuKind::Node, id)?).await?;
            let node = TpuNode::read(&url, id, answer)?;
            note(&node, &url, evidence);
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn cluster(&self, workers: Vec<String>) -> Result<ClusterSpec, Error> {
        let mut jobs = vec![(self.job_name.clone(), Tasks::list(workers))];
        let address = self.coordinator_address.as_ref();
        let address = address.filter(|address| !address.is_empty());
        let wrong = |name: &str, problem| ServiceError::Coordinator {
            name: name.to_owned(),
            problem,
        };
        match (&self.coordinator_name, address) {
            (None, None) => {}
            (Some(name), None) => return Err(wrong(name, CoordinatorProblem::NoAddress).into()),
            (None, Some(address)) => return Err(wrong(address, CoordinatorProblem::NoName).into()),
            (Some(name), Some(_)) if *name == self.job_name => {
                return Err(wrong(name, CoordinatorProblem::NameOfWorkers).into());
            }
            (Some(name), Some(address)) => jobs.push((name.clone(), Tasks::list([address]))),
        }
        ClusterSpec::new(jobs)
    }
}

impl Numbered {
    fn wrong(self, found: String) -> ServiceError {
        ServiceError::Variable {
            variable: self.variable,
            found,
            expected: self.expected,
        }
    }
}

/// The TPU of this machine.
fn local(evidence: &mut Explanation) -> Accelerators {
    let cores = local::cores();
    let origin = Origin::file("/sys/bus/pci/devices");
    evidence.read(Question::Accelerators, origin, format!("{cores} TPU cores"));
    Accelerators::from([(TPU.to_owned(), cores)])
}

/// The cores of all nodes, if each tells its own, and a number holds the sum.
fn cores_of(nodes: &[TpuNode]) -> Option<u32> {
    let mut cores = nodes.iter().map(TpuNode::cores);
    cores.try_fold(0_u32, |sum, cores| sum.checked_add(cores?))
}

/// The base URL of this version of the API.
async fn root(
    session: &Session,
    api: Api,
    version: &str,
    evidence: &mut Explanation,
) -> Result<Url, ServiceError> {
    let template = match api {
        Api::At(url) => return base_url(&url),
        Api::DescribedAt(template) => template,
    };
    let url = template
        .replace("{apiVersion}", version)
        .replace("{api}", "tpu");
    let (url, answer) = session.open(base_url(&url)?).await?;
    let answer = Answer::new(&url, &answer);
    let root = answer.at("rootUrl");
    let path = answer.at("servicePath").optional_text()?;
    let text = format!("{}{}", root.full_text()?, path.unwrap_or_default());
    let origin = Origin::url(&url).field("rootUrl");
    evidence.read(Question::Cluster, origin, text.clone());
    base_url(&text).map_err(|_| root.unexpected("the URL of the service"))
}

/// The project and the zone of a TPU, which may be those of this machine.
async fn place(
    name: TpuName,
    session: &Session,
    evidence: &mut Explanation,
) -> Result<(String, String), ServiceError> {
    let project = match name.project {
        Some(project) => project,
        None => known(session, "project/project-id", evidence).await?,
    };
    let zone = match name.zone {
        Some(zone) => zone,
        // Written as projects/NUMBER/zones/ZONE.
        None => {
            let zone = known(session, "instance/zone", evidence).await?;
            zone.rsplit('/').next().unwrap_or_default().to_owned()
        }
    };
    Ok((project, zone))
}

fn note(node: &TpuNode, url: &str, evidence: &mut Explanation) {
    for (question, field, value) in [
        (Question::Cluster, "state", node.state()),
        (Question::Cluster, "health", node.health()),
        (
            Question::Accelerators,
            "acceleratorType",
            node.accelerator_type(),
        ),
    ] {
        let origin = Origin::url(url).field(field);
        match value {
            Some(value) => evidence.read(question, origin, value),
            None => evidence.absent(question, origin),
        }
    }
}

/// What the metadata server has to know.
async fn known(
    session: &Session,
    path: &str,
    evidence: &mut Explanation,
) -> Result<String, ServiceError> {
    let text = session.metadata(path, evidence, Question::Cluster).await?;
    text.filter(|text| !text.is_empty())
        .ok_or_else(|| ServiceError::MetadataAbsent {
            path: path.to_owned(),
        })
}

/// The nodes of a queued resource, if it has been granted.
fn granted(name: &str, answer: &Answer<'_>) -> Result<Vec<String>, ServiceError> {
    let state = answer
        .at("state")
        .at("state")
        .optional_text()?
        .unwrap_or_default();
    if state != ACTIVE {
        return Err(ServiceError::TpuNotReady {
            name: name.to_owned(),
            state: state.to_owned(),
            wanted: ACTIVE,
        });
    }
    let mut ids = Vec::new();
    let field = answer.at("tpu").at("nodeSpec");
    let specs = field.list()?;
    if specs.is_empty() {
        return Err(field.unexpected("a list of nodes"));
    }
    for spec in specs {
        // Either one node with an id, or several whose ids are numbered after a prefix.
        let several = ["multisliceParams", "multiNodeParams"].map(|field| spec.at(field));
        match several.into_iter().find(Answer::is_present) {
            Some(several) => {
                let prefix = several.at("nodeIdPrefix").optional_text()?.unwrap_or(name);
                let field = several.at("nodeCount");
                let count = field.count()? as usize;
                if !(1..=MOST_NODES.saturating_sub(ids.len())).contains(&count) {
                    return Err(field.unexpected("from 1 up, with at most 4096 nodes in all"));
                }
                ids.extend((0..count).map(|index| format!("{prefix}-{index}")));
            }
            None => ids.push(spec.at("nodeId").full_text()?.to_owned()),
        }
    }
    Ok(ids)
}

/// The variable that says where the description of the API is.
pub(super) const DISCOVERY: &str = "TPU_API_DISCOVERY_URL";

/// The variable that says where the API is, as it does for Google's own tools.
const OVERRIDE: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU";

/// The protocol of TPU workers.
pub(super) const LAYER: &str = "grpc";

/// What numbers the hosts of a slice, as machines with TPUs and GKE set it.
const WORKER: Numbered = Numbered {
    variable: "TPU_WORKER_ID",
    expected: "the number of a worker of its slice, from 0",
};

/// What numbers the slices that work together, likewise.
const SLICE: Numbered = Numbered {
    variable: "MEGASCALE_SLICE_ID",
    expected: "the number of one of the slices, from 0",
};

/// The variable that says the accelerator type, likewise.
const TYPE: &str = "TPU_ACCELERATOR_TYPE";

const TPU: &str = "TPU";

const ACTIVE: &str = "ACTIVE";

/// More nodes than any queued resource has; an error names the number too.
const MOST_NODES: usize = 4096;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::google::GoogleCredentials;
    use crate::resolver::ClusterResolver;
    use crate::variables::Variables;

    const WORKER_ID: &str = "TPU_WORKER_ID";
    const SLICE_ID: &str = "MEGASCALE_SLICE_ID";

    fn index(slices: &[usize], variables: &[(&str, &str)]) -> Result<Option<u32>, Error> {
        let variables = Variables::fixed(variables.iter().copied());
        let resolver = TpuResolver::new().with_variables(variables);
        resolver.own_index(slices, &mut Explanation::default())
    }

    #[test]
    fn workers_of_slices_before_the_own_one_come_first() {
        let mut next = 0;
        for (slice, count) in [2, 3, 1].into_iter().enumerate() {
            for worker in 0..count {
                let (slice, worker) = (slice.to_string(), worker.to_string());
                let own = [(SLICE_ID, slice.as_str()), (WORKER_ID, worker.as_str())];
                assert_eq!(index(&[2, 3, 1], &own), Ok(Some(next)));
                next += 1;
            }
        }
        assert_eq!(index(&[2, 3, 1], &[(SLICE_ID, "2")]), Ok(Some(5)));
        assert_eq!(index(&[4], &[(WORKER_ID, "3")]), Ok(Some(3)));
        assert_eq!(index(&[4], &[]), Ok(Some(0)));
    }

    #[test]
    fn among_several_slices_nobody_is_taken_for_another() {
        let unknown = |variable| {
            let (workers, slices) = (6, 3);
            Err(Error::from(ServiceError::TpuTaskUnknown {
                variable,
                workers,
                slices,
            }))
        };
        let index = |variables: &[(&str, &str)]| index(&[2, 3, 1], variables);
        assert_eq!(index(&[]), unknown(SLICE_ID));
        assert_eq!(index(&[(WORKER_ID, "1")]), unknown(SLICE_ID));
        assert_eq!(index(&[(SLICE_ID, "1")]), unknown(WORKER_ID));
        for wrong in [
            [(SLICE_ID, "3"), (WORKER_ID, "0")],
            [(SLICE_ID, "0"), (WORKER_ID, "2")],
            [(SLICE_ID, "one"), (WORKER_ID, "0")],
        ] {
            let refused = index(&wrong).unwrap_err();
            let is_variable = matches!(refused, Error::Service(ServiceError::Variable { .. }));
            assert!(is_variable, "{refused}");
        }
    }

    #[test]
    fn a_queued_resource_that_does_not_answer_leaves_the_task_unknown() {
        let resolver = |tpu: &str| {
            TpuResolver::new()
                .with_tpu(tpu)
                .with_project("p")
                .with_zone("z")
                .with_api_url("nowhere")
                .with_credentials(GoogleCredentials::token("t"))
                .with_variables(Variables::fixed([(WORKER_ID, "1")]))
        };
        assert_eq!(resolver("node").task_id(), Ok(Some(1)));
        let error = resolver("queuedResources/q").task_id().unwrap_err();
        assert!(matches!(error, Error::Service(_)), "{error}");
    }

    #[test]
    fn cores_are_summed_if_all_are_known_and_can_be_counted() {
        let cores = |types: &[&str]| {
            let nodes = types.iter().map(|name| {
                let answer = json!({"acceleratorType": name});
                TpuNode::read("http://tpu/n", "n", answer).unwrap()
            });
            cores_of(&nodes.collect::<Vec<_>>())
        };
        assert_eq!(cores(&["v4-8", "v4-16"]), Some(24));
        assert_eq!(cores(&["v4-8", "unknown"]), None);
        assert_eq!(cores(&["v4-4294967295", "v4-1"]), None);
    }

    fn nodes(spec: Value) -> Result<Vec<String>, ServiceError> {
        let answer = json!({"state": {"state": "ACTIVE"}, "tpu": {"nodeSpec": spec}});
        granted("q", &Answer::new("http://tpu/q", &answer))
    }

    #[test]
    fn a_queued_resource_has_one_node_or_numbered_ones() {
        assert_eq!(
            nodes(json!([{"nodeId": "a"}, {"nodeId": "b"}])).unwrap(),
            ["a", "b"]
        );
        let several = |params| nodes(json!([{"multisliceParams": params}])).unwrap();
        assert_eq!(
            several(json!({"nodeCount": 2, "nodeIdPrefix": "s"})),
            ["s-0", "s-1"]
        );
        assert_eq!(several(json!({"nodeCount": "3"})), ["q-0", "q-1", "q-2"]);
        assert!(matches!(
            nodes(json!([{}])),
            Err(ServiceError::Field { .. })
        ));
    }

    #[track_caller]
    fn check_refused(tpu: Value, field: &str) {
        let answer = json!({"state": {"state": "ACTIVE"}, "tpu": tpu});
        match granted("q", &Answer::new("http://tpu/q", &answer)) {
            Err(ServiceError::Field { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_queued_resource_without_nodes_is_refused() {
        for tpu in [
            Value::Null,
            json!(7),
            json!({}),
            json!({"nodeSpec": null}),
            json!({"nodeSpec": []}),
            json!({"nodeSpec": {"nodeId": "a"}}),
        ] {
            check_refused(tpu, "tpu.nodeSpec");
        }
        let none = json!({"nodeSpec": [{"multisliceParams": {"nodeCount": 0}}]});
        check_refused(none, "tpu.nodeSpec[0].multisliceParams.nodeCount");
    }

    #[test]
    fn more_nodes_than_any_queued_resource_has_are_refused_rather_than_cut() {
        let several = |count| json!({"multiNodeParams": {"nodeCount": count}});
        assert_eq!(nodes(json!([several(4096)])).unwrap().len(), 4096);
        let one_too_many = json!({"nodeSpec": [several(4097)]});
        check_refused(one_too_many, "tpu.nodeSpec[0].multiNodeParams.nodeCount");
        let together = json!({"nodeSpec": [several(4096), several(4096)]});
        check_refused(together, "tpu.nodeSpec[1].multiNodeParams.nodeCount");
        let after_one = json!({"nodeSpec": [{"nodeId": "a"}, several(4096)]});
        check_refused(after_one, "tpu.nodeSpec[1].multiNodeParams.nodeCount");
    }

    #[test]
    fn a_queued_resource_that_waits_is_not_ready() {
        let answer = json!({"state": {"state": "WAITING_FOR_RESOURCES"}});
        let refused = granted("q", &Answer::new("http://tpu/q", &answer));
        assert_eq!(
            refused,
            Err(ServiceError::TpuNotReady {
                name: "q".to_owned(),
                state: "WAITING_FOR_RESOURCES".to_owned(),
                wanted: "ACTIVE",
            })
        );
    }
}
