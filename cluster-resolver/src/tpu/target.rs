//! Which TPU is meant: what the program, the environment and `TPU_CONFIG` say together.

use serde_json::Value;

use crate::address::with_default_port;
use crate::error::{Error, ServiceError};
use crate::explanation::{Explanation, Origin, Question};
use crate::variables::Variables;

/// The TPU that a resolver means.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TpuTarget {
    /// The TPU of this machine, which needs no cluster.
    Local,
    /// Workers at these addresses, `host:port` each, in the order of their tasks.
    Addresses(Vec<String>),
    /// What the Cloud TPU API knows under this name.
    Named(TpuName),
}

/// The name of a node or of a queued resource of the Cloud TPU API; project and zone are `None` as
/// long as only the metadata server knows them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TpuName {
    pub(super) project: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) kind: TpuKind,
    pub(super) name: String,
}

/// What the name of a TPU stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum TpuKind {
    /// A node: one slice.
    Node,
    /// A queued resource: the request for one slice or several, which has nodes once it is granted.
    QueuedResource,
}

impl TpuName {
    /// The project, if it is known without asking.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// The zone, if it is known without asking.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// What the name stands for.
    #[must_use]
    pub fn kind(&self) -> TpuKind {
        self.kind
    }

    /// The name in its project and zone.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl TpuKind {
    /// The word for it in the paths of the API.
    pub(super) fn collection(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::QueuedResource => "queuedResources",
        }
    }
}

/// What the program says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Given {
    pub(super) tpu: Option<String>,
    pub(super) project: Option<String>,
    pub(super) zone: Option<String>,
}

/// Finds the TPU: the one that the program names, else one that the environment does.
pub(super) fn find(
    given: &Given,
    variables: &Variables,
    notes: &mut Explanation,
) -> Result<TpuTarget, Error> {
    let program = |field| Origin::program().field(field);
    for (field, value) in [("project", &given.project), ("zone", &given.zone)] {
        if let Some(value) = value {
            notes.read(Question::Cluster, program(field), value.clone());
        }
    }
    if let Some(tpu) = given.tpu.as_deref().filter(|tpu| !tpu.is_empty()) {
        notes.read(Question::Cluster, program("tpu"), tpu);
        return read(tpu, given);
    }
    for name in NAMING {
        if let Some(tpu) = set(variables, name, notes)? {
            return read(&tpu, given);
        }
    }
    if let Some(config) = set(variables, CONFIG, notes)? {
        return configured(&config, given);
    }
    match set(variables, HOSTNAMES, notes)? {
        Some(hosts) => addresses(&hosts),
        None => Err(ServiceError::TpuUnnamed.into()),
    }
}

/// The value of a variable that is set to something.
fn set(
    variables: &Variables,
    name: &'static str,
    notes: &mut Explanation,
) -> Result<Option<String>, Error> {
    let value = variables.read(name)?;
    let origin = Origin::variable(name);
    match &value {
        None => notes.absent(Question::Cluster, origin),
        Some(empty) if empty.is_empty() => {
            let why = "an empty variable counts as unset";
            notes.ignore(Question::Cluster, origin, "", why);
        }
        Some(value) => notes.read(Question::Cluster, origin, value.clone()),
    }
    Ok(value.filter(|value| !value.is_empty()))
}

/// Reads `local`, addresses that begin with `grpc://`, or a name, which may be a whole path.
fn read(tpu: &str, given: &Given) -> Result<TpuTarget, Error> {
    if tpu == "local" {
        return Ok(TpuTarget::Local);
    }
    if tpu.starts_with(SCHEME) {
        return addresses(tpu);
    }
    let (project, zone) = (given.project.clone(), given.zone.clone());
    let path: Vec<_> = tpu.split('/').collect();
    let named = match path[..] {
        ["projects", project, "locations", zone, collection, name] if !name.is_empty() => {
            let kinds = [TpuKind::Node, TpuKind::QueuedResource];
            let kind = kinds
                .into_iter()
                .find(|kind| kind.collection() == collection);
            kind.map(|kind| TpuName {
                project: Some(project.to_owned()),
                zone: Some(zone.to_owned()),
                kind,
                name: name.to_owned(),
            })
        }
        ["queuedResources", name] if !name.is_empty() => Some(TpuName {
            project: project.clone(),
            zone: zone.clone(),
            kind: TpuKind::QueuedResource,
            name: name.to_owned(),
        }),
        _ => None,
    };
    Ok(TpuTarget::Named(named.unwrap_or_else(|| TpuName {
        project,
        zone,
        kind: TpuKind::Node,
        name: tpu.to_owned(),
    })))
}

/// Reads a list of hosts, each with or without scheme and port.
fn addresses(list: &str) -> Result<TpuTarget, Error> {
    let each = list.split(',').map(|item| {
        let item = item.trim();
        let address = item.strip_prefix(SCHEME).unwrap_or(item);
        with_default_port(address, DEFAULT_PORT).map_err(|problem| ServiceError::TpuAddress {
            address: item.to_owned(),
            problem,
        })
    });
    Ok(TpuTarget::Addresses(each.collect::<Result<_, _>>()?))
}

/// Reads `TPU_CONFIG`, where the program's project and zone come first.
fn configured(config: &str, given: &Given) -> Result<TpuTarget, Error> {
    let wrong = |expected| {
        Error::from(ServiceError::Variable {
            variable: CONFIG,
            found: config.to_owned(),
            expected,
        })
    };
    let value: Value = serde_json::from_str(config).map_err(|_| wrong("a JSON object"))?;
    let object = value.as_object().ok_or_else(|| wrong("a JSON object"))?;
    if object.is_empty() {
        return Err(ServiceError::TpuUnnamed.into());
    }
    let field = |name: &str, expected| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(expected)),
    };
    let name = field(
        "tpu_node_name",
        "a JSON object whose tpu_node_name is a text",
    )?;
    let project = field("project", "a JSON object whose project is a text")?;
    let zone = field("zone", "a JSON object whose zone is a text")?;
    let name = name.ok_or_else(|| wrong("a JSON object with a tpu_node_name"))?;
    let given = Given {
        tpu: None,
        project: given.project.clone().or(project),
        zone: given.zone.clone().or(zone),
    };
    read(&name, &given)
}

/// Variables that name a TPU, the first one that is set counts.
const NAMING: [&str; 2] = ["KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"];

const CONFIG: &str = "TPU_CONFIG";

/// The hosts of a slice, as machines with TPUs and GKE set them.
const HOSTNAMES: &str = "TPU_WORKER_HOSTNAMES";

const SCHEME: &str = "grpc://";

/// Where a TPU worker listens unless said.
pub(super) const DEFAULT_PORT: u16 = 8470;

#[cfg(test)]
mod tests;
