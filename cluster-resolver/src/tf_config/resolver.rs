//! The resolver for `TF_CONFIG`.

use super::TfConfig;
use crate::cluster::{Cluster, MasterRule};
use crate::error::Error;
use crate::explanation::{Explanation, Origin, Question};
use crate::resolver::ClusterResolver;
use crate::spec::Counts;
use crate::variables::Variables;

/// The cluster that the `TF_CONFIG` environment variable, or a text in its form, describes.
///
/// The variable is read and parsed again for each snapshot. Unset, it describes an empty cluster;
/// set to nothing, it is an error. The text has no say in the environment.
///
/// [`master`](ClusterResolver::master) answers, in this order: the `session_master` of the text;
/// the empty text for a cluster without jobs, or with a single job of a single task numbered 0; the
/// address of the task asked for, where the task and layer of this process fill in what the call
/// leaves out. [`num_accelerators`](ClusterResolver::num_accelerators) is empty where this task has
/// a master, for the text says nothing about them, and the error of `master` otherwise.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, TfConfigResolver};
///
/// let text = r#"{"cluster": {"worker": ["w0:2222", "w1:2222"]}, "task": {"type": "worker", "index": 1}}"#;
/// let resolver = TfConfigResolver::from_json(text).with_rpc_layer("grpc");
/// assert_eq!(resolver.task_id()?, Some(1));
/// assert_eq!(resolver.master(None, None, None)?, "grpc://w1:2222");
/// assert_eq!(resolver.master(None, Some(0), Some(""))?, "w0:2222");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[doc(alias = "TFConfigClusterResolver")]
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TfConfigResolver {
    source: Source,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Source {
    Variable(Variables),
    Text(String),
}

impl TfConfigResolver {
    /// A resolver that reads the `TF_CONFIG` environment variable of this process on each call.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(Variables::of_process())
    }

    /// A resolver that reads `TF_CONFIG` among these variables on each call.
    #[must_use]
    pub fn from_variables(variables: Variables) -> Self {
        let source = Source::Variable(variables);
        Self { source }
    }

    /// A resolver for this text; nothing is parsed before the first call.
    #[must_use]
    pub fn from_json(text: impl Into<String>) -> Self {
        let source = Source::Text(text.into());
        Self { source }
    }

    /// The text, if there is one.
    fn text(&self) -> Result<Option<String>, Error> {
        match &self.source {
            Source::Text(text) => Ok(Some(text.clone())),
            Source::Variable(variables) => variables.snapshot().read(VARIABLE),
        }
    }

    fn origin(&self) -> Origin {
        match &self.source {
            Source::Text(_) => Origin::program(),
            Source::Variable(_) => Origin::variable(VARIABLE),
        }
    }

    fn evidence(&self, config: &TfConfig) -> Explanation {
        let mut evidence = Explanation::default();
        let index = config.task_index().map(|index| index.to_string());
        let counts = Counts(config.cluster()).to_string();
        for (question, field, value) in [
            (Question::Cluster, "cluster", Some(counts.as_str())),
            (Question::Master, "session_master", config.session_master()),
            (Question::Task, "task.type", config.task_type()),
            (Question::Task, "task.index", index.as_deref()),
            (Question::RpcLayer, "rpc_layer", config.rpc_layer()),
        ] {
            let from = self.origin().field(field);
            match value {
                Some(value) => evidence.read(question, from, value),
                None => evidence.absent(question, from),
            }
        }
        for key in config.unread() {
            let (from, why) = (self.origin().field(key), "no key that is read here");
            evidence.ignore(Question::Cluster, from, "a value", why);
        }
        evidence
    }
}

impl ClusterResolver for TfConfigResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let Some(text) = self.text()? else {
            let mut evidence = Explanation::default();
            evidence.absent(Question::Cluster, self.origin());
            return Ok(Cluster {
                evidence,
                accelerators: None,
                ..Cluster::default()
            });
        };
        let config = TfConfig::parse(&text)?;
        let session_master = config.session_master().map(str::to_owned);
        Ok(Cluster {
            evidence: self.evidence(&config),
            task_type: Ok(config.task_type),
            task_id: Ok(config.task_index),
            rpc_layer: Ok(config.rpc_layer),
            accelerators: None,
            master: session_master.map_or(MasterRule::OwnTask, MasterRule::Fixed),
            ..Cluster::new(config.cluster)
        })
    }
}

const VARIABLE: &str = "TF_CONFIG";
