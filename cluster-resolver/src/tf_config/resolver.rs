use crate::resolver::OwnTask;
use crate::text::Counts;
use crate::{
    Accelerators, ClusterResolver, ClusterSpec, Error, Explanation, Origin, Question, TfConfig,
    Variables,
};

/// The cluster that the `TF_CONFIG` environment variable, or a text in its form, describes.
///
/// The variable is read and parsed again on each call. Unset, it describes an empty cluster;
/// set to nothing, it is an error. Values given by the `with_` methods replace those of the text.
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
    task_type: Option<String>,
    task_id: Option<u32>,
    rpc_layer: Option<String>,
    environment: Option<String>,
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
        Self::new(Source::Variable(variables))
    }

    /// A resolver for this text; nothing is parsed before the first call.
    #[must_use]
    pub fn from_json(text: impl Into<String>) -> Self {
        Self::new(Source::Text(text.into()))
    }

    /// The job of this process, whatever the text says.
    #[must_use]
    pub fn with_task_type(mut self, task_type: impl Into<String>) -> Self {
        self.task_type = Some(task_type.into());
        self
    }

    /// The index of this process in its job, whatever the text says.
    #[must_use]
    pub fn with_task_id(mut self, task_id: u32) -> Self {
        self.task_id = Some(task_id);
        self
    }

    /// The protocol put before addresses, whatever the text says; an empty one asks for none.
    #[must_use]
    pub fn with_rpc_layer(mut self, rpc_layer: impl Into<String>) -> Self {
        self.rpc_layer = Some(rpc_layer.into());
        self
    }

    /// The kind of place the process runs in; the text has no say in this.
    #[must_use]
    pub fn with_environment(mut self, environment: impl Into<String>) -> Self {
        self.environment = Some(environment.into());
        self
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            task_type: None,
            task_id: None,
            rpc_layer: None,
            environment: None,
        }
    }

    fn config(&self) -> Result<TfConfig, Error> {
        match &self.source {
            Source::Text(text) => TfConfig::parse(text),
            Source::Variable(variables) => match variables.read(VARIABLE)? {
                Some(text) => TfConfig::parse(&text),
                None => Ok(TfConfig::default()),
            },
        }
    }

    fn origin(&self) -> Origin {
        match &self.source {
            Source::Text(_) => Origin::program(),
            Source::Variable(_) => Origin::variable(VARIABLE),
        }
    }

    fn explain_fields(&self, config: &TfConfig, explanation: &mut Explanation) {
        let shown = |index: Option<u32>| index.map(|index| index.to_string());
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let cluster = Some(Counts(config.cluster()).to_string());
        let master = owned(config.session_master());
        for (question, name, given, in_text) in [
            (Question::Cluster, "cluster", None, cluster),
            (Question::Master, "session_master", None, master),
            (
                Question::Task,
                "task.type",
                self.task_type.clone(),
                owned(config.task_type()),
            ),
            (
                Question::Task,
                "task.index",
                shown(self.task_id),
                shown(config.task_index()),
            ),
            (
                Question::RpcLayer,
                "rpc_layer",
                self.rpc_layer.clone(),
                owned(config.rpc_layer()),
            ),
        ] {
            let from = self.origin().field(name);
            match (given, in_text) {
                (None, None) => explanation.absent(question, from),
                (None, Some(value)) => explanation.read(question, from, value),
                (Some(given), in_text) => {
                    explanation.read(question, Origin::program().field(name), given);
                    if let Some(value) = in_text {
                        let why = "the program says otherwise";
                        explanation.ignore(question, from, value, why);
                    }
                }
            }
        }
        for key in config.unread() {
            let (from, why) = (self.origin().field(key), "no key that is read here");
            explanation.ignore(Question::Cluster, from, "a value", why);
        }
    }
}

impl ClusterResolver for TfConfigResolver {
    fn cluster_spec(&self) -> Result<ClusterSpec, Error> {
        Ok(self.config()?.cluster().clone())
    }

    fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        let config = self.config()?;
        if let Some(master) = config.session_master() {
            return Ok(master.to_owned());
        }
        let own = OwnTask {
            job: or_text(&self.task_type, config.task_type()),
            index: self.task_id.or_else(|| config.task_index()),
            rpc_layer: or_text(&self.rpc_layer, config.rpc_layer()),
        };
        own.master(config.cluster(), task_type, task_id, rpc_layer)
    }

    fn task_type(&self) -> Result<Option<String>, Error> {
        match &self.task_type {
            Some(own) => Ok(Some(own.clone())),
            None => Ok(self.config()?.task_type().map(str::to_owned)),
        }
    }

    fn task_id(&self) -> Result<Option<u32>, Error> {
        match self.task_id {
            Some(own) => Ok(Some(own)),
            None => Ok(self.config()?.task_index()),
        }
    }

    fn rpc_layer(&self) -> Result<Option<String>, Error> {
        match &self.rpc_layer {
            Some(own) => Ok(Some(own.clone())),
            None => Ok(self.config()?.rpc_layer().map(str::to_owned)),
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
        let is_set = match &self.source {
            Source::Text(_) => true,
            // A variable that cannot be read is reported with each answer.
            Source::Variable(variables) => variables.read(VARIABLE) != Ok(None),
        };
        if !is_set {
            explanation.absent(Question::Cluster, self.origin());
        } else if let Ok(config) = self.config() {
            self.explain_fields(&config, &mut explanation);
        }
        explanation.settle_all(self);
        explanation
    }
}

fn or_text(own: &Option<String>, in_text: Option<&str>) -> Option<String> {
    own.clone().or_else(|| in_text.map(str::to_owned))
}

const VARIABLE: &str = "TF_CONFIG";
