//! What goes wrong, by what was asked for.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

/// Everything that can go wrong with files of checkpoints.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation. After [`Operation::Remove`] everything is saved; after any
    /// other, what was saved before is still there.
    #[error("{} cannot be {operation}: {kind}", path.display())]
    Io {
        /// The operation that failed.
        operation: Operation,
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        kind: io::ErrorKind,
    },
    /// A symbolic link is in the place of a file.
    #[error("{} is a symbolic link, which is not followed: put the file itself there", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// A folder, a pipe or a device is in the place of a file.
    #[error("{} is no regular file: remove it", path.display())]
    NotAFile {
        /// The path that is taken.
        path: PathBuf,
    },
    /// The content of a file is not the saved one.
    #[error("{} cannot be used: {damage}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        damage: FileDamage,
    },
    /// A generation was saved in another format than the one that is read here.
    #[error("{} has format {found} of checkpoints, and this release reads {known}: read it with the release that saved it, or save elsewhere", path.display())]
    OtherFormat {
        /// Its index.
        path: PathBuf,
        /// The format that it has.
        found: u32,
        /// The one that is read.
        known: u32,
    },
    /// Another process has written a file that this one does not see.
    #[error("{} was written by another process, and this one does not see it: save to a folder that all hosts share", path.display())]
    NotShared {
        /// Where it looks for the file.
        path: PathBuf,
    },
    /// A text is no name of a generation.
    #[error("{text:?} names no generation: it takes a form such as g00000007-0123456789abcdef")]
    NoGeneration {
        /// The text.
        text: String,
    },
    /// A text is no description of a file.
    #[error("{text:?} describes no file of a generation: it takes length, head, hash and name")]
    NoEntry {
        /// The text.
        text: String,
    },
    /// A file of a generation cannot have this name.
    #[error(
        "a file of a checkpoint cannot be called {part:?}: it takes ASCII letters, digits, '-', '_' and '.', another name than that of the index, and no name twice"
    )]
    Part {
        /// The name.
        part: String,
    },
    /// The first bytes, which the index answers for, are more than the file has.
    #[error("a file of {length} bytes has no first {head} bytes")]
    Head {
        /// Bytes of the file.
        length: u64,
        /// Bytes that were to be hashed.
        head: u64,
    },
    /// An index would be too long to be read again.
    #[error("an index of {length} bytes is longer than {most}: save fewer tensors together")]
    IndexTooLong {
        /// Its bytes.
        length: u64,
        /// The most.
        most: u64,
    },
    /// A prefix names no file in a folder.
    #[error("{} names no files: end it with a name", prefix.display())]
    Prefix {
        /// The prefix.
        prefix: PathBuf,
    },
    /// Another writer has begun to save in the same moment. What was saved before is still there.
    #[error("somebody else saves to {} at the same time: save again, or end one of both", folder.display())]
    Concurrent {
        /// The folder.
        folder: PathBuf,
    },
    /// Two tensors that are saved together have one name.
    #[error("two tensors are to be saved as {name:?}: give them different names")]
    TensorTwice {
        /// The name.
        name: String,
    },
    /// A tensor cannot have this name in a safetensors file.
    #[error("no tensor can be saved as {name:?}, under which files have their metadata: rename it")]
    TensorName {
        /// The name.
        name: String,
    },
    /// A block of a tensor cannot be in a file.
    #[error(
        "the bytes of {block} cannot be counted: elements take whole bytes, and all together fewer than 2^63"
    )]
    BlockSize {
        /// The tensor, and which of its elements.
        block: String,
    },
    /// A file is intact, and not one of tensors.
    #[error("{} was not saved as a part of tensors on several writers: read it as what it is", path.display())]
    TensorForm {
        /// The file.
        path: PathBuf,
    },
    /// A generation is not there any more: those that came after it are kept.
    #[error("{} was removed as later saves followed: read the last one instead", index.display())]
    Removed {
        /// Its index.
        index: PathBuf,
    },
    /// No tensor of this name was saved.
    #[error("{} has no tensor {name}: is it of another model?", index.display())]
    NoTensor {
        /// The name.
        name: String,
        /// The index of the generation.
        index: PathBuf,
    },
    /// The files do not have all elements of a tensor.
    #[error("the files of {} do not have all elements of {name}: save it anew", index.display())]
    TensorHole {
        /// The tensor.
        name: String,
        /// The index of the generation.
        index: PathBuf,
    },
    /// A block in a file is damaged. Other blocks may have been read already, so no earlier
    /// generation is used in its place.
    #[error(
        "{} holds other elements of {block} than were saved: remove {} to go back to the save before it", path.display(), index.display()
    )]
    BlockDamaged {
        /// The file.
        path: PathBuf,
        /// The tensor, and which of its elements.
        block: String,
        /// The index, without which the generation does not count.
        index: PathBuf,
    },
    /// The generation numbers are exhausted.
    #[error("no generation can follow number {last} in {}: save elsewhere", folder.display())]
    Exhausted {
        /// The last number.
        last: u64,
        /// The folder.
        folder: PathBuf,
    },
}

/// An operation of the file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// A folder made.
    MakeFolder,
    /// The names in a folder read.
    List,
    /// A new file made.
    Create,
    /// Bytes written.
    Write,
    /// Written to the disk itself, and not only to memory.
    Sync,
    /// A file put in its place.
    Rename,
    /// A file opened or read.
    Read,
    /// A file removed that is not needed any more; what was saved is saved.
    Remove,
}

impl Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MakeFolder => "made",
            Self::List => "listed",
            Self::Create => "created",
            Self::Write => "written",
            Self::Sync => "synced to the disk",
            Self::Rename => "put in place",
            Self::Read => "read",
            Self::Remove => "removed",
        })
    }
}

/// How a file differs from the saved one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FileDamage {
    /// The index names a file that is not there.
    #[error("it is missing")]
    Missing,
    /// It is longer or shorter.
    #[error("it has {found} bytes, and not {stated}")]
    Length {
        /// Bytes that were saved.
        stated: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// It has other content.
    #[error("its content has the hash {found:016x}, and not {stated:016x}")]
    Hash {
        /// The hash of the saved content.
        stated: u64,
        /// The hash of the content found.
        found: u64,
    },
    /// An index ends early, or never was one.
    #[error("it is no whole index")]
    Index,
    /// It was put there under the name of another generation.
    #[error("it is the index of another generation")]
    OtherGeneration,
}
