//! Files that are there as a whole or not at all, generation after generation.
//!
//! Every save makes a new generation: files with names that nobody has used or can guess, and an
//! index that is put in place last and names them, with their lengths and hashes. What has no index
//! was never finished. The files may have anything in them; [`tensors`] is a form for blocks of
//! tensors from many writers. This crate does not know who writes what, or how tensors are laid
//! out.
//!
//! ```text
//!   ck.g00000007-5b1c22f09ad3e781.index                  the generation is whole
//!   ck.g00000007-5b1c22f09ad3e781.00000-of-00002.bin     its files
//!   ck.g00000007-5b1c22f09ad3e781.00001-of-00002.bin
//!   ck.g00000008-0e97d4416c8a3f25.00000-of-00002.bin     a save that is under way, or never ended
//! ```
//!
//! # When not to use it
//!
//! As a database or a log: a save is whole files, written once. Two programs must not save under
//! one name at a time.
//!
//! # Examples
//!
//! ```
//! use std::num::NonZeroUsize;
//! use meshwork_checkpoint::{Error, Index, Series};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let series = Series::new(folder.path(), "ck");
//! let generation = series.begin()?;
//! let written = series.write(generation, "numbers.bin", &[1, 2, 3], 3)?;
//! let index = Index::new(generation, [written.entry().clone()], Vec::new())?;
//! series.finish(&index)?;
//! series.retain(NonZeroUsize::MIN, generation)?;
//!
//! let found = series.latest()?;
//! let index = found.index().expect("one was finished");
//! let file = series.open(index.generation(), &index.files()[0])?;
//! assert_eq!(file.head(), [1, 2, 3]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # Common calls
//!
//! | call | for |
//! |---|---|
//! | [`Series::new`] | a folder and a name |
//! | [`Series::begin`], [`Series::write`], [`Series::finish`] | a save; what has not been finished is not there |
//! | [`Series::latest`], [`Series::open`] | the last whole one, and a file of it |
//! | [`Series::retain`] | removes older ones |
//! | [`tensors`] | blocks of tensors in such files |
//!
//! # Crate features
//!
//! | feature | adds |
//! |---|---|
//! | `testing` | a disk that fails and loses what was not synced, for tests; no part of the interface |
//!
//! # Errors
//!
//! [`Error`] names the file, what was done with it and why it failed. A save that fails leaves
//! those before it. A file whose length or head is not what was saved is damaged ([`FileDamage`]).
//! A generation of another format ([`Error::OtherFormat`]) is neither passed over nor removed.
//!
//! # Costs
//!
//! [`Series::write`] and [`Series::finish`] return when the bytes are on the disk, and hash what
//! they write; all of it in the calling thread. [`Series::latest`] reads the head of each file, and
//! [`Opened`] the rest in pieces.
//!
//! # Map of the crate
//!
//! `series` (writing generations; `series/read`, finding them; `series/retain`, removing them),
//! `generation` (their names), `index` (what the last file says: pure), `disk` (what is asked of
//! the file system), [`tensors`] (blocks of tensors as safetensors), `error`.
#![forbid(unsafe_code)]

pub mod disk;
mod error;
mod generation;
mod index;
#[cfg(test)]
#[path = "../../fuzz/checks/replay.rs"]
mod replay;
mod series;
pub mod tensors;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::{Error, FileDamage, Operation};
pub use generation::Generation;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use index::decode_index;
pub use index::{Entry, Index};
pub use series::{Latest, Opened, Series, Written};
