//! Snapshots in files, written whole or not at all.

mod snapshot;

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use meshwork_collectives::Rank;

use crate::{Error, MultiWorkerMirroredStrategy};

pub use snapshot::{Damage, Snapshot};

/// A folder of snapshots, one file for each step that was saved.
///
/// A file appears under its name when all of it is on the disk. The latest few are kept, so that
/// one that was damaged later does not lose everything.
///
/// ```
/// use meshwork_strategy::{Checkpoints, Cursor, MultiWorkerMirroredStrategy, Snapshot};
///
/// # let folder = tempfile::tempdir().unwrap();
/// let checkpoints = Checkpoints::new(folder.path());
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let snapshot = Snapshot::new(120, Cursor::start());
/// strategy.save_checkpoint(&checkpoints, &snapshot)?;
/// let restored = strategy.restore_checkpoint(&checkpoints)?;
/// assert_eq!(restored.snapshot(), Some(&snapshot));
/// # Ok::<(), meshwork_strategy::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias = "CheckpointManager")]
pub struct Checkpoints {
    folder: PathBuf,
    keep: NonZeroUsize,
}

/// What was found to go on from.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    snapshot: Option<Snapshot>,
    damaged: Vec<(PathBuf, Damage)>,
}

impl Restored {
    /// The latest whole snapshot; `None` where there is none, and training begins.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Later files that were passed over, and what is wrong with them; known to the chief only.
    #[must_use]
    pub fn damaged(&self) -> &[(PathBuf, Damage)] {
        &self.damaged
    }
}

impl Checkpoints {
    /// The snapshots in `folder`, which is made when the first is saved. The latest two are kept.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let keep = NonZeroUsize::MIN.saturating_add(1);
        let folder = folder.into();
        Self { folder, keep }
    }

    /// Keeps the latest `keep` snapshots.
    #[must_use]
    #[doc(alias = "max_to_keep")]
    pub fn with_keep(mut self, keep: NonZeroUsize) -> Self {
        self.keep = keep;
        self
    }

    /// Writes a snapshot from this process, and removes the oldest ones.
    ///
    /// # Errors
    /// [`Error::CheckpointFile`]; what was saved before is then still there.
    /// [`Error::CheckpointForm`].
    pub fn save(&self, snapshot: &Snapshot) -> Result<PathBuf, Error> {
        let bytes = snapshot.to_bytes()?;
        let path = self.folder.join(file_name(snapshot.step()));
        let unfinished = path.with_extension(UNFINISHED);
        write_whole(&self.folder, (&unfinished, &path), &bytes)
            .map_err(failed("written", &path))?;
        for old in self.files()?.into_iter().skip(self.keep.get()) {
            fs::remove_file(&old).map_err(failed("removed", &old))?;
        }
        Ok(path)
    }

    /// The latest whole snapshot.
    ///
    /// # Errors
    /// [`Error::CheckpointFile`] for a file that is there and cannot be read.
    pub fn load(&self) -> Result<Restored, Error> {
        let mut damaged = Vec::new();
        for path in self.files()? {
            let bytes = fs::read(&path).map_err(failed("read", &path))?;
            match Snapshot::from_bytes(&bytes) {
                Ok(snapshot) => {
                    let snapshot = Some(snapshot);
                    return Ok(Restored { snapshot, damaged });
                }
                Err(damage) => damaged.push((path, damage)),
            }
        }
        Ok(Restored {
            snapshot: None,
            damaged,
        })
    }

    /// The files of snapshots, the latest first; none where there is no folder.
    fn files(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", &self.folder)(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed("read", &self.folder))?.path();
            if let Some(step) = step_of(&path) {
                files.push((step, path));
            }
        }
        files.sort_unstable_by(|one, other| other.cmp(one));
        Ok(files.into_iter().map(|(_, path)| path).collect())
    }
}

impl MultiWorkerMirroredStrategy {
    /// The chief writes its snapshot, and all workers wait until it has. A failure ends the
    /// training on all workers.
    ///
    /// What replicas count on their own has to be [`read`](Self::read) by all workers before.
    ///
    /// # Errors
    /// Those of [`Checkpoints::save`], and [`Error::Group`].
    #[track_caller]
    pub fn save_checkpoint(
        &mut self,
        checkpoints: &Checkpoints,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        if self.is_chief() {
            let saved = checkpoints.save(snapshot);
            self.told(saved)?;
        }
        self.sum_over_workers([1]).map(drop)
    }

    /// The chief reads the latest whole snapshot, and sends it to all workers, who need no access
    /// to its folder.
    ///
    /// # Errors
    /// Those of [`Checkpoints::load`], and [`Error::Group`].
    #[track_caller]
    pub fn restore_checkpoint(&mut self, checkpoints: &Checkpoints) -> Result<Restored, Error> {
        if !self.is_chief() {
            let bytes = self.bytes_of(Rank::CHIEF, Vec::new())?;
            let snapshot = (!bytes.is_empty()).then(|| Snapshot::from_bytes(&bytes));
            let snapshot = snapshot.transpose()?;
            let damaged = Vec::new();
            return Ok(Restored { snapshot, damaged });
        }
        let loaded = checkpoints.load().and_then(|restored| {
            let bytes = restored.snapshot.as_ref().map(Snapshot::to_bytes);
            Ok((restored, bytes.transpose()?.unwrap_or_default()))
        });
        let (restored, bytes) = self.told(loaded)?;
        self.bytes_of(Rank::CHIEF, bytes)?;
        Ok(restored)
    }
}

/// Under another name first, and on the disk before it gets its own.
fn write_whole(
    folder: &Path,
    (unfinished, path): (&Path, &Path),
    bytes: &[u8],
) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = File::create(unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(unfinished, path)?;
    File::open(folder)?.sync_all()
}

fn failed(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::CheckpointFile {
        path: path.to_owned(),
        what,
        kind: error.kind(),
    }
}

fn file_name(step: u64) -> String {
    format!("{PREFIX}{step:012}.{EXTENSION}")
}

fn step_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    let number = name.strip_prefix(PREFIX)?.strip_suffix(EXTENSION)?;
    number.strip_suffix('.')?.parse().ok()
}

const PREFIX: &str = "step-";
const EXTENSION: &str = "safetensors";
const UNFINISHED: &str = "unfinished";

#[cfg(test)]
mod tests;
