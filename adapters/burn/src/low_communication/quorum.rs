//! `QuorumParams`: burn modules whose rounds end with those who have come.

use burn_core::module::Module;
use meshwork_strategy::low_communication::{LowCommunication, Quorum, QuorumOptimizer};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot};

use super::exchanged::Exchanged;
use crate::Error;

/// As [`LowCommunicationParams`](super::LowCommunicationParams), but no worker waits longer for one
/// that is late than the [quorum](Quorum) is patient.
///
/// ```
/// use std::num::{NonZeroU32, NonZeroUsize};
/// use std::time::Duration;
/// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
/// use burn_optim::{GradientsParams, SgdConfig};
/// use meshwork_burn::{Error, QuorumParams};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::low_communication::{LowCommunication, Quorum};
/// # #[derive(Module, Debug)]
/// # struct Model { weight: Param<Tensor<1>> }
///
/// let strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let model = Model { weight: Param::from_data([5.0], &Device::flex().autodiff()) };
/// let settings = LowCommunication::new(NonZeroU32::new(30).expect("30 is not 0"));
/// let quorum = Quorum::new(NonZeroUsize::MIN, Duration::from_secs(20));
/// let (mut outer, mut model) = QuorumParams::new(strategy, model, settings, quorum)?;
/// let mut inner = SgdConfig::new().init();
/// while outer.outer().steps() < 300 {
///     let loss = model.weight.val().square().sum();
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     model = inner.step(0.1, model, gradients);
///     model = outer.step(model)?;
/// }
/// let model = outer.finish(model)?;
/// assert!(model.weight.val().into_scalar::<f32>().abs() < 0.5);
/// outer.into_strategy().leave().map_err(Error::from)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct QuorumParams {
    exchanged: Exchanged,
    outer: QuorumOptimizer,
}

impl QuorumParams {
    /// Gives all parameters of `module`, on every worker, the values they have on rank 0; in a job
    /// that is elastic, see
    /// [`LowCommunicationParams::new`](super::LowCommunicationParams::new).
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Read`]; [`Error::Strategy`], above all when modules or
    /// settings differ.
    #[track_caller]
    pub fn new<M: Module>(
        mut strategy: MultiWorkerMirroredStrategy,
        module: M,
        settings: LowCommunication,
        quorum: Quorum,
    ) -> Result<(Self, M), Error> {
        let (mut exchanged, module) = Exchanged::mirrored(&mut strategy, module)?;
        let lengths = exchanged.lengths();
        let (outer, module) = exchanged.with(module, |values| {
            let outer = QuorumOptimizer::new(strategy, settings, quorum, &lengths, values)?;
            values.copy_from_slice(outer.agreed());
            Ok(outer)
        })?;
        Ok((Self { exchanged, outer }, module))
    }

    /// The module after a step of the inner optimizer, as it goes on: see
    /// [`QuorumOptimizer::step`]. Parameters are read and written only where something is given or
    /// taken over.
    ///
    /// Where workers are [excluded](meshwork_strategy::low_communication::NotFinite::Exclude) and
    /// `outer().resets()` has grown by it, go on with a new inner optimizer.
    ///
    /// # Errors
    /// [`Error::Strategy`]; [`Error::Read`]; [`Error::NotMirrored`] and [`Error::ParameterGone`]
    /// for a module that was changed.
    pub fn step<M: Module>(&mut self, module: M) -> Result<M, Error> {
        if self.outer.step_alone() {
            return Ok(module);
        }
        let step = |values: &mut [f32]| self.outer.step(values);
        Ok(self.exchanged.with(module, step)?.1)
    }

    /// Ends the training, with the same values on each worker: see [`QuorumOptimizer::finish`].
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn finish<M: Module>(&mut self, module: M) -> Result<M, Error> {
        let finish = |values: &mut [f32]| self.outer.finish(values);
        Ok(self.exchanged.with(module, finish)?.1)
    }

    /// The module with the values that all workers agree on, as far as this one has taken them
    /// over: a copy of the one that is trained, to be measured or saved.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::NotMirrored`], [`Error::ParameterGone`].
    pub fn agreed<M: Module>(&mut self, module: M) -> Result<M, Error> {
        self.exchanged.adopt(module, self.outer.agreed())
    }

    /// What was saved of a [`checkpoint`](QuorumOptimizer::checkpoint), each worker's own, or by
    /// [`QuorumOptimizer::save`] on one, which all read; and the module with the values from which
    /// this worker goes on.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a snapshot of another module; [`Error::Read`].
    #[track_caller]
    pub fn restore<M: Module>(
        strategy: MultiWorkerMirroredStrategy,
        module: M,
        settings: LowCommunication,
        quorum: Quorum,
        snapshot: &Snapshot,
    ) -> Result<(Self, M), Error> {
        let exchanged = Exchanged::of(&module)?;
        let lengths = exchanged.lengths();
        let restored = QuorumOptimizer::restore(strategy, settings, quorum, &lengths, snapshot)?;
        let (outer, own) = restored;
        let mut params = Self { exchanged, outer };
        let module = params.exchanged.adopt(module, &own)?;
        Ok((params, module))
    }

    /// The outer optimizer: what it counted, and its state for a checkpoint.
    #[must_use]
    pub fn outer(&self) -> &QuorumOptimizer {
        &self.outer
    }

    /// Gives the strategy back; see [`QuorumOptimizer::into_strategy`].
    #[must_use = "a strategy that is dropped without leaving counts as lost"]
    pub fn into_strategy(self) -> MultiWorkerMirroredStrategy {
        self.outer.into_strategy()
    }
}
