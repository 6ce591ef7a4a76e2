//! `QuorumVars`: candle models whose rounds end with those who have come.

use candle_nn::VarMap;
use meshwork_strategy::low_communication::{LowCommunication, Quorum, QuorumOptimizer};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot};

use super::{lengths, mirrored};
use crate::Error;
use crate::values::Values;

/// As [`LowCommunicationVars`](super::LowCommunicationVars), but no worker waits longer for one
/// that is late than the [quorum](Quorum) is patient.
///
/// ```
/// use std::num::{NonZeroU32, NonZeroUsize};
/// use std::time::Duration;
/// use candle_core::{DType, Device};
/// use candle_nn::{Init, Optimizer, SGD, VarMap};
/// use meshwork_candle::{Error, QuorumVars};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::low_communication::{LowCommunication, Quorum};
///
/// let strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let model = VarMap::new();
/// let weight = model.get(1, "weight", Init::Const(5.0), DType::F32, &Device::Cpu)?;
/// let settings = LowCommunication::new(NonZeroU32::new(30).expect("30 is not 0"));
/// let quorum = Quorum::new(NonZeroUsize::MIN, Duration::from_secs(20));
/// let mut outer = QuorumVars::new(strategy, &model, settings, quorum)?;
/// let mut inner = SGD::new(model.all_vars(), 0.1)?;
/// while outer.outer().steps() < 300 {
///     inner.backward_step(&weight.sqr()?.sum_all()?)?;
///     outer.step()?;
/// }
/// outer.finish()?;
/// assert!(weight.to_vec1::<f32>()?[0].abs() < 0.5);
/// outer.into_strategy().leave().map_err(Error::from)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct QuorumVars {
    values: Values,
    outer: QuorumOptimizer,
}

impl QuorumVars {
    /// Gives all variables of `model`, on every worker, the values they have on rank 0, which are
    /// what all agree on first. In a job that is
    /// [elastic](MultiWorkerMirroredStrategy::elastic), a newcomer's get what a training that runs
    /// has come to.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all when models or settings differ;
    /// [`Error::Candle`].
    #[track_caller]
    pub fn new(
        mut strategy: MultiWorkerMirroredStrategy,
        model: &VarMap,
        settings: LowCommunication,
        quorum: Quorum,
    ) -> Result<Self, Error> {
        let (mut values, lengths) = mirrored(&mut strategy, model)?;
        let flat = values.flat.as_mut_slice();
        let outer = QuorumOptimizer::new(strategy, settings, quorum, &lengths, flat)?;
        let mut vars = Self { values, outer };
        vars.adopt_agreed()?;
        Ok(vars)
    }

    /// Is called after each step of the inner optimizer; see [`QuorumOptimizer::step`]. The
    /// variables are read and written only where something is given or taken over.
    ///
    /// Where workers are [excluded](meshwork_strategy::low_communication::NotFinite::Exclude) and
    /// `outer().resets()` has grown by it, go on with a new inner optimizer.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn step(&mut self) -> Result<(), Error> {
        if self.outer.step_alone() {
            return Ok(());
        }
        self.values.read()?;
        self.outer.step(self.values.flat.as_mut_slice())?;
        self.values.write()
    }

    /// Ends the training, with the same values on each worker: see [`QuorumOptimizer::finish`].
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn finish(&mut self) -> Result<(), Error> {
        self.values.read()?;
        self.outer.finish(self.values.flat.as_mut_slice())?;
        self.values.write()
    }

    /// Gives the variables the values that all workers agree on, as far as this one has taken them
    /// over: to be measured or saved. Steps since the last exchange are lost by it.
    ///
    /// # Errors
    /// [`Error::Candle`]
    pub fn adopt_agreed(&mut self) -> Result<(), Error> {
        self.values.adopt(self.outer.agreed())
    }

    /// What was saved of a [`checkpoint`](QuorumOptimizer::checkpoint), each worker's own, or by
    /// [`QuorumOptimizer::save`] on one, which all read: the variables of `model` get the values
    /// from which this worker goes on.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all for a snapshot of another model;
    /// [`Error::Candle`].
    #[track_caller]
    pub fn restore(
        strategy: MultiWorkerMirroredStrategy,
        model: &VarMap,
        settings: LowCommunication,
        quorum: Quorum,
        snapshot: &Snapshot,
    ) -> Result<Self, Error> {
        let values = Values::of(model)?;
        let lengths = lengths(&values);
        let restored = QuorumOptimizer::restore(strategy, settings, quorum, &lengths, snapshot)?;
        let (outer, own) = restored;
        let mut vars = Self { values, outer };
        vars.values.adopt(&own)?;
        Ok(vars)
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
