//! What the program says in place of a source.

use std::time::Duration;

use super::{ClusterResolver, Stop, WatchSignal};
use crate::cluster::{Cluster, MasterRule};
use crate::error::Error;
use crate::explanation::{Origin, Question};
use crate::spec::ClusterSpec;

/// A resolver of which the program knows one answer better: made by methods such as
/// [`ClusterResolver::with_task_id`].
///
/// The answer is there even if the source says nothing at all. Of two that are given for one
/// question, the later one counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Overridden<R> {
    resolver: R,
    answer: Override,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Override {
    TaskType(Option<String>),
    TaskId(Option<u32>),
    RpcLayer(Option<String>),
    Environment(String),
}

impl<R> Overridden<R> {
    pub(super) fn new(resolver: R, answer: Override) -> Self {
        Self { resolver, answer }
    }
}

impl<R: ClusterResolver> ClusterResolver for Overridden<R> {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let mut cluster = self.resolver.snapshot().unwrap_or_else(Cluster::unknown);
        self.answer.clone().replace_in(&mut cluster);
        Ok(cluster)
    }

    fn wait_for_change(
        &self,
        known: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        self.resolver.wait_for_change(known, time, stop)
    }
}

impl Override {
    fn replace_in(self, cluster: &mut Cluster) {
        let union_layer = match &mut cluster.master {
            MasterRule::WholeTaskOrFirst { rpc_layer, .. } => Some(rpc_layer),
            _ => None,
        };
        // TensorFlow's union takes an empty text for one that is not given.
        if let Self::TaskType(Some(text)) | Self::RpcLayer(Some(text)) = &self
            && union_layer.is_some()
            && text.is_empty()
        {
            return;
        }
        let is_of_type = |origin: &Origin| {
            let field = origin.field_name();
            field.is_some_and(|field| field.ends_with("type"))
        };
        let program = |field| Origin::program().field(field);
        let none = || "none".to_owned();
        let evidence = &mut cluster.evidence;
        match self {
            Self::TaskType(job) => {
                evidence.overrule(Question::Task, is_of_type);
                let shown = job.clone().unwrap_or_else(none);
                evidence.read(Question::Task, program("task type"), shown);
                cluster.task_type = Ok(job);
            }
            Self::TaskId(index) => {
                evidence.overrule(Question::Task, |origin| !is_of_type(origin));
                let shown = index.map_or_else(none, |index| index.to_string());
                evidence.read(Question::Task, program("task id"), shown);
                cluster.task_id = Ok(index);
            }
            Self::RpcLayer(layer) => {
                evidence.overrule(Question::RpcLayer, |_| true);
                let shown = layer.clone().unwrap_or_else(none);
                evidence.read(Question::RpcLayer, program("rpc layer"), shown);
                if let Some(union_layer) = union_layer {
                    union_layer.clone_from(&layer);
                }
                cluster.rpc_layer = Ok(layer);
            }
            Self::Environment(environment) => cluster.environment = Some(environment),
        }
    }
}
