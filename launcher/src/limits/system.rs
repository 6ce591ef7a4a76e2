//! What the system tells of its limits: those of this user, of this process's control groups, and
//! of the machine. Where it tells nothing there is no limit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, getuid};

use super::{Room, Tasks};
use crate::TaskLimit;

/// Where the kernel keeps a control group's files.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

pub(super) fn room() -> Room {
    let groups = fs::read_to_string("/proc/self/cgroup");
    let groups = ControlGroups {
        root: Path::new(CONTROL_GROUPS),
        table: groups.as_deref().unwrap_or_default(),
    };
    let of_group = groups.tasks_left().map(|left| Tasks {
        left,
        limit: TaskLimit::ControlGroup,
    });
    let of_user = user_tasks_left().map(|left| Tasks {
        left,
        limit: TaskLimit::User,
    });
    Room {
        tasks: of_group.into_iter().chain(of_user).min(),
        memory: groups.memory_left().into_iter().chain(available()).min(),
    }
}

/// Bytes that the machine has left, as `free` shows them.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = number_after(&text, "MemAvailable:")?;
    kibibytes.checked_mul(1024)
}

/// How many processes and threads this user may still start; the limit does not bind root.
fn user_tasks_left() -> Option<u64> {
    let limit = getrlimit(Resource::Nproc).current?;
    let user = getuid();
    if user.is_root() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let own = processes.filter(|entry| {
        let metadata = entry.metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == user.as_raw())
    });
    let threads = own.filter_map(|process| {
        let status = fs::read_to_string(process.path().join("status")).ok()?;
        number_after(&status, "Threads:")
    });
    Some(limit.saturating_sub(threads.sum()))
}

/// The control groups of a process: `/proc/self/cgroup`, and where they are.
struct ControlGroups<'a> {
    root: &'a Path,
    table: &'a str,
}

impl ControlGroups<'_> {
    fn tasks_left(&self) -> Option<u64> {
        let left = |folder: &PathBuf| {
            let most = number_in(&folder.join("pids.max"))?;
            let used = number_in(&folder.join("pids.current"))?;
            Some(most.saturating_sub(used))
        };
        self.folders("pids").iter().filter_map(left).min()
    }

    /// What the kernel can take back at once counts as left: files that nobody has read lately.
    fn memory_left(&self) -> Option<u64> {
        let left = |folder: &PathBuf| {
            let either = |one: &str, other: &str| {
                number_in(&folder.join(one)).or_else(|| number_in(&folder.join(other)))
            };
            let most = either("memory.max", "memory.limit_in_bytes")?;
            let used = either("memory.current", "memory.usage_in_bytes")?;
            let statistics = fs::read_to_string(folder.join("memory.stat")).ok()?;
            let idle = number_after(&statistics, "total_inactive_file ")
                .or_else(|| number_after(&statistics, "inactive_file "))?;
            Some(most.saturating_sub(used.saturating_sub(idle)))
        };
        self.folders("memory").iter().filter_map(left).min()
    }

    /// The folders of the groups with this controller, each with those that it is in: of the one
    /// hierarchy of version 2, and of this controller's own of version 1.
    fn folders(&self, controller: &str) -> Vec<PathBuf> {
        let group = |line: &str| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let own = controllers.split(',').any(|name| name == controller);
            let root = (own || controllers.is_empty()).then(|| self.root.join(controllers))?;
            Some((root, path.trim_start_matches('/').to_owned()))
        };
        let groups = self.table.lines().filter_map(group);
        groups
            .flat_map(|(root, path)| {
                let within = Path::new(&path).ancestors();
                within.map(|part| root.join(part)).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// The number that a file consists of; `None` for `max`.
fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind these words at the beginning of a line.
fn number_after(text: &str, words: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_narrowest_of_nested_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let statistics = "anon 5\ninactive_file 100\n";
        write(
            root.path(),
            &[
                ("job/pids.max", "40\n"),
                ("job/pids.current", "30\n"),
                ("job/step/pids.max", "max\n"),
                ("job/step/pids.current", "7\n"),
                ("job/memory.max", "max\n"),
                ("job/memory.current", "900\n"),
                ("job/memory.stat", statistics),
                ("job/step/memory.max", "1000\n"),
                ("job/step/memory.current", "600\n"),
                ("job/step/memory.stat", statistics),
            ],
        );
        let groups = ControlGroups {
            root: root.path(),
            table: "0::/job/step\n",
        };
        assert_eq!(groups.tasks_left(), Some(10));
        assert_eq!(groups.memory_left(), Some(500));
    }

    #[test]
    fn control_groups_of_the_first_version_are_found_by_their_controller() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("pids/a/pids.max", "20"),
                ("pids/a/pids.current", "25"),
                ("memory/memory.limit_in_bytes", "1000"),
                ("memory/memory.usage_in_bytes", "600"),
                (
                    "memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 50\n",
                ),
            ],
        );
        let groups = ControlGroups {
            root: root.path(),
            table: "9:name=systemd:/\n8:pids:/a\n4:memory:/elsewhere\n0::/\n",
        };
        assert_eq!(groups.tasks_left(), Some(0));
        assert_eq!(groups.memory_left(), Some(450));
    }

    #[test]
    fn where_nothing_is_told_there_is_no_limit() {
        let root = tempfile::tempdir().unwrap();
        for table in ["", "0::/a\n", "nonsense"] {
            let groups = ControlGroups {
                root: root.path(),
                table,
            };
            assert_eq!((groups.tasks_left(), groups.memory_left()), (None, None));
        }
    }

    #[cfg(all(target_os = "linux", not(meshwork_portable)))]
    #[test]
    fn this_machine_has_memory() {
        assert!(available().unwrap() > 0);
    }
}
