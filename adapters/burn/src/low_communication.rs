//! `LowCommunicationParams`: burn modules trained over slow links.

mod exchanged;
mod quorum;

pub use quorum::QuorumParams;

use burn_core::module::Module;
use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot};

use crate::Error;
use exchanged::Exchanged;

/// The parameters of a burn module that each worker trains by an optimizer of its own, and whose
/// differences are exchanged now and then.
///
/// Floats that are not trained have rank 0's values at first, and are each worker's own from then
/// on, such as running means.
///
/// ```
/// use std::num::NonZeroU32;
/// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
/// use burn_optim::{GradientsParams, SgdConfig};
/// use meshwork_burn::{Error, LowCommunicationParams};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::low_communication::LowCommunication;
/// # #[derive(Module, Debug)]
/// # struct Model { weight: Param<Tensor<1>> }
///
/// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let model = Model { weight: Param::from_data([5.0], &Device::flex().autodiff()) };
/// let settings = LowCommunication::new(NonZeroU32::new(30).expect("30 is not 0"));
/// let (mut outer, mut model) = LowCommunicationParams::new(&mut strategy, model, settings)?;
/// let mut inner = SgdConfig::new().init();
/// for _ in 0..300 {
///     let loss = model.weight.val().square().sum(); // of this worker's own samples
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     model = inner.step(0.1, model, gradients);
///     model = outer.step(&mut strategy, model)?; // which communicates in one call of 30
/// }
/// let model = outer.finish(&mut strategy, model)?;
/// assert!(model.weight.val().into_scalar::<f32>().abs() < 0.5);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[doc(alias("DiLoCo", "local SGD"))]
pub struct LowCommunicationParams {
    exchanged: Exchanged,
    outer: OuterOptimizer,
}

impl LowCommunicationParams {
    /// Gives all parameters of `module`, on every worker, the values they have on rank 0, which are
    /// what all agree on first. In a job that is
    /// [elastic](MultiWorkerMirroredStrategy::elastic), those that are trained get what all have
    /// come to, also where a newcomer finds a training that runs; others stay as they are.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Read`]; [`Error::Strategy`], above all when modules or
    /// settings differ.
    #[track_caller]
    pub fn new<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
        settings: LowCommunication,
    ) -> Result<(Self, M), Error> {
        let (mut exchanged, module) = Exchanged::mirrored(strategy, module)?;
        let lengths = exchanged.lengths();
        let (outer, module) = exchanged.with(module, |values| {
            let outer = OuterOptimizer::new(strategy, settings, &lengths, values)?;
            values.copy_from_slice(outer.agreed());
            Ok(outer)
        })?;
        Ok((Self { exchanged, outer }, module))
    }

    /// The module after a step of the inner optimizer, as it goes on: see
    /// [`OuterOptimizer::step`]. Parameters are read and written only where something is exchanged.
    ///
    /// Where workers are [excluded](meshwork_strategy::low_communication::NotFinite::Exclude) and
    /// `outer().resets()` has grown by it, go on with a new inner optimizer.
    ///
    /// # Errors
    /// [`Error::Strategy`]; [`Error::Read`]; [`Error::NotMirrored`] and [`Error::ParameterGone`]
    /// for a module that was changed.
    pub fn step<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<M, Error> {
        if self.outer.step_alone(strategy) {
            return Ok(module);
        }
        let outer = &mut self.outer;
        let step = |values: &mut [f32]| outer.step(strategy, values);
        Ok(self.exchanged.with(module, step)?.1)
    }

    /// Ends the training, on all workers after the same step, with the same values on each: see
    /// [`OuterOptimizer::finish`].
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<M, Error> {
        let outer = &mut self.outer;
        let finish = |values: &mut [f32]| outer.finish(strategy, values);
        Ok(self.exchanged.with(module, finish)?.1)
    }

    /// The module with the values that all workers agree on, the same bits on each: a copy of the
    /// one that is trained, to be measured or saved.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::NotMirrored`], [`Error::ParameterGone`].
    pub fn agreed<M: Module>(&mut self, module: M) -> Result<M, Error> {
        self.exchanged.adopt(module, self.outer.agreed())
    }

    /// Adds the parameters of this worker's module to a snapshot of its step, the ids by which
    /// burn's optimizers know them, and the state of the outer optimizer: each worker saves a
    /// snapshot of its own. See [`OuterOptimizer::save`].
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Read`].
    pub fn save<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: &M,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        let snapshot = crate::snapshot::save(module, snapshot)?;
        Ok(self.outer.save(strategy, snapshot)?)
    }

    /// What was [saved](Self::save) by this worker, with the same settings and number of workers:
    /// it goes on with the same bits, as does the inner optimizer by
    /// [`restore_optimizer`](crate::restore_optimizer).
    ///
    /// In a job that is elastic, the module has what all agree on where others' snapshots are of a
    /// later step: see [`OuterOptimizer::restore`].
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a snapshot of another module; [`Error::Read`].
    #[track_caller]
    pub fn restore<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
        settings: LowCommunication,
        snapshot: &Snapshot,
    ) -> Result<(Self, M), Error> {
        let module = crate::snapshot::restore(module, snapshot)?;
        let exchanged = Exchanged::of(&module)?;
        let lengths = exchanged.lengths();
        let outer = OuterOptimizer::restore(strategy, settings, &lengths, snapshot)?;
        let mut params = Self { exchanged, outer };
        let module = match params.outer.has_taken_over() {
            // What was saved is of an earlier step than the others'.
            true => params.agreed(module)?,
            false => module,
        };
        Ok((params, module))
    }

    /// The outer optimizer, and what it counted.
    #[must_use]
    pub fn outer(&self) -> &OuterOptimizer {
        &self.outer
    }
}

#[cfg(test)]
mod tests;
