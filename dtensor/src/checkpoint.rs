//! Tensors in files: every block is written once, by the first rank that holds it, and read again
//! into any layout, on any mesh, by any number of clients.
//!
//! ```text
//!   ck.g00000007-5b1c22f09ad3e781.index
//!     which files, and the shape and type of each tensor
//!   ck.g00000007-5b1c22f09ad3e781.00000-of-00002.safetensors
//!     the blocks of client 0: "w@0:2,0:4", "b@0:4"
//!   ck.g00000007-5b1c22f09ad3e781.00001-of-00002.safetensors
//!     those of client 1: "w@2:4,0:4"
//! ```
//!
//! Each save has files of its own. The index comes last and has the hash of each file's head, in
//! which are those of its blocks; so what is read is what was saved together.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};

use meshwork_checkpoint::tensors::{TensorIndex, TensorInfo};
use meshwork_checkpoint::{Entry, FileDamage, Generation, Index, Series, Written};
use meshwork_layout::ops::TensorLayout;
use meshwork_layout::{Layout, Shape};

use crate::error::Subject;
use crate::variable::SavedAs;
use crate::{Context, DTensor, DVariable, Error, Scalar};

mod read;
mod stored;

use read::Reader;
use stored::{Stored, info_of};

impl Context {
    /// Writes tensors and variables to files whose names begin with `prefix`: each client those of
    /// its blocks that no client before it has. All clients call it; each has to see the files
    /// of the others when they are read. Returns when all are on the disk.
    ///
    /// A prefix may be saved again: until all of the new files are there, and after any crash
    /// before that, the old ones are what is restored. Those of the last save before are kept.
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
    /// # let folder = tempfile::tempdir().unwrap();
    /// let prefix = folder.path().join("step-1");
    /// context.save(&prefix, &[("weights", &weights)])?;
    /// let columns = Layout::inner_sharded(&mesh, "x", 2)?;
    /// let read = context.restore::<f32>(&prefix, "weights", &columns)?;
    /// assert_eq!(read.to_host()?, weights.to_host()?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Checkpoint`], on all clients; also for two tensors of one name. Those of
    /// [`DTensor::relayout`].
    #[track_caller]
    #[doc(alias("name_based_save", "sharded_save"))]
    pub fn save(&self, prefix: &Path, tensors: &[(&str, &dyn Save)]) -> Result<(), Error> {
        self.save_in(&Series::at(prefix)?, tensors)
    }

    /// The last save whose files are all there, to read several tensors of: all are of that one,
    /// whatever is saved to the prefix meanwhile. All clients call it, and the first says which it
    /// is. Once two more have followed it, its files are gone, and nothing more is read of it.
    ///
    /// Files of a later save may since have been cut short, exchanged or removed: then
    /// [`passed_over`](Self::passed_over) names them.
    ///
    /// ```
    /// # use meshwork_core::{Client, Mesh};
    /// # use meshwork_dtensor::{Context, Error};
    /// # use meshwork_layout::Layout;
    /// # let context = Context::alone(Client::new("localhost", 0, 1)?);
    /// # let rows = Layout::batch_sharded(&Mesh::new([("x", 2)])?, "x", 1)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let prefix = folder.path().join("last");
    /// let [weights, bias] = [1.0, 2.0].map(|number| context.full(&[4], &rows, number).unwrap());
    /// context.save(&prefix, &[("weights", &weights), ("bias", &bias)])?;
    /// let saved = context.saved(&prefix)?;
    /// context.save(&prefix, &[("weights", &bias), ("bias", &weights)])?; // meanwhile
    /// assert_eq!(saved.restore::<f64>("weights", &rows)?.to_host()?[[0]], 1.0);
    /// assert_eq!(saved.restore::<f64>("bias", &rows)?.to_host()?[[0]], 2.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], and [`Error::Checkpoint`] for a file that is there and cannot be
    /// read.
    #[track_caller]
    pub fn saved(&self, prefix: &Path) -> Result<Saved, Error> {
        self.saved_in(Series::at(prefix)?)
    }

    /// Reads a tensor of the last save into a layout, as [`Saved::restore`] does. If the mesh has
    /// devices of several clients, all of them call it, and the first says which save it is. Two
    /// calls may read of two saves: [`saved`](Self::saved) is for several tensors.
    ///
    /// # Errors
    /// Those of [`saved`](Self::saved) and of [`Saved::restore`].
    #[track_caller]
    #[doc(alias = "name_based_restore")]
    pub fn restore<T: Scalar>(
        &self,
        prefix: &Path,
        name: &str,
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        self.restore_from(Series::at(prefix)?, name, layout)
    }

    /// Saves to a prefix that came after the one which is restored from it, with a damaged file of
    /// each, and how it differs.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a file that is there and cannot be read.
    pub fn passed_over(&self, prefix: &Path) -> Result<Vec<(PathBuf, FileDamage)>, Error> {
        Ok(Series::at(prefix)?.latest()?.damaged().to_vec())
    }

    #[track_caller]
    fn save_in(&self, series: &Series, tensors: &[(&str, &dyn Save)]) -> Result<(), Error> {
        let mut stored = Vec::new();
        let mut index = TensorIndex::default();
        for (name, tensor) in tensors {
            index.insert(name, tensor.store(name, &mut stored)?)?;
        }
        let begun = match self.index() {
            0 => series.begin().map(|generation| generation.to_string()),
            _ => Ok(String::new()),
        };
        let generation = self.all_tell(begun.map_err(Error::from))?[0].parse()?;
        let written = self.write(series, generation, &stored);
        let entry = written.as_ref().map(|written| written.entry().to_string());
        let told = self.all_tell(entry.map_err(Error::clone));
        let saved = told.and_then(|files| {
            let finished = match self.index() {
                0 => finish(series, generation, &files, &index),
                _ => Ok(()),
            };
            self.all_tell(finished.map(|()| String::new()))
        });
        match (saved, written) {
            (Ok(_), _) => Ok(()),
            // The first client may go on, and count on the file.
            (Err(error @ Error::Group(_)), _) | (Err(error), Err(_)) => Err(error),
            (Err(error), Ok(written)) => {
                series.abandon(generation, written);
                Err(error)
            }
        }
    }

    /// Writes the blocks of this client.
    fn write(
        &self,
        series: &Series,
        generation: Generation,
        stored: &[Stored],
    ) -> Result<Written, Error> {
        let (bytes, head) = stored::to_bytes(stored)?;
        let part = format!(
            "{:05}-of-{:05}.safetensors",
            self.index(),
            self.client().count()
        );
        Ok(series.write(generation, &part, &bytes, head)?)
    }

    #[track_caller]
    fn restore_from<T: Scalar>(
        &self,
        series: Series,
        name: &str,
        layout: &Layout,
    ) -> Result<DTensor<T>, Error> {
        let saved = match self.device_placement(layout.mesh())?.are_shared() {
            true => self.saved_in(series)?,
            false => self.of_generation(latest(&series)?, series),
        };
        saved.restore(name, layout)
    }

    #[track_caller]
    fn saved_in(&self, series: Series) -> Result<Saved, Error> {
        let found = match self.index() {
            0 => latest(&series).map(|generation| generation.to_string()),
            _ => Ok(String::new()),
        };
        let generation = self.all_tell(found)?[0].parse()?;
        Ok(self.of_generation(generation, series))
    }

    fn of_generation(&self, generation: Generation, series: Series) -> Saved {
        Saved {
            context: self.clone(),
            series,
            generation,
        }
    }

    /// The message of each client, in their order; or, on all, the error of the first that has one.
    #[track_caller]
    fn all_tell(&self, own: Result<String, Error>) -> Result<Vec<String>, Error> {
        let (outcome, said) = match &own {
            Ok(text) => (DONE, text.clone()),
            Err(error) => (FAILED, error.to_string()),
        };
        let message = [&[outcome], said.as_bytes()].concat();
        let told = self.all_gather_bytes(Subject::Checkpoint, &message)?;
        own?;
        let text = |(client, message): (u32, Vec<u8>)| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            match &message[..] {
                [DONE, said @ ..] => Ok(text(said)),
                [FAILED, error @ ..] | error => Err(Error::OtherClient {
                    client,
                    message: text(error),
                }),
            }
        };
        (0..).zip(told).map(text).collect()
    }
}

/// One save, whose tensors are read one by one; see [`Context::saved`].
#[derive(Clone, Debug)]
pub struct Saved {
    context: Context,
    series: Series,
    generation: Generation,
}

impl Saved {
    /// Reads a tensor into a layout. Each client reads the parts that its devices hold; if the mesh
    /// has devices of several, all of them call it.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a save that is not there any more, files that are damaged, or have
    /// no such tensor; [`Error::SavedElement`]; and those of
    /// [`copy_to_mesh`](Context::copy_to_mesh).
    #[track_caller]
    pub fn restore<T: Scalar>(&self, name: &str, layout: &Layout) -> Result<DTensor<T>, Error> {
        let context = &self.context;
        let device_placement = context.device_placement(layout.mesh())?;
        let read = Reader::open(&self.series, self.generation, name).and_then(|reader| {
            let blocks = reader.blocks::<T>(layout, device_placement.local())?;
            Ok((Shape::from(reader.shape()), blocks))
        });
        if device_placement.are_shared() {
            let outcome = read.as_ref().map(|_| String::new());
            context.all_tell(outcome.map_err(Error::clone))?;
        }
        let (shape, blocks) = read?;
        let placed = |layout| TensorLayout::new(shape.iter().copied(), layout);
        match layout.reduction() {
            None => DTensor::of(context, placed(layout.clone())?, blocks),
            // Whole first, then as terms.
            Some(_) => {
                let whole = Layout::new(layout.specs().cloned(), layout.mesh())?;
                DTensor::of(context, placed(whole)?, blocks)?.relayout(layout)
            }
        }
    }
}

/// Finishes a save on the first client when all have written: writes the index and removes old
/// files.
fn finish(
    series: &Series,
    generation: Generation,
    files: &[String],
    tensors: &TensorIndex,
) -> Result<(), Error> {
    let files = files.iter().map(|file| file.parse());
    let files: Vec<Entry> = files.collect::<Result<_, _>>()?;
    series.finish(&Index::new(generation, files, tensors.to_bytes())?)?;
    Ok(series.retain(KEEP, generation)?)
}

fn latest(series: &Series) -> Result<Generation, Error> {
    let latest = series.latest()?;
    let generation = latest.index().map(Index::generation);
    generation.ok_or_else(|| Error::NoCheckpoint {
        prefix: series.prefix(),
        damaged: latest.damaged().first().cloned(),
    })
}

/// The number of generations kept: the last save, and the one before it.
const KEEP: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// The first byte of a client's message, and of one that carries an error.
const DONE: u8 = b'+';
const FAILED: u8 = b'-';

/// A value that can be saved to a checkpoint: a [`DTensor`] or a [`DVariable`].
pub trait Save: sealed::Store {}

impl<T: Scalar> Save for DTensor<T> {}
impl<T: Scalar> Save for DVariable<T> {}

mod sealed {
    use super::{Error, Stored, TensorInfo};

    #[expect(
        unnameable_types,
        reason = "a sealed trait is sealed by having no path"
    )]
    pub trait Store {
        /// Adds the blocks that are to be written here, and describes the tensor.
        #[doc(hidden)]
        fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<TensorInfo, Error>;
    }
}

impl<T: Scalar> sealed::Store for DTensor<T> {
    fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<TensorInfo, Error> {
        let reduced = self.reduce_partial()?;
        let layout = reduced.layout();
        for (rank, block) in reduced.local_ranks().iter().zip(reduced.unpack()?) {
            let held = layout.shard(*rank, reduced.shape())?;
            let index: Vec<usize> = held.iter().map(|range| range.start).collect();
            let is_empty = held.iter().any(Range::is_empty);
            if !is_empty && layout.owners(&index, reduced.shape())?.next() == Some(*rank) {
                stored.push(Stored::of(name, &held, &block.view()));
            }
        }
        Ok(info_of::<T>(reduced.shape()))
    }
}

impl<T: Scalar> sealed::Store for DVariable<T> {
    fn store(&self, name: &str, stored: &mut Vec<Stored>) -> Result<TensorInfo, Error> {
        match self.saved_as() {
            SavedAs::Itself => self.value().store(name, stored),
            SavedAs::Bf16 => self.value().cast::<crate::bf16>()?.store(name, stored),
        }
    }
}

#[cfg(test)]
mod tests;
