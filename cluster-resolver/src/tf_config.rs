//! `TF_CONFIG`: from its text to a cluster and a task, with every wrong field named.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Error, Expected};
use crate::spec::{ClusterSpec, Tasks};
use crate::task::MAX_TASK_INDEX;

mod resolver;
mod syntax;

pub use resolver::TfConfigResolver;

/// What a `TF_CONFIG` text says.
///
/// The text is a JSON object. These keys are read, all may be absent, others are ignored:
///
/// | key | holds |
/// |---|---|
/// | `cluster` | jobs: each a list of addresses, or an object from task index to address |
/// | `task.type`, `task.index` | the job of this process and its index there |
/// | `rpc_layer` | protocol put before addresses; `null` counts as absent |
/// | `session_master` | address answered for every task; `null` counts as absent |
///
/// A repeated key keeps its last value, as it does for JSON readers at large.
///
/// # Where TensorFlow differs
///
/// The whole text is checked before anything is answered: TensorFlow looks at a field only when
/// asked for it, so half of a wrong text may work. It also takes, where this is refused with
/// the name of the field:
///
/// - `null` or a number as `task.type`, which become the texts `None` and `7`; numbers as
///   `rpc_layer` and `session_master`;
/// - `true` and `1.9` as `task.index`, which become 1, and negative indices anywhere;
/// - a list or a text in place of the whole object, which count as "no cluster";
/// - two keys for one index, such as `"1"` and `"01"`, of which the later one wins;
/// - `NaN`, which is no JSON.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TfConfig {
    cluster: ClusterSpec,
    task_type: Option<String>,
    task_index: Option<u32>,
    rpc_layer: Option<String>,
    session_master: Option<String>,
    unread: Vec<String>,
}

impl TfConfig {
    /// Reads a `TF_CONFIG` text.
    ///
    /// ```
    /// use meshwork_cluster_resolver::TfConfig;
    ///
    /// let config = TfConfig::parse(r#"{"task": {"type": "worker", "index": "3"}}"#)?;
    /// assert_eq!(config.task_index(), Some(3));
    /// assert!(config.cluster().is_empty());
    ///
    /// let error = TfConfig::parse(r#"{"task": {"type": "worker", "index": "three"}}"#).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"task.index in TF_CONFIG is "three": make it a whole number from 0 to 2147483647"#
    /// );
    /// # Ok::<(), meshwork_cluster_resolver::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Json`] for a text that is not JSON, the empty one included; [`Error::Field`],
    /// [`Error::IndexKey`] and [`Error::IndexTwice`] for a field that holds something else than
    /// belongs there.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let root = syntax::read(text)?;
        let Value::Object(root) = &root else {
            return Err(wrong("", &root, Expected::Config));
        };
        let (task_type, task_index) = root.get("task").map_or(Ok((None, None)), read_task)?;
        Ok(Self {
            cluster: root
                .get("cluster")
                .map_or_else(|| Ok(ClusterSpec::default()), read_cluster)?,
            task_type,
            task_index,
            rpc_layer: read_optional_text("rpc_layer", root)?,
            session_master: read_optional_text("session_master", root)?,
            unread: unread_keys(root),
        })
    }

    /// The cluster; empty if the text names none.
    #[must_use]
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// The job of this process.
    #[must_use]
    pub fn task_type(&self) -> Option<&str> {
        self.task_type.as_deref()
    }

    /// The index of this process in its job; whether the cluster has it is not checked.
    #[must_use]
    pub fn task_index(&self) -> Option<u32> {
        self.task_index
    }

    /// The protocol to put before addresses; an empty text asks for bare addresses.
    #[must_use]
    pub fn rpc_layer(&self) -> Option<&str> {
        self.rpc_layer.as_deref()
    }

    /// The address to answer whichever task is asked for.
    #[must_use]
    pub fn session_master(&self) -> Option<&str> {
        self.session_master.as_deref()
    }

    /// The keys that the text has and that mean nothing here, such as `environment` and
    /// `task.trial`, in the order of the text.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        &self.unread
    }
}

fn read_cluster(value: &Value) -> Result<ClusterSpec, Error> {
    let Value::Object(jobs) = value else {
        return Err(wrong("cluster", value, Expected::Jobs));
    };
    let jobs: Vec<(&String, Tasks)> = jobs
        .iter()
        .map(|(job, tasks)| Ok((job, read_tasks(&job_path(job), tasks)?)))
        .collect::<Result<_, Error>>()?;
    ClusterSpec::new(jobs)
}

fn read_tasks(path: &str, value: &Value) -> Result<Tasks, Error> {
    match value {
        Value::Array(addresses) => addresses
            .iter()
            .enumerate()
            .map(|(index, address)| {
                read_text(|| format!("{path}[{index}]"), address, Expected::Address)
            })
            .collect::<Result<_, _>>()
            .map(Tasks::List),
        Value::Object(tasks) => read_task_map(path, tasks).map(Tasks::Map),
        other => Err(wrong(path, other, Expected::Tasks)),
    }
}

fn read_task_map(path: &str, map: &Map<String, Value>) -> Result<BTreeMap<u32, String>, Error> {
    let mut tasks = BTreeMap::new();
    for (key, address) in map {
        let Some(index) = index_from_text(key) else {
            return Err(Error::IndexKey {
                path: path.to_owned(),
                key: key.clone(),
            });
        };
        let address = read_text(|| format!("{path}[{index}]"), address, Expected::Address)?;
        if tasks.insert(index, address).is_some() {
            return Err(Error::IndexTwice {
                path: path.to_owned(),
                index,
            });
        }
    }
    Ok(tasks)
}

fn read_task(value: &Value) -> Result<(Option<String>, Option<u32>), Error> {
    let Value::Object(task) = value else {
        return Err(wrong("task", value, Expected::Task));
    };
    let task_type = task
        .get("type")
        .map(|value| read_text(|| "task.type".to_owned(), value, Expected::Text))
        .transpose()?;
    Ok((task_type, task.get("index").map(read_index).transpose()?))
}

fn read_index(value: &Value) -> Result<u32, Error> {
    let index = match value {
        // A whole number may be written as a float, `3.0`; the shown form settles which it is.
        Value::Number(number) => {
            let shown = number.to_string();
            index_from_text(shown.strip_suffix(".0").unwrap_or(&shown))
        }
        Value::String(text) => index_from_text(text),
        _ => None,
    };
    index.ok_or_else(|| wrong("task.index", value, Expected::Index))
}

fn unread_keys(root: &Map<String, Value>) -> Vec<String> {
    let unread = |keys: &Map<String, Value>, prefix: &str, read: &[&str]| -> Vec<String> {
        let keys = keys.keys().filter(|key| !read.contains(&key.as_str()));
        keys.map(|key| format!("{prefix}{key}")).collect()
    };
    let mut keys = unread(
        root,
        "",
        &["cluster", "task", "rpc_layer", "session_master"],
    );
    if let Some(Value::Object(task)) = root.get("task") {
        keys.extend(unread(task, "task.", &["type", "index"]));
    }
    keys
}

fn read_optional_text(key: &str, root: &Map<String, Value>) -> Result<Option<String>, Error> {
    match root.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read_text(|| key.to_owned(), value, Expected::Text).map(Some),
    }
}

fn read_text(
    path: impl Fn() -> String,
    value: &Value,
    expected: Expected,
) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(wrong(&path(), other, expected)),
    }
}

/// The index that a text means; blanks around it, a plus sign and leading zeros are allowed.
fn index_from_text(text: &str) -> Option<u32> {
    text.trim()
        .parse()
        .ok()
        .filter(|&index| index <= MAX_TASK_INDEX)
}

/// The path of a job; names that are not plain words are quoted as JSON does.
fn job_path(job: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !job.is_empty() && job.bytes().all(plain) {
        format!("cluster.{job}")
    } else {
        format!("cluster[{}]", Value::from(job))
    }
}

fn wrong(path: &str, found: &Value, expected: Expected) -> Error {
    Error::Field {
        path: path.to_owned(),
        found: found.to_string(),
        expected,
    }
}

#[cfg(test)]
mod tests;
