//! Where dumps go, and how long they stay.

use std::fs;
use std::path::{Path, PathBuf};

/// The latest views after the first whose dumps are kept.
const KEPT: u64 = 16;

/// Where the dumps of a view go: each has ranks of its own. Those of views long past are removed,
/// so that a job which loses workers for weeks does not fill the disk.
pub(crate) fn of_view(folder: PathBuf, number: u64) -> PathBuf {
    if number <= 1 {
        return folder;
    }
    sweep(&folder, number.saturating_sub(KEPT));
    folder.join(format!("epoch-{number}"))
}

/// Removes the dumps of later views than the first, up to this one. What cannot be removed now,
/// the next view tries again.
fn sweep(folder: &Path, last: u64) {
    let is_old = |path: &PathBuf| number(path, "epoch-", "").is_some_and(|view| view <= last);
    for view in entries(folder).filter(is_old) {
        let dumps = entries(&view).filter(|path| number(path, "rank-", ".json").is_some());
        let removed = dumps.filter(|dump| fs::remove_file(dump).is_ok());
        if removed.count() > 0 {
            // Fails where somebody else has files in a folder of that name.
            let _ = fs::remove_dir(view);
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// The number between these in the name of a file.
fn number(path: &Path, prefix: &str, suffix: &str) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = entries(folder).map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn dumps_of_views_long_past_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let others = folder.path().join("epoch-3/weights");
        fs::create_dir_all(others.parent().unwrap()).unwrap();
        fs::write(&others, "theirs").unwrap();
        let empty = folder.path().join("epoch-004");
        fs::create_dir(empty).unwrap();
        for view in 1..=21 {
            let view = of_view(folder.path().to_owned(), view);
            fs::create_dir_all(&view).unwrap();
            for rank in 0..2 {
                fs::write(view.join(format!("rank-{rank}.json")), "{}").unwrap();
            }
        }
        let mut expected: Vec<String> = (6..=21).map(|view| format!("epoch-{view}")).collect();
        let kept = ["epoch-004", "epoch-3", "rank-0.json", "rank-1.json"];
        expected.extend(kept.map(str::to_owned));
        expected.sort();
        assert_eq!(names(folder.path()), expected);
        assert_eq!(names(&folder.path().join("epoch-3")), ["weights"]);
        assert_eq!(
            names(&folder.path().join("epoch-6")),
            ["rank-0.json", "rank-1.json"]
        );
    }
}
