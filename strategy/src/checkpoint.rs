//! Snapshots in files, written whole or not at all.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use meshwork_checkpoint::{Error as FileError, Generation, Index, Series};
use meshwork_collectives::Rank;

use crate::{Error, MultiWorkerMirroredStrategy, Snapshot, SnapshotDamage};

/// A folder of snapshots, one file for each that was saved, beside an index.
///
/// A snapshot is there when all of it is on the disk, and no crash takes it back. The last save is
/// loaded, whatever its step. The latest few are kept, so that one that was damaged later does not
/// lose everything.
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
    series: Series,
    keep: NonZeroUsize,
}

/// The latest whole snapshot, if there is one, and the damaged files that were passed over.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    snapshot: Option<Snapshot>,
    damaged: Vec<(PathBuf, SnapshotDamage)>,
}

impl Restored {
    /// The latest whole snapshot; `None` where none was ever saved, and training begins.
    #[must_use]
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// Later files that were passed over, and their damage; known to the chief only.
    #[must_use]
    pub fn damaged(&self) -> &[(PathBuf, SnapshotDamage)] {
        &self.damaged
    }
}

impl Checkpoints {
    /// The snapshots in `folder`, which is made when the first is saved. The latest two are kept.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self::of(Series::new(folder, STEM))
    }

    fn of(series: Series) -> Self {
        let keep = NonZeroUsize::MIN.saturating_add(1);
        Self { series, keep }
    }

    /// Keeps the latest `keep` snapshots. Damaged ones do not count.
    #[must_use]
    #[doc(alias = "max_to_keep")]
    pub fn with_keep(mut self, keep: NonZeroUsize) -> Self {
        self.keep = keep;
        self
    }

    /// Writes a snapshot from this process, and removes the oldest ones. Returns its file.
    ///
    /// # Errors
    /// [`Error::Checkpoint`]; what was saved before is then still there. [`Error::CheckpointForm`].
    pub fn save(&self, snapshot: &Snapshot) -> Result<PathBuf, Error> {
        let bytes = snapshot.to_bytes()?;
        self.series.make_folder()?;
        let generation = self.series.begin()?;
        let part = format!("{PREFIX}{:012}{EXTENSION}", snapshot.step());
        let written = self.series.write(generation, &part, &bytes, bytes.len())?;
        let path = written.path().to_owned();
        let index = Index::new(generation, [written.entry().clone()], Vec::new())?;
        if let Err(error) = self.series.finish(&index) {
            self.series.abandon(generation, written);
            return Err(error.into());
        }
        self.series.retain(self.keep, generation)?;
        Ok(path)
    }

    /// The snapshot that was saved last, of those that are whole. Where there is none, that of the
    /// highest step among files called `step-N.safetensors`, as they were before there was an
    /// index.
    ///
    /// # Errors
    /// [`Error::NoWholeCheckpoint`] where there are snapshots, all of them damaged;
    /// [`Error::Checkpoint`] for a file that is there and cannot be read, or is a link, and for one
    /// that another release has saved in another format.
    pub fn load(&self) -> Result<Restored, Error> {
        let mut damaged = Vec::new();
        let generations = self
            .series
            .generations()?
            .into_iter()
            .map(Source::Generation);
        let bare = self.bare_files()?.into_iter().map(Source::Bare);
        for source in generations.chain(bare) {
            let snapshot = match self.read(&source) {
                Ok((path, bytes)) => Snapshot::from_bytes(&bytes).map_err(|damage| (path, damage)),
                Err(FileError::Damaged { path, damage }) => Err((path, damage.into())),
                Err(error) => return Err(error.into()),
            };
            match snapshot {
                Ok(snapshot) => {
                    let snapshot = Some(snapshot);
                    return Ok(Restored { snapshot, damaged });
                }
                Err(passed_over) => damaged.push(passed_over),
            }
        }
        // Whoever is told that there is none begins anew, and removes what is there by saving.
        match damaged.into_iter().next() {
            Some((path, damage)) => Err(Error::NoWholeCheckpoint { path, damage }),
            None => Ok(Restored {
                snapshot: None,
                damaged: Vec::new(),
            }),
        }
    }

    fn read(&self, source: &Source) -> Result<(PathBuf, Vec<u8>), FileError> {
        let generation = match source {
            Source::Generation(generation) => *generation,
            Source::Bare(name) => {
                let bytes = self.series.read_stranger(name)?;
                return Ok((self.series.folder().join(name), bytes));
            }
        };
        let index = self.series.index(generation)?;
        let [file] = index.files() else {
            return Err(FileError::Damaged {
                path: self.series.index_path(generation),
                damage: meshwork_checkpoint::FileDamage::Index,
            });
        };
        let opened = self.series.open(generation, file)?;
        Ok((opened.path().to_owned(), opened.into_head()))
    }

    /// Snapshots without an index, the highest step first.
    fn bare_files(&self) -> Result<Vec<OsString>, Error> {
        let names = self.series.strangers()?.into_iter();
        let mut files: Vec<_> = names
            .filter_map(|name| Some((step_of(&name)?, name)))
            .collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        Ok(files.into_iter().map(|(_, name)| name).collect())
    }
}

/// Where a snapshot may be.
enum Source {
    Generation(Generation),
    Bare(OsString),
}

impl MultiWorkerMirroredStrategy {
    /// The chief writes its snapshot, and all workers wait until it has. A failure ends the
    /// training on all workers; in a job that is [`elastic`](Self::elastic) on the chief, without
    /// which the others go on.
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
        let _span = tracing::info_span!("checkpoint", step = snapshot.step()).entered();
        if self.is_chief() {
            let saved = checkpoints.save(snapshot);
            self.abort_on_error(saved)?;
        }
        self.sum_over_workers([1])?;
        self.meter.saved();
        Ok(())
    }

    /// The chief reads the latest whole snapshot, and sends it to all workers, who need no access
    /// to its folder. What it cannot read is an error on all of them.
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
        let (restored, bytes) = self.abort_on_error(loaded)?;
        self.bytes_of(Rank::CHIEF, bytes)?;
        Ok(restored)
    }
}

fn step_of(name: &OsStr) -> Option<u64> {
    let number = name.to_str()?.strip_prefix(PREFIX)?;
    number.strip_suffix(EXTENSION)?.parse().ok()
}

/// The common prefix of all file names.
const STEM: &str = "checkpoint";
const PREFIX: &str = "step-";
const EXTENSION: &str = ".safetensors";

#[cfg(test)]
mod tests;
