//! Where to reach a task. Sources differ in what an argument left out means, as TensorFlow's
//! resolvers do, so a cluster carries the rule of its source.

use super::Cluster;
use crate::error::{Error, TaskPart};
use crate::spec::ClusterSpec;

/// How a source finds the address that [`Cluster::master`] answers.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(
    not(all(feature = "gce", feature = "kubernetes", feature = "tpu")),
    allow(dead_code, reason = "each resolver has its rule")
)]
pub(crate) enum MasterRule {
    /// The own task completes the one asked for; a process that is alone has nobody to connect to.
    OwnTask,
    /// The own task completes the one asked for, and a process that is alone has its own address.
    OwnTaskEvenAlone,
    /// The own task completes the one asked for; nothing if a part of it stays unknown, or if there
    /// are no jobs. An empty layer in the call does not hide the own one.
    OwnTaskIfKnown,
    /// A task asked for by job and index, or the own one, or the first of the own job; nothing if
    /// there are no jobs. Always with this layer.
    WholeTask { rpc_layer: &'static str },
    /// This address, whichever task is asked for.
    Fixed(String),
    /// A task asked for by job and index, or this address. An empty layer in the call does not hide
    /// the own one.
    WholeTaskOr(String),
    /// A task asked for by job and index, with this layer if the call names none, or what the first
    /// of several clusters answers.
    WholeTaskOrFirst {
        first: Box<Cluster>,
        rpc_layer: Option<String>,
    },
}

impl Cluster {
    /// Where to reach a task: `layer://address`, or the bare address when no layer is known or it
    /// is empty. What an argument left out means is for each resolver to say.
    ///
    /// # Errors
    /// Those of the other answers as far as they are needed, and a task that the cluster does not
    /// have.
    pub fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        let whole = task_type.zip(task_id);
        let named_layer = rpc_layer.filter(|layer| !layer.is_empty());
        match &self.master {
            MasterRule::Fixed(address) => Ok(address.clone()),
            MasterRule::OwnTask if is_alone(self.spec()?) => Ok(String::new()),
            MasterRule::OwnTask | MasterRule::OwnTaskEvenAlone => {
                let missing = |part| move || Error::TaskUnknown { part };
                let job = self.job_or(task_type)?;
                let job = job.ok_or_else(missing(TaskPart::Type))?;
                let index = self.index_or(task_id)?;
                let index = index.ok_or_else(missing(TaskPart::Id))?;
                self.reach(job, index, rpc_layer)
            }
            MasterRule::OwnTaskIfKnown => {
                let (job, index) = (self.job_or(task_type)?, self.index_or(task_id)?);
                match job.zip(index) {
                    Some((job, index)) if !self.spec()?.is_empty() => {
                        self.reach(job, index, named_layer)
                    }
                    _ => Ok(String::new()),
                }
            }
            MasterRule::WholeTask { .. } if self.spec()?.is_empty() => Ok(String::new()),
            MasterRule::WholeTask { rpc_layer } => {
                let part = TaskPart::Type;
                let (job, index) = match whole {
                    Some(whole) => whole,
                    None => (
                        self.task_type()?.ok_or(Error::TaskUnknown { part })?,
                        // Their jobs are lists, so a first task has the index 0.
                        self.task_id()?.unwrap_or_default(),
                    ),
                };
                self.reach(job, index, Some(rpc_layer))
            }
            MasterRule::WholeTaskOr(address) => match whole {
                Some((job, index)) => self.reach(job, index, named_layer),
                None => Ok(at(self.layer_or(named_layer)?, address)),
            },
            MasterRule::WholeTaskOrFirst {
                first,
                rpc_layer: own,
            } => match whole {
                Some((job, index)) => {
                    let address = self.spec()?.task_address(job, index)?;
                    Ok(at(named_layer.or(own.as_deref()), address))
                }
                None => first.master(None, None, rpc_layer),
            },
        }
    }

    fn reach(&self, job: &str, index: u32, rpc_layer: Option<&str>) -> Result<String, Error> {
        let address = self.spec()?.task_address(job, index)?;
        Ok(at(self.layer_or(rpc_layer)?, address))
    }

    fn job_or<'a>(&'a self, given: Option<&'a str>) -> Result<Option<&'a str>, Error> {
        given.map_or_else(|| self.task_type(), |job| Ok(Some(job)))
    }

    fn index_or(&self, given: Option<u32>) -> Result<Option<u32>, Error> {
        given.map_or_else(|| self.task_id(), |index| Ok(Some(index)))
    }

    fn layer_or<'a>(&'a self, given: Option<&'a str>) -> Result<Option<&'a str>, Error> {
        given.map_or_else(|| self.rpc_layer(), |layer| Ok(Some(layer)))
    }
}

/// `layer://address`, or the bare address without a layer.
fn at(rpc_layer: Option<&str>, address: &str) -> String {
    match rpc_layer {
        None | Some("") => address.to_owned(),
        Some(layer) => format!("{layer}://{address}"),
    }
}

/// Whether there is nobody to connect to. A single task at another index than 0 does not count,
/// because the slots below it may be filled by the time somebody asks again.
fn is_alone(spec: &ClusterSpec) -> bool {
    let mut jobs = spec.jobs();
    match (jobs.next(), jobs.next()) {
        (None, _) => true,
        (Some(only), None) => spec.task_indices(only).is_ok_and(|indices| indices.eq([0])),
        (Some(_), Some(_)) => false,
    }
}
