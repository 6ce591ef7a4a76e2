//! `meshwork checkpoint`: what is in checkpoints, and all tensors of one in one file.

mod inspect;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use meshwork_checkpoint::tensors::SavedTensors;
use meshwork_checkpoint::{Generation, Index, Series};
use tempfile::NamedTempFile;

/// What to do with a checkpoint.
#[derive(Args, Debug)]
pub(crate) struct Checkpoint {
    #[command(subcommand)]
    task: CheckpointTask,
}

#[derive(Debug, Subcommand)]
enum CheckpointTask {
    /// Print the tensors of the latest whole save: names, shapes, and which file has which part
    ///
    /// Saves that came later and are not whole are named, with the damage.
    Inspect(Inspect),
    /// Write all tensors of the latest whole save into one safetensors file, which any reader takes
    Merge(Merge),
}

#[derive(Args, Debug)]
struct Inspect {
    /// The folder, or the path that the names of the files begin with
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Merge {
    /// The folder, or the path that the names of the files begin with
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// The file to write, which must not be there
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Why `meshwork checkpoint` fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// The files of the checkpoint.
    #[error(transparent)]
    Files(#[from] meshwork_checkpoint::Error),
    /// The folder cannot be listed.
    #[error("{} cannot be listed", folder.display())]
    List {
        /// The folder.
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A folder has none, or several, and which is meant is not said.
    #[error("{} has {}", folder.display(), Stems(stems))]
    Stems {
        /// The folder.
        folder: PathBuf,
        /// What the names of files begin with.
        stems: BTreeSet<String>,
    },
    /// No save is whole.
    #[error("no save of {} is whole{}", prefix.display(), Damaged(damaged))]
    NoneWhole {
        /// What the names of the files begin with.
        prefix: PathBuf,
        /// A file of each that is not, with its damage.
        damaged: Vec<String>,
    },
    /// The file of one process needs no merging.
    #[error("{} has all tensors in one file already: {}", prefix.display(), file.display())]
    IsOneFile {
        /// What the names of the files begin with.
        prefix: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// The merged file cannot be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// What was found cannot be printed.
    #[error("standard output cannot be written")]
    Output(#[source] io::Error),
}

/// What a folder has, in words.
struct Stems<'a>(&'a BTreeSet<String>);

impl std::fmt::Display for Stems<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<_> = self.0.iter().map(String::as_str).collect();
        match all.as_slice() {
            [] => f.write_str("no checkpoint: name the folder that one was saved in"),
            all => write!(
                f,
                "{} checkpoints: name one, as folder/{}",
                all.len(),
                all.join(" or folder/")
            ),
        }
    }
}

/// Appended to the message that no save is whole.
struct Damaged<'a>(&'a [String]);

impl std::fmt::Display for Damaged<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|one| write!(f, "; {one}"))
    }
}

/// The latest whole save, and what is wrong with later ones.
struct Latest {
    series: Series,
    index: Index,
    damaged: Vec<String>,
}

pub(crate) fn run(wanted: &Checkpoint) -> Result<(), CheckpointError> {
    match &wanted.task {
        CheckpointTask::Inspect(wanted) => {
            let latest = Latest::of(&wanted.path)?;
            let text = match wanted.json {
                true => format!("{:#}\n", inspect::json(&latest)?),
                false => inspect::text(&latest)?,
            };
            let written = io::stdout().write_all(text.as_bytes());
            written.map_err(CheckpointError::Output)
        }
        CheckpointTask::Merge(wanted) => merge(&Latest::of(&wanted.path)?, &wanted.file),
    }
}

impl Latest {
    fn of(path: &Path) -> Result<Self, CheckpointError> {
        let series = series(path)?;
        let latest = series.latest()?;
        let damaged = latest.damaged().iter();
        let damaged = damaged.map(|(path, damage)| format!("{}: {damage}", path.display()));
        let damaged = damaged.collect();
        match latest.index() {
            Some(index) => Ok(Self {
                index: index.clone(),
                series,
                damaged,
            }),
            None => Err(CheckpointError::NoneWhole {
                prefix: series.prefix(),
                damaged,
            }),
        }
    }

    /// Whether it is one file that has all of its hash, as mirrored models are saved.
    fn one_file(&self) -> Option<PathBuf> {
        match self.index.files() {
            [file] if self.index.body().is_empty() && file.head() == file.length() => {
                Some(self.series.path(self.index.generation(), file.part()))
            }
            _ => None,
        }
    }
}

/// The checkpoints that a path names.
fn series(path: &Path) -> Result<Series, CheckpointError> {
    if !path.is_dir() {
        return Ok(Series::at(path)?);
    }
    let failed = |source| CheckpointError::List {
        folder: path.to_owned(),
        source,
    };
    let mut stems = BTreeSet::new();
    for file in fs::read_dir(path).map_err(failed)? {
        let name = file.map_err(failed)?.file_name();
        stems.extend(name.to_str().and_then(stem).map(str::to_owned));
    }
    match stems.first() {
        Some(stem) if stems.len() == 1 => Ok(Series::new(path, stem)),
        _ => Err(CheckpointError::Stems {
            folder: path.to_owned(),
            stems,
        }),
    }
}

/// What stands before the generation in the name of a file.
fn stem(name: &str) -> Option<&str> {
    let is_generation = |at: &usize| {
        let rest = name[at + 1..].split('.').next();
        rest.is_some_and(|rest| rest.parse::<Generation>().is_ok())
    };
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    dots.find(is_generation).map(|at| &name[..at])
}

fn merge(latest: &Latest, path: &Path) -> Result<(), CheckpointError> {
    if let Some(file) = latest.one_file() {
        let prefix = latest.series.prefix();
        return Err(CheckpointError::IsOneFile { prefix, file });
    }
    let failed = |source| CheckpointError::Write {
        path: path.to_owned(),
        source,
    };
    // Before minutes are spent on it; who comes first meanwhile is found when it is put in place.
    if fs::symlink_metadata(path).is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let saved = SavedTensors::open(&latest.series, latest.index.generation())?;
    // In its folder, since only there it can be put in place at once.
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut file = new_file(folder).map_err(failed)?;
    saved.merge(|bytes| file.write_all(bytes).map_err(failed))?;
    file.as_file().sync_all().map_err(failed)?;
    let placed = file.persist_noclobber(path);
    placed.map_err(|error| failed(error.error)).map(drop)
}

/// A file without a name yet, for all that the umask lets read it: temporary ones are private.
fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    let readable = fs::Permissions::from_mode(0o666);
    builder.permissions(readable).tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_file_may_be_read_by_whom_any_other_may() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |file: &fs::File| file.metadata().unwrap().permissions().mode();
        let plain = fs::File::create(folder.path().join("plain")).unwrap();
        let merged = new_file(folder.path()).unwrap();
        assert_eq!(mode(merged.as_file()), mode(&plain));
    }

    #[test]
    fn stems_are_found_before_generations_only() {
        let generation = "g00000007-5b1c22f09ad3e781";
        for (name, expected) in [
            (format!("model.{generation}.index"), Some("model")),
            (
                format!("a.b.{generation}.00000-of-00001.safetensors"),
                Some("a.b"),
            ),
            (generation.to_owned(), None),
            ("model.safetensors".to_owned(), None),
        ] {
            assert_eq!(stem(&name), expected, "{name}");
        }
    }
}
