use serde_json::Value;

use crate::resolver::OwnTask;
use crate::text::{Quoted, Shortened};
use crate::{
    Accelerators, ClusterResolver, ClusterSpec, Error, Explanation, Origin, Question, Variables,
};

/// The hosts of a SageMaker training job, as its containers are told by `SM_HOSTS` and
/// `SM_CURRENT_HOST`.
///
/// Every host is a worker; workers are numbered by host name in text order (`algo-10` before
/// `algo-2`), which all hosts share. A host that is listed twice is two workers. An empty
/// `SM_HOSTS` is an empty cluster.
///
/// [`master`](ClusterResolver::master) answers the empty text for a cluster of one task or none;
/// otherwise the task and layer of this process fill in what the call leaves out.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, SageMakerResolver, Variables};
///
/// let resolver = SageMakerResolver::from_variables(Variables::fixed([
///     ("SM_HOSTS", r#"["algo-2", "algo-1"]"#),
///     ("SM_CURRENT_HOST", "algo-2"),
/// ]));
/// assert_eq!(resolver.cluster_spec()?.task_address("worker", 0)?, "algo-1:2223");
/// assert_eq!(resolver.task_id()?, Some(1));
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// A current host that is not in the list makes it run alone. Here it is refused.
#[doc(alias = "SageMakerClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SageMakerResolver {
    variables: Variables,
    port: u16,
    task_type: Option<String>,
    task_id: Option<u32>,
    rpc_layer: Option<String>,
    environment: Option<String>,
}

/// Why the variables of a SageMaker container do not say who is in the cluster.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SageMakerError {
    /// The process does not run in a training container, or lost its variables.
    #[error("{variable} is not set: run in a SageMaker container, or choose another resolver")]
    Unset {
        /// The variable.
        variable: &'static str,
    },
    /// `SM_HOSTS` is no list of hosts.
    #[error(
        "SM_HOSTS is {}: make it a JSON list of host names such as [\"algo-1\", \"algo-2\"]",
        Shortened(value)
    )]
    Hosts {
        /// Its value.
        value: String,
    },
    /// `SM_CURRENT_HOST` is not in `SM_HOSTS`.
    #[error(
        "SM_CURRENT_HOST is {}, which is not among the {} hosts of SM_HOSTS: set it to one of them",
        Quoted(host),
        hosts.len()
    )]
    StrangeHost {
        /// The current host.
        host: String,
        /// The hosts, in text order.
        hosts: Vec<String>,
    },
}

impl SageMakerResolver {
    /// A resolver that reads the variables of this process on each call.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(Variables::of_process())
    }

    /// A resolver that reads these variables.
    #[must_use]
    pub fn from_variables(variables: Variables) -> Self {
        Self {
            variables,
            port: PORT,
            task_type: None,
            task_id: None,
            rpc_layer: None,
            environment: None,
        }
    }

    /// The port of every worker, 2223 if not given.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The job of this process, whatever the variables say.
    #[must_use]
    pub fn with_task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// The index of this process in its job, whatever the variables say.
    #[must_use]
    pub fn with_task_id(mut self, task_id: u32) -> Self {
        self.task_id = Some(task_id);
        self
    }

    /// The protocol put before addresses when a call names none.
    #[must_use]
    pub fn with_rpc_layer(mut self, rpc_layer: impl Into<String>) -> Self {
        self.rpc_layer = Some(rpc_layer.into());
        self
    }

    /// The kind of place the process runs in.
    #[must_use]
    pub fn with_environment(mut self, environment: impl Into<String>) -> Self {
        self.environment = Some(environment.into());
        self
    }

    /// The hosts in text order, and the position of the current one; `None` without hosts.
    fn hosts(&self) -> Result<Option<(Vec<String>, u32)>, Error> {
        let read = |variable| match self.variables.read(variable)? {
            Some(value) => Ok(value),
            None => Err(Error::from(SageMakerError::Unset { variable })),
        };
        let (listed, current) = (read(HOSTS)?, read(CURRENT)?);
        let mut hosts = parse(&listed)?;
        if hosts.is_empty() {
            return Ok(None);
        }
        hosts.sort_unstable();
        match (0..).zip(&hosts).find(|(_, host)| **host == current) {
            Some((position, _)) => Ok(Some((hosts, position))),
            None => {
                let host = current;
                Err(SageMakerError::StrangeHost { host, hosts }.into())
            }
        }
    }
}

impl ClusterResolver for SageMakerResolver {
    fn cluster_spec(&self) -> Result<ClusterSpec, Error> {
        match self.hosts()? {
            None => Ok(ClusterSpec::default()),
            Some((hosts, _)) => {
                let port = self.port;
                ClusterSpec::from_addresses(hosts.iter().map(|host| format!("{host}:{port}")))
            }
        }
    }

    fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        let spec = self.cluster_spec()?;
        let own = OwnTask {
            job: self.task_type()?,
            index: self.task_id()?,
            rpc_layer: self.rpc_layer.clone(),
        };
        own.master(&spec, task_type, task_id, rpc_layer)
    }

    fn task_type(&self) -> Result<Option<String>, Error> {
        match &self.task_type {
            Some(own) => Ok(Some(own.clone())),
            None => Ok(self.hosts()?.map(|_| WORKER.to_owned())),
        }
    }

    fn task_id(&self) -> Result<Option<u32>, Error> {
        match self.task_id {
            Some(own) => Ok(Some(own)),
            None => Ok(self.hosts()?.map(|(_, position)| position)),
        }
    }

    fn rpc_layer(&self) -> Result<Option<String>, Error> {
        match &self.rpc_layer {
            Some(own) => Ok(Some(own.clone())),
            None => self.hosts().map(|_| None),
        }
    }

    fn environment(&self) -> Option<&str> {
        self.environment.as_deref()
    }

    fn num_accelerators(&self) -> Result<Accelerators, Error> {
        self.master(None, None, None)?;
        Ok(Accelerators::new())
    }

    fn explain(&self) -> Explanation {
        let mut explanation = Explanation::default();
        let port = Origin::default_value();
        let port = if self.port == PORT {
            port
        } else {
            Origin::program()
        };
        explanation.read(Question::Cluster, port.field("port"), self.port.to_string());
        for (question, variable) in [(Question::Cluster, HOSTS), (Question::Task, CURRENT)] {
            let from = Origin::variable(variable);
            match self.variables.read(variable) {
                Ok(Some(value)) => explanation.read(question, from, value),
                Ok(None) => explanation.absent(question, from),
                // Reported with each answer.
                Err(_) => {}
            }
        }
        let id = self.task_id.map(|id| id.to_string());
        for (field, given) in [("task type", self.task_type.clone()), ("task id", id)] {
            if let Some(given) = given {
                explanation.read(Question::Task, Origin::program().field(field), given);
            }
        }
        explanation.settle_all(self);
        explanation
    }
}

/// The hosts of a JSON list; none in an empty text.
fn parse(listed: &str) -> Result<Vec<String>, SageMakerError> {
    let wrong = || SageMakerError::Hosts {
        value: listed.to_owned(),
    };
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    let Ok(Value::Array(hosts)) = serde_json::from_str(listed) else {
        return Err(wrong());
    };
    let hosts = hosts.into_iter().map(|host| match host {
        Value::String(host) if !host.is_empty() => Ok(host),
        _ => Err(wrong()),
    });
    hosts.collect()
}

const HOSTS: &str = "SM_HOSTS";
const CURRENT: &str = "SM_CURRENT_HOST";
const WORKER: &str = "worker";

/// TensorFlow's port.
const PORT: u16 = 2223;

#[cfg(test)]
mod tests {
    use super::*;

    fn resolver(hosts: &str, current: &str) -> SageMakerResolver {
        let variables = [(HOSTS, hosts), (CURRENT, current)];
        SageMakerResolver::from_variables(Variables::fixed(variables))
    }

    #[test]
    fn hosts_are_workers_in_text_order() {
        let resolver = resolver(r#"["algo-2", "algo-10", "algo-1"]"#, "algo-10").with_port(77);
        let spec = ClusterSpec::from_addresses(["algo-1:77", "algo-10:77", "algo-2:77"]);
        assert_eq!(resolver.cluster_spec(), spec);
        assert_eq!(resolver.task_type(), Ok(Some("worker".to_owned())));
        assert_eq!(resolver.task_id(), Ok(Some(1)));
        let master = resolver.master(None, Some(2), Some("x"));
        assert_eq!(master.as_deref(), Ok("x://algo-2:77"));
    }

    #[test]
    fn a_single_host_and_none_have_no_master() {
        for hosts in [r#"["a"]"#, "[]", ""] {
            let master = resolver(hosts, "a").master(None, None, Some("grpc"));
            assert_eq!(master.as_deref(), Ok(""), "{hosts}");
        }
        assert_eq!(resolver("", "a").task_id(), Ok(None));
    }

    #[test]
    fn every_malformed_variable_is_refused_with_its_value() {
        for wrong in [
            "[a",
            "a",
            "{}",
            "null",
            r#"["a", 1]"#,
            r#"[""]"#,
            "[\"a\"] x",
        ] {
            let value = wrong.to_owned();
            let expected = SageMakerError::Hosts { value };
            assert_eq!(resolver(wrong, "a").cluster_spec(), Err(expected.into()));
        }
        let (host, hosts) = ("c".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        let expected = SageMakerError::StrangeHost { host, hosts };
        let strange = resolver(r#"["b", "a"]"#, "c");
        assert_eq!(strange.cluster_spec(), Err(expected.into()));
        for (set, variable) in [(HOSTS, CURRENT), (CURRENT, HOSTS)] {
            let variables = Variables::fixed([(set, "a")]);
            let expected = SageMakerError::Unset { variable };
            let resolver = SageMakerResolver::from_variables(variables);
            assert_eq!(resolver.task_id(), Err(expected.into()));
        }
    }

    #[test]
    fn the_program_s_word_needs_no_variables() {
        let resolver = SageMakerResolver::from_variables(Variables::fixed([("PATH", "/")]))
            .with_task_type("chief")
            .with_task_id(0)
            .with_rpc_layer("grpc");
        assert_eq!(resolver.task_type(), Ok(Some("chief".to_owned())));
        assert_eq!(resolver.task_id(), Ok(Some(0)));
        assert_eq!(resolver.rpc_layer(), Ok(Some("grpc".to_owned())));
        assert!(resolver.cluster_spec().is_err());
    }

    #[test]
    fn the_explanation_names_both_variables() {
        let shown = resolver(r#"["b","a"]"#, "b").explain().to_string();
        assert_eq!(
            shown,
            r#"cluster: worker 2
    port in the default: 2223
    variable SM_HOSTS: ["b","a"]
task: worker:1
    variable SM_CURRENT_HOST: b
master: b:2223
accelerators: not known
"#
        );
    }
}
