//! Where dumps go, how they are found there, and how long they stay.
//!
//! ```text
//!   folder / rank-0.json, rank-1.json, …              of the first view
//!            epoch-2 / rank-0.json, rank-1.json, …    of a later one
//! ```

use std::path::{Path, PathBuf};
use std::{fs, io};

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
    let is_old = |(epoch, path): &(u64, PathBuf)| *epoch <= last && path != folder;
    let folders = epoch_folders(folder).into_iter().flatten();
    for (_, view) in folders.filter(is_old) {
        let dumps = dumps_in(&view).into_iter().flatten();
        let removed = dumps.filter(|dump| fs::remove_file(dump).is_ok());
        if removed.count() > 0 {
            // Fails where somebody else has files in a folder of that name.
            let _ = fs::remove_dir(view);
        }
    }
}

/// The folders in which [`with_dump`](crate::GroupConfig::with_dump) leaves dumps, each with the
/// number of the epoch that its ranks were in, and in the order of these: `folder` itself is of the
/// first.
///
/// # Errors
/// Those of reading the folder.
pub fn epoch_folders(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut folders = vec![(1, folder.to_owned())];
    for path in entries(folder)? {
        if let Some(epoch) = number(&path, "epoch-", "").filter(|_| path.is_dir()) {
            folders.push((epoch, path));
        }
    }
    folders.sort();
    Ok(folders)
}

/// The files in one of the [`epoch_folders`] that are called as dumps are, in the order of their
/// names.
///
/// # Errors
/// Those of reading the folder.
pub fn dumps_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = entries(folder)?;
    paths.retain(|path| number(path, "rank-", ".json").is_some());
    Ok(paths)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
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
        entries(folder).unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn folders_are_in_the_order_of_their_epochs_and_what_is_called_otherwise_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["epoch-10", "epoch-9", "epoch-x", "weights"] {
            fs::create_dir(at(name)).unwrap();
        }
        let draft = "rank-2.00000000fee1900d.draft";
        for name in ["rank-1.json", "rank-0.json", "rank-x.json", draft] {
            fs::write(at(name), "{}").unwrap();
        }
        fs::write(at("epoch-8"), "no folder").unwrap();
        let first = (1_u64, folder.path().to_owned());
        let expected = [first, (9, at("epoch-9")), (10, at("epoch-10"))];
        assert_eq!(epoch_folders(folder.path()).unwrap(), expected);
        let dumps = dumps_in(folder.path()).unwrap();
        assert_eq!(dumps, ["rank-0.json", "rank-1.json"].map(at));
        assert!(epoch_folders(&at("gone")).is_err());
        assert!(dumps_in(&at("gone")).is_err());
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
