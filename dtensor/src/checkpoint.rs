//! Tensors in files: every block is written once, by the first rank that holds it, and read again into
//! any layout, on any mesh, by any number of clients.
//!
//! ```text
//!   ck.index                          which files, and the shape and type of each tensor
//!   ck-00000-of-00002.safetensors     the blocks of client 0: "w@0:2,0:4", "b@0:4"
//!   ck-00001-of-00002.safetensors     those of client 1:      "w@2:4,0:4"
//! ```
//!
//! The index is written last, so what has one is whole.

use std::ops::Range;
use std::path::{Path, PathBuf};

use meshwork_layout::Layout;
use meshwork_layout::ops::Placement;

use crate::error::Subject;
use crate::variable::SavedAs;
use crate::{Context, DTensor, DVariable, Error, Scalar};

mod format;
mod read;

use format::{Index, Stored};
use read::Reader;

impl Context {
    /// Writes tensors and variables to files whose names begin with `prefix`: each client those of its
    /// blocks that no client before it has. All clients call it; each has to see the files of the
    /// others when they are read. Returns when all are written.
    ///
    /// ```
    /// use meshwork_core::{Client, Mesh};
    /// use meshwork_dtensor::{Context, Error};
    /// use meshwork_layout::Layout;
    ///
    /// let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// let mesh = Mesh::new([("x", 2)])?;
    /// let rows = Layout::batch_sharded(&mesh, "x", 2)?;
    /// let weights = context.random_normal::<f32>(0, &[4, 2], &rows)?;
    /// let folder = std::env::temp_dir().join(format!("meshwork-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// context.save(&folder.join("step-1"), &[("weights", &weights)])?;
    /// let columns = Layout::inner_sharded(&mesh, "x", 2)?;
    /// let read = context.restore::<f32>(&folder.join("step-1"), "weights", &columns)?;
    /// assert_eq!(read.to_host()?, weights.to_host()?);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TensorName`] for two tensors of one name, or a name with `@`; [`Error::File`], on all
    /// clients; and those of [`DTensor::relayout`].
    #[track_caller]
    #[doc(alias("name_based_save", "sharded_save"))]
    pub fn save(&self, prefix: &Path, tensors: &[(&str, &dyn Save)]) -> Result<(), Error> {
        for (place, (name, _)) in tensors.iter().enumerate() {
            let is_taken = tensors[..place].iter().any(|(other, _)| other == name);
            if is_taken || name.contains('@') {
                return Err(Error::TensorName {
                    name: (*name).to_owned(),
                });
            }
        }
        let mut stored = Vec::new();
        let mut index = Index::new(self.client().count());
        for (name, tensor) in tensors {
            index.add(name, &tensor.store(name, &mut stored)?);
        }
        // A client that cannot write tells the others, so that nobody waits for it.
        let written = format::write(&index.file(prefix, self.index()), &stored);
        self.agree_on(&written)?;
        let finished = match self.index() {
            0 => index.write(prefix),
            _ => Ok(()),
        };
        self.agree_on(&finished)
    }

    /// Reads a tensor into a layout. Each client reads the parts that its devices hold.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::FileForm`], [`Error::NotSaved`], [`Error::SavedElement`],
    /// [`Error::SavedHole`] where files do not have all elements, and those of
    /// [`copy_to_mesh`](Self::copy_to_mesh).
    #[track_caller]
    #[doc(alias = "name_based_restore")]
    pub fn restore<T: Scalar>(
        &self,
        prefix: &Path,
        name: &str,
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        let reader = Reader::open(prefix, name)?;
        let placement = Placement::new(reader.shape().iter().copied(), layout.clone())?;
        let homes = self.homes(layout.mesh())?;
        let mut blocks = Vec::new();
        for rank in homes.local() {
            let held = layout.shard(*rank, reader.shape())?;
            blocks.push(reader.block::<T>(&held)?.into_shared());
        }
        match layout.reduction() {
            None => DTensor::of(self, placement, blocks),
            // Whole first, then as terms.
            Some(_) => {
                let whole = Layout::new(layout.specs().cloned(), layout.mesh())?;
                let placement = Placement::new(reader.shape().iter().copied(), whole)?;
                DTensor::of(self, placement, blocks)?.relayout(layout)
            }
        }
    }

    /// An error of one client is one of all: the first.
    #[track_caller]
    fn agree_on(&self, outcome: &Result<(), Error>) -> Result<(), Error> {
        let own = outcome
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        let told = self.tell(Subject::Checkpoint, own.as_bytes())?;
        outcome.clone()?;
        let mut others = (0..).zip(&told).filter(|(_, message)| !message.is_empty());
        match others.next() {
            None => Ok(()),
            Some((client, message)) => Err(Error::OtherClient {
                client,
                message: String::from_utf8_lossy(message).into_owned(),
            }),
        }
    }
}

/// What can be written to a checkpoint: a [`DTensor`] or a [`DVariable`].
pub trait Save: sealed::Store {}

impl<T: Scalar> Save for DTensor<T> {}
impl<T: Scalar> Save for DVariable<T> {}

mod sealed {
    use super::{Error, Stored};
    use crate::checkpoint::format::Described;

    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Store {
        /// Adds the blocks that are to be written here, and describes the tensor.
        #[doc(hidden)]
        fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<Described, Error>;
    }
}

impl<T: Scalar> sealed::Store for DTensor<T> {
    fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<format::Described, Error> {
        let settled = self.settled()?;
        let layout = settled.layout();
        for (rank, block) in settled.local_ranks().iter().zip(settled.unpack()?) {
            let held = layout.shard(*rank, settled.shape())?;
            let index: Vec<usize> = held.iter().map(|range| range.start).collect();
            let is_empty = held.iter().any(Range::is_empty);
            if !is_empty && layout.owners(&index, settled.shape())?.next() == Some(*rank) {
                stored.push(Stored::of(name, &held, &block.view()));
            }
        }
        Ok(format::Described {
            shape: settled.shape().to_vec(),
            element: T::TYPE,
        })
    }
}

impl<T: Scalar> sealed::Store for DVariable<T> {
    fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<format::Described, Error> {
        match self.saved_as() {
            SavedAs::Itself => self.value().store(name, stored),
            SavedAs::Bf16 => self.value().cast::<crate::bf16>()?.store(name, stored),
        }
    }
}

/// The file that says which others there are.
fn index_path(prefix: &Path) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(".index");
    path.into()
}

#[cfg(test)]
mod tests;
