//! Generations begun, written and finished.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, process};

use crate::disk::{Disk, Draft, System};
use crate::index::{INDEX, is_part};
use crate::{Entry, Error, FileDamage, Generation, Index, Operation};

mod read;
mod retain;

use read::LONGEST_INDEX;
pub use read::{Latest, Opened};

/// All generations of one checkpoint: files in a folder whose names begin with the same stem.
#[derive(Clone, Debug)]
pub struct Series {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    stem: OsString,
    /// Those that were found whole before, or made here.
    whole: Arc<Mutex<BTreeSet<Generation>>>,
}

/// A file of a generation that is not finished. Until it is dropped, it is not taken for an
/// abandoned one; so it is kept until the generation has its index.
#[derive(Debug)]
pub struct Written {
    entry: Entry,
    path: PathBuf,
    disk: Arc<dyn Disk>,
    // Held, never used: it is locked as long as it is open.
    _draft: Box<dyn Draft>,
}

impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        (&self.folder, &self.stem) == (&other.folder, &other.stem)
    }
}

impl Eq for Series {}

impl Series {
    /// Files in `folder`, whose names begin with `stem`.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, stem: impl Into<OsString>) -> Self {
        Self::on_disk(Arc::new(System), folder.into(), stem.into())
    }

    /// Files whose paths begin with `prefix`.
    ///
    /// # Errors
    /// [`Error::Prefix`] where it does not end with a name.
    pub fn at(prefix: &Path) -> Result<Self, Error> {
        let stem = prefix.file_name().ok_or_else(|| Error::Prefix {
            prefix: prefix.to_owned(),
        })?;
        Ok(Self::new(prefix.parent().unwrap_or(prefix), stem))
    }

    /// Files on another disk than the system's.
    #[cfg(any(test, feature = "testing"))]
    pub fn on(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>, stem: impl Into<OsString>) -> Self {
        Self::on_disk(disk, folder.into(), stem.into())
    }

    fn on_disk(disk: Arc<dyn Disk>, folder: PathBuf, stem: OsString) -> Self {
        Self {
            disk,
            folder: folder_or_current(&folder).to_owned(),
            stem,
            whole: Arc::default(),
        }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The common prefix of the paths of all files.
    #[must_use]
    pub fn prefix(&self) -> PathBuf {
        self.folder.join(&self.stem)
    }

    /// Where a file of a generation is.
    #[must_use]
    pub fn path(&self, generation: Generation, part: &str) -> PathBuf {
        let mut name = self.stem.clone();
        name.push(format!(".{generation}.{part}"));
        self.folder.join(name)
    }

    /// Where the index of a generation is.
    #[must_use]
    pub fn index_path(&self, generation: Generation) -> PathBuf {
        self.path(generation, INDEX)
    }

    /// Makes the folder, and those above it that are missing, so that they survive a crash.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn make_folder(&self) -> Result<(), Error> {
        self.make(&self.folder)?;
        if self.names()?.is_empty() {
            // Whoever made them may have ended before they were synced. Some may not be ours to
            // open.
            for folder in self.folder.ancestors().skip(1) {
                let _ = self.disk.sync_folder(folder_or_current(folder));
            }
        }
        Ok(())
    }

    /// A new generation after all existing ones, finished or not. Files of writers that ended
    /// halfway are removed; files still being written stay.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Exhausted`].
    pub fn begin(&self) -> Result<Generation, Error> {
        let files = self.files()?;
        self.sweep(&files);
        let last = files.keys().map(|last| last.number()).max();
        let last = last.unwrap_or_default();
        let number = last.checked_add(1).ok_or_else(|| Error::Exhausted {
            last,
            folder: self.folder.clone(),
        })?;
        // The keys of a new hasher are random.
        let nonce = RandomState::new().hash_one((number, process::id()));
        Ok(Generation::new(number, nonce))
    }

    /// Writes a file of a generation. Returns when it is on the disk. Of the whole file the index
    /// can only answer for the first `head` bytes; see [`Entry`].
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Concurrent`], and nothing is left of the file; [`Error::Part`],
    /// [`Error::Head`].
    pub fn write(
        &self,
        generation: Generation,
        part: &str,
        bytes: &[u8],
        head: usize,
    ) -> Result<Written, Error> {
        let entry = Entry::of(part, bytes, head)?;
        let path = self.path(generation, part);
        let draft = self.write_new(&path, bytes)?;
        let written = Written {
            entry,
            path,
            disk: self.disk.clone(),
            _draft: draft,
        };
        let is_first = self.check_number(generation);
        match is_first.and_then(|()| self.sync_folder(&self.folder)) {
            Ok(()) => Ok(written),
            Err(error) => {
                written.discard();
                Err(error)
            }
        }
    }

    /// Puts the index in its place. Returns when it is on the disk, and the generation is whole.
    ///
    /// # Errors
    /// [`Error::IndexTooLong`]; [`Error::NotShared`] for a file that this process does not see;
    /// [`Error::Damaged`] for one that has changed since; [`Error::Io`], after which the generation
    /// may be whole all the same: files go by [`abandon`](Self::abandon).
    pub fn finish(&self, index: &Index) -> Result<PathBuf, Error> {
        let bytes = index.to_bytes();
        if bytes.len() as u64 > LONGEST_INDEX {
            return Err(Error::IndexTooLong {
                length: bytes.len() as u64,
                most: LONGEST_INDEX,
            });
        }
        for entry in index.files() {
            self.see(index.generation(), entry)?;
        }
        let path = self.index_path(index.generation());
        let unfinished = self.path(index.generation(), UNFINISHED_INDEX);
        let draft = self.write_new(&unfinished, &bytes)?;
        let renamed = self.disk.rename(&unfinished, &path);
        renamed.map_err(|error| {
            self.tidy_up(&unfinished);
            failed(Operation::Rename, &path)(error)
        })?;
        drop(draft);
        self.sync_folder(&self.folder)?;
        self.known_whole().insert(index.generation());
        Ok(path)
    }

    /// The generations that were finished, the latest first; none where there is no folder.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn generations(&self) -> Result<Vec<Generation>, Error> {
        Ok(finished(&self.files()?).rev().collect())
    }
}

impl Series {
    fn make(&self, folder: &Path) -> Result<(), Error> {
        let parent = folder_or_current(folder.parent().unwrap_or(folder));
        let made = match self.disk.make_folder(folder) {
            Err(error) if is_missing(&error) && parent != folder => {
                self.make(parent)?;
                self.disk.make_folder(folder)
            }
            made => made,
        };
        match made {
            Ok(()) => self.sync_folder(parent),
            // If it is no folder, that is seen when something is made in it.
            Err(error) if exists(&error) => Ok(()),
            Err(error) => Err(failed(Operation::MakeFolder, folder)(error)),
        }
    }

    fn known_whole(&self) -> MutexGuard<'_, BTreeSet<Generation>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two that have begun at the same time have the same number, and would come in any order: even
    /// much later, if one is stopped meanwhile. Once both have a file, the second sees the first.
    fn check_number(&self, generation: Generation) -> Result<(), Error> {
        let files = self.files()?;
        let is_rival =
            |other: &Generation| other.number() >= generation.number() && *other != generation;
        match files.keys().any(is_rival) {
            true => Err(Error::Concurrent {
                folder: self.folder.clone(),
            }),
            false => Ok(()),
        }
    }

    /// Finds out whether a file that is said to be written is there. A folder of the same name on
    /// the disk of another host is one that nobody could load.
    fn see(&self, generation: Generation, entry: &Entry) -> Result<(), Error> {
        let path = self.path(generation, entry.part());
        match self.open_whole(&path, entry) {
            Ok(_) => Ok(()),
            Err(Error::Damaged {
                path,
                damage: FileDamage::Missing,
            }) => Err(Error::NotShared { path }),
            Err(error) => Err(error),
        }
    }

    /// Best effort, after an error that is reported.
    fn tidy_up(&self, path: &Path) {
        let _ = self.disk.remove(path);
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> Result<Box<dyn Draft>, Error> {
        let created = self.disk.create(path);
        let mut draft = created.map_err(failed(Operation::Create, path))?;
        let written = draft.write(bytes).map_err(failed(Operation::Write, path));
        let synced = written.and_then(|()| draft.sync().map_err(failed(Operation::Sync, path)));
        match synced {
            Ok(()) => Ok(draft),
            Err(error) => {
                self.tidy_up(path);
                Err(error)
            }
        }
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), Error> {
        let synced = self.disk.sync_folder(folder);
        synced.map_err(failed(Operation::Sync, folder))
    }

    fn names(&self) -> Result<Vec<OsString>, Error> {
        match self.disk.names(&self.folder) {
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            names => names.map_err(failed(Operation::List, &self.folder)),
        }
    }

    /// The files of each generation that exist.
    fn files(&self) -> Result<Files, Error> {
        let mut files = Files::new();
        for name in self.names()? {
            if let Some((generation, part)) = self.parsed(&name) {
                files.entry(generation).or_default().insert(part);
            }
        }
        Ok(files)
    }

    fn parsed(&self, name: &OsStr) -> Option<(Generation, String)> {
        let name = name.as_encoded_bytes();
        let rest = name.strip_prefix(self.stem.as_encoded_bytes())?;
        let (generation, part) = str::from_utf8(rest)
            .ok()?
            .strip_prefix('.')?
            .split_once('.')?;
        let is_ours = is_part(part) || part == INDEX || part == UNFINISHED_INDEX;
        is_ours.then_some((generation.parse().ok()?, part.to_owned()))
    }
}

impl Written {
    /// Its entry in the index.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    fn discard(self) {
        // Otherwise a later save does.
        let _ = self.disk.remove(&self.path);
    }
}

/// A path without a folder is one in the current folder.
fn folder_or_current(folder: &Path) -> &Path {
    match folder == Path::new("") {
        true => Path::new("."),
        false => folder,
    }
}

/// The parts that there are of each generation.
type Files = BTreeMap<Generation, BTreeSet<String>>;

fn finished(files: &Files) -> impl DoubleEndedIterator<Item = Generation> {
    let with_index = files.iter().filter(|(_, parts)| parts.contains(INDEX));
    with_index.map(|(generation, _)| *generation)
}

fn failed(operation: Operation, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Io {
        operation,
        path: path.to_owned(),
        kind: error.kind(),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn exists(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// An index under another name, until it is on the disk.
const UNFINISHED_INDEX: &str = "index.unfinished";

#[cfg(test)]
mod tests;
