use std::collections::BTreeMap;

use crate::{ClusterSpec, Error};

/// How many accelerators a task has, by device type such as `GPU`.
pub type Accelerators = BTreeMap<String, u32>;

/// A source that knows who is in the cluster, and which task this process is.
///
/// Every call asks the source again, so two calls may see two states of the world; nothing is
/// cached. The texts are TensorFlow's: a task is a job name (its *type*) and an index (its *id*).
pub trait ClusterResolver {
    /// The cluster as it is now; empty when the process runs alone.
    ///
    /// # Errors
    /// Whatever keeps the source from being read or understood.
    fn cluster_spec(&self) -> Result<ClusterSpec, Error>;

    /// Where to reach a task: `layer://address`, or the bare address when no layer is known or it
    /// is empty. What an argument left out means is for each resolver to say.
    ///
    /// # Errors
    /// Those of [`cluster_spec`](Self::cluster_spec), and a task that the cluster does not have.
    fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error>;

    /// The job of this process, `None` if the source does not say.
    ///
    /// # Errors
    /// Those of [`cluster_spec`](Self::cluster_spec).
    fn task_type(&self) -> Result<Option<String>, Error>;

    /// The index of this process in its job, `None` if the source does not say.
    ///
    /// # Errors
    /// Those of [`cluster_spec`](Self::cluster_spec).
    fn task_id(&self) -> Result<Option<u32>, Error>;

    /// The protocol that [`master`](Self::master) puts before addresses, such as `grpc`.
    ///
    /// # Errors
    /// Those of [`cluster_spec`](Self::cluster_spec).
    fn rpc_layer(&self) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// The kind of place the process runs in, such as `google`, if somebody said so.
    fn environment(&self) -> Option<&str> {
        None
    }

    /// The accelerators of each task as far as the source knows them; a source that knows nothing
    /// answers an empty map, and then it is for the backend to count the local devices.
    ///
    /// # Errors
    /// Those of [`cluster_spec`](Self::cluster_spec).
    fn num_accelerators(&self) -> Result<Accelerators, Error> {
        Ok(Accelerators::new())
    }
}

/// `layer://address`, or the bare address without a layer.
pub(crate) fn format_master(rpc_layer: Option<&str>, address: &str) -> String {
    match rpc_layer {
        None | Some("") => address.to_owned(),
        Some(layer) => format!("{layer}://{address}"),
    }
}
