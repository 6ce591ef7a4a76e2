//! Why a job failed.

use std::fs;
use std::path::{Path, PathBuf};

use meshwork_collectives::Rank;
use meshwork_collectives::diagnosis::{Diagnosis, Dump, diagnose, dumps_in, epoch_folders, trace};
use serde_json::{Value, json};

use super::DoctorError;

/// Why a job failed, and by what.
pub(super) struct Found {
    diagnosis: Diagnosis,
    /// The folder of the dumps that say so.
    folder: PathBuf,
    /// Folders and files with dumps of other views and runs.
    passed_over: Vec<PathBuf>,
}

/// The dumps that the groups of one number have left.
struct View {
    folder: PathBuf,
    dumps: Vec<(PathBuf, Result<Dump, DoctorError>)>,
    /// The one that was written last, of those that can be read.
    last: Dump,
}

/// The diagnosis from the dumps of the last run and view in a folder; their operations go to the
/// file for a trace.
pub(super) fn find(folder: &Path, trace_file: Option<&Path>) -> Result<Found, DoctorError> {
    let (view, mut passed_over) = last_view(folder)?;
    let mut dumps = Vec::new();
    for (path, dump) in view.dumps {
        let dump = dump?;
        match dump.is_of_same_run(&view.last) {
            true => dumps.push(dump),
            false => passed_over.push(path),
        }
    }
    if let Some(path) = trace_file {
        fs::write(path, trace(&dumps)).map_err(failing(path, "written"))?;
    }
    Ok(Found {
        diagnosis: diagnose(&dumps),
        folder: view.folder,
        passed_over,
    })
}

/// The last view of the last run, and the folders of others. One of which nothing can be read may
/// be of somebody else, or be removed at this moment.
fn last_view(folder: &Path) -> Result<(View, Vec<PathBuf>), DoctorError> {
    let (mut found, mut passed_over, mut unread) = (None::<View>, Vec::new(), None);
    let folders = epoch_folders(folder).map_err(failing(folder, "read"))?;
    for (_, folder) in folders {
        let view = match View::read(&folder) {
            Ok(Some(view)) => view,
            Ok(None) => continue,
            Err(error) => {
                passed_over.push(folder);
                unread = unread.or(Some(error));
                continue;
            }
        };
        let (later, other) = match found {
            None => (view, None),
            // What was over when the lower number began is of an earlier run.
            Some(found) if view.last.written() < found.last.joined() => (found, Some(view)),
            Some(found) => (view, Some(found)),
        };
        passed_over.extend(other.map(|view| view.folder));
        found = Some(later);
    }
    let none = || DoctorError::NoDumps {
        path: folder.to_owned(),
    };
    let found = found.ok_or_else(|| unread.unwrap_or_else(none))?;
    Ok((found, passed_over))
}

impl View {
    /// What a folder has; `None` if it has no dumps.
    ///
    /// # Errors
    /// The first, if none of its dumps can be read.
    fn read(folder: &Path) -> Result<Option<Self>, DoctorError> {
        let mut dumps = Vec::new();
        for path in dumps_in(folder).map_err(failing(folder, "read"))? {
            let dump = read(&path);
            dumps.push((path, dump));
        }
        let readable = dumps.iter().filter_map(|(_, dump)| dump.as_ref().ok());
        let Some(last) = readable.max_by_key(|dump| dump.written()).cloned() else {
            let first = dumps.into_iter().find_map(|(_, dump)| dump.err());
            return first.map_or(Ok(None), Err);
        };
        Ok(Some(Self {
            folder: folder.to_owned(),
            dumps,
            last,
        }))
    }
}

fn read(path: &Path) -> Result<Dump, DoctorError> {
    let text = fs::read_to_string(path).map_err(failing(path, "read"))?;
    let path = path.to_owned();
    Dump::from_json(&text).map_err(|source| DoctorError::NoDump { path, source })
}

fn failing(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> DoctorError {
    move |source| DoctorError::File {
        path: path.to_owned(),
        what,
        source,
    }
}

impl Found {
    pub(super) fn text(&self) -> String {
        let mut text = text(&self.diagnosis);
        text += &format!("  by the dumps in {}\n", self.folder.display());
        for path in &self.passed_over {
            let path = path.display();
            text += &format!("  passed over, of another run or membership: {path}\n");
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let shown = |path: &PathBuf| path.display().to_string();
        let mut value = json(&self.diagnosis);
        value["folder"] = shown(&self.folder).into();
        value["passed_over"] = self.passed_over.iter().map(shown).collect();
        value
    }
}

/// What was found, in lines.
pub(super) fn text(found: &Diagnosis) -> String {
    let cause = found.cause();
    lines(&cause.to_string(), cause.remedy(), found.evidence())
}

/// A cause, what to do about it, and what shows it.
pub(super) fn lines(cause: &str, remedy: &str, evidence: &[String]) -> String {
    let mut text = format!("{cause}\n  {remedy}\n");
    for line in evidence {
        text += &format!("  - {line}\n");
    }
    text
}

pub(super) fn json(found: &Diagnosis) -> Value {
    let cause = found.cause();
    let ranks: Vec<u32> = cause.ranks().into_iter().map(Rank::number).collect();
    json!({
        "class": cause.class(),
        "ranks": ranks,
        "cause": cause.to_string(),
        "remedy": cause.remedy(),
        "evidence": found.evidence(),
    })
}

#[cfg(test)]
mod tests {
    use meshwork_collectives::diagnosis::Cause;

    use super::*;

    /// What of a run a dump tells: its name, when its rank joined, and when it was written.
    type Told = (Option<&'static str>, u64, u64);

    /// The dump of a rank of four that saw another one die.
    fn leave(folder: &Path, rank: u32, died: u32, told: Told) {
        let (run, joined, written) = told;
        let text = format!("rank {died} was lost");
        let dump = json!({
            "version": 1, "rank": rank, "world": 4, "address": "a:1", "run": run, "joined": joined,
            "written": written, "operations": [],
            "failure": { "kind": "lost", "peer": died, "cause": "died", "text": text },
        });
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(format!("rank-{rank}.json")), dump.to_string()).unwrap();
    }

    fn dead(found: &Found) -> u32 {
        match found.diagnosis.cause() {
            Cause::DeadRank { rank, .. } => rank.number(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_an_earlier_run_has_left_is_passed_over_and_named() {
        // By the names of the runs, where clocks say nothing, and by time where one has no name.
        let runs: [[Told; 2]; 3] = [
            [(Some("a"), 0, 100), (Some("b"), 0, 900)],
            [(Some("a"), 50, 100), (None, 500, 900)],
            [(None, 50, 100), (Some("b"), 500, 900)],
        ];
        for [earlier, last] in runs {
            let folder = tempfile::tempdir().unwrap();
            leave(folder.path(), 0, 3, earlier);
            for rank in 1..4 {
                leave(folder.path(), rank, 0, last);
            }
            let found = find(folder.path(), None).unwrap();
            assert_eq!(dead(&found), 0, "{}", found.text());
            let old = folder.path().join("rank-0.json").display().to_string();
            assert!(found.text().contains(&old), "{}", found.text());
            assert_eq!(found.json()["passed_over"], json!([old]));
        }
    }

    #[test]
    fn the_last_membership_of_a_job_is_what_counts() {
        let folder = tempfile::tempdir().unwrap();
        let later = |view: u32| folder.path().join(format!("epoch-{view}"));
        for rank in 1..3 {
            leave(folder.path(), rank, 0, (Some("a"), 500, 600));
        }
        leave(&later(9), 0, 1, (Some("b"), 700, 800));
        leave(&later(10), 0, 2, (Some("c"), 850, 900));
        // A log of somebody else, and an earlier run that had come further.
        fs::create_dir(later(4)).unwrap();
        leave(&later(11), 0, 3, (Some("d"), 300, 400));
        let found = find(folder.path(), None).unwrap();
        assert_eq!(dead(&found), 2, "{}", found.text());
        assert_eq!(found.folder, later(10));
        let others = [folder.path().to_owned(), later(9), later(11)];
        assert_eq!(found.passed_over, others);
        // Each is shown where it is named itself.
        assert_eq!(dead(&find(&later(9), None).unwrap()), 1);
    }

    #[test]
    fn a_view_of_which_nothing_can_be_read_is_passed_over_where_another_has_dumps() {
        let folder = tempfile::tempdir().unwrap();
        let later = folder.path().join("epoch-2");
        let told = (Some("a"), 500, 600);
        leave(&later, 0, 1, told);
        // As a host leaves it that loses power.
        let empty = later.join("rank-0.json");
        fs::write(&empty, "").unwrap();
        let is_named = |found: Result<Found, DoctorError>| match found {
            Err(DoctorError::NoDump { path, .. }) => path == empty,
            _ => false,
        };
        assert!(is_named(find(folder.path(), None)));
        leave(folder.path(), 1, 0, told);
        let found = find(folder.path(), None).unwrap();
        assert_eq!(dead(&found), 0);
        assert_eq!(found.passed_over, std::slice::from_ref(&later));
        // One that counts has to be whole.
        leave(&later, 1, 2, told);
        assert!(is_named(find(folder.path(), None)));
    }

    #[test]
    fn who_was_left_behind_and_gives_up_last_does_not_hide_the_later_membership() {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), 0, 1, (Some("a"), 100, 990));
        let later = folder.path().join("epoch-2");
        leave(&later, 0, 2, (Some("b"), 800, 900));
        let found = find(folder.path(), None).unwrap();
        assert_eq!((dead(&found), &found.folder), (2, &later));
    }
}
