//! What is asked of a file system.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A file system: the system's own is [`System`], tests have others.
pub trait Disk: Debug + Send + Sync {
    /// The names in a folder.
    ///
    /// # Errors
    /// Those of the system.
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Makes one folder.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::AlreadyExists`] where something has its name.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;

    /// Syncs a folder: returns when files created, renamed and removed in it are on the disk.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Makes a file where nothing is, not even a link.
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>>;

    /// Opens a regular file; links are not followed.
    ///
    /// # Errors
    /// Those of the system; [`Refused`] where no regular file is there.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Content>>;

    /// Removes a file, unless `keep` wants it, and returns whether it did. A file that is being
    /// written, or about which that is not known, stays. `keep` is asked when no process can write
    /// it any more.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_abandoned(&self, path: &Path, keep: &dyn Fn() -> bool) -> io::Result<bool>;

    /// Gives a file another name, in place of any file that has it.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written. Until it is dropped, others can tell that it is.
pub trait Draft: Debug + Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all of it is on the disk.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is read.
pub trait Content: Debug + Send {
    /// Its bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn length(&self) -> io::Result<u64>;

    /// Fills `bytes` with those from `offset` on.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::UnexpectedEof`] past the end.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// Why a file was not opened, inside an [`io::Error`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It is a symbolic link.
    #[error("it is a symbolic link")]
    Link,
    /// It is a folder, a pipe or a device.
    #[error("it is no regular file")]
    NotAFile,
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub struct System;

impl Disk for System {
    fn names(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Draft>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        match file.try_lock() {
            // Who looks for abandoned files has taken it for one.
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::ResourceBusy.into()),
            // Without locks nobody removes what others may be writing.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        match file.metadata()?.nlink() {
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Box::new(file)),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(open(path, OpenOptions::new().read(true))?))
    }

    fn remove_abandoned(&self, path: &Path, keep: &dyn Fn() -> bool) -> io::Result<bool> {
        // Some systems lock only what could be written.
        let file = open(path, OpenOptions::new().read(true).write(true))?;
        let removes = file.try_lock().is_ok() && !keep();
        if removes {
            fs::remove_file(path)?;
        }
        Ok(removes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl Draft for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Content for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

/// A regular file, and nothing else; a pipe does not make the caller wait.
fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let opened = how.custom_flags(flags.cast_signed()).open(path);
    let refused = |refused| io::Error::new(io::ErrorKind::InvalidInput, refused);
    let file = opened.map_err(|error| match is_link(path, &error) {
        true => refused(Refused::Link),
        false => error,
    })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(refused(Refused::NotAFile)),
    }
}

/// Systems differ in what they say of a link that is not to be followed.
fn is_link(path: &Path, error: &io::Error) -> bool {
    let codes = [Errno::LOOP, Errno::MLINK].map(Errno::raw_os_error);
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
        && fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

#[cfg(test)]
mod tests;
