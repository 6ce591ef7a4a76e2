//! Several clusters as one.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, MasterRule};
use crate::error::Error;
use crate::explanation::{Explanation, Question};
use crate::resolver::ClusterResolver;
use crate::spec::{ClusterSpec, Tasks};
use crate::task::Task;

/// Several clusters as one.
///
/// A job whose tasks are numbered from 0 without holes in every member that has it is strung
/// together: the tasks of each member follow those of the member before, with new numbers. If any
/// member has the job with holes, or without tasks, all keep their numbers, and none may be given
/// twice.
///
/// The first member says what is not asked of the others: the task, the layer, the environment, the
/// accelerators, and the master when no task is asked for. A master of the united cluster has the
/// layer of the call or of the union, not that of a member. An empty task type or layer that is
/// given to the union counts as none.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterResolver, ClusterSpec, SimpleResolver, UnionResolver};
///
/// let one = SimpleResolver::new(ClusterSpec::from_addresses(["a:1", "b:1"])?);
/// let other = SimpleResolver::new(ClusterSpec::from_addresses(["c:1"])?);
/// let union = UnionResolver::new(one).and(other);
/// assert_eq!(union.cluster_spec()?.task_address("worker", 2)?, "c:1");
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
///
/// # Where TensorFlow differs
///
/// It takes a task id of 0 that is set for the union as not set, and answers that of the first
/// member.
#[doc(alias = "UnionClusterResolver")]
#[derive(Debug)]
pub struct UnionResolver {
    first: Box<dyn ClusterResolver>,
    others: Vec<Box<dyn ClusterResolver>>,
}

impl UnionResolver {
    /// The cluster of one member.
    #[must_use]
    pub fn new(first: impl ClusterResolver + 'static) -> Self {
        Self {
            first: Box::new(first),
            others: Vec::new(),
        }
    }

    /// Adds a member.
    #[must_use]
    pub fn and(mut self, member: impl ClusterResolver + 'static) -> Self {
        self.others.push(Box::new(member));
        self
    }
}

impl ClusterResolver for UnionResolver {
    fn snapshot(&self) -> Result<Cluster, Error> {
        let members = std::iter::once(&self.first).chain(&self.others);
        let clusters = members.map(|member| member.snapshot().unwrap_or_else(Cluster::unknown));
        let clusters: Vec<Cluster> = clusters.collect();
        let mut evidence = Explanation::default();
        for (position, cluster) in clusters.iter().enumerate() {
            let mut of_member = cluster.explanation();
            if position > 0 {
                of_member.retain(Question::Cluster);
            }
            evidence.include(position, of_member);
        }
        let specs: Result<Vec<_>, _> = clusters.iter().map(Cluster::spec).collect();
        let spec = specs.and_then(|specs| unite(&specs));
        let first = clusters
            .into_iter()
            .next()
            .expect("a union has a first member");
        Ok(Cluster {
            spec,
            evidence,
            master: MasterRule::WholeTaskOrFirst {
                first: Box::new(first.clone()),
                rpc_layer: None,
            },
            ..first
        })
    }
}

/// The jobs of all specs, in the order in which they first appear.
fn unite(specs: &[&ClusterSpec]) -> Result<ClusterSpec, Error> {
    let mut jobs: Vec<(&str, Tasks)> = Vec::new();
    for (job, tasks) in specs.iter().flat_map(|spec| spec.as_dict()) {
        let known = jobs.iter_mut().find(|(known, _)| *known == job);
        match (known, tasks) {
            (None, Tasks::List(_)) => jobs.push((job, Tasks::List(Vec::new()))),
            (None, Tasks::Map(_)) => jobs.push((job, Tasks::Map(BTreeMap::new()))),
            (Some((_, united)), Tasks::Map(_)) => *united = Tasks::Map(BTreeMap::new()),
            (Some(_), Tasks::List(_)) => {}
        }
    }
    for (job, united) in &mut jobs {
        for spec in specs.iter().filter(|spec| spec.num_tasks(job).is_ok()) {
            for index in spec.task_indices(job)? {
                let address = spec.task_address(job, index)?.to_owned();
                match united {
                    Tasks::List(addresses) => addresses.push(address),
                    Tasks::Map(tasks) => insert(tasks, Task::new(*job, index), address)?,
                }
            }
        }
    }
    ClusterSpec::new(jobs)
}

fn insert(tasks: &mut BTreeMap<u32, String>, task: Task, address: String) -> Result<(), Error> {
    match tasks.insert(task.index(), address.clone()) {
        None => Ok(()),
        Some(first) => Err(Error::TaskTwice {
            task,
            first,
            second: address,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simple::SimpleResolver;

    fn simple(jobs: impl IntoIterator<Item = (&'static str, Tasks)>) -> SimpleResolver {
        SimpleResolver::new(ClusterSpec::new(jobs).unwrap())
    }

    fn workers(tasks: Tasks) -> SimpleResolver {
        simple([("worker", tasks)])
    }

    #[track_caller]
    fn check(union: &UnionResolver, expected: &[(&str, Tasks)]) {
        assert_eq!(union.cluster_spec().unwrap().as_dict(), expected);
    }

    #[test]
    fn lists_are_strung_together_and_jobs_keep_their_first_place() {
        let union = UnionResolver::new(workers(Tasks::list(["a:1", "b:1"]))).and(simple([
            ("ps", Tasks::list(["p:1"])),
            ("worker", Tasks::list(["a:1"])),
        ]));
        let expected = [
            ("worker", Tasks::list(["a:1", "b:1", "a:1"])),
            ("ps", Tasks::list(["p:1"])),
        ];
        check(&union, &expected);
    }

    #[test]
    fn one_sparse_member_makes_all_keep_their_numbers() {
        let union = UnionResolver::new(workers(Tasks::list(["a:1"])))
            .and(workers(Tasks::map([(2, "c:1")])))
            .and(workers(Tasks::map([(4, "e:1")])));
        let expected = Tasks::map([(0, "a:1"), (2, "c:1"), (4, "e:1")]);
        check(&union, &[("worker", expected)]);
    }

    #[test]
    fn a_number_given_twice_is_refused_even_for_one_address() {
        let none: [&str; 0] = [];
        let members = [
            workers(Tasks::list(["a:1"])),
            workers(Tasks::list(["a:1"])),
            workers(Tasks::list(none)),
        ];
        let [one, other, empty] = members;
        let union = UnionResolver::new(one).and(other).and(empty);
        let (task, first, second) = (Task::new("worker", 0), "a:1".into(), "a:1".into());
        let expected = Error::TaskTwice {
            task,
            first,
            second,
        };
        assert_eq!(union.cluster_spec(), Err(expected));
    }

    #[test]
    fn the_first_member_answers_what_the_union_was_not_told() {
        let first = workers(Tasks::list(["a:1"]))
            .with_master("m:1")
            .with_task_type("ps")
            .with_task_id(4)
            .with_rpc_layer("x")
            .with_environment("google");
        let second = workers(Tasks::list(["b:1"])).with_task_type("chief");
        let union = UnionResolver::new(first).and(second).with_rpc_layer("");
        assert_eq!(union.task_type(), Ok(Some("ps".to_owned())));
        assert_eq!(union.task_id(), Ok(Some(4)));
        assert_eq!(union.environment(), Ok(Some("google".to_owned())));
        let master =
            |union: &dyn ClusterResolver, id| union.master(Some("worker"), id, None).unwrap();
        assert_eq!(master(&union, Some(1)), "b:1");
        assert_eq!(master(&union, None), "x://m:1");

        let union = union
            .with_task_type("worker")
            .with_task_id(0)
            .with_rpc_layer("y");
        assert_eq!(union.task_type(), Ok(Some("worker".to_owned())));
        assert_eq!(union.task_id(), Ok(Some(0)));
        assert_eq!(master(&union, Some(1)), "y://b:1");
        assert_eq!(master(&union, None), "x://m:1");
    }

    #[test]
    fn the_explanation_holds_those_of_the_members() {
        let union = UnionResolver::new(workers(Tasks::list(["a:1"])).with_task_type("ps"))
            .and(workers(Tasks::list(["b:1"])).with_task_type("chief"))
            .with_task_id(1);
        let shown = union.explain().to_string();
        for line in [
            "cluster: worker 2",
            "    resolver 1: worker 1",
            "task: ps:1",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{shown}");
        }
        assert!(!shown.contains("chief"), "{shown}");
    }
}
