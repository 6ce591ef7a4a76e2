//! Generations found and read.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use super::{Series, failed, is_missing};
use crate::disk::{Content, Refused};
use crate::index::{FORMAT, other_format};
use crate::{Entry, Error, FileDamage, Generation, Index, Operation};

/// The generation to continue from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Latest {
    index: Option<Index>,
    damaged: Vec<(PathBuf, FileDamage)>,
}

/// A file of a generation that can be read, and whose head is intact.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    length: u64,
    head: Vec<u8>,
    content: Box<dyn Content>,
}

impl Latest {
    /// Of the latest whole generation; `None` where there is none.
    #[must_use]
    pub fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// A file of each later generation that was passed over, and its damage.
    #[must_use]
    pub fn damaged(&self) -> &[(PathBuf, FileDamage)] {
        &self.damaged
    }
}

impl Series {
    /// The latest generation whose files are all there, have their lengths, and begin with what was
    /// saved.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that is there and cannot be read, [`Error::OtherFormat`] for a
    /// generation that is not read here, whatever came before it, [`Error::Link`],
    /// [`Error::NotAFile`].
    pub fn latest(&self) -> Result<Latest, Error> {
        let mut damaged = Vec::new();
        for generation in self.generations()? {
            match self.checked(generation) {
                Ok(index) => {
                    let index = Some(index);
                    return Ok(Latest { index, damaged });
                }
                Err(Error::Damaged { path, damage }) => damaged.push((path, damage)),
                Err(error) => return Err(error),
            }
        }
        Ok(Latest {
            index: None,
            damaged,
        })
    }

    /// The index of a generation.
    ///
    /// # Errors
    /// [`Error::Damaged`], and those of [`latest`](Self::latest).
    pub fn index(&self, generation: Generation) -> Result<Index, Error> {
        let path = self.index_path(generation);
        let content = self.open_file(&path)?;
        let length = self.length(content.as_ref(), &path)?;
        if length > LONGEST_INDEX {
            return Err(damaged(&path, FileDamage::Index));
        }
        let bytes = bytes_of(content.as_ref(), &path, length)?;
        let index = Index::from_bytes(&bytes).map_err(|damage| match other_format(&bytes) {
            Some(found) => Error::OtherFormat {
                path: path.clone(),
                found,
                known: FORMAT,
            },
            None => damaged(&path, damage),
        })?;
        match index.generation() == generation {
            true => Ok(index),
            false => Err(damaged(&path, FileDamage::OtherGeneration)),
        }
    }

    /// Opens a file of a generation, and reads and checks its head.
    ///
    /// # Errors
    /// [`Error::Damaged`], and those of [`latest`](Self::latest).
    pub fn open(&self, generation: Generation, entry: &Entry) -> Result<Opened, Error> {
        let path = self.path(generation, entry.part());
        let content = self.open_whole(&path, entry)?;
        let head = bytes_of(content.as_ref(), &path, entry.head())?;
        match entry.check(&head) {
            Ok(()) => Ok(Opened {
                path,
                length: entry.length(),
                head,
                content,
            }),
            Err(damage) => Err(damaged(&path, damage)),
        }
    }

    /// Names in the folder of what is no file of this series.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn strangers(&self) -> Result<Vec<OsString>, Error> {
        let names = self.names()?.into_iter();
        Ok(names.filter(|name| self.parsed(name).is_none()).collect())
    }

    /// All bytes of a file in the folder that does not belong to this series.
    ///
    /// # Errors
    /// [`Error::Damaged`] where it is not there, and those of [`latest`](Self::latest).
    pub fn read_stranger(&self, name: &OsStr) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(name);
        let content = self.open_file(&path)?;
        let length = self.length(content.as_ref(), &path)?;
        bytes_of(content.as_ref(), &path, length)
    }

    pub(super) fn checked(&self, generation: Generation) -> Result<Index, Error> {
        let index = self.index(generation)?;
        for file in index.files() {
            self.open(generation, file)?;
        }
        Ok(index)
    }

    /// A file that has its length.
    pub(super) fn open_whole(&self, path: &Path, entry: &Entry) -> Result<Box<dyn Content>, Error> {
        let content = self.open_file(path)?;
        let (stated, found) = (entry.length(), self.length(content.as_ref(), path)?);
        match stated == found {
            true => Ok(content),
            false => Err(damaged(path, FileDamage::Length { stated, found })),
        }
    }

    fn open_file(&self, path: &Path) -> Result<Box<dyn Content>, Error> {
        self.disk.open(path).map_err(|error| {
            let refused = error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<Refused>().copied());
            let path = path.to_owned();
            match refused {
                Some(Refused::Link) => Error::Link { path },
                Some(Refused::NotAFile) => Error::NotAFile { path },
                None if is_missing(&error) => damaged(&path, FileDamage::Missing),
                None => failed(Operation::Read, &path)(error),
            }
        })
    }

    fn length(&self, content: &dyn Content, path: &Path) -> Result<u64, Error> {
        content.length().map_err(failed(Operation::Read, path))
    }
}

impl Opened {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its first bytes, which are intact.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Gives its first bytes out.
    #[must_use]
    pub fn into_head(self) -> Vec<u8> {
        self.head
    }

    /// Bytes from `offset` on; those behind the head have not been checked.
    ///
    /// # Errors
    /// [`Error::Io`]
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let read = self.content.read_at(offset, bytes);
        read.map_err(failed(Operation::Read, &self.path))
    }
}

fn bytes_of(content: &dyn Content, path: &Path, length: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let full = || failed(Operation::Read, path)(io::ErrorKind::OutOfMemory.into());
    let length = usize::try_from(length).map_err(|_| full())?;
    bytes.try_reserve_exact(length).map_err(|_| full())?;
    bytes.resize(length, 0);
    let read = content.read_at(0, &mut bytes);
    read.map_err(failed(Operation::Read, path))?;
    Ok(bytes)
}

fn damaged(path: &Path, damage: FileDamage) -> Error {
    Error::Damaged {
        path: path.to_owned(),
        damage,
    }
}

/// Bytes of an index, known before memory is taken for it.
pub(super) const LONGEST_INDEX: u64 = 256 << 20;
