//! `LowCommunicationVars`: candle models trained over slow links.

mod quorum;

pub use quorum::QuorumVars;

use candle_nn::VarMap;
use meshwork_strategy::low_communication::{LowCommunication, OuterOptimizer};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot, VariableSpec};

use crate::Error;
use crate::values::Values;

/// The variables of a candle model that each worker trains by an optimizer of its own, and whose
/// differences are exchanged now and then.
///
/// ```
/// use std::num::NonZeroU32;
/// use candle_core::{DType, Device};
/// use candle_nn::{Init, Optimizer, SGD, VarMap};
/// use meshwork_candle::{Error, LowCommunicationVars};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::low_communication::LowCommunication;
///
/// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let model = VarMap::new();
/// let weight = model.get(1, "weight", Init::Const(5.0), DType::F32, &Device::Cpu)?;
/// let settings = LowCommunication::new(NonZeroU32::new(30).expect("30 is not 0"));
/// let mut outer = LowCommunicationVars::new(&mut strategy, &model, settings)?;
/// let mut inner = SGD::new(model.all_vars(), 0.1)?;
/// for _ in 0..300 {
///     inner.backward_step(&weight.sqr()?.sum_all()?)?;
///     outer.step(&mut strategy)?; // which communicates in one call of 30
/// }
/// outer.finish(&mut strategy)?;
/// assert!(weight.to_vec1::<f32>()?[0].abs() < 0.5);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[doc(alias("DiLoCo", "local SGD"))]
pub struct LowCommunicationVars {
    values: Values,
    outer: OuterOptimizer,
}

impl LowCommunicationVars {
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
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        settings: LowCommunication,
    ) -> Result<Self, Error> {
        let (mut values, lengths) = mirrored(strategy, model)?;
        let outer = OuterOptimizer::new(strategy, settings, &lengths, values.flat.as_mut_slice())?;
        let mut vars = Self { values, outer };
        vars.adopt_agreed()?;
        Ok(vars)
    }

    /// Is called after each step of the inner optimizer; see [`OuterOptimizer::step`]. The
    /// variables are read and written only where something is exchanged.
    ///
    /// Where workers are [excluded](meshwork_strategy::low_communication::NotFinite::Exclude) and
    /// `outer().resets()` has grown by it, go on with a new inner optimizer.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn step(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        if self.outer.step_alone(strategy) {
            return Ok(());
        }
        self.values.read()?;
        self.outer.step(strategy, self.values.flat.as_mut_slice())?;
        self.values.write()
    }

    /// Ends the training, on all workers after the same step, with the same values on each: see
    /// [`OuterOptimizer::finish`].
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn finish(&mut self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        self.values.read()?;
        self.outer
            .finish(strategy, self.values.flat.as_mut_slice())?;
        self.values.write()
    }

    /// Gives the variables the values that all workers agree on, the same bits on each: to be
    /// measured or saved. Steps since the last exchange are lost by it.
    ///
    /// # Errors
    /// [`Error::Candle`]
    pub fn adopt_agreed(&mut self) -> Result<(), Error> {
        self.values.adopt(self.outer.agreed())
    }

    /// Adds this worker's variables to a snapshot of its step, and the state of the outer
    /// optimizer: each worker saves a snapshot of its own. See [`OuterOptimizer::save`].
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    pub fn save(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        snapshot: Snapshot,
    ) -> Result<Snapshot, Error> {
        let snapshot = self.values.save(snapshot)?;
        Ok(self.outer.save(strategy, snapshot)?)
    }

    /// Gives the variables of `model` the values that this worker has [saved](Self::save), with the
    /// same settings and number of workers: the training goes on with the same bits. In a job that
    /// is elastic, they get what all agree on where others' snapshots are of a later step: see
    /// [`OuterOptimizer::restore`].
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Strategy`], above all for a snapshot of another model;
    /// [`Error::Candle`].
    #[track_caller]
    pub fn restore(
        strategy: &mut MultiWorkerMirroredStrategy,
        model: &VarMap,
        settings: LowCommunication,
        snapshot: &Snapshot,
    ) -> Result<Self, Error> {
        let mut values = Values::of(model)?;
        values.restore(snapshot)?;
        let outer = OuterOptimizer::restore(strategy, settings, &lengths(&values), snapshot)?;
        let mut vars = Self { values, outer };
        if vars.outer.has_taken_over() {
            // What was saved is of an earlier step than the others'.
            vars.adopt_agreed()?;
        }
        Ok(vars)
    }

    /// The outer optimizer, and what it counted.
    #[must_use]
    pub fn outer(&self) -> &OuterOptimizer {
        &self.outer
    }
}

fn lengths(values: &Values) -> Vec<usize> {
    values.specs().iter().map(VariableSpec::len).collect()
}

/// The values to begin with, and the lengths of the variables: rank 0's, but where workers come and
/// go, as there the outer optimizer brings them.
#[track_caller]
fn mirrored(
    strategy: &mut MultiWorkerMirroredStrategy,
    model: &VarMap,
) -> Result<(Values, Vec<usize>), Error> {
    let mut values = Values::of(model)?;
    let specs = values.specs().to_vec();
    if !strategy.is_elastic() {
        strategy.scope(|scope| scope.mirror(&specs, values.flat.as_mut_slice()))?;
    }
    let lengths = lengths(&values);
    Ok((values, lengths))
}

#[cfg(test)]
mod tests;
