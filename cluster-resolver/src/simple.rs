//! A cluster that the program knows by itself.

use crate::cluster::{Accelerators, Cluster, MasterRule};
use crate::error::Error;
use crate::explanation::{Explanation, Origin, Question};
use crate::resolver::ClusterResolver;
use crate::spec::ClusterSpec;

/// A cluster that is known in advance: it answers what it was built with.
///
/// [`master`](ClusterResolver::master) looks up an address only when both the task type and the
/// task id are given; with one of them alone it answers the master set by
/// [`with_master`](Self::with_master). The task set by
/// [`with_task_type`](ClusterResolver::with_task_type) and
/// [`with_task_id`](ClusterResolver::with_task_id) does not influence it, and an empty layer in the
/// call does not hide the resolver's own, as in TensorFlow.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, ClusterSpec, SimpleResolver};
///
/// let resolver = SimpleResolver::new(ClusterSpec::from_addresses(["w0:2222", "w1:2222"])?)
///     .with_task_type("worker")
///     .with_task_id(1);
/// assert_eq!(resolver.master(Some("worker"), Some(0), Some("grpc"))?, "grpc://w0:2222");
/// assert_eq!(resolver.task_id()?, Some(1));
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[doc(alias = "SimpleClusterResolver")]
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SimpleResolver {
    cluster_spec: ClusterSpec,
    master: String,
    num_accelerators: Accelerators,
}

impl SimpleResolver {
    /// A resolver for this cluster, without a master and without a task of its own.
    #[must_use]
    pub fn new(cluster_spec: ClusterSpec) -> Self {
        Self {
            cluster_spec,
            ..Self::default()
        }
    }

    /// The address that [`master`](ClusterResolver::master) answers when no task is asked for.
    #[must_use]
    pub fn with_master(mut self, master: impl Into<String>) -> Self {
        self.master = master.into();
        self
    }

    /// The accelerators of each task.
    #[must_use]
    pub fn with_num_accelerators(mut self, accelerators: Accelerators) -> Self {
        self.num_accelerators = accelerators;
        self
    }
}

impl ClusterResolver for SimpleResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let mut evidence = Explanation::default();
        let all = "all that this resolver answers";
        evidence.read(Question::Cluster, Origin::program(), all);
        Ok(Cluster {
            accelerators: Some(Ok(self.num_accelerators.clone())),
            master: MasterRule::WholeTaskOr(self.master.clone()),
            evidence,
            ..Cluster::new(self.cluster_spec.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tasks;
    use crate::task::Task;

    fn sample() -> SimpleResolver {
        let jobs = [
            ("worker", Tasks::list(["w0:1", "w1:1"])),
            ("ps", Tasks::map([(2, "p2:1")])),
        ];
        SimpleResolver::new(ClusterSpec::new(jobs).unwrap())
    }

    #[track_caller]
    fn check_master(
        resolver: &impl ClusterResolver,
        task_type: Option<&str>,
        task_id: Option<u32>,
        layer: Option<&str>,
        expected: &str,
    ) {
        assert_eq!(
            resolver.master(task_type, task_id, layer).as_deref(),
            Ok(expected)
        );
    }

    #[test]
    fn an_address_is_looked_up_only_when_type_and_id_are_given() {
        let resolver = sample()
            .with_master("m:1")
            .with_task_type("worker")
            .with_task_id(1);
        check_master(&resolver, Some("worker"), Some(1), None, "w1:1");
        check_master(&resolver, Some("ps"), Some(2), None, "p2:1");
        check_master(&resolver, Some("worker"), None, None, "m:1");
        check_master(&resolver, None, Some(0), None, "m:1");
        check_master(&resolver, None, None, None, "m:1");
    }

    #[test]
    fn a_layer_in_the_call_wins_unless_it_is_empty() {
        let resolver = sample().with_rpc_layer("grpc");
        check_master(
            &resolver,
            Some("worker"),
            Some(0),
            Some("xyz"),
            "xyz://w0:1",
        );
        check_master(&resolver, Some("worker"), Some(0), Some(""), "grpc://w0:1");
        check_master(&resolver, None, None, None, "grpc://");
        check_master(&sample(), None, None, None, "");
    }

    #[test]
    fn a_task_outside_the_cluster_has_no_address() {
        assert_eq!(
            sample().master(Some("ps"), Some(0), None),
            Err(Error::UnknownTask {
                task: Task::new("ps", 0),
                indices: vec![2],
            })
        );
        assert!(matches!(
            sample().master(Some("nope"), Some(0), None),
            Err(Error::UnknownJob { .. })
        ));
    }

    #[test]
    fn it_answers_what_it_was_built_with() {
        let accelerators = Accelerators::from([("GPU".to_owned(), 4)]);
        let resolver = sample()
            .with_num_accelerators(accelerators.clone())
            .with_environment("google")
            .with_rpc_layer("grpc");
        assert_eq!(resolver.environment(), Ok(Some("google".to_owned())));
        assert_eq!(resolver.rpc_layer(), Ok(Some("grpc".to_owned())));
        assert_eq!(resolver.num_accelerators(), Ok(accelerators));
        assert_eq!(
            (resolver.task_type(), resolver.task_id()),
            (Ok(None), Ok(None))
        );
        assert_eq!(sample().environment(), Ok(None));
    }

    #[test]
    fn it_explains_that_the_program_said_so() {
        let resolver = sample().with_task_type("worker").with_task_id(1);
        assert_eq!(
            resolver.explain().to_string(),
            "cluster: worker 2, ps 1\n    the program: all that this resolver answers\n\
             task: worker:1\n    task type in the program: worker\n    task id in the program: 1\nmaster: none\naccelerators: not known\n"
        );
    }
}
