//! What the Cloud TPU API says about a node.

use std::time::{Duration, SystemTime};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::accelerators::{tpu_cores_of_topology, tpu_cores_of_type};
use crate::address;
use crate::error::ServiceError;
use crate::explanation::Origin;
use crate::service::answer::Answer;

/// A node of Cloud TPU as the service describes it: one slice, with a worker on each host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TpuNode {
    url: String,
    name: String,
    state: Option<String>,
    health: Option<String>,
    accelerator_type: Option<String>,
    /// Generation and topology.
    accelerator_config: Option<(String, String)>,
    tensorflow_version: Option<String>,
    runtime_version: Option<String>,
    symptoms: Vec<TpuSymptom>,
    answer: Value,
}

/// Something that went wrong on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TpuSymptom {
    kind: String,
    /// As the service writes it, `None` if it is no time.
    created: Option<SystemTime>,
}

/// Which kinds of exhausted memory a node does not recover from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FatalMemory {
    /// None of them.
    Neither,
    /// That of the host's runtime.
    Runtime,
    /// That of the TPU.
    Hbm,
    /// Both.
    Both,
}

/// Whether a node can be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Readiness {
    /// Now.
    Ready,
    /// Perhaps later.
    NotYet,
    /// Not without somebody doing something.
    Never,
}

impl TpuNode {
    /// Reads the API's answer.
    pub(super) fn read(url: &str, name: &str, answer: Value) -> Result<Self, ServiceError> {
        let fields = Answer::new(url, &answer);
        fields.object()?;
        let text = |field: &str| {
            Ok::<_, ServiceError>(fields.at(field).optional_text()?.map(str::to_owned))
        };
        let config = fields.at("acceleratorConfig");
        let generation = config.at("type").optional_text()?;
        let topology = config.at("topology").optional_text()?;
        let symptoms = fields.at("symptoms").list()?.into_iter().map(|symptom| {
            let created = symptom.at("createTime").optional_text()?;
            Ok(TpuSymptom {
                kind: symptom.at("symptomType").text()?.to_owned(),
                created: created.and_then(point_in_time),
            })
        });
        Ok(Self {
            state: text("state")?,
            health: text("health")?,
            accelerator_type: text("acceleratorType")?,
            tensorflow_version: text("tensorflowVersion")?,
            runtime_version: text("runtimeVersion")?,
            accelerator_config: generation
                .zip(topology)
                .map(|(generation, topology)| (generation.to_owned(), topology.to_owned())),
            symptoms: symptoms.collect::<Result<_, ServiceError>>()?,
            url: url.to_owned(),
            name: name.to_owned(),
            answer,
        })
    }

    /// Its state, such as `READY`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Its health, such as `HEALTHY`.
    #[must_use]
    pub fn health(&self) -> Option<&str> {
        self.health.as_deref()
    }

    /// Its accelerators, such as `v3-32`.
    #[must_use]
    pub fn accelerator_type(&self) -> Option<&str> {
        self.accelerator_type.as_deref()
    }

    /// The version of TensorFlow on it, which TensorFlow's client calls its runtime version.
    #[must_use]
    pub fn tensorflow_version(&self) -> Option<&str> {
        self.tensorflow_version.as_deref()
    }

    /// The version of the software on its machines, such as `tpu-vm-base`.
    #[must_use]
    pub fn runtime_version(&self) -> Option<&str> {
        self.runtime_version.as_deref()
    }

    /// What went wrong on it, the oldest first.
    #[must_use]
    pub fn symptoms(&self) -> &[TpuSymptom] {
        &self.symptoms
    }

    /// All its cores, by its accelerator type, else by its topology.
    #[must_use]
    pub fn cores(&self) -> Option<u32> {
        let by_type = self.accelerator_type().and_then(tpu_cores_of_type);
        by_type.or_else(|| {
            let (generation, topology) = self.accelerator_config.as_ref()?;
            tpu_cores_of_topology(generation, topology)
        })
    }

    /// Whether it can be used. A cluster may be made of a node that says nothing about its health;
    /// to be ready it has to say that it is healthy.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        match self.state() {
            Some(READY) if self.health() == Some("HEALTHY") => Readiness::Ready,
            Some(state) if ServiceError::is_gone(state) => Readiness::Never,
            _ => Readiness::NotYet,
        }
    }

    /// Whether work on it can go on after a failure: not on one that is gone, nor on one whose
    /// memory was exhausted less than 90 s before now.
    #[must_use]
    pub fn is_recoverable(&self, now: SystemTime, fatal: FatalMemory) -> bool {
        if matches!(self.state(), Some("TERMINATED" | "PREEMPTED")) {
            return false;
        }
        let exhausted = |symptom: &TpuSymptom| match symptom.kind() {
            "OUT_OF_MEMORY" => matches!(fatal, FatalMemory::Runtime | FatalMemory::Both),
            "HBM_OUT_OF_MEMORY" => matches!(fatal, FatalMemory::Hbm | FatalMemory::Both),
            _ => false,
        };
        let recent = |symptom: &TpuSymptom| {
            // A symptom from the future is as recent as can be.
            symptom.created().is_some_and(|created| {
                now.duration_since(created).is_ok_and(|age| age < RECENT) || created > now
            })
        };
        !self
            .symptoms
            .iter()
            .any(|symptom| exhausted(symptom) && recent(symptom))
    }

    /// The addresses of its workers in the order of their tasks, and where each was read, if it
    /// runs and is healthy.
    pub(super) fn workers(&self) -> Result<Vec<(String, Origin)>, ServiceError> {
        self.usable()?;
        let node = Answer::new(&self.url, &self.answer);
        let endpoints = node.at("networkEndpoints");
        // A node of an old kind has no list of endpoints.
        if !endpoints.is_present() {
            return Ok(vec![worker(&self.url, &node)?]);
        }
        let endpoints = endpoints.list()?;
        endpoints
            .iter()
            .map(|endpoint| worker(&self.url, endpoint))
            .collect()
    }

    /// Nothing if it is ready, else what it lacks.
    pub(super) fn lack(&self) -> Option<ServiceError> {
        if self.readiness() == Readiness::Ready {
            return None;
        }
        let unhealthy = || ServiceError::TpuUnhealthy {
            name: self.name.clone(),
            health: self.health.clone().unwrap_or_default(),
        };
        Some(self.usable().err().unwrap_or_else(unhealthy))
    }

    fn usable(&self) -> Result<(), ServiceError> {
        let name = self.name.clone();
        if self.state() != Some(READY) {
            return Err(ServiceError::TpuNotReady {
                name,
                state: self.state.clone().unwrap_or_default(),
                wanted: READY,
            });
        }
        match &self.health {
            Some(health) if !self.is_healthy() => Err(ServiceError::TpuUnhealthy {
                name,
                health: health.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn is_healthy(&self) -> bool {
        // A service that does not look at the health says nothing, or that it is unspecified.
        matches!(
            self.health(),
            None | Some("" | "HEALTHY" | "HEALTH_UNSPECIFIED")
        )
    }
}

impl TpuSymptom {
    /// Its kind, such as `OUT_OF_MEMORY`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// When it appeared, if the service says.
    #[must_use]
    pub fn created(&self) -> Option<SystemTime> {
        self.created
    }
}

fn worker(url: &str, endpoint: &Answer<'_>) -> Result<(String, Origin), ServiceError> {
    let host = endpoint.at("ipAddress");
    let address = address::join(host.full_text()?, endpoint.at("port").port()?);
    Ok((address, Origin::url(url).field(host.field())))
}

/// Reads a time of RFC 3339; one without a zone is in UTC.
fn point_in_time(text: &str) -> Option<SystemTime> {
    let with_zone = text.parse::<Timestamp>().ok();
    let timestamp = with_zone.or_else(|| {
        let civil: DateTime = text.parse().ok()?;
        Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    let since: SignedDuration = timestamp.duration_since(Timestamp::UNIX_EPOCH);
    let since: Duration = since.try_into().ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

const READY: &str = "READY";

/// For how long exhausted memory speaks against a node.
const RECENT: Duration = Duration::from_secs(90);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(answer: Value) -> TpuNode {
        TpuNode::read("http://tpu/n", "n", answer).unwrap()
    }

    fn addresses(answer: Value) -> Result<Vec<String>, ServiceError> {
        let workers = node(answer).workers()?;
        Ok(workers.into_iter().map(|(address, _)| address).collect())
    }

    #[test]
    fn endpoints_keep_their_order_and_come_before_the_old_fields() {
        let endpoint = |host: &str, port: Value| json!({"ipAddress": host, "port": port});
        let list = json!([
            endpoint("10.0.0.9", json!(1)),
            endpoint("fd20::1", json!("2"))
        ]);
        let answer = json!({
            "state": "READY", "networkEndpoints": list, "ipAddress": "1.1.1.1", "port": "3",
        });
        assert_eq!(
            addresses(answer),
            Ok(vec!["10.0.0.9:1".into(), "[fd20::1]:2".into()])
        );
        let old = json!({"state": "READY", "ipAddress": "1.1.1.1", "port": "3"});
        assert_eq!(addresses(old), Ok(vec!["1.1.1.1:3".into()]));
        let none = json!({"state": "READY", "networkEndpoints": []});
        assert_eq!(addresses(none), Ok(Vec::new()));
    }

    #[test]
    fn a_node_must_be_ready_and_not_unhealthy() {
        let ask = |state: Value, health: Value| {
            let endpoints = json!([{"ipAddress": "a", "port": 1}]);
            addresses(json!({"state": state, "health": health, "networkEndpoints": endpoints}))
        };
        for health in [
            Value::Null,
            json!(""),
            json!("HEALTHY"),
            json!("HEALTH_UNSPECIFIED"),
        ] {
            assert!(ask(json!("READY"), health).is_ok());
        }
        for state in [Value::Null, json!("ready"), json!("CREATING"), json!("")] {
            let refused = ask(state, Value::Null);
            assert!(matches!(refused, Err(ServiceError::TpuNotReady { .. })));
        }
        let sick = ask(json!("READY"), json!("TIMEOUT"));
        let (name, health) = ("n".to_owned(), "TIMEOUT".to_owned());
        assert_eq!(sick, Err(ServiceError::TpuUnhealthy { name, health }));
    }

    #[test]
    fn cores_come_from_the_type_or_from_the_topology() {
        let config = json!({"type": "V4", "topology": "2x2x2"});
        let both = json!({"acceleratorType": "v3-32", "acceleratorConfig": config});
        assert_eq!(node(both).cores(), Some(32));
        assert_eq!(node(json!({"acceleratorConfig": config})).cores(), Some(16));
        assert_eq!(node(json!({})).cores(), None);
    }

    #[test]
    fn exhausted_memory_speaks_against_a_node_for_90_seconds() {
        let now = point_in_time("2020-02-01T00:01:00Z").unwrap();
        let recoverable = |kind: &str, created: &str, fatal| {
            let symptom = json!({"symptomType": kind, "createTime": created});
            node(json!({"symptoms": [symptom]})).is_recoverable(now, fatal)
        };
        let fresh = "2020-01-31T23:59:30.000001";
        assert!(!recoverable("OUT_OF_MEMORY", fresh, FatalMemory::Both));
        assert!(!recoverable("OUT_OF_MEMORY", fresh, FatalMemory::Runtime));
        assert!(recoverable("OUT_OF_MEMORY", fresh, FatalMemory::Hbm));
        assert!(!recoverable("HBM_OUT_OF_MEMORY", fresh, FatalMemory::Hbm));
        assert!(recoverable(
            "HBM_OUT_OF_MEMORY",
            fresh,
            FatalMemory::Neither
        ));
        assert!(recoverable("LOW_MEMORY", fresh, FatalMemory::Both));
        assert!(recoverable(
            "OUT_OF_MEMORY",
            "2020-01-31T23:59:30",
            FatalMemory::Both
        ));
        assert!(!recoverable(
            "OUT_OF_MEMORY",
            "2020-02-01T01:00:30+01:00",
            FatalMemory::Both
        ));
        assert!(recoverable("OUT_OF_MEMORY", "yesterday", FatalMemory::Both));
        for state in ["TERMINATED", "PREEMPTED"] {
            let gone = node(json!({"state": state}));
            assert!(!gone.is_recoverable(now, FatalMemory::Neither));
        }
    }

    #[test]
    fn a_node_that_is_gone_is_not_waited_for() {
        let readiness = |state: &str| node(json!({"state": state})).readiness();
        let healthy = node(json!({"state": "READY", "health": "HEALTHY"}));
        assert_eq!(healthy.readiness(), Readiness::Ready);
        assert_eq!(readiness("READY"), Readiness::NotYet);
        assert_eq!(readiness("CREATING"), Readiness::NotYet);
        assert_eq!(readiness("PREEMPTED"), Readiness::Never);
        let sick = node(json!({"state": "READY", "health": "UNHEALTHY_MAINTENANCE"}));
        assert_eq!(sick.readiness(), Readiness::NotYet);
    }
}
