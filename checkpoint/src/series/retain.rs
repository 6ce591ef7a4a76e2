//! Generations that are not needed any more.

use std::num::NonZeroUsize;
use std::path::Path;

use super::{Files, Series, Written, failed, finished, is_missing};
use crate::index::INDEX;
use crate::{Error, Generation, Operation};

impl Series {
    /// Removes generations that came before the latest `keep` whole ones, but never `just`, which
    /// was written last, nor one of another format, which another release can read.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn retain(&self, keep: NonZeroUsize, just: Generation) -> Result<(), Error> {
        let files = self.files()?;
        let mut kept = 0;
        let mut old = Vec::new();
        for generation in finished(&files).rev() {
            if kept >= keep.get() && generation != just {
                old.push(generation);
            } else if generation == just || self.is_whole(generation) {
                kept += 1;
            }
        }
        old.retain(|generation| self.is_ours(*generation));
        self.remove_generations(&old, &files)
    }

    /// Removes a file of a generation that will have no index.
    pub fn abandon(&self, generation: Generation, written: Written) {
        if !self.may_be_finished(generation) {
            written.discard();
        }
    }

    /// Removes what writers left behind that ended before their generation had an index.
    pub(super) fn sweep(&self, files: &Files) {
        for (generation, parts) in files.iter().filter(|(_, parts)| !parts.contains(INDEX)) {
            // A writer puts the index in its place before it lets go of its files.
            let keep = || self.may_be_finished(*generation);
            for part in parts {
                // What cannot be removed harms nobody.
                let _ = self
                    .disk
                    .remove_abandoned(&self.path(*generation, part), &keep);
            }
        }
    }

    fn may_be_finished(&self, generation: Generation) -> bool {
        let index = self.disk.open(&self.index_path(generation));
        !index.is_err_and(|error| is_missing(&error))
    }

    /// Looked at once: who keeps many generations does not read all of them after each save.
    fn is_whole(&self, generation: Generation) -> bool {
        if self.known_whole().contains(&generation) {
            return true;
        }
        let is_whole = self.checked(generation).is_ok();
        if is_whole {
            self.known_whole().insert(generation);
        }
        is_whole
    }

    /// Whether it has this format. What cannot be read now may have another, and stays for now.
    fn is_ours(&self, generation: Generation) -> bool {
        if self.known_whole().contains(&generation) {
            return true;
        }
        !matches!(
            self.index(generation),
            Err(Error::OtherFormat { .. } | Error::Io { .. })
        )
    }

    /// The index goes first, and is gone for good before a file is: no crash leaves one that names
    /// files which are not there.
    fn remove_generations(&self, old: &[Generation], files: &Files) -> Result<(), Error> {
        if old.is_empty() {
            return Ok(());
        }
        for generation in old {
            self.remove(&self.index_path(*generation))?;
            self.known_whole().remove(generation);
        }
        self.sync_folder(&self.folder)?;
        for generation in old {
            let parts = files[generation].iter().filter(|part| *part != INDEX);
            for part in parts {
                self.remove(&self.path(*generation, part))?;
            }
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<(), Error> {
        match self.disk.remove(path) {
            Err(error) if !is_missing(&error) => Err(failed(Operation::Remove, path)(error)),
            _ => Ok(()),
        }
    }
}
