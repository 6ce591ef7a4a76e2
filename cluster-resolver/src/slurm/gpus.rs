//! How many GPUs each task of a step has.

use super::counts::digits;
use crate::error::{Error, SlurmError};
use crate::variables::Variables;

/// What is known about GPUs, each if it is known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Gpus {
    /// GPUs of each task, by the program.
    pub(super) per_task: Option<u32>,
    /// GPUs of each node, by the program.
    pub(super) per_node: Option<u32>,
    /// GPUs of this node that the job has, by [`ON_NODE`].
    pub(super) on_node: Option<u32>,
    /// GPUs that this process may use, by [`VISIBLE`].
    pub(super) visible: Option<u32>,
}

impl Gpus {
    /// What the environment says.
    pub(super) fn read(variables: &Variables) -> Result<Self, Error> {
        let on_node = variables.read(ON_NODE)?.map(|value| {
            let variable = ON_NODE;
            digits(&value).ok_or(SlurmError::Number { variable, value })
        });
        let mut visible = None;
        for variable in VISIBLE {
            visible = visible.or(variables.read(variable)?);
        }
        Ok(Self {
            on_node: on_node.transpose()?,
            visible: visible.map(|list| count(&list)),
            ..Self::default()
        })
    }

    /// GPUs of each task, if there are at most so many tasks on a node; `None` if nobody knows.
    ///
    /// A process that sees fewer GPUs than the job has on its node was given those alone. One that
    /// sees all of them shares them evenly with the other tasks there; so that all tasks have
    /// equally many, the fullest node of the step decides.
    pub(super) fn of_each_task(&self, most_tasks: u32) -> Result<Option<u32>, SlurmError> {
        let is_bound = self
            .visible
            .zip(self.on_node)
            .is_some_and(|(some, all)| some < all);
        let environment = if is_bound {
            None
        } else {
            self.on_node.or(self.visible)
        };
        let shared = self.per_node.or(environment);
        let Some(per_task) = self.per_task else {
            let share = shared.map(|shared| shared / most_tasks.max(1));
            return Ok(share.or(self.visible));
        };
        let needed = u64::from(per_task) * u64::from(most_tasks);
        match shared {
            Some(per_node) if needed > per_node.into() => Err(SlurmError::TooFewGpus {
                tasks: most_tasks,
                per_task,
                per_node,
            }),
            _ => Ok(Some(per_task)),
        }
    }
}

/// Items up to the first that is empty or `-1`: drivers hide what follows.
fn count(list: &str) -> u32 {
    let items = list.split(',').map(str::trim);
    let shown = items.take_while(|item| !item.is_empty() && *item != "-1");
    u32::try_from(shown.count()).unwrap_or(u32::MAX)
}

/// The GPUs of this task's node that the job has.
pub(super) const ON_NODE: &str = "SLURM_GPUS_ON_NODE";

/// The GPUs that this process may use; the first that is set counts.
pub(super) const VISIBLE: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], most_tasks: u32, expected: Option<u32>) {
        let variables = Variables::fixed(variables.iter().copied());
        let gpus = Gpus::read(&variables).unwrap();
        assert_eq!(gpus.of_each_task(most_tasks), Ok(expected), "{variables:?}");
    }

    #[test]
    fn a_task_that_sees_a_part_of_its_node_owns_it_and_one_that_sees_all_shares_it() {
        let on_node = ("SLURM_GPUS_ON_NODE", "4");
        check(&[on_node, ("CUDA_VISIBLE_DEVICES", "2")], 3, Some(1));
        check(&[on_node, ("CUDA_VISIBLE_DEVICES", "0,1,2,3")], 2, Some(2));
        check(&[on_node, ("CUDA_VISIBLE_DEVICES", "0,1,2,3")], 3, Some(1));
        check(&[on_node], 4, Some(1));
        check(&[("ROCR_VISIBLE_DEVICES", "0,1")], 1, Some(2));
        check(&[], 1, None);
    }

    #[test]
    fn hidden_devices_do_not_count() {
        for (list, expected) in [
            ("", 0),
            ("-1", 0),
            ("0,-1,1", 1),
            ("GPU-a, GPU-b", 2),
            ("3", 1),
        ] {
            check(&[("CUDA_VISIBLE_DEVICES", list)], 1, Some(expected));
        }
    }

    #[test]
    fn what_the_program_says_is_checked_where_the_node_is_known() {
        let gpus = |per_node| Gpus {
            per_task: Some(2),
            per_node,
            ..Gpus::default()
        };
        assert_eq!(gpus(None).of_each_task(9), Ok(Some(2)));
        assert_eq!(gpus(Some(4)).of_each_task(2), Ok(Some(2)));
        let (tasks, per_task, per_node) = (3, 2, 4);
        let expected = SlurmError::TooFewGpus {
            tasks,
            per_task,
            per_node,
        };
        assert_eq!(gpus(Some(4)).of_each_task(3), Err(expected));
    }
}
