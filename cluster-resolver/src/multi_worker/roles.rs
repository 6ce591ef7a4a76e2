//! One question at a time about a task of any role, for programs that ask as TensorFlow's helpers
//! do.
//!
//! Training itself goes by [`WorkerPlacement`](super::WorkerPlacement), which answers for those
//! that train, and checks more.

use super::{CHIEF, EVALUATOR, WORKER, check_roles};
use crate::error::Error;
use crate::spec::ClusterSpec;
use crate::task::Task;

/// Whether this task reports and saves for all: the chief, worker 0 where there is none, or the
/// evaluator, which does so for itself. A process without a task is none of them.
///
/// # Errors
/// [`Error::UnknownRole`], [`Error::TooManyTasks`], [`Error::UnknownJob`], [`Error::UnknownTask`].
pub fn is_chief(spec: &ClusterSpec, task: Option<&Task>) -> Result<bool, Error> {
    let Some(task) = task else {
        return check_roles(spec).map(|()| false);
    };
    check_task(spec, task)?;
    let first_worker = task.job() == WORKER && task.index() == 0;
    Ok(match task.job() {
        CHIEF | EVALUATOR => true,
        _ => first_worker && tasks(spec, CHIEF) == 0,
    })
}

/// The number of this task among those with its part in the job: the chief and then the workers, or
/// the evaluators.
///
/// # Errors
/// Those of [`is_chief`], and [`Error::NotTraining`] for a parameter server.
pub fn id_in_cluster(spec: &ClusterSpec, task: &Task) -> Result<u32, Error> {
    check_task(spec, task)?;
    match task.job() {
        CHIEF => Ok(0),
        WORKER => {
            let chiefs = u32::try_from(tasks(spec, CHIEF)).unwrap_or(u32::MAX);
            Ok(task.index().saturating_add(chiefs))
        }
        EVALUATOR => Ok(task.index()),
        _ => Err(Error::NotTraining { task: task.clone() }),
    }
}

/// How many tasks do what those of `job` do: chief and workers train, evaluators evaluate.
///
/// # Errors
/// [`Error::UnknownRole`], [`Error::TooManyTasks`]; [`Error::UnknownJob`] for a job that the
/// cluster does not have or that has no part in this.
pub fn worker_count(spec: &ClusterSpec, job: &str) -> Result<usize, Error> {
    check_roles(spec)?;
    match job {
        CHIEF | WORKER if tasks(spec, job) > 0 => Ok(tasks(spec, CHIEF) + tasks(spec, WORKER)),
        EVALUATOR => spec.num_tasks(EVALUATOR),
        _ => Err(Error::UnknownJob {
            job: job.to_owned(),
            known: spec.jobs().map(str::to_owned).collect(),
        }),
    }
}

/// The task, as a device, that others ask who takes part in a reduction; none for an evaluator and
/// in an empty cluster, which reduce with nobody. A process without a task may ask too.
///
/// # Errors
/// Those of [`is_chief`], and [`Error::UnknownJob`] where nobody trains.
pub fn collective_leader(spec: &ClusterSpec, task: Option<&Task>) -> Result<Option<String>, Error> {
    if spec.is_empty() {
        return Ok(None);
    }
    check_roles(spec)?;
    if let Some(task) = task {
        check_task(spec, task)?;
        if task.job() == EVALUATOR {
            return Ok(None);
        }
    }
    first_of(spec, &[CHIEF, WORKER]).map(Some)
}

/// The task, as a device, where the job's processes register: a parameter server, the chief or
/// worker 0.
///
/// # Errors
/// [`Error::UnknownJob`] where there is none of them.
pub fn coordination_leader(spec: &ClusterSpec) -> Result<Option<String>, Error> {
    if spec.is_empty() {
        return Ok(None);
    }
    first_of(spec, &["ps", CHIEF, WORKER]).map(Some)
}

fn first_of(spec: &ClusterSpec, jobs: &[&str]) -> Result<String, Error> {
    match jobs.iter().find(|job| tasks(spec, job) > 0) {
        Some(job) => Ok(format!("/job:{job}/replica:0/task:0")),
        None => Err(Error::UnknownJob {
            job: WORKER.to_owned(),
            known: spec.jobs().map(str::to_owned).collect(),
        }),
    }
}

/// That the roles are known, and the task is in the cluster; an evaluator need not be.
fn check_task(spec: &ClusterSpec, task: &Task) -> Result<(), Error> {
    check_roles(spec)?;
    if task.job() == EVALUATOR && spec.num_tasks(EVALUATOR).is_err() {
        return Ok(());
    }
    spec.task_address(task.job(), task.index()).map(drop)
}

fn tasks(spec: &ClusterSpec, job: &str) -> usize {
    spec.num_tasks(job).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tasks;

    #[test]
    fn an_evaluator_need_not_be_listed_and_leads_nobody() {
        let spec = ClusterSpec::from_addresses(["a:1", "b:1"]).unwrap();
        let evaluator = Task::new(EVALUATOR, 3);
        assert!(is_chief(&spec, Some(&evaluator)).unwrap());
        assert_eq!(id_in_cluster(&spec, &evaluator), Ok(3));
        assert_eq!(collective_leader(&spec, Some(&evaluator)), Ok(None));
        assert!(worker_count(&spec, EVALUATOR).is_err());
    }

    #[test]
    fn workers_count_behind_the_chief() {
        let jobs = [
            (CHIEF, Tasks::list(["c:1"])),
            (WORKER, Tasks::list(["a:1", "b:1"])),
        ];
        let spec = ClusterSpec::new(jobs).unwrap();
        assert_eq!(id_in_cluster(&spec, &Task::new(WORKER, 1)), Ok(2));
        assert_eq!(worker_count(&spec, WORKER), Ok(3));
        assert!(!is_chief(&spec, Some(&Task::new(WORKER, 0))).unwrap());
        let leader = Some("/job:chief/replica:0/task:0".to_owned());
        assert_eq!(
            collective_leader(&spec, Some(&Task::new(WORKER, 1))),
            Ok(leader.clone())
        );
        assert_eq!(coordination_leader(&spec), Ok(leader));
    }
}
