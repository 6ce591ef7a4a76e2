//! Checkpoints: when they are written, and what is in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meshwork_strategy::Checkpoints;
use signal_hook::consts::SIGTERM;

use crate::error::Error;

/// The status with which a run ends that was asked to, and has saved what it needs to go on: that
/// of a temporary failure in sysexits.h, which schedulers can be told to try again.
pub(crate) const PREEMPTED: u8 = 75;

/// Steps from one checkpoint to the next; there is one at the end of each epoch too.
pub(crate) const SAVE_EVERY: usize = 100;

/// Where a run is saved, and whether it is to end.
#[derive(Debug)]
pub(crate) struct Keep {
    folder: PathBuf,
    checkpoints: Checkpoints,
    asked_to_end: Arc<AtomicBool>,
}

impl Keep {
    /// Saves in `folder`; from here on SIGTERM asks to end, and does not end.
    ///
    /// # Errors
    ///
    /// [`Error::Signal`]
    pub(crate) fn new(folder: &Path) -> Result<Self, Error> {
        let asked_to_end = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGTERM, asked_to_end.clone())
            .map_err(|source| Error::Signal { source })?;
        Ok(Self::of(folder, asked_to_end))
    }

    /// Saves in `folder`, and is to end once `asked_to_end` says so.
    pub(crate) fn of(folder: &Path, asked_to_end: Arc<AtomicBool>) -> Self {
        Self {
            folder: folder.to_owned(),
            checkpoints: Checkpoints::new(folder),
            asked_to_end,
        }
    }

    /// The files.
    pub(crate) fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// 1 if this process was asked to end, to be summed over all workers; 0 if not.
    pub(crate) fn asked_to_end(&self) -> f32 {
        f32::from(u8::from(self.asked_to_end.load(Ordering::Relaxed)))
    }

    /// The end of a run that has been saved.
    pub(crate) fn preempted(&self) -> Error {
        Error::Preempted {
            folder: self.folder.clone(),
        }
    }
}
