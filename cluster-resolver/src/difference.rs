//! What changed from one cluster to another.

use std::collections::BTreeMap;

use crate::spec::ClusterSpec;
use crate::task::Task;

/// What changed from one [`ClusterSpec`] to another, in terms of tasks.
///
/// A task is known by its name. Where tasks are renumbered, because one of them left and those
/// after it closed the gap, the ones that stayed under another index show up as moved.
///
/// Tasks come in the order of the spec that has them, jobs first and then by index. Two specs are
/// equal exactly when the difference between them is empty.
///
/// ```
/// use meshwork_cluster_resolver::{ClusterSpec, Task};
///
/// let before = ClusterSpec::from_addresses(["a:1", "b:1", "c:1"])?;
/// let after = ClusterSpec::from_addresses(["a:1", "x:1"])?;
/// let difference = before.difference_to(&after);
/// assert_eq!(difference.added(), []);
/// assert_eq!(difference.removed(), [(Task::new("worker", 2), "c:1".to_owned())]);
/// assert_eq!(difference.moved()[0].task(), &Task::new("worker", 1));
/// assert_eq!((difference.moved()[0].from(), difference.moved()[0].to()), ("b:1", "x:1"));
/// # Ok::<(), meshwork_cluster_resolver::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    added: Vec<(Task, String)>,
    removed: Vec<(Task, String)>,
    moved: Vec<Moved>,
    added_jobs: Vec<String>,
    removed_jobs: Vec<String>,
}

/// A task with another address than before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Moved {
    task: Task,
    from: String,
    to: String,
}

impl ClusterSpec {
    /// What has to change in this spec to make it equal to the other.
    #[must_use]
    pub fn difference_to(&self, newer: &Self) -> Difference {
        let (before, after) = (by_task(self), by_task(newer));
        let mut difference = Difference {
            added_jobs: jobs_only_in(newer, self),
            removed_jobs: jobs_only_in(self, newer),
            ..Difference::default()
        };
        for (task, to) in tasks(newer) {
            match before.get(&task) {
                None => difference.added.push((task, to.to_owned())),
                Some(from) if *from == to => {}
                Some(from) => difference.moved.push(Moved {
                    task,
                    from: (*from).to_owned(),
                    to: to.to_owned(),
                }),
            }
        }
        let gone = tasks(self).filter(|(task, _)| !after.contains_key(task));
        difference.removed = gone.map(|(task, from)| (task, from.to_owned())).collect();
        difference
    }
}

impl Difference {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The tasks that were not there before, with their addresses.
    #[must_use]
    pub fn added(&self) -> &[(Task, String)] {
        &self.added
    }

    /// The tasks that are no longer there, with the addresses they had.
    #[must_use]
    pub fn removed(&self) -> &[(Task, String)] {
        &self.removed
    }

    /// The tasks that have another address than before.
    #[must_use]
    pub fn moved(&self) -> &[Moved] {
        &self.moved
    }

    /// The jobs that were not there before, those without tasks included.
    #[must_use]
    pub fn added_jobs(&self) -> &[String] {
        &self.added_jobs
    }

    /// The jobs that are no longer there, those without tasks included.
    #[must_use]
    pub fn removed_jobs(&self) -> &[String] {
        &self.removed_jobs
    }
}

impl Moved {
    /// The task.
    #[must_use]
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The address it had.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.from
    }

    /// The address it has now.
    #[must_use]
    pub fn to(&self) -> &str {
        &self.to
    }
}

fn tasks(spec: &ClusterSpec) -> impl Iterator<Item = (Task, &str)> {
    spec.tasks()
        .map(|(job, index, address)| (Task::new(job, index), address))
}

fn by_task(spec: &ClusterSpec) -> BTreeMap<Task, &str> {
    tasks(spec).collect()
}

fn jobs_only_in(spec: &ClusterSpec, other: &ClusterSpec) -> Vec<String> {
    let jobs = spec.jobs().filter(|job| other.num_tasks(job).is_err());
    jobs.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::Tasks;

    type Jobs = BTreeMap<String, BTreeMap<u32, String>>;

    fn any_jobs() -> impl Strategy<Value = Jobs> {
        let tasks = proptest::collection::btree_map(0_u32..4, "[ab]:1", 0..4);
        proptest::collection::btree_map("[pw]", tasks, 0..3)
    }

    fn spec(jobs: &Jobs) -> ClusterSpec {
        let jobs = jobs.clone().into_iter();
        ClusterSpec::new(jobs.map(|(job, tasks)| (job, Tasks::Map(tasks)))).unwrap()
    }

    /// Makes the changes one by one; each must fit what is there.
    fn apply(mut jobs: Jobs, difference: &Difference) -> Jobs {
        for (task, address) in difference.removed() {
            let gone = jobs.get_mut(task.job()).unwrap().remove(&task.index());
            assert_eq!(gone.as_ref(), Some(address));
        }
        for job in difference.removed_jobs() {
            assert_eq!(jobs.remove(job), Some(BTreeMap::new()));
        }
        for job in difference.added_jobs() {
            assert_eq!(jobs.insert(job.clone(), BTreeMap::new()), None);
        }
        for (task, address) in difference.added() {
            let tasks = jobs.get_mut(task.job()).unwrap();
            assert_eq!(tasks.insert(task.index(), address.clone()), None);
        }
        for moved in difference.moved() {
            let tasks = jobs.get_mut(moved.task().job()).unwrap();
            let from = tasks.insert(moved.task().index(), moved.to().to_owned());
            assert_eq!(from.as_deref(), Some(moved.from()));
            assert_ne!(moved.from(), moved.to());
        }
        jobs
    }

    proptest! {
        #[test]
        fn a_difference_applied_to_the_older_spec_gives_the_newer(
            older in any_jobs(),
            newer in any_jobs(),
        ) {
            let difference = spec(&older).difference_to(&spec(&newer));
            prop_assert_eq!(difference.is_empty(), older == newer);
            prop_assert_eq!(apply(older, &difference), newer);
        }
    }
}
