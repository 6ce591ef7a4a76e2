//! Whether the system lets this process start so many workers, asked before the first: open files,
//! processes and threads, memory; and whether it has ended processes since for want of memory. What
//! it tells is read in `limits/system.rs`.

mod system;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use system::MemoryKillCounters;

use crate::{LaunchError, TaskLimit};

/// The pipes of a worker's stdout and stderr; before those are open, its port takes one.
const FILES_OF_A_WORKER: u64 = 2;
/// The same and the stdin of the `ssh` that it is told of signals by.
const FILES_OF_A_REMOTE_WORKER: u64 = 3;
/// The launcher's own, those of the program it is part of, and the pipe ends of one start.
const FILES_BESIDES: u64 = 32;
/// A rank has its program's thread and one for the network, and the launcher one that waits for it;
/// of one on another host there are its `ssh`, one that waits for that and one that writes to it.
const TASKS_OF_A_WORKER: u64 = 3;
const TASKS_BESIDES: u64 = 8;
/// What a rank takes for itself, without the program's own data.
const MEMORY_OF_A_WORKER: u64 = 8 << 20;

/// What the system has left for workers; `None` where it sets no limit, or does not tell.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    tasks: Option<Tasks>,
    /// In bytes.
    memory: Option<u64>,
}

/// How many processes and threads may still be started, and who says so.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Tasks {
    left: u64,
    limit: TaskLimit,
}

/// Raises the soft limit of open files to what so many workers take, and refuses more of them than
/// the system has room for.
///
/// # Errors
/// [`LaunchError::OpenFiles`], [`LaunchError::Tasks`], [`LaunchError::Memory`]
pub(crate) fn check(workers: usize) -> Result<(), LaunchError> {
    check_open_files(workers, FILES_OF_A_WORKER)?;
    system::room().fits(workers)
}

/// The same for workers on other hosts, whose memory is there.
///
/// # Errors
/// [`LaunchError::OpenFiles`], [`LaunchError::Tasks`]
pub(crate) fn check_remote(workers: usize) -> Result<(), LaunchError> {
    check_open_files(workers, FILES_OF_A_REMOTE_WORKER)?;
    system::room().has_tasks(workers)
}

fn check_open_files(workers: usize, of_a_worker: u64) -> Result<(), LaunchError> {
    let needed = of_a_worker * workers as u64 + FILES_BESIDES;
    raise_open_files(needed).map_err(|limit| LaunchError::OpenFiles {
        workers,
        needed,
        limit,
    })
}

/// Makes the soft limit at least this, or says what stands against it. The workers inherit it.
fn raise_open_files(needed: u64) -> Result<(), u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(limit) = current.filter(|limit| *limit < needed) else {
        return Ok(());
    };
    let raised = Rlimit {
        current: Some(needed),
        maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| maximum.unwrap_or(limit))
}

impl Room {
    fn has_tasks(self, workers: usize) -> Result<(), LaunchError> {
        let needed = TASKS_OF_A_WORKER * workers as u64 + TASKS_BESIDES;
        match self.tasks.filter(|tasks| tasks.left < needed) {
            Some(Tasks { left, limit }) => Err(LaunchError::Tasks {
                workers,
                needed,
                left,
                limit,
            }),
            None => Ok(()),
        }
    }

    fn fits(self, workers: usize) -> Result<(), LaunchError> {
        self.has_tasks(workers)?;
        let needed = MEMORY_OF_A_WORKER * workers as u64;
        match self.memory.filter(|available| *available < needed) {
            Some(available) => Err(LaunchError::Memory {
                workers,
                needed,
                available,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_fit_exactly_where_there_is_room_for_all() {
        for workers in [1_usize, 2, 64, 512, 1024] {
            let count = workers as u64;
            let (tasks, memory) = (3 * count + 8, count * (8 << 20));
            let fits = |left: u64, memory: u64| {
                let limit = TaskLimit::User;
                let room = Room {
                    tasks: Some(Tasks { left, limit }),
                    memory: Some(memory),
                };
                room.fits(workers)
            };
            assert!(fits(tasks, memory).is_ok(), "{workers}");
            let refused = fits(tasks - 1, memory).unwrap_err();
            assert!(
                matches!(refused, LaunchError::Tasks { needed, left, .. }
                    if (needed, left) == (tasks, tasks - 1)),
                "{refused}"
            );
            let refused = fits(tasks, memory - 1).unwrap_err();
            assert!(
                matches!(refused, LaunchError::Memory { needed, available, .. }
                    if (needed, available) == (memory, memory - 1)),
                "{refused}"
            );
            assert!(Room::default().fits(workers).is_ok());
        }
    }

    #[test]
    fn a_limit_of_open_files_that_suffices_is_left_as_it_is() {
        let before = getrlimit(Resource::Nofile);
        assert_eq!(raise_open_files(1), Ok(()));
        assert_eq!(getrlimit(Resource::Nofile), before);
    }
}
