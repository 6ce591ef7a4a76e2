//! `MirroredParams`: broadcast of a burn module's parameters from rank 0, bucketed all-reduce of
//! gradients in one call or in stages, the check that copies are bit-equal, and snapshots. Walking
//! over a module is in `walk` and `visits`, the state of optimizers in `optimizer`.

#[cfg(feature = "cuda")]
mod on_cuda;

use std::collections::BTreeMap;

use burn_core::module::{Module, ParamId};
use burn_core::tensor::TensorData;
use burn_optim::GradientsParams;
use meshwork_strategy::{
    CommunicationDtype, FallbackReason, Fingerprint, FlatGradients, GradientBuckets,
    MultiWorkerMirroredStrategy, ReplicaContext, Route, Snapshot, VariableSpec,
};

use crate::Error;
#[cfg(feature = "cuda")]
use crate::cuda::CudaGradients;
use crate::snapshot::restore_known;
use crate::tensor::{slice, slice_mut};
use crate::visits::{Found, Give, Hash, Slot, Take, places_of, survey};
use crate::walk::{Path, Place, walk, with_values};

/// The parameters of a burn module, equal on all workers, and room for their gradients.
///
/// Parameters are known by their place in the module, such as `layers.0.weight`, in the order in
/// which the module declares them, which is the same in all workers. All floats are mirrored: those
/// that require gradients are trained and stay equal, the others, such as running means, have rank
/// 0's values at first and are each worker's own from then on. Tensors of integers and booleans are
/// left as they are.
///
/// The room is allocated once, in memory that the other workers of a host read where it is, and
/// packed as the strategy's
/// [`bytes_per_bucket`](meshwork_strategy::CommunicationOptions::bytes_per_bucket) says. Sums go
/// back to burn in the memory in which burn's own gradients came.
#[derive(Debug)]
pub struct MirroredParams {
    /// All parameters, and where each is by the id that burn gives it.
    specs: Vec<VariableSpec>,
    places: BTreeMap<ParamId, Place>,
    /// Which of them are trained.
    trained: Vec<usize>,
    /// The gradients of those, the caller's extra numbers, a mark for each that has a gradient, and
    /// room for the check of copies.
    buckets: GradientBuckets,
    slots: Vec<Slot>,
    extra: usize,
    checks: Checks,
    path: Path,
    route: Route,
    #[cfg(feature = "cuda")]
    cuda: Option<CudaGradients>,
}

/// Whether each step compares the workers' copies of the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Checks {
    EachStep,
    Never,
}

impl MirroredParams {
    /// Mirrors the parameters of `module`, which then have the values that they have on rank 0.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all when the workers' modules differ.
    pub fn new<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<(Self, M), Error> {
        Self::with_extra(strategy, module, 0)
    }

    /// As [`new`](Self::new), with room for `extra` numbers that are summed with the gradients,
    /// such as the loss: one operation for both.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_extra<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
        extra: usize,
    ) -> Result<(Self, M), Error> {
        let mut path = Path::default();
        let found = survey(&module, &mut path)?;
        let places = places_of(&found);
        let ids: Vec<_> = found.iter().map(|found| found.id).collect();
        let specs: Vec<_> = found.iter().map(|found| found.spec.clone()).collect();
        let trained: Vec<_> = (0..found.len())
            .filter(|index| found[*index].is_trained)
            .collect();
        let trained_specs: Vec<_> = trained.iter().map(|index| specs[*index].clone()).collect();
        let checks = strategy
            .run(|replica| Ok::<_, Error>(replica.check_len()))?
            .into_first();
        let beside = trained.len() + checks;
        let buckets = GradientBuckets::new(strategy, &trained_specs, extra + beside)?;
        let mut values = FlatGradients::new(&specs, 0)?;
        for (index, found) in found.into_iter().enumerate() {
            values.set(index, &found.values)?;
        }
        strategy.scope(|scope| scope.mirror(&specs, values.as_mut_slice()))?;
        let of_rank_0: Vec<_> = (0..specs.len())
            .map(|index| values.gradient(index))
            .collect();
        let module = with_values(module, &places, &of_rank_0, &ids);
        let mirrored = Self {
            specs,
            places,
            slots: trained.iter().map(|_| Slot::Waiting).collect(),
            trained,
            buckets,
            extra,
            checks: Checks::EachStep,
            path,
            route: Route::Staged(FallbackReason::NotAsked),
            #[cfg(feature = "cuda")]
            cuda: None,
        };
        Ok((mirrored, module))
    }

    /// Places in the module and shapes of all parameters, in the order in which it declares them.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        &self.specs
    }

    /// The same of those that are trained.
    #[must_use]
    pub fn trained(&self) -> &[VariableSpec] {
        self.buckets.specs()
    }

    /// Sends gradients in another form, in the same way on every worker. Extra numbers are summed
    /// as they are.
    #[must_use]
    pub fn with_communication_dtype(mut self, dtype: CommunicationDtype) -> Self {
        self.buckets = self.buckets.with_communication_dtype(dtype);
        self
    }

    /// By which way gradients go between workers, and why; the same on every worker.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Leaves out the check of copies, which reads all parameters in every step, in the same way on
    /// every worker: for programs that call [`verify`](Self::verify) from time to time.
    #[must_use]
    pub fn without_checks(mut self) -> Self {
        self.checks = Checks::Never;
        self
    }

    /// The numbers that were summed with the gradients.
    #[must_use]
    pub fn extra(&self) -> &[f32] {
        &self.buckets.extra()[..self.extra]
    }

    /// The numbers that are summed with the gradients, to be written before
    /// [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`Error::Strategy`] while gradients are under way, after an error.
    pub fn extra_mut(&mut self) -> Result<&mut [f32], Error> {
        Ok(&mut self.buckets.extra_mut()?[..self.extra])
    }

    /// The sum, over all workers, of each worker's gradients times its `weight`, for the optimizer.
    /// The same operation checks that all copies of the model are equal, bit for bit.
    ///
    /// With a loss that is the mean over the worker's samples, [`Batch::weight`] makes the sum the
    /// gradient of the mean over the global batch. A parameter without a gradient counts as zero
    /// where another worker has one of it; where none has, it gets none, so that an optimizer
    /// leaves it alone as on one process.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::NotMirrored`], [`Error::ElementType`], [`Error::Read`].
    ///
    /// [`Batch::weight`]: meshwork_strategy::Batch::weight
    #[track_caller]
    pub fn all_reduce<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: &M,
        gradients: GradientsParams,
        weight: f32,
    ) -> Result<GradientsParams, Error> {
        self.start(replica, module, gradients, weight)?;
        self.finish(replica, module)
    }

    /// Hands over the gradients of a part of the module whose backward pass has ended, so that they
    /// are reduced while those of other parts are computed. Each part is handed over once, the last
    /// layers first, and then [`finish`](Self::finish) gives all sums.
    ///
    /// Buckets are reduced when they are full, from the last parameter to the first: this helps
    /// where [`bytes_per_bucket`](meshwork_strategy::CommunicationOptions::bytes_per_bucket) is not
    /// 0.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce). A step that has failed is not to be finished.
    #[track_caller]
    pub fn start<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        part: &M,
        mut gradients: GradientsParams,
        weight: f32,
    ) -> Result<(), Error> {
        #[cfg(feature = "cuda")]
        if self.cuda.is_some() {
            return self.start_on_cuda(part, gradients, weight);
        }
        let mut take = Take {
            places: &self.places,
            gradients: &mut gradients,
            slots: &mut self.slots,
        };
        walk(part, &mut self.path, &mut take)?;
        // From the last to the first, as buckets are made: one is reduced while the next is filled.
        for index in (0..self.slots.len()).rev() {
            if let Slot::Taken(data) = &mut self.slots[index] {
                let data = data.take();
                self.slots[index] = Slot::Handed(self.hand_over(replica, index, data, weight)?);
            }
        }
        Ok(())
    }

    /// Waits until everything is reduced, and gives the sums for the optimizer. Parameters of parts
    /// that were not handed over have no gradient.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce), and [`Error::Strategy`] with the ranks whose copies of
    /// the model differ from rank 0's.
    #[track_caller]
    pub fn finish<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: &M,
    ) -> Result<GradientsParams, Error> {
        #[cfg(feature = "cuda")]
        if self.cuda.is_some() {
            return self.finish_on_cuda(replica, module);
        }
        let is_alone = replica.num_replicas_in_sync() == 1;
        for index in 0..self.slots.len() {
            if matches!(self.slots[index], Slot::Waiting) {
                self.buckets.gradient_mut(index)?.fill(0.0);
                self.slots[index] = Slot::Handed(None);
            }
        }
        let marks = &mut self.buckets.extra_mut()?[self.extra..];
        for (mark, slot) in marks.iter_mut().zip(&self.slots) {
            *mark = f32::from(matches!(slot, Slot::Handed(Some(_))));
        }
        let checks = self.extra + self.slots.len();
        let is_checked = !is_alone && self.checks == Checks::EachStep;
        if is_checked {
            let copy = self.fingerprint(module)?;
            let room = &mut self.buckets.extra_mut()?[checks..];
            replica.write_fingerprint(copy, room)?;
        }
        self.buckets.finish(replica)?;
        if is_checked {
            replica.read_check(&self.buckets.extra()[checks..])?;
        }
        let mut give = Give {
            places: &self.places,
            slots: &mut self.slots,
            marks: &self.buckets.extra()[self.extra..],
            sums: (!is_alone).then_some(&self.buckets),
            gradients: GradientsParams::new(),
        };
        walk(module, &mut self.path, &mut give)?;
        let gradients = give.gradients;
        self.slots.fill_with(|| Slot::Waiting);
        Ok(gradients)
    }

    /// Checks that all workers hold the same bits in all parameters that are trained, and returns
    /// their hash.
    ///
    /// # Errors
    /// [`Error::Strategy`] with the ranks that differ, [`Error::Read`].
    #[track_caller]
    pub fn verify<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: &M,
    ) -> Result<u64, Error> {
        let copy = self.fingerprint(module)?;
        Ok(strategy.verify_fingerprint(copy)?)
    }

    /// Gives floats that are not trained, such as running means, the values that they have on rank 0,
    /// so that all workers evaluate, or save, the same model.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Read`].
    pub fn broadcast_buffers<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<M, Error> {
        let found = survey(&module, &mut self.path)?;
        let is_buffer = |found: &Found| {
            let place = self.places.get(&found.id);
            place.is_some_and(|place| place.trained.is_none())
        };
        let buffers: Vec<Found> = found.into_iter().filter(is_buffer).collect();
        if buffers.is_empty() || strategy.num_replicas_in_sync() == 1 {
            return Ok(module);
        }
        let specs: Vec<_> = buffers.iter().map(|buffer| buffer.spec.clone()).collect();
        let mut values = FlatGradients::new(&specs, 0)?;
        for (index, buffer) in buffers.iter().enumerate() {
            values.set(index, &buffer.values)?;
        }
        strategy.scope(|scope| scope.mirror(&specs, values.as_mut_slice()))?;
        let of_rank_0: Vec<_> = (0..specs.len())
            .map(|index| values.gradient(index))
            .collect();
        let ids: Vec<_> = buffers.iter().map(|buffer| buffer.id).collect();
        let places = places_of(&buffers);
        Ok(with_values(module, &places, &of_rank_0, &ids))
    }

    /// Adds the values of all parameters to `snapshot`, and the ids by which burn's optimizers know
    /// them.
    ///
    /// # Errors
    /// [`Error::Strategy`] for a name that the snapshot has already, [`Error::Read`].
    pub fn save<M: Module>(&mut self, module: &M, snapshot: Snapshot) -> Result<Snapshot, Error> {
        crate::snapshot::save(module, snapshot)
    }

    /// The module with the values of all parameters from `snapshot`, the same on every worker, and
    /// with the ids that they had when it was saved.
    ///
    /// # Errors
    /// [`Error::Strategy`] when one is missing or has another shape.
    pub fn restore<M: Module>(&mut self, module: M, snapshot: &Snapshot) -> Result<M, Error> {
        let restored = restore_known(module, &self.specs, &self.places, snapshot)?;
        self.places = restored.1;
        Ok(restored.0)
    }

    /// The same of those that are trained, as [`save_trained`](crate::snapshot::save_trained) has
    /// added them.
    #[cfg(feature = "train")]
    pub(crate) fn restore_trained<M: Module>(
        &mut self,
        module: M,
        snapshot: &Snapshot,
    ) -> Result<M, Error> {
        let mut trained = self.places.clone();
        trained.retain(|_, place| place.trained.is_some());
        let restored = restore_known(module, &self.specs, &trained, snapshot)?;
        self.places.retain(|id, _| !trained.contains_key(id));
        self.places.extend(restored.1);
        Ok(restored.0)
    }

    /// Puts a gradient where it is reduced from. What is given back is its memory, for the sum, or
    /// the gradient itself where this worker trains alone.
    #[track_caller]
    fn hand_over(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        index: usize,
        mut data: Option<TensorData>,
        weight: f32,
    ) -> Result<Option<TensorData>, Error> {
        let spec = &self.specs[self.trained[index]];
        let name = || spec.name().to_owned();
        if replica.num_replicas_in_sync() == 1 {
            if let Some(data) = data.as_mut().filter(|_| weight != 1.0) {
                let values = slice_mut(data, name)?;
                values.iter_mut().for_each(|value| *value *= weight);
            }
            return Ok(data);
        }
        let room = self.buckets.gradient_mut(index)?;
        match &data {
            Some(data) => scale(slice(data, name)?, weight, spec, room)?,
            None => room.fill(0.0),
        }
        self.buckets.ready(replica, index)?;
        Ok(data)
    }

    fn fingerprint<M: Module>(&mut self, module: &M) -> Result<Fingerprint, Error> {
        let mut hash = Hash {
            places: &self.places,
            copy: Fingerprint::new(),
        };
        walk(module, &mut self.path, &mut hash)?;
        Ok(hash.copy)
    }
}

/// Writes each of `from` times `weight` into the room of a variable.
fn scale(from: &[f32], weight: f32, spec: &VariableSpec, into: &mut [f32]) -> Result<(), Error> {
    if from.len() != into.len() {
        return Err(meshwork_strategy::Error::GradientLength {
            spec: spec.clone(),
            found: from.len(),
        }
        .into());
    }
    for (into, from) in into.iter_mut().zip(from) {
        *into = from * weight;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
