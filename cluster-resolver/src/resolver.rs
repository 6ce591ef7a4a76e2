//! The one question that a source of clusters answers, and what is asked in its terms.

use std::fmt::Debug;
use std::time::Duration;

use crate::cluster::{Accelerators, Cluster};
use crate::error::Error;
use crate::explanation::Explanation;
use crate::spec::ClusterSpec;

mod overridden;
mod watch;

pub use overridden::Overridden;
pub use watch::{Stop, Update, Watch, WatchSignal};

use overridden::Override;

/// A source that knows who is in the cluster, and which task this process is.
///
/// A source has one thing to say: [`snapshot`](Self::snapshot), the [`Cluster`] as it is now. Take
/// one and ask it, wherever several answers belong together. The methods with TensorFlow's names
/// take a snapshot each, so two of them may see two states of the world; nothing is cached. Their
/// errors are those of the snapshot and of the answer.
///
/// A snapshot blocks while the source is asked, for a limited time. Resolvers are asked a few times
/// in the life of a process, so async code does it on a thread that may block, such as that of
/// tokio's `spawn_blocking`: every resolver can be sent and shared.
///
/// What the program knows better than the source is said by the `with_` and `without_` methods,
/// each of which makes a resolver of a resolver:
///
/// ```
/// use meshwork_cluster_resolver::{Cluster, ClusterResolver, ClusterSpec, Error};
///
/// #[derive(Debug)]
/// struct TwoHosts;
///
/// impl ClusterResolver for TwoHosts {
///     fn snapshot(&self) -> Result<Cluster, Error> {
///         Ok(Cluster::new(ClusterSpec::from_addresses(["a:2222", "b:2222"])?))
///     }
/// }
///
/// let cluster = TwoHosts.with_task_type("worker").with_task_id(1).snapshot()?;
/// assert_eq!(cluster.placement()?.rank(), 1);
/// assert_eq!(cluster.master(None, None, None)?, "b:2222");
/// # Ok::<(), Error>(())
/// ```
pub trait ClusterResolver: Debug + Send + Sync {
    /// The cluster as it is now, from one look at the environment, the files or the service.
    ///
    /// What could not be found out is an error of that answer alone.
    ///
    /// # Errors
    /// Whatever keeps the source from saying anything at all.
    fn snapshot(&self) -> Result<Cluster, Error>;

    /// [`Cluster::spec`] of a new snapshot.
    fn cluster_spec(&self) -> Result<ClusterSpec, Error> {
        self.snapshot()?.spec
    }

    /// [`Cluster::master`] of a new snapshot.
    fn master(
        &self,
        task_type: Option<&str>,
        task_id: Option<u32>,
        rpc_layer: Option<&str>,
    ) -> Result<String, Error> {
        self.snapshot()?.master(task_type, task_id, rpc_layer)
    }

    /// [`Cluster::task_type`] of a new snapshot.
    fn task_type(&self) -> Result<Option<String>, Error> {
        self.snapshot()?.task_type
    }

    /// [`Cluster::task_id`] of a new snapshot.
    fn task_id(&self) -> Result<Option<u32>, Error> {
        self.snapshot()?.task_id
    }

    /// [`Cluster::rpc_layer`] of a new snapshot.
    fn rpc_layer(&self) -> Result<Option<String>, Error> {
        self.snapshot()?.rpc_layer
    }

    /// [`Cluster::environment`] of a new snapshot.
    fn environment(&self) -> Result<Option<String>, Error> {
        Ok(self.snapshot()?.environment)
    }

    /// [`Cluster::num_accelerators`] of a new snapshot.
    fn num_accelerators(&self) -> Result<Accelerators, Error> {
        self.snapshot()?.num_accelerators()
    }

    /// [`Cluster::explanation`] of a new snapshot.
    fn explain(&self) -> Explanation {
        let cluster = self.snapshot().unwrap_or_else(Cluster::unknown);
        cluster.explanation()
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

    /// Waits until the cluster may differ from the known one, until the time is over, or until the
    /// stop, whichever comes first. A [`Watch`] passes its time here; sources that announce changes
    /// end it early, the others just wait.
    ///
    /// # Errors
    /// Whatever keeps the source from announcing changes; the watch then looks at its interval.
    fn wait_for_change(
        &self,
        known: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        let _ = known;
        Ok(stop.wait(time))
    }

    /// The job of this process, whatever the source says.
    #[must_use]
    fn with_task_type(self, task_type: impl Into<String>) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::TaskType(Some(task_type.into())))
    }

    /// The process has no job, whatever the source says, as one that only looks on.
    #[must_use]
    fn without_task_type(self) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::TaskType(None))
    }

    /// The index of this process in its job, whatever the source says.
    #[must_use]
    fn with_task_id(self, task_id: u32) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::TaskId(Some(task_id)))
    }

    /// The process has no index, whatever the source says, as one that only looks on.
    #[must_use]
    fn without_task_id(self) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::TaskId(None))
    }

    /// The protocol put before addresses when a call names none, whatever the source says; an empty
    /// one asks for bare addresses.
    #[must_use]
    fn with_rpc_layer(self, rpc_layer: impl Into<String>) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::RpcLayer(Some(rpc_layer.into())))
    }

    /// No protocol is put before addresses unless a call names one.
    #[must_use]
    fn without_rpc_layer(self) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::RpcLayer(None))
    }

    /// The kind of place the process runs in.
    #[must_use]
    fn with_environment(self, environment: impl Into<String>) -> Overridden<Self>
    where
        Self: Sized,
    {
        Overridden::new(self, Override::Environment(environment.into()))
    }
}

impl<R: ClusterResolver + ?Sized> ClusterResolver for Box<R> {
    fn snapshot(&self) -> Result<Cluster, Error> {
        (**self).snapshot()
    }

    fn wait_for_change(
        &self,
        known: &ClusterSpec,
        time: Duration,
        stop: &Stop,
    ) -> Result<WatchSignal, Error> {
        (**self).wait_for_change(known, time, stop)
    }
}

#[cfg(test)]
mod tests;
