//! What the system tells of its limits: those of this user, of this process's control groups, and
//! of the machine; and of processes that it has ended where memory was at its limit. Where it tells
//! nothing there is no limit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, getuid};

use super::{Room, Tasks};
use crate::TaskLimit;
use crate::outcome::MemoryKills;

/// Where the kernel keeps a control group's files.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

pub(super) fn room() -> Room {
    let table = own_table();
    let groups = ControlGroups::of_this_machine(&table);
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

/// The files in which the kernel counts processes that it ends for want of memory, and what they
/// said: of this process's control groups, and of the whole machine.
#[derive(Debug)]
pub(crate) struct MemoryKillCounters(Vec<(PathBuf, u64)>);

impl MemoryKillCounters {
    /// Those of this process, as they are now.
    pub(crate) fn now() -> Self {
        let table = own_table();
        let mut files = ControlGroups::of_this_machine(&table).memory_kill_files();
        files.push("/proc/vmstat".into());
        Self::of(files)
    }

    pub(crate) fn of(files: Vec<PathBuf>) -> Self {
        let counted = |file: PathBuf| memory_kills(&file).map(|kills| (file, kills));
        Self(files.into_iter().filter_map(counted).collect())
    }

    /// What has come since. Each counts what happens on this machine, or on a part of it, so there
    /// are at least as many as by the one that has grown most.
    pub(crate) fn since(&self) -> MemoryKills {
        let grown = |(file, before): &(PathBuf, u64)| memory_kills(file)?.checked_sub(*before);
        let kills = self.0.iter().filter_map(grown).max();
        MemoryKills(kills.unwrap_or_default())
    }
}

fn memory_kills(file: &Path) -> Option<u64> {
    number_after(&fs::read_to_string(file).ok()?, "oom_kill ")
}

/// What `/proc` tells of this process's control groups; nothing where there is none.
fn own_table() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The control groups of a process: `/proc/self/cgroup`, and where they are.
struct ControlGroups<'a> {
    root: &'a Path,
    table: &'a str,
}

impl<'a> ControlGroups<'a> {
    fn of_this_machine(table: &'a str) -> Self {
        let root = Path::new(CONTROL_GROUPS);
        Self { root, table }
    }

    /// Version 2 counts in the first, version 1 in the second.
    fn memory_kill_files(&self) -> Vec<PathBuf> {
        let folders = self.folders("memory").into_iter();
        let files = folders.flat_map(|folder| {
            ["memory.events", "memory.oom_control"].map(|file| folder.join(file))
        });
        files.collect()
    }

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

    /// What has come since these groups' counters were first read, which then grew so.
    fn kills(root: &Path, table: &str, grown: &[(&str, &str)]) -> MemoryKills {
        let counters = MemoryKillCounters::of(ControlGroups { root, table }.memory_kill_files());
        write(root, grown);
        counters.since()
    }

    #[test]
    fn processes_that_the_kernel_has_ended_meanwhile_are_counted_where_most_are() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let events = |kills: u64| format!("low 0\noom 9\noom_kill {kills}\noom_group_kill 0\n");
        let set = |job: u64, step: u64| {
            write(root, &[("job/memory.events", events(job).as_str())]);
            write(root, &[("job/step/memory.events", events(step).as_str())]);
        };
        set(1, 1);
        let groups = ControlGroups {
            root,
            table: "0::/job/step\n",
        };
        let counters = MemoryKillCounters::of(groups.memory_kill_files());
        assert_eq!(counters.since(), MemoryKills(0));
        set(4, 2);
        assert_eq!(counters.since(), MemoryKills(3));
        // One that counts anew has not grown.
        set(0, 2);
        assert_eq!(counters.since(), MemoryKills(1));
    }

    #[test]
    fn the_first_version_and_the_machine_count_in_other_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let control = |kills: u64| format!("oom_kill_disable 1\nunder_oom 0\noom_kill {kills}\n");
        let (before, after) = (control(0), control(1));
        write(root, &[("memory/a/memory.oom_control", before.as_str())]);
        let grown = [("memory/a/memory.oom_control", after.as_str())];
        let table = "9:name=systemd:/\n4:memory:/a\n0::/\n";
        assert_eq!(kills(root, table, &grown), MemoryKills(1));

        let machine = |kills: u64| format!("nr_free_pages 7\noom_kill {kills}\n");
        write(root, &[("vmstat", machine(5).as_str())]);
        let counters = MemoryKillCounters::of(vec![root.join("vmstat")]);
        write(root, &[("vmstat", machine(7).as_str())]);
        assert_eq!(counters.since(), MemoryKills(2));
    }

    #[test]
    fn where_nothing_is_counted_nothing_is_told() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &[("a/memory.events", "low 0\n")]);
        // One that is there only later counts from an unknown beginning.
        let later = [("a/memory.events", "oom_kill 3\n")];
        assert_eq!(kills(root.path(), "0::/a\n", &later), MemoryKills(0));
        assert_eq!(kills(root.path(), "", &[]), MemoryKills(0));
        let none = MemoryKillCounters::of(vec![root.path().join("none")]);
        assert_eq!(none.since(), MemoryKills(0));
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
