//! `ShardedStack`: candle models that are run unit by unit, and of which each worker keeps a part.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::{DType, Device, Tensor};
use meshwork_strategy::sharded::{
    ElementWise, Recompute, Regrouped, ShardedCheckpoints, ShardedModel, Sharding, Stack, Unit,
};
use meshwork_strategy::{
    MultiWorkerMirroredStrategy, ReplicaContext, ReplicaReduceOp, VariableSpec,
};

use crate::initial::Distribution;
use crate::{Error, ModuleUnit};

/// A candle model that is a list of units, whose parameters, gradients and optimizer state are
/// sharded among the workers: ZeRO-3, FSDP, and with another [`Shard`] the stages below.
///
/// The parameters of a unit are gathered before it is computed and freed behind it; candle's tape
/// is used inside of each. Each worker makes only its rows of them, by the hints of candle's
/// layers, from numbers that depend on the seed, the name and the position alone.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use candle_nn::{Module, linear, loss};
/// use meshwork_candle::{Error, ModuleUnit, ShardedStack};
/// use meshwork_strategy::sharded::{AdamW, Shard};
///
/// let units = vec![
///     ModuleUnit::new("hidden", |vars| {
///         let layer = linear(1, 16, vars.pp("hidden"))?;
///         Ok(move |input: &Tensor| layer.forward(input)?.relu())
///     })?,
///     ModuleUnit::new("output", |vars| linear(16, 1, vars.pp("output")))?,
/// ];
/// let seed = 1;
/// let mut model = ShardedStack::new(units, AdamW::new(0.03), Shard::Parameters, seed)?;
///
/// let samples: Vec<f32> = (0..12).map(|x| x as f32 / 6.0 - 1.0).collect();
/// let inputs = Tensor::from_vec(samples, (12, 1), &Device::Cpu)?;
/// let targets = inputs.abs()?;
/// let mut last = 0.0;
/// for _ in 0..200 {
///     last = model.backward_step(&inputs, |outputs| loss::mse(outputs, &targets))?;
/// }
/// assert!(last < 0.01, "{last}");
/// model.leave()?;
/// # Ok::<(), Error>(())
/// ```
///
/// [`Shard`]: meshwork_strategy::sharded::Shard
#[derive(Debug)]
#[doc(alias("FSDP", "fully_shard", "FullyShardedDataParallel", "ZeRO-3"))]
pub struct ShardedStack<O> {
    strategy: MultiWorkerMirroredStrategy,
    model: ShardedModel<O>,
    units: Vec<ModuleUnit>,
    recompute: Recompute,
    norm: Option<f64>,
    /// The losses of passes since the last step.
    loss: f32,
}

impl<O: ElementWise> ShardedStack<O> {
    /// A model of these units, in order, on the workers that the environment tells of: see
    /// [`MultiWorkerMirroredStrategy::from_env`].
    ///
    /// # Errors
    /// Those of [`with_initial`](Self::with_initial).
    pub fn new(
        units: Vec<ModuleUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
        seed: u64,
    ) -> Result<Self, Error> {
        let strategy = MultiWorkerMirroredStrategy::from_env()?;
        Self::with_strategy(strategy, units, optimizer, sharding, seed)
    }

    /// The same on the workers of this strategy.
    ///
    /// # Errors
    /// Those of [`with_initial`](Self::with_initial).
    pub fn with_strategy(
        strategy: MultiWorkerMirroredStrategy,
        units: Vec<ModuleUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
        seed: u64,
    ) -> Result<Self, Error> {
        let initial = drawn_from(&units, seed);
        Self::with_initial(strategy, units, optimizer, sharding, initial)
    }

    /// The same on a strategy that is [elastic](MultiWorkerMirroredStrategy::elastic), of a
    /// training that others may have begun: `Regrouped::Kept` says that this worker has its part of
    /// theirs, [`New`](Regrouped::New) that all have what the seed draws.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use candle_nn::{linear, loss};
    /// use meshwork_candle::{Error, ModuleUnit, ShardedStack};
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// use meshwork_strategy::sharded::{AdamW, Regrouped, Shard, ShardedCheckpoints, Sharding};
    ///
    /// let checkpoints = ShardedCheckpoints::new("checkpoints");
    /// let strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    /// let units = vec![ModuleUnit::new("line", |vars| linear(1, 1, vars.pp("line")))?];
    /// let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
    /// let joined = ShardedStack::elastic(strategy, units, AdamW::new(0.1), sharding, 1)?;
    /// let (mut model, mut regrouped) = joined;
    /// loop {
    ///     if regrouped != Regrouped::Kept && model.load(&checkpoints)?.is_none() {
    ///         // Nothing was saved: from the beginning.
    ///         model.initialize(1)?;
    ///     }
    ///     // Until workers are lost, or others come.
    ///     regrouped = loop {
    ///         if model.steps() == 100 {
    ///             return model.leave();
    ///         }
    ///         let worker = model.strategy_mut().rank().number();
    ///         let inputs = Tensor::new(&[[worker as f32 + 1.0]], &Device::Cpu)?;
    ///         let targets = (&inputs * 3.0)?;
    ///         let step = model.backward_step(&inputs, |outputs| loss::mse(outputs, &targets));
    ///         match step.and_then(|_| model.admit()) {
    ///             Ok(None) => {}
    ///             Ok(Some(regrouped)) => break regrouped,
    ///             Err(error) => break model.go_on(error)?,
    ///         }
    ///     };
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`with_initial`](Self::with_initial).
    pub fn elastic(
        strategy: MultiWorkerMirroredStrategy,
        units: Vec<ModuleUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
        seed: u64,
    ) -> Result<(Self, Regrouped), Error> {
        let initial = drawn_from(&units, seed);
        Self::join(strategy, units, optimizer, sharding.into(), initial)
    }

    /// The same with initial values that `initial` writes: for a parameter, a range of its
    /// elements, row-major, and where to. They have to depend on the name and the range alone.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' models or settings differ, two units have a
    /// parameter of one name, or a worker does not come.
    pub fn with_initial(
        strategy: MultiWorkerMirroredStrategy,
        units: Vec<ModuleUnit>,
        optimizer: O,
        sharding: impl Into<Sharding>,
        initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<Self, Error> {
        let sharding = sharding.into();
        let (stack, _) = Self::join(strategy, units, optimizer, sharding, initial)?;
        Ok(stack)
    }

    fn join(
        mut strategy: MultiWorkerMirroredStrategy,
        units: Vec<ModuleUnit>,
        optimizer: O,
        sharding: Sharding,
        initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<(Self, Regrouped), Error> {
        let specs = Stack::new(&units).specs()?;
        let mut model = ShardedModel::elastic(&strategy, sharding, &specs, optimizer);
        let regrouped = match model.regroup(&mut strategy) {
            Ok(regrouped) => regrouped,
            Err(error) => model.go_on(&mut strategy, error)?,
        };
        if regrouped == Regrouped::New {
            strategy.run(|replica| model.initialize(replica, initial))?;
        }
        let stack = Self {
            strategy,
            model,
            units,
            recompute: Recompute::Nothing,
            norm: None,
            loss: 0.0,
        };
        Ok((stack, regrouped))
    }

    /// Gives a model the values that this seed draws, such as one without any after
    /// [`Regrouped::Lost`] where nothing was saved. The training begins anew.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    #[track_caller]
    pub fn initialize(&mut self, seed: u64) -> Result<(), Error> {
        let (initial, model) = (drawn_from(&self.units, seed), &mut self.model);
        self.strategy
            .run(|replica| model.initialize(replica, initial))?;
        self.loss = 0.0;
        Ok(())
    }

    /// Chooses what is kept of a forward pass: candle's tape of each unit, or its input only, for
    /// units that give the same output [a second time](ModuleUnit): those with dropout do not.
    #[must_use]
    #[doc(alias = "activation_checkpointing")]
    pub fn with_recompute(mut self, recompute: Recompute) -> Self {
        self.recompute = recompute;
        self
    }

    /// The passes of this worker forward and back, from the input of the first unit to the loss
    /// that `loss` makes of the output of the last, and a step with the mean of all workers'
    /// gradients. Returns the mean over all workers of the losses of their passes, added up.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    pub fn backward_step(
        &mut self,
        input: &Tensor,
        loss: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<f32, Error> {
        self.accumulate(input, loss)?;
        let (mut mean, model) = ([std::mem::take(&mut self.loss)], &mut self.model);
        let norm = self.strategy.run(|replica| {
            replica.all_reduce(ReplicaReduceOp::Mean, &mut mean)?;
            model.step(replica)
        })?;
        self.norm = norm.into_first();
        Ok(mean[0])
    }

    /// The passes of a loss whose gradients are added to those of the next
    /// [`backward_step`](Self::backward_step). They are added, not averaged. How many passes a step
    /// has is said by [`Sharding::with_accumulation`].
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    pub fn accumulate(
        &mut self,
        input: &Tensor,
        loss: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
    ) -> Result<(), Error> {
        let stack = Stack::new(&self.units).with_recompute(self.recompute);
        let (model, input) = (&mut self.model, input.detach());
        let passed = self.strategy.run(|replica| {
            model.run(replica, &stack, input, |output| {
                let loss = loss(&output)?;
                let gradient = match loss.backward()?.remove(&output) {
                    Some(gradient) => gradient,
                    None => output.zeros_like()?,
                };
                let value = loss.to_dtype(DType::F32)?.to_scalar::<f32>()?;
                Ok::<_, Error>((value, gradient))
            })
        })?;
        self.loss += passed.into_first();
        Ok(())
    }

    /// What the model makes of an input, without gradients. All workers make the same number of
    /// such calls, each with an input of its own.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    pub fn forward(&mut self, input: &Tensor) -> Result<Tensor, Error> {
        let (model, units) = (&mut self.model, &self.units);
        let output = self.strategy.run(|replica| {
            let mut value = input.detach();
            for (number, unit) in units.iter().enumerate() {
                let passed = model.forward(replica, number, |parameters| {
                    unit.forward(parameters, value)
                });
                value = passed??.0;
            }
            Ok::<_, Error>(value.detach())
        })?;
        Ok(output.into_first())
    }

    /// All parameters by their names, whole, on every worker: to be measured with or exported,
    /// where the memory of one worker has room for them.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    #[doc(alias("full_state_dict", "summon_full_params"))]
    pub fn tensors(&mut self) -> Result<HashMap<String, Tensor>, Error> {
        let (model, units) = (&mut self.model, &self.units);
        let tensors = self.strategy.run(|replica| whole(model, replica, units))?;
        Ok(tensors.into_first())
    }

    /// The norm of all gradients together in the last step, before they were scaled, where
    /// [`Sharding::with_max_norm`] limits it.
    #[must_use]
    pub fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// How many numbers are trained, in all workers together.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.units.iter().map(ModuleUnit::trained).sum()
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

    /// The strategy: who this worker is, and metrics of all workers.
    pub fn strategy_mut(&mut self) -> &mut MultiWorkerMirroredStrategy {
        &mut self.strategy
    }

    /// Starts to save parameters and state: see [`Sharded::save`](crate::Sharded::save).
    ///
    /// # Errors
    /// [`Error::Strategy`] for the save before.
    #[track_caller]
    pub fn save(&mut self, checkpoints: &ShardedCheckpoints) -> Result<(), Error> {
        let model = &mut self.model;
        let saved = self
            .strategy
            .run(|replica| model.save(replica, checkpoints));
        Ok(saved.map(drop)?)
    }

    /// Loads the last whole checkpoint: see [`Sharded::load`](crate::Sharded::load).
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a checkpoint of another model.
    #[track_caller]
    pub fn load(&mut self, checkpoints: &ShardedCheckpoints) -> Result<Option<u64>, Error> {
        let model = &mut self.model;
        let step = self
            .strategy
            .run(|replica| model.load(replica, checkpoints))?
            .into_first();
        if step.is_some() {
            // Of passes that are made again.
            self.loss = 0.0;
        }
        Ok(step)
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`: divides the
    /// model anew among them, with the values of the last step that any of them has made, where
    /// [`Sharding::with_neighbour_copies`] keeps each part twice.
    ///
    /// [`steps`](Self::steps) says which step is the next, from its first pass on, and
    /// [`strategy_mut`](Self::strategy_mut) who the workers are: divide its samples among these.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use candle_nn::{linear, loss};
    /// use meshwork_candle::{Error, ModuleUnit, ShardedStack};
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// use meshwork_strategy::sharded::{AdamW, Regrouped, Shard, ShardedCheckpoints, Sharding};
    ///
    /// let checkpoints = ShardedCheckpoints::new("checkpoints");
    /// let strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    /// let units = vec![ModuleUnit::new("line", |vars| linear(1, 1, vars.pp("line")))?];
    /// let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
    /// let mut model = ShardedStack::with_strategy(strategy, units, AdamW::new(0.1), sharding, 1)?;
    /// while model.steps() < 100 {
    ///     let worker = model.strategy_mut().rank().number();
    ///     let inputs = Tensor::new(&[[worker as f32 + 1.0]], &Device::Cpu)?;
    ///     let targets = (&inputs * 3.0)?;
    ///     let step = model.backward_step(&inputs, |outputs| loss::mse(outputs, &targets));
    ///     if let Err(error) = step
    ///         && model.go_on(error)? != Regrouped::Kept
    ///     {
    ///         // Two neighbours were lost together.
    ///         model.load(&checkpoints)?.expect("this training saves");
    ///     }
    /// }
    /// model.leave()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `error` where the strategy is not [elastic](MultiWorkerMirroredStrategy::elastic), or it is
    /// this worker's own; [`Error::Strategy`] where too few are left.
    pub fn go_on(&mut self, error: Error) -> Result<Regrouped, Error> {
        let Error::Strategy(error) = error else {
            return Err(error);
        };
        let regrouped = self.model.go_on(&mut self.strategy, error)?;
        // Of passes that are made again, and of a step that others may have ended.
        (self.loss, self.norm) = (0.0, None);
        Ok(regrouped)
    }

    /// Lets processes in that wait to train too ([`elastic`](Self::elastic)), and divides the model
    /// anew among all. All workers call it behind each step; they look for newcomers about four
    /// times in a second. `None` where nobody has come.
    ///
    /// # Errors
    /// [`Error::Strategy`], to be given to [`go_on`](Self::go_on).
    #[track_caller]
    pub fn admit(&mut self) -> Result<Option<Regrouped>, Error> {
        Ok(self.model.admit(&mut self.strategy)?)
    }

    /// Leaves the job: returns when what is being saved is whole, and all workers have finished.
    ///
    /// # Errors
    /// [`Error::Strategy`] when a worker was lost, or something cannot be saved.
    #[track_caller]
    pub fn leave(self) -> Result<(), Error> {
        Ok(self.into_strategy()?.leave()?)
    }

    /// Ends the training, when what is being saved is whole, and gives the strategy back.
    ///
    /// # Errors
    /// [`Error::Strategy`], as [`leave`](Self::leave).
    #[track_caller]
    pub fn into_strategy(mut self) -> Result<MultiWorkerMirroredStrategy, Error> {
        let model = &mut self.model;
        self.strategy.run(|replica| model.finish_save(replica))?;
        Ok(self.strategy)
    }
}

/// Writes what candle's hints say, by a seed.
fn drawn_from(
    units: &[ModuleUnit],
    seed: u64,
) -> impl FnMut(&VariableSpec, Range<usize>, &mut [f32]) + use<> {
    let inits: HashMap<String, Distribution> = units.iter().flat_map(drawn(seed)).collect();
    move |spec, elements, rows| {
        let drawn = &inits[spec.name()];
        for (at, value) in elements.zip(rows) {
            *value = drawn.at(at);
        }
    }
}

/// What the parameters of a unit are drawn from, by their names.
fn drawn(seed: u64) -> impl Fn(&ModuleUnit) -> Vec<(String, Distribution)> {
    move |unit| {
        let parameters = unit.parameters();
        let drawn = parameters.map(|(spec, init)| {
            let drawn = Distribution::new(init, spec.name(), spec.shape(), seed);
            (spec.name().to_owned(), drawn)
        });
        drawn.collect()
    }
}

/// Gathers the units one after the other.
fn whole<O: ElementWise>(
    model: &mut ShardedModel<O>,
    replica: &mut ReplicaContext<'_>,
    units: &[ModuleUnit],
) -> Result<HashMap<String, Tensor>, Error> {
    let mut tensors = HashMap::new();
    for (number, unit) in units.iter().enumerate() {
        model.forward(replica, number, |values| {
            for (place, (spec, _)) in unit.parameters().enumerate() {
                let tensor = Tensor::from_slice(&values[place], spec.shape(), &Device::Cpu)?;
                tensors.insert(spec.name().to_owned(), tensor);
            }
            Ok::<_, Error>(())
        })??;
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests;
