//! Sharded models in files: every worker writes its rows while training goes on, and any number of
//! workers reads them back, sharded in any way.
//!
//! ```text
//!   model.g00000007-5b1c22f09ad3e781.index
//!     which files, the step, and the shape of each tensor
//!   model.g00000007-5b1c22f09ad3e781.00000-of-00002.safetensors
//!     the rows of worker 0: "w@0:2,0:4", "w.exp_avg@0:2,0:4", "w.exp_avg_sq@0:2,0:4"
//!   model.g00000007-5b1c22f09ad3e781.00001-of-00002.safetensors
//!     those of worker 1: "w@2:4,0:4", …
//! ```
//!
//! It is the format of `dtensor`'s checkpoints, which can read these too.

use std::iter;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use meshwork_checkpoint::tensors::{
    Block, BlockFile, Dtype, SavedTensors, TensorIndex, TensorInfo,
};
use meshwork_checkpoint::{Entry, Generation, Index, Series, Written};

use super::UnitSpec;
use super::held::{Kind, Part, Whose};
use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::partition::{Partition, Which};
use crate::error::SavedOtherwise;
use crate::{Error, ReplicaContext, VariableSpec};

/// A folder of checkpoints of a sharded model, which all workers see.
#[derive(Clone, Debug, Eq, PartialEq)]
#[doc(alias("DCP", "torch.distributed.checkpoint"))]
pub struct ShardedCheckpoints {
    series: Series,
    keep: NonZeroUsize,
}

impl ShardedCheckpoints {
    /// Those in `folder`, which is made when the first is saved. The latest two are kept.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            series: Series::new(folder, "model"),
            keep: NonZeroUsize::MIN.saturating_add(1),
        }
    }

    #[cfg(test)]
    pub(super) fn on(series: Series) -> Self {
        Self {
            series,
            keep: NonZeroUsize::MIN.saturating_add(1),
        }
    }

    /// Keeps the latest `keep`.
    #[must_use]
    pub fn with_keep(mut self, keep: NonZeroUsize) -> Self {
        self.keep = keep;
        self
    }
}

/// A save that is under way.
#[derive(Debug)]
pub(super) struct Saving {
    checkpoints: ShardedCheckpoints,
    generation: Generation,
    step: u64,
    writer: Option<JoinHandle<Finished>>,
}

/// Whoever drops a model waits until nothing is written any more.
impl Drop for Saving {
    fn drop(&mut self) {
        // Nobody is left to be told how it ends.
        let _ = self.join();
    }
}

impl Saving {
    fn is_written(&self) -> bool {
        self.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What the writer has done, if this worker has one.
    fn join(&mut self) -> Result<Option<Finished>, Error> {
        let Some(writer) = self.writer.take() else {
            return Ok(None);
        };
        let step = self.step;
        let finished = writer.join();
        finished
            .map(Some)
            .map_err(|_| Error::WriterPanicked { step })
    }
}

/// What a writer has done, and the memory that it leaves.
type Finished = (Result<Written, Error>, Vec<u8>);

impl<O: ElementWise> ShardedModel<O> {
    /// Starts to save the model: copies this worker's rows, and returns while they are written by
    /// a thread. One save is under way at a time; a second one waits for it.
    ///
    /// It counts once all workers have written, which [`step`](Self::step) finds out, or
    /// [`finish_save`](Self::finish_save); until then, and after a crash, the one before is loaded.
    ///
    /// ```
    /// use meshwork_strategy::sharded::{AdamW, Shard, ShardedCheckpoints, ShardedModel, Sharding};
    /// use meshwork_strategy::sharded::UnitSpec;
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let checkpoints = ShardedCheckpoints::new(folder.path());
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let units = [UnitSpec::new("head", [VariableSpec::new("head.weight", &[4, 2])?])];
    /// let sharding = Sharding::new(Shard::Parameters);
    /// let ones = |_: &VariableSpec, _, rows: &mut [f32]| rows.fill(1.0);
    /// let mut model = ShardedModel::new(&mut strategy, sharding, &units, AdamW::new(0.1), ones)?;
    /// strategy.run(|replica| {
    ///     assert_eq!(model.load(replica, &checkpoints)?, None);
    ///     model.save(replica, &checkpoints)?;
    ///     // … steps …
    ///     model.finish_save(replica)?;
    ///     assert_eq!(model.load(replica, &checkpoints)?, Some(0));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`finish_save`](Self::finish_save) for the save before; [`Error::State`] while the
    /// model has no values.
    #[track_caller]
    pub fn save(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<(), Error> {
        self.finish_save(replica)?;
        let group = self.group_of_values(replica)?;
        let series = checkpoints.series.clone();
        let generation = self.chief_tells(group, || {
            series.make_folder()?;
            Ok(series.begin()?.to_string())
        })?;
        let generation: Generation = generation.parse()?;
        // Of several copies of the model, the first is written.
        let writer = match self.mesh.replica {
            0 => Some(self.start_writer(series, generation)?),
            _ => None,
        };
        self.saving = Some(Saving {
            checkpoints: checkpoints.clone(),
            generation,
            step: self.steps,
            writer,
        });
        Ok(())
    }

    /// Starts to write a copy of this worker's rows.
    fn start_writer(
        &mut self,
        series: Series,
        generation: Generation,
    ) -> Result<JoinHandle<Finished>, Error> {
        let draft = self.draft()?;
        let parts = self.mesh.parts as usize;
        let (place, parts) = (
            self.tensor_place() * parts + self.mesh.place,
            self.tensor_workers() * parts,
        );
        let part = format!("{place:05}-of-{parts:05}.safetensors");
        let writer = thread::Builder::new()
            .name("meshwork-checkpoint".to_owned())
            .spawn(move || {
                let (bytes, head) = draft.seal();
                let written = series.write(generation, &part, &bytes, head);
                (written.map_err(Error::from), bytes)
            });
        writer.map_err(|error| Error::NoWriter { kind: error.kind() })
    }

    /// Waits until the save that is under way is whole, if there is one: a job does so before it
    /// ends.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for what this worker could not write; [`Error::Group`] where another
    /// could not, or is lost.
    #[track_caller]
    pub fn finish_save(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        let group = self.group(replica)?;
        let Some(mut saving) = self.saving.take() else {
            return Ok(());
        };
        let written = match saving.join()? {
            Some((written, bytes)) => {
                self.draft_bytes = bytes;
                Some(written?)
            }
            None => None,
        };
        let own = match &written {
            Some(written) => written.entry().to_string(),
            // Who has written nothing has nothing to say.
            None => String::new(),
        };
        let entries = self.tell_all(group, &own)?;
        let finished = self.chief_tells(group, || {
            let entries = entries.iter().map(|entry| Ok(entry.parse::<Entry>()?));
            let entries = entries.collect::<Result<Vec<_>, Error>>()?;
            let body = self.tensors()?.with_step(saving.step).to_bytes();
            let ShardedCheckpoints { series, keep } = &saving.checkpoints;
            series.finish(&Index::new(saving.generation, entries, body)?)?;
            series.retain(*keep, saving.generation)?;
            Ok(String::new())
        });
        // Until here the file is locked, and not taken for an abandoned one.
        drop(written);
        finished?;
        self.meter.saved();
        Ok(())
    }

    /// Finishes a save that all workers have written.
    pub(super) fn poll_save(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        let Some(saving) = &self.saving else {
            return Ok(());
        };
        let is_written = u8::from(saving.is_written());
        let group = self.group(replica)?;
        match self.least(group, is_written)? {
            0 => Ok(()),
            1.. => self.finish_save(replica),
        }
    }

    /// Loads the last whole checkpoint, saved by any number of workers and sharded in any way, and
    /// returns its step; `None` where none was ever saved, and nothing is changed.
    ///
    /// # Errors
    /// [`Error::CheckpointOfAnother`] with names and shapes, [`Error::Checkpoint`] where all are
    /// damaged, [`Error::Group`]. What was loaded before is then unspecified.
    #[track_caller]
    pub fn load(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<Option<u64>, Error> {
        self.finish_save(replica)?;
        let group = self.group(replica)?;
        let series = &checkpoints.series;
        let latest = self.chief_tells(group, || {
            let latest = series.latest()?;
            match (latest.index(), latest.damaged().first()) {
                (Some(index), _) => Ok(index.generation().to_string()),
                (None, None) => Ok(String::new()),
                // Whoever is told that there is none begins anew.
                (None, Some((path, damage))) => Err(meshwork_checkpoint::Error::Damaged {
                    path: path.clone(),
                    damage: *damage,
                }
                .into()),
            }
        })?;
        if latest.is_empty() {
            return Ok(None);
        }
        let generation = latest.parse()?;
        let saved = SavedTensors::open(series, generation)?;
        let step = saved.index().step();
        let step = step.ok_or_else(|| meshwork_checkpoint::Error::TensorForm {
            path: series.index_path(generation),
        })?;
        compare(&self.tensors()?, saved.index())?;
        self.discount_values();
        let updated = self.updated();
        for index in 0..self.units.len() {
            self.free(index)?;
            let unit = &mut self.units[index];
            let (partition, spec) = (unit.partition.clone(), unit.spec.clone());
            unit.passes = 0;
            let held = unit.here()?;
            for whose in Whose::ALL {
                if let Some(part) = held.part(whose, updated) {
                    read_part::<O>(&saved, &partition, &spec, part)?;
                }
            }
            self.share_rows(group, index, Which::All)?;
        }
        self.count_values()?;
        self.steps = step;
        Ok(Some(self.steps))
    }

    /// A copy of this worker's rows of everything.
    fn draft(&mut self) -> Result<BlockFile, Error> {
        let (worker, is_first) = (self.mesh.place, self.tensor_place() == 0);
        // What all have that compute a replica, the first writes.
        let is_written = |spec: &UnitSpec, tensor| is_first || spec.is_cut(tensor);
        let mut blocks = Vec::new();
        for unit in &self.units {
            let states = O::STATE.iter().map(|name| Some(*name));
            for state in iter::once(None).chain(states) {
                let which = match state {
                    None => Which::All,
                    Some(_) => Which::Trainable,
                };
                for tensor in 0..unit.partition.count(which) {
                    let (spec, rows) = (&unit.spec, unit.partition.rows(tensor, worker));
                    if !is_written(spec, tensor) {
                        continue;
                    }
                    let region = spec.region(tensor, rows.clone());
                    // A scalar that another worker has is in no region.
                    if rows.is_empty() || region.iter().any(Range::is_empty) {
                        continue;
                    }
                    let spec = named(spec.whole(tensor), state)?;
                    blocks.push(Block::new(spec.name(), region, Dtype::F32));
                }
            }
        }
        let mut draft = BlockFile::new(&blocks, std::mem::take(&mut self.draft_bytes))?;
        let mut put = |rows: &mut [f32]| draft.put(bytemuck::cast_slice(rows));
        for unit in &mut self.units {
            let (partition, spec) = (unit.partition.clone(), unit.spec.clone());
            let held = unit.here()?;
            let states = held.state.iter_mut().map(|state| (state, Which::Trainable));
            for (tensors, which) in iter::once((&mut held.parameters, Which::All)).chain(states) {
                for tensor in 0..partition.count(which) {
                    if is_written(&spec, tensor) {
                        tensors.rows(&partition, tensor, Some(worker), &mut put);
                    }
                }
            }
        }
        Ok(draft)
    }

    /// All tensors that are saved.
    fn tensors(&self) -> Result<TensorIndex, Error> {
        let mut all = TensorIndex::default();
        let mut add = |spec: &VariableSpec| {
            all.insert(spec.name(), TensorInfo::new(Dtype::F32, spec.shape()))
        };
        for unit in &self.units {
            let spec = &unit.spec;
            for tensor in 0..spec.parameters().len() {
                add(spec.whole(tensor))?;
            }
            for state in O::STATE {
                for tensor in 0..spec.trainable().len() {
                    add(&named(spec.whole(tensor), Some(state))?)?;
                }
            }
        }
        Ok(all)
    }
}

/// Looks for what the tensors of a model are in a checkpoint.
fn compare(model: &TensorIndex, saved: &TensorIndex) -> Result<(), Error> {
    let mut otherwise = Vec::new();
    for (name, tensor) in model.tensors() {
        let found = saved.get(name);
        if found != Some(tensor) {
            let spec = VariableSpec::new(name, tensor.shape())?;
            let found = found.map(|found| found.shape().to_vec());
            otherwise.push(SavedOtherwise::new(spec, found));
        }
    }
    match otherwise.is_empty() {
        true => Ok(()),
        false => Err(Error::CheckpointOfAnother(otherwise)),
    }
}

/// Reads a part of a unit.
fn read_part<O: ElementWise>(
    saved: &SavedTensors<'_>,
    partition: &Partition,
    spec: &UnitSpec,
    mut part: Part<'_>,
) -> Result<(), Error> {
    let states = O::STATE.iter().enumerate();
    let states = states.map(|(number, name)| (Kind::State(number), Some(*name)));
    for (kind, state) in iter::once((Kind::Parameters, None)).chain(states) {
        for tensor in 0..partition.count(kind.which()) {
            let rows = match part.worker {
                Some(worker) => partition.rows(tensor, worker),
                None => partition.all_rows(tensor),
            };
            let (name, region) = (named(spec.whole(tensor), state)?, spec.region(tensor, rows));
            let read_into = |into: &mut [f32]| read(saved, name.name(), &region, into);
            part.rows(partition, kind, tensor, read_into)?;
        }
    }
    Ok(())
}

/// Reads a region of a tensor.
fn read(
    saved: &SavedTensors<'_>,
    name: &str,
    region: &[Range<usize>],
    into: &mut [f32],
) -> Result<(), Error> {
    // Rows of a scalar that another worker has.
    if into.is_empty() {
        return Ok(());
    }
    saved.read(name, region, bytemuck::cast_slice_mut(into))?;
    Ok(())
}

/// A parameter, or what is remembered of it under a name.
fn named(spec: &VariableSpec, state: Option<&str>) -> Result<VariableSpec, Error> {
    match state {
        None => Ok(spec.clone()),
        Some(state) => VariableSpec::new(format!("{}.{state}", spec.name()), spec.shape()),
    }
}
