use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use crate::{ClusterSpec, Error, Explanation, Signal, Stop, TaskPart, Watch};

/// How many accelerators a task has, by device type such as `GPU`.
pub type Accelerators = BTreeMap<String, u32>;

/// A source that knows who is in the cluster, and which task this process is.
///
/// Every call asks the source again, so two calls may see two states of the world; nothing is
/// cached. The texts are TensorFlow's: a task is a job name (its *type*) and an index (its *id*).
///
/// A call blocks while the source is asked, for a limited time. Resolvers are asked a few times in
/// the life of a process, so async code does it on a thread that may block, such as that of tokio's
/// `spawn_blocking`: every resolver can be sent and shared.
pub trait ClusterResolver: Debug + Send + Sync {
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

    /// How this resolver comes to its answers now: what it looked at, what it ignored and why, and
    /// what it concluded, or why it cannot.
    fn explain(&self) -> Explanation;

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

    /// Yields the cluster now and whenever it changes, with a look at least as often as this time.
    ///
    /// Where only a `dyn ClusterResolver` is at hand, [`Watch::new`] does the same.
    fn watch(&self, interval: Duration) -> Watch<'_>
    where
        Self: Sized,
    {
        Watch::new(self, interval)
    }

    /// Waits until the cluster may differ from what was seen, until the time is over, or until the
    /// stop, whichever comes first. A [`Watch`] passes its time here; sources that announce changes
    /// end it early, the others just wait.
    ///
    /// # Errors
    /// Whatever keeps the source from announcing changes; the watch then looks at its interval.
    fn wait_for_change(
        &self,
        seen: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<Signal, Error> {
        let _ = seen;
        Ok(stop.wait(time))
    }
}

/// `layer://address`, or the bare address without a layer.
pub(crate) fn format_master(rpc_layer: Option<&str>, address: &str) -> String {
    match rpc_layer {
        None | Some("") => address.to_owned(),
        Some(layer) => format!("{layer}://{address}"),
    }
}

/// What a process knows about itself, to fill in what a call of `master` leaves out.
pub(crate) struct OwnTask {
    pub(crate) job: Option<String>,
    pub(crate) index: Option<u32>,
    pub(crate) rpc_layer: Option<String>,
}

impl OwnTask {
    /// Where to reach a task; the empty text where there is nobody to connect to.
    pub(crate) fn master(
        &self,
        spec: &ClusterSpec,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        if is_alone(spec) {
            return Ok(String::new());
        }
        let missing = |part| move || Error::TaskUnknown { part };
        let job = task_type.or(self.job.as_deref());
        let job = job.ok_or_else(missing(TaskPart::Type))?;
        let index = task_id.or(self.index).ok_or_else(missing(TaskPart::Id))?;
        let address = spec.task_address(job, index)?;
        let layer = rpc_layer.or(self.rpc_layer.as_deref());
        Ok(format_master(layer, address))
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
