//! SageMaker training jobs, whose containers are told their hosts by variables.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::error::{Error, SageMakerError};
use crate::explanation::{Explanation, Question};
use crate::resolver::ClusterResolver;
use crate::spec::ClusterSpec;
use crate::task::Task;
use crate::variables::Variables;

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
}

impl SageMakerResolver {
    /// A resolver that reads the variables of this process for each snapshot.
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
        }
    }

    /// The port of every worker, 2223 if not given.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The cluster, with its tasks in the text order of the hosts.
    fn cluster(&self, variables: &Variables) -> Result<Cluster, Error> {
        let read = |variable| match variables.read(variable)? {
            Some(value) => Ok(value),
            None => Err(Error::from(SageMakerError::Unset { variable })),
        };
        let (listed, host) = (read(HOSTS)?, read(CURRENT)?);
        let mut hosts = parse(&listed)?;
        if hosts.is_empty() {
            return Ok(Cluster::default());
        }
        hosts.sort_unstable();
        let Some((index, _)) = (0..).zip(&hosts).find(|(_, other)| **other == host) else {
            return Err(SageMakerError::StrangeHost { host, hosts }.into());
        };
        let addresses = hosts.iter().map(|host| format!("{host}:{}", self.port));
        let cluster = Cluster::new(ClusterSpec::from_addresses(addresses)?);
        Ok(cluster.with_task(&Task::new(WORKER, index)))
    }

    fn evidence(&self, variables: &Variables) -> Explanation {
        let mut evidence = Explanation::default();
        evidence.port("port", self.port, PORT);
        evidence.look(variables, Question::Cluster, HOSTS);
        evidence.look(variables, Question::Task, CURRENT);
        evidence
    }
}

impl ClusterResolver for SageMakerResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let variables = self.variables.snapshot();
        let found = self.cluster(&variables);
        Ok(Cluster::without_accelerators(found).with_evidence(self.evidence(&variables)))
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
