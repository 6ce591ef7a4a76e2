//! `ShardedUnits`: burn models that are run unit by unit, and of which each worker keeps a part.

use std::ops::Range;

use burn_core::tensor::Tensor;
use meshwork_strategy::sharded::{
    ElementWise, Regrouped, ShardedCheckpoints, ShardedModel, Sharding, Stack,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec};

use crate::activation::Before;
use crate::{Activation, BurnUnit, Error};

/// A burn model that is a list of units, whose parameters, gradients and optimizer state are
/// sharded among the workers: ZeRO-3, FSDP, and with another [`Shard`] the stages below.
///
/// The parameters of a unit are gathered before it is computed and freed behind it. A forward pass
/// keeps the input of each unit alone; the backward pass computes it a second time, with burn's
/// tape, which would keep the memory of parameters from one pass to the other.
///
/// ```
/// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
/// use meshwork_burn::{Activation, Error, BurnUnit, ShardedUnits};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::sharded::{AdamW, Shard};
///
/// #[derive(Module, Debug)]
/// struct Scale {
///     weight: Param<Tensor<1>>,
/// }
///
/// let unit = |name, start: f32| {
///     let device = Device::flex().autodiff();
///     let build = move || Scale { weight: Param::from_data([start], &device) };
///     BurnUnit::new(name, build, |scale: &Scale, input: Activation| {
///         (input.tensor::<1>() * scale.weight.val()).into()
///     })
/// };
/// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let units = vec![unit("first", 0.5)?, unit("second", 1.5)?];
/// let optimizer = AdamW::new(0.05);
/// let mut model = ShardedUnits::new(&mut strategy, units, optimizer, Shard::Parameters)?;
/// let input = Tensor::<1>::from_data([2.0], &Device::flex());
/// let mut last = 0.0;
/// for _ in 0..100 {
///     let loss = |output: Tensor<1>| (output - 6.0).square().mean();
///     let step = strategy.run(|replica| {
///         let loss = model.accumulate(replica, input.clone(), loss)?;
///         model.step(replica)?;
///         Ok::<_, Error>(loss)
///     });
///     last = step?.into_first(); // of this worker's part of the batch
/// }
/// assert!(last < 0.01, "{last}");
/// strategy.leave().map_err(Error::from)?;
/// # Ok::<(), Error>(())
/// ```
///
/// [`Shard`]: meshwork_strategy::sharded::Shard
#[derive(Debug)]
#[doc(alias("FSDP", "fully_shard", "FullyShardedDataParallel", "ZeRO-3"))]
pub struct ShardedUnits<O> {
    model: ShardedModel<O>,
    units: Vec<BurnUnit>,
    norm: Option<f64>,
}

impl<O: ElementWise> ShardedUnits<O> {
    /// A model of these units, in order. Each worker keeps its rows of the values that they begin
    /// with; one unit after the other is whole for that. In a training that others have begun, the
    /// model has their values instead, as after [`regroup`](Self::regroup).
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' models or settings differ, or two units
    /// have one name; [`Error::Read`].
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        units: Vec<BurnUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<Self, Error> {
        let mut made = Self::elastic(strategy, units, optimizer, sharding)?;
        if made.regroup(strategy)? == Regrouped::New {
            strategy.run(|replica| made.initialize(replica))?;
        }
        Ok(made)
    }

    /// A model of these units that is not divided among the workers yet: the first
    /// [`regroup`](Self::regroup) does that. With values of other workers' if it is one of a
    /// training that others have begun.
    ///
    /// # Errors
    /// [`Error::Strategy`] for a shape that is too large.
    pub fn elastic(
        strategy: &MultiWorkerMirroredStrategy,
        units: Vec<BurnUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<Self, Error> {
        let specs = Stack::new(&units).specs()?;
        let model = ShardedModel::elastic(strategy, sharding.into(), &specs, optimizer);
        Ok(Self {
            model,
            units,
            norm: None,
        })
    }

    /// Gives a model the values that its units begin with; where there were steps, it begins anew.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Read`], [`Error::ElementType`], behind which it has no values.
    #[track_caller]
    pub fn initialize(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        let mut initial = Initial::new(&self.units);
        self.model.try_initialize(replica, |spec, elements, rows| {
            initial.write(spec, elements, rows)
        })
    }

    /// The passes of this worker forward and back, from the input of the first unit to the loss
    /// that `loss` makes of the output of the last; returns that loss. Gradients are added to those
    /// of the passes before since the last step: [`Sharding::with_accumulation`] says how many
    /// passes a step has.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::ElementType`], [`Error::Read`].
    ///
    /// # Panics
    /// When burn does, and when a unit is given a tensor that it does not take.
    #[track_caller]
    pub fn accumulate<const D: usize>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        input: impl Into<Activation>,
        loss: impl FnOnce(Tensor<D>) -> Tensor<1>,
    ) -> Result<f32, Error> {
        let input = input.into().off_tape(Before::Nothing);
        let stack = Stack::new(&self.units);
        self.model.run(replica, &stack, input, |output| {
            let output = output.on_tape();
            let loss = loss(output.clone().tensor());
            let value = loss.clone().into_scalar::<f32>();
            let gradient = match loss.is_tracked() {
                true => output.gradient(&mut loss.backward()),
                false => output.zeros(),
            };
            Ok(match gradient {
                Some(gradient) => (value, gradient),
                // Where nothing is trained, nobody computes with it.
                None => (value, output),
            })
        })
    }

    /// A step with the mean of all workers' gradients.
    ///
    /// # Errors
    /// [`Error::Strategy`] where there were fewer passes than a step has, or a worker is lost.
    #[track_caller]
    pub fn step(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        self.norm = self.model.step(replica)?;
        Ok(())
    }

    /// What the model makes of an input as burn evaluates, by
    /// [`valid`](burn_core::module::Module::valid). All workers make the same number of such calls,
    /// each with an input of its own.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    ///
    /// # Panics
    /// As [`accumulate`](Self::accumulate).
    #[track_caller]
    pub fn forward<const D: usize>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        input: impl Into<Activation>,
    ) -> Result<Tensor<D>, Error> {
        let mut value = input.into().off_tape(Before::Nothing);
        for (number, unit) in self.units.iter().enumerate() {
            value = self.model.forward(replica, number, |parameters| {
                unit.evaluate(&parameters, value)
            })?;
        }
        Ok(value.tensor())
    }

    /// Divides the model among the workers that are there now, after some were lost or have come:
    /// see [`ShardedModel::regroup`].
    ///
    /// # Errors
    /// [`Error::Strategy`]
    #[track_caller]
    pub fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Regrouped, Error> {
        Ok(self.model.regroup(strategy)?)
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`: see
    /// [`ShardedModel::go_on`].
    ///
    /// # Errors
    /// `error` where the strategy is not [elastic](MultiWorkerMirroredStrategy::elastic), or it is
    /// this worker's own; [`Error::Strategy`] where too few are left.
    pub fn go_on(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        error: Error,
    ) -> Result<Regrouped, Error> {
        let Error::Strategy(error) = error else {
            return Err(error);
        };
        self.norm = None;
        Ok(self.model.go_on(strategy, error)?)
    }

    /// Lets processes in that wait to train too, behind a step: see [`ShardedModel::admit`].
    ///
    /// # Errors
    /// [`Error::Strategy`], to be given to [`go_on`](Self::go_on).
    #[track_caller]
    pub fn admit(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Option<Regrouped>, Error> {
        Ok(self.model.admit(strategy)?)
    }

    /// The norm of all gradients together in the last step, before they were scaled, where
    /// [`Sharding::with_max_norm`] limits it.
    #[must_use]
    pub fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.model.steps()
    }

    /// The optimizer, to be exchanged for one of another learning rate, in the same way on every
    /// worker.
    pub fn optimizer_mut(&mut self) -> &mut O {
        self.model.optimizer_mut()
    }

    /// Starts to save parameters and state: see [`ShardedModel::save`].
    ///
    /// # Errors
    /// [`Error::Strategy`] for the save before.
    #[track_caller]
    pub fn save(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<(), Error> {
        Ok(self.model.save(replica, checkpoints)?)
    }

    /// Waits until the save that is under way is whole, if there is one.
    ///
    /// # Errors
    /// [`Error::Strategy`] for what cannot be written.
    #[track_caller]
    pub fn finish_save(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        Ok(self.model.finish_save(replica)?)
    }

    /// Loads the last whole checkpoint, which any number of workers has saved, sharded in any way,
    /// and returns its step; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a checkpoint of another model.
    #[track_caller]
    pub fn load(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<Option<u64>, Error> {
        Ok(self.model.load(replica, checkpoints)?)
    }
}

/// The values that units begin with, of one unit at a time.
struct Initial<'a> {
    units: &'a [BurnUnit],
    /// Those of the last one that was asked for.
    values: Vec<(VariableSpec, Vec<f32>)>,
}

impl<'a> Initial<'a> {
    fn new(units: &'a [BurnUnit]) -> Self {
        Self {
            units,
            values: Vec::new(),
        }
    }

    fn write(
        &mut self,
        spec: &VariableSpec,
        elements: Range<usize>,
        rows: &mut [f32],
    ) -> Result<(), Error> {
        if !self.values.iter().any(|(known, _)| known == spec) {
            // Not both at a time.
            self.values = Vec::new();
            self.values = self.make(spec)?;
        }
        if let Some((_, values)) = self.values.iter().find(|(known, _)| known == spec) {
            rows.copy_from_slice(&values[elements]);
        }
        Ok(())
    }

    /// The values of the unit that has this parameter.
    fn make(&self, spec: &VariableSpec) -> Result<Vec<(VariableSpec, Vec<f32>)>, Error> {
        let has = |unit: &&BurnUnit| unit.parameters().contains(spec);
        let unit = self.units.iter().find(has);
        let unit = unit.expect("the parameters of a model are those of its units");
        let specs = unit.parameters().iter().cloned();
        Ok(specs.zip(unit.initial()?).collect())
    }
}

#[cfg(test)]
mod tests;
