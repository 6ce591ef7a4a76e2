//! `MirroredVars`: broadcast of a candle model's variables from rank 0, bucketed all-reduce of
//! gradients after or during the backward pass, the check that copies are bit-equal, and snapshots.
//! The autograd hooks behind `hooked` and `backward` are in `gradient_hooks`.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use meshwork_strategy::{
    CommunicationDtype, GradientBuckets, MultiWorkerMirroredStrategy, ReplicaContext, Snapshot,
    VariableSpec,
};

use crate::Error;
use crate::gradient_hooks::{GradientHooks, refuse_unhooked};
use crate::tensor::{read_times, with_values, write};
use crate::values::{Values, share};

/// The variables of a candle model, equal on all workers, and room for their gradients.
///
/// Variables are ordered by name, so that all workers agree on the order: a [`VarMap`] itself has
/// none. One that has several names, such as the weight of two layers, counts once, by the first of
/// them. The buffers are allocated once, in memory that the other workers of a host read where it
/// is, and packed as the strategy's
/// [`bytes_per_bucket`](meshwork_strategy::CommunicationOptions::bytes_per_bucket) says.
#[derive(Debug)]
pub struct MirroredVars {
    /// The gradients, the caller's extra numbers, a mark for each variable that has a gradient, and
    /// room for the check of copies.
    gradients: GradientBuckets,
    extra: usize,
    low_rank: Option<NonZeroUsize>,
    values: Values,
    hooks: GradientHooks,
}

impl MirroredVars {
    /// Gives all variables of `model`, on every worker, the values they have on rank 0.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all when the workers' models differ;
    /// [`Error::Candle`].
    pub fn new(strategy: &mut MultiWorkerMirroredStrategy, model: &VarMap) -> Result<Self, Error> {
        Self::with_extra(strategy, model, 0)
    }

    /// As [`new`](Self::new), with room for `extra` numbers that are summed with the gradients,
    /// such as the loss: one operation for both.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_extra(
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        extra: usize,
    ) -> Result<Self, Error> {
        let mut mirrored = Self::apart(strategy, model, extra)?;
        let specs = mirrored.specs().to_vec();
        let values = mirrored.values.flat.as_mut_slice();
        strategy.scope(|scope| scope.mirror(&specs, values))?;
        mirrored.values.write()?;
        Ok(mirrored)
    }

    /// As [`with_extra`](Self::with_extra), without a word to the other workers: values stay as
    /// they are, for a training that is given a state later.
    ///
    /// # Errors
    /// [`Error::ElementType`], [`Error::Strategy`], [`Error::Candle`].
    pub fn apart(
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        extra: usize,
    ) -> Result<Self, Error> {
        let values = Values::of(model)?;
        let beside = beside(strategy, &values)?;
        Ok(Self {
            gradients: GradientBuckets::new(strategy, values.specs(), extra + beside)?,
            extra,
            low_rank: None,
            values,
            hooks: GradientHooks::default(),
        })
    }

    /// Reallocates the buffers when the workers have changed, and checks that all have the same
    /// variables; for [`Training::regroup`](meshwork_strategy::Training::regroup). Values stay as
    /// they are, and so does what [PowerSGD](Self::with_power_sgd) has left out.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' models differ.
    pub fn regroup(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        let specs = self.values.specs();
        strategy.scope(|scope| scope.compare(specs))?;
        let extra = self.extra + beside(strategy, &self.values)?;
        Ok(self.gradients.regroup(strategy, extra)?)
    }

    /// Names and shapes, in the order in which gradients are reduced.
    #[must_use]
    pub fn specs(&self) -> &[VariableSpec] {
        self.values.specs()
    }

    /// Sends gradients in another form, in the same way on every worker. Extra numbers are summed
    /// as they are.
    #[must_use]
    pub fn with_communication_dtype(mut self, dtype: CommunicationDtype) -> Self {
        self.gradients = self.gradients.with_communication_dtype(dtype);
        self
    }

    /// Sends the gradients of matrices as products of two thin ones of this rank, in the same way
    /// on every worker, for links that are slow: see [`GradientBuckets::with_power_sgd`]. What was
    /// left out of a matrix is its gradient in a step in which no worker has one of it.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    /// use candle_core::{DType, Device};
    /// use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap, linear};
    /// use meshwork_candle::{Error, MirroredVars};
    /// use meshwork_strategy::{Cursor, MultiWorkerMirroredStrategy, Snapshot};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
    /// let model = VarMap::new();
    /// let layer = linear(30, 20, VarBuilder::from_varmap(&model, DType::F32, &Device::Cpu))?;
    /// let four = NonZeroUsize::new(4).expect("4 is not 0");
    /// let mut mirrored = MirroredVars::new(&mut strategy, &model)?.with_power_sgd(four);
    /// let mut optimizer = SGD::new(model.all_vars(), 0.1)?;
    /// let inputs = candle_core::Tensor::ones((5, 30), DType::F32, &Device::Cpu)?;
    /// for _ in 0..3 {
    ///     let mut gradients = layer.forward(&inputs)?.sqr()?.mean_all()?.backward()?;
    ///     strategy.run(|replica| mirrored.all_reduce(replica, &mut gradients, 1.0))?;
    ///     optimizer.step(&gradients)?;
    /// }
    /// // What it has left out so far goes on after a restart, with the model.
    /// let snapshot = mirrored.save(Snapshot::new(3, Cursor::start()))?;
    /// let snapshot = mirrored.save_left_out(&strategy, snapshot)?;
    /// mirrored.restore(&snapshot)?;
    /// mirrored.restore_left_out(&strategy, &snapshot)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn with_power_sgd(mut self, rank: NonZeroUsize) -> Self {
        self.low_rank = Some(rank);
        self.gradients = self.gradients.with_power_sgd(rank);
        self
    }

    /// The variables and their names, in the order of [`specs`](Self::specs).
    pub fn named(&self) -> impl Iterator<Item = (String, Var)> + '_ {
        let names = self.specs().iter().map(|spec| spec.name().to_owned());
        names.zip(self.values.vars.iter().cloned())
    }

    /// The numbers that were summed with the gradients.
    #[must_use]
    pub fn extra(&self) -> &[f32] {
        &self.gradients.extra()[..self.extra]
    }

    /// The numbers that are summed with the gradients, to be written before
    /// [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// [`Error::Strategy`] while gradients are under way, after an error.
    pub fn extra_mut(&mut self) -> Result<&mut [f32], Error> {
        Ok(&mut self.gradients.extra_mut()?[..self.extra])
    }

    /// Adds the values of all variables to `snapshot`, and what all workers have in common of
    /// [PowerSGD](Self::with_power_sgd).
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn save(&mut self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        let snapshot = self.values.save(snapshot)?;
        Ok(self.gradients.save_shared(snapshot)?)
    }

    /// Takes over the values of all variables from `snapshot`, the same on every worker, and what
    /// [all have in common](GradientBuckets::restore_shared) of PowerSGD.
    ///
    /// # Errors
    /// [`Error::Strategy`] when one is missing or has another shape; [`Error::Candle`].
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        self.values.restore(snapshot)?;
        Ok(self.gradients.restore_shared(snapshot)?)
    }

    /// Adds to a snapshot of this worker's own what [PowerSGD](Self::with_power_sgd) has left out
    /// of its gradients: see [`GradientBuckets::save`].
    ///
    /// # Errors
    /// [`Error::Strategy`]
    pub fn save_left_out(
        &self,
        strategy: &MultiWorkerMirroredStrategy,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        Ok(self.gradients.save(strategy, snapshot)?)
    }

    /// Goes on from what this worker has [saved](Self::save_left_out): see
    /// [`GradientBuckets::restore`].
    ///
    /// # Errors
    /// [`Error::Strategy`] for a snapshot of another worker, model or rank.
    pub fn restore_left_out(
        &mut self,
        strategy: &MultiWorkerMirroredStrategy,
        snapshot: &Snapshot,
    ) -> Result<(), Error> {
        Ok(self.gradients.restore(strategy, snapshot)?)
    }

    /// Replaces the gradients of this worker by the sum over all workers of each worker's
    /// gradients times its `weight`. The same operation checks that all copies of the model are
    /// equal, bit for bit.
    ///
    /// With a loss that is the mean over the worker's samples, [`Batch::weight`] makes the sum the
    /// gradient of the mean over the global batch. A variable without a gradient counts as zero
    /// where another worker has one of it; where none has, it gets none, so that an optimizer
    /// leaves it alone as on one process. Sums are written into the memory in which the gradients
    /// came, where that is the host's, so that a step takes none of its own: what shares it with
    /// them, such as a clone, changes too. A worker that trains alone, with a weight of 1, keeps
    /// its gradients as they are.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`]; `gradients` are then partly replaced.
    ///
    /// [`Batch::weight`]: meshwork_strategy::Batch::weight
    #[track_caller]
    pub fn all_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradStore,
        weight: f32,
    ) -> Result<(), Error> {
        let is_alone = replica.num_replicas_in_sync() == 1;
        if is_alone && weight == 1.0 && self.low_rank.is_none() {
            // The only worker's gradients are their sum.
            return Ok(self.gradients.finish(replica)?);
        }
        // From the last to the first, as buckets are made: one is reduced while the next is filled.
        for (index, var) in self.values.vars.iter().enumerate().rev() {
            let gradient = gradients.get(var);
            let slot = self.gradients.gradient_mut(index)?;
            match gradient {
                Some(gradient) => read_times(weight, gradient, slot)?,
                None => slot.fill(0.0),
            }
            self.gradients.extra_mut()?[self.extra + index] = f32::from(gradient.is_some());
            self.gradients.ready(replica, index)?;
        }
        self.finish(replica, gradients)
    }

    /// Tensors with the values of the variables, to build the model of one backward pass from:
    /// their gradients are reduced while [`backward`](Self::backward) still computes others. They
    /// are copies, which costs the pass one copy of all variables, and a later pass would still
    /// compute with their values: call this and build the model anew for each. To accumulate, add
    /// up the gradients of passes of candle's own, and [`all_reduce`](Self::all_reduce) the sums.
    ///
    /// # Errors
    /// [`Error::Candle`]
    #[doc(alias = "register_hook")]
    pub fn hooked(&self) -> Result<VarBuilder<'static>, Error> {
        let mut hooked = HashMap::with_capacity(self.values.vars.len());
        for (index, (spec, var)) in self.specs().iter().zip(&self.values.vars).enumerate() {
            let tensor = self.hooks.hook(index, var.as_tensor())?;
            hooked.insert(spec.name().to_owned(), tensor);
        }
        share(&mut hooked, &self.values.aliases);
        Ok(VarBuilder::from_tensors(hooked, DType::F32, &Device::Cpu))
    }

    /// The backward pass of a `loss` whose model was built from [`hooked`](Self::hooked), with
    /// all gradients summed over the workers, each times its worker's `weight`: a bucket of them is
    /// reduced as soon as it is complete. As [`all_reduce`](Self::all_reduce) besides.
    ///
    /// It pays where the strategy has several buckets, and cores that do not compute: see
    /// [`bytes_per_bucket`](meshwork_strategy::CommunicationOptions::bytes_per_bucket).
    ///
    /// ```
    /// use candle_core::{DType, Device};
    /// use candle_nn::{Module, Optimizer, SGD, VarBuilder, VarMap, linear};
    /// use meshwork_candle::{Error, MirroredVars};
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
    /// let model = VarMap::new();
    /// linear(3, 1, VarBuilder::from_varmap(&model, DType::F32, &Device::Cpu))?;
    /// let mut mirrored = MirroredVars::new(&mut strategy, &model)?;
    /// let mut optimizer = SGD::new(model.all_vars(), 0.1)?;
    /// let inputs = candle_core::Tensor::ones((5, 3), DType::F32, &Device::Cpu)?;
    /// strategy.run(|replica| {
    ///     let layer = linear(3, 1, mirrored.hooked()?)?;
    ///     let loss = layer.forward(&inputs)?.sqr()?.mean_all()?;
    ///     let gradients = mirrored.backward(replica, &loss, 1.0)?;
    ///     Ok::<_, Error>(optimizer.step(&gradients)?)
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`]; [`Error::NotHooked`] and [`Error::HookIsOld`] for a
    /// model that was not built from what `hooked` has given since the last pass.
    #[track_caller]
    pub fn backward(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        loss: &Tensor,
        weight: f32,
    ) -> Result<GradStore, Error> {
        self.hooks.open(std::mem::take(&mut self.gradients), weight);
        let passed = loss.backward();
        if let Some((buckets, caught)) = self.hooks.close() {
            self.gradients = buckets;
            caught?;
        }
        let mut gradients = passed?;
        refuse_unhooked(self.specs(), &self.values.vars, &gradients)?;
        self.hooks.complete(&mut self.gradients, self.extra)?;
        self.finish(replica, &mut gradients)?;
        Ok(gradients)
    }

    /// Reduces what is left, with the check of copies, and puts the sums into `gradients`.
    #[track_caller]
    fn finish(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: &mut GradStore,
    ) -> Result<(), Error> {
        let checks = self.extra + self.values.vars.len();
        let is_alone = replica.num_replicas_in_sync() == 1;
        if !is_alone {
            let copy = self.values.fingerprint()?;
            let room = &mut self.gradients.extra_mut()?[checks..];
            replica.write_fingerprint(copy, room)?;
        }
        self.gradients.finish(replica)?;
        if !is_alone {
            replica.read_check(&self.gradients.extra()[checks..])?;
        }
        for (index, var) in self.values.vars.iter().enumerate() {
            let sum = self.gradients.gradient(index);
            match gradients.get(var) {
                Some(gradient) if write(sum, gradient)? => {}
                None if !self.has_sum(index) => {}
                Some(_) | None => {
                    let sum = Tensor::from_slice(sum, var.shape(), var.device())?;
                    gradients.insert(var, sum);
                }
            }
        }
        Ok(())
    }

    /// Whether a variable has a sum, the same on every worker: where one of them has a gradient of
    /// it, or gradients of low rank have left some out before.
    fn has_sum(&self, index: usize) -> bool {
        let is_marked = self.gradients.extra()[self.extra + index] != 0.0;
        let is_left_out = || self.gradients.gradient(index).iter().any(|one| *one != 0.0);
        is_marked || (self.low_rank.is_some() && is_left_out())
    }

    /// Scales the gradients that [`all_reduce`](Self::all_reduce) or [`backward`](Self::backward)
    /// gave last down to a norm, where that of all of them together is larger. Returns what it was,
    /// which is the same on every worker.
    ///
    /// # Errors
    /// [`Error::Candle`]; [`Error::MaxNorm`] where `most` is not above 0, and
    /// [`Error::NormNotFinite`], on every worker, for gradients with a NaN or an infinity, which
    /// stay as they are.
    #[doc(alias("clip_grad_norm_", "error_if_nonfinite"))]
    pub fn clip_norm(&self, gradients: &mut GradStore, most: f64) -> Result<f64, Error> {
        if most.is_nan() || most <= 0.0 {
            return Err(Error::MaxNorm { most });
        }
        let norm = self.norm(gradients)?;
        if !norm.is_finite() {
            return Err(Error::NormNotFinite { norm, most });
        }
        if norm > most {
            self.scale(gradients, most / norm)?;
        }
        Ok(norm)
    }

    fn norm(&self, gradients: &GradStore) -> Result<f64, Error> {
        let square = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum();
        let mut squares: f64 = 0.0;
        for gradient in self.values.vars.iter().filter_map(|var| gradients.get(var)) {
            squares += with_values::<f64>(gradient, square)?;
        }
        Ok(squares.sqrt())
    }

    /// Multiplies all gradients.
    pub(crate) fn scale(&self, gradients: &mut GradStore, by: f64) -> Result<(), Error> {
        for var in &self.values.vars {
            if let Some(gradient) = gradients.get(var) {
                let scaled = (gradient * by)?;
                gradients.insert(var, scaled);
            }
        }
        Ok(())
    }

    /// Checks that all workers hold the same bits in all variables, and returns their hash.
    ///
    /// # Errors
    /// [`Error::Strategy`] with the ranks that differ, [`Error::Candle`].
    #[track_caller]
    pub fn verify(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<u64, Error> {
        self.values.read()?;
        Ok(strategy.verify_replicas(self.values.flat.as_mut_slice())?)
    }
}

/// Numbers that are summed behind the caller's: marks, and the check of copies.
fn beside(strategy: &mut MultiWorkerMirroredStrategy, values: &Values) -> Result<usize, Error> {
    let checks = strategy.run(|replica| Ok::<_, Error>(replica.check_len()))?;
    Ok(values.vars.len() + checks.into_first())
}

#[cfg(test)]
mod tests;
