//! `Sharded`: a training loop of candle's on many workers, each of which keeps a part of the
//! optimizer's state and of the gradients.

use candle_core::{DType, Tensor, Var};
use candle_nn::VarMap;
use meshwork_strategy::sharded::{
    ElementWise, Regrouped, ShardedCheckpoints, ShardedVariables, Sharding, UnitSpec,
};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaReduceOp, VariableSpec};

use crate::Error;
use crate::lent::LentTensors;
use crate::values::by_name;

/// The variables of a candle model and an optimizer whose state is in parts, one in each worker,
/// as are gradients between backward passes if so chosen: ZeRO-1 and ZeRO-2.
///
/// It takes the place of an optimizer of candle's. The model computes with its variables as before;
/// each worker takes its own part of the data.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, VarBuilder, VarMap, linear, loss};
/// use meshwork_candle::{Error, Sharded};
/// use meshwork_strategy::sharded::{AdamW, Shard};
///
/// let vars = VarMap::new();
/// let model = linear(1, 1, VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
/// let mut training = Sharded::new(&vars, AdamW::new(0.1), Shard::Gradients)?;
///
/// let (worker, workers) = (training.worker(), training.workers());
/// let samples: Vec<f32> = (0..12).skip(worker).step_by(workers).map(|x| x as f32).collect();
/// let rows = samples.len();
/// let inputs = Tensor::from_vec(samples, (rows, 1), &Device::Cpu)?;
/// for _ in 0..100 {
///     let loss = loss::mse(&model.forward(&inputs)?, &(&inputs * 3.0)?)?;
///     let mean = training.backward_step(&loss)?;
///     assert!(mean.is_finite());
/// }
/// training.leave()?;
/// # Ok::<(), Error>(())
/// ```
///
/// The variables, those of candle's names, have the values that they have on the chief from then
/// on. What each worker keeps beside them is a part of the rows of each: 8/N bytes a parameter for
/// the moments of AdamW among N workers. candle's backward pass ends with all gradients, 4 bytes a
/// parameter; with [`Shard::Gradients`] they are dropped when they are reduced, so that passes that
/// are accumulated take 4/N bytes more instead of 4. To keep parts of the parameters too, run the
/// model by units: [`ShardedStack`](crate::ShardedStack).
///
/// A variable that no worker has a gradient of in a step counts as zero there: AdamW still decays
/// it and goes on by its moments, where [`Distributed`](crate::Distributed) leaves it alone. What
/// is never trained is named by [`with_frozen`](Self::with_frozen).
///
/// Optimizers are those of [`meshwork_strategy::sharded`], whose update of a number depends on that
/// number alone. Others do not compile:
///
/// ```compile_fail
/// use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarMap};
/// use meshwork_candle::Sharded;
/// use meshwork_strategy::sharded::Shard;
///
/// let vars = VarMap::new();
/// let optimizer = AdamW::new(vars.all_vars(), ParamsAdamW::default())?;
/// Sharded::new(&vars, optimizer, Shard::Optimizer)?;
/// # Ok::<(), meshwork_candle::Error>(())
/// ```
///
/// [`Shard::Gradients`]: meshwork_strategy::sharded::Shard::Gradients
#[derive(Debug)]
#[doc(alias("ZeroRedundancyOptimizer", "ZeRO", "FSDP"))]
pub struct Sharded<O> {
    strategy: MultiWorkerMirroredStrategy,
    variables: ShardedVariables<O>,
    /// In the order of their gradients.
    trained: Vec<(String, Var)>,
    norm: Option<f64>,
    /// The losses of passes since the last step.
    loss: f32,
}

impl<O: ElementWise> Sharded<O> {
    /// Trains all variables of a map, on the workers that the environment tells of: see
    /// [`MultiWorkerMirroredStrategy::from_env`].
    ///
    /// # Errors
    /// Those of [`with_strategy`](Self::with_strategy).
    pub fn new(vars: &VarMap, optimizer: O, sharding: impl Into<Sharding>) -> Result<Self, Error> {
        let strategy = MultiWorkerMirroredStrategy::from_env()?;
        Self::with_strategy(strategy, vars, optimizer, sharding)
    }

    /// Trains them on the workers of this strategy.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' variables or settings differ, or one of
    /// them does not come, and for parameters in parts; [`Error::ElementType`];
    /// [`Error::NotInHostMemory`]; [`Error::Candle`].
    pub fn with_strategy(
        strategy: MultiWorkerMirroredStrategy,
        vars: &VarMap,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<Self, Error> {
        Self::with_frozen(strategy, vars, |_| false, optimizer, sharding)
    }

    /// Trains those whose names are not said to be frozen: these have no gradients and no state,
    /// keep the values that they have on the chief, and are saved with the others.
    ///
    /// # Errors
    /// As [`with_strategy`](Self::with_strategy).
    #[doc(alias = "requires_grad")]
    pub fn with_frozen(
        strategy: MultiWorkerMirroredStrategy,
        vars: &VarMap,
        is_frozen: impl Fn(&str) -> bool,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<Self, Error> {
        let (training, _) = Self::elastic(strategy, vars, is_frozen, optimizer, sharding)?;
        Ok(training)
    }

    /// The same on a strategy that is [elastic](MultiWorkerMirroredStrategy::elastic), of a
    /// training that others may have begun: `Regrouped::Kept` says that the variables have their
    /// values, [`New`](Regrouped::New) that they have the chief's. How such a training is run,
    /// [`ShardedStack::elastic`](crate::ShardedStack::elastic) shows.
    ///
    /// # Errors
    /// As [`with_strategy`](Self::with_strategy).
    pub fn elastic(
        mut strategy: MultiWorkerMirroredStrategy,
        vars: &VarMap,
        is_frozen: impl Fn(&str) -> bool,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<(Self, Regrouped), Error> {
        let (frozen, trained): (Vec<_>, Vec<_>) = by_name(vars)
            .into_iter()
            .partition(|(name, _)| is_frozen(name));
        let spec = UnitSpec::new("variables", specs(&trained)?).with_frozen(specs(&frozen)?);
        let all = trained.iter().chain(&frozen);
        let lent =
            LentTensors::new(all.map(|(name, var)| (name.as_str(), var.as_tensor().clone())));
        let lent = lent.inspect_err(|error| strategy.abort(error))?;
        let (lent, sharding) = (Box::new(lent), sharding.into());
        let variables = ShardedVariables::elastic(&strategy, sharding, spec, lent, optimizer);
        let mut variables = variables.inspect_err(|error| strategy.abort(error))?;
        let regrouped = match variables.regroup(&mut strategy) {
            Ok(regrouped) => regrouped,
            Err(error) => variables.go_on(&mut strategy, error)?,
        };
        if regrouped == Regrouped::New {
            strategy.run(|replica| variables.initialize(replica))?;
        }
        let training = Self {
            strategy,
            variables,
            trained,
            norm: None,
            loss: 0.0,
        };
        Ok((training, regrouped))
    }

    /// The backward pass of this worker's `loss`, and a step with the mean of all workers'
    /// gradients. Returns the mean over all workers of the losses of their passes, added up.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<f32, Error> {
        self.accumulate(loss)?;
        let mut mean = [std::mem::take(&mut self.loss)];
        let variables = &mut self.variables;
        let norm = self.strategy.run(|replica| {
            replica.all_reduce(ReplicaReduceOp::Mean, &mut mean)?;
            variables.step(replica)
        })?;
        self.norm = norm.into_first();
        Ok(mean[0])
    }

    /// The backward pass of a loss whose gradients are added to those of the next
    /// [`backward_step`](Self::backward_step). They are added, not averaged.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`]; they end the training on all workers.
    #[track_caller]
    #[doc(alias("no_sync", "gradient accumulation"))]
    pub fn accumulate(&mut self, loss: &Tensor) -> Result<(), Error> {
        let passed = self.pass(loss);
        let (gradients, own) = passed.inspect_err(|error| self.strategy.abort(error))?;
        self.loss += own;
        let variables = &mut self.variables;
        self.strategy
            .run(|replica| variables.add_gradients(replica, Box::new(gradients)))?;
        Ok(())
    }

    /// The norm of all gradients together in the last step, before they were scaled, where
    /// [`Sharding::with_max_norm`] limits it.
    #[must_use]
    pub fn norm(&self) -> Option<f64> {
        self.norm
    }

    /// This worker's number, from 0: the chief's.
    #[must_use]
    #[doc(alias = "rank")]
    pub fn worker(&self) -> usize {
        self.strategy.rank().index()
    }

    /// How many workers train together.
    #[must_use]
    #[doc(alias = "world_size")]
    pub fn workers(&self) -> usize {
        self.strategy.num_replicas_in_sync()
    }

    /// Whether this worker is the one that reports.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        self.strategy.is_chief()
    }

    /// How many numbers are trained.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.trained.iter().map(|(_, var)| var.elem_count()).sum()
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.variables.steps()
    }

    /// The optimizer, to be exchanged for one of another learning rate, in the same way on every
    /// worker.
    pub fn optimizer_mut(&mut self) -> &mut O {
        self.variables.optimizer_mut()
    }

    /// The strategy, such as for metrics of all workers.
    pub fn strategy_mut(&mut self) -> &mut MultiWorkerMirroredStrategy {
        &mut self.strategy
    }

    /// Starts to save variables and state: copies this worker's rows, and returns while they are
    /// written. It counts once all workers have written, which a later step finds out, or
    /// [`leave`](Self::leave).
    ///
    /// # Errors
    /// [`Error::Strategy`] for the save before.
    #[track_caller]
    pub fn save(&mut self, checkpoints: &ShardedCheckpoints) -> Result<(), Error> {
        let variables = &mut self.variables;
        let saved = self
            .strategy
            .run(|replica| variables.save(replica, checkpoints));
        Ok(saved.map(drop)?)
    }

    /// Loads the last whole checkpoint, which any number of workers has saved, sharded in any way,
    /// and returns its step; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a checkpoint of another model.
    #[track_caller]
    pub fn load(&mut self, checkpoints: &ShardedCheckpoints) -> Result<Option<u64>, Error> {
        let variables = &mut self.variables;
        let step = self
            .strategy
            .run(|replica| variables.load(replica, checkpoints))?
            .into_first();
        if step.is_some() {
            // Of passes that are made again.
            self.loss = 0.0;
        }
        Ok(step)
    }

    /// Gives the variables, on every worker, the values that they have on the chief: where there is
    /// nothing to [`load`](Self::load) after [`Regrouped::Lost`]. The training begins anew.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    #[track_caller]
    pub fn initialize(&mut self) -> Result<(), Error> {
        let variables = &mut self.variables;
        self.strategy.run(|replica| variables.initialize(replica))?;
        self.loss = 0.0;
        Ok(())
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`: divides state
    /// and gradients anew among them, and brings the variables to the values of the last step that
    /// any of them has made, where [`Sharding::with_neighbour_copies`] keeps each part twice.
    ///
    /// [`steps`](Self::steps) says which step is the next, from its first pass on, and
    /// [`worker`](Self::worker) and [`workers`](Self::workers) who is left: divide its samples
    /// among these.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::{Module, VarBuilder, VarMap, linear, loss};
    /// use meshwork_candle::{Error, Sharded};
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// use meshwork_strategy::sharded::{AdamW, Regrouped, Shard, ShardedCheckpoints, Sharding};
    ///
    /// let checkpoints = ShardedCheckpoints::new("checkpoints");
    /// let strategy = MultiWorkerMirroredStrategy::elastic_from_env()?;
    /// let vars = VarMap::new();
    /// let model = linear(1, 1, VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
    /// let sharding = Sharding::new(Shard::Optimizer).with_neighbour_copies();
    /// let mut training = Sharded::with_strategy(strategy, &vars, AdamW::new(0.1), sharding)?;
    /// while training.steps() < 100 {
    ///     let inputs = Tensor::new(&[[training.worker() as f32 + 1.0]], &Device::Cpu)?;
    ///     let loss = loss::mse(&model.forward(&inputs)?, &(&inputs * 3.0)?)?;
    ///     if let Err(error) = training.backward_step(&loss)
    ///         && training.go_on(error)? != Regrouped::Kept
    ///     {
    ///         // Two neighbours were lost together.
    ///         training.load(&checkpoints)?.expect("this training saves");
    ///     }
    /// }
    /// training.leave()?;
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
        let regrouped = self.variables.go_on(&mut self.strategy, error)?;
        // Of passes that are made again, and of a step that others may have ended.
        (self.loss, self.norm) = (0.0, None);
        Ok(regrouped)
    }

    /// Lets processes in that wait to train too ([`elastic`](Self::elastic)), and divides state and
    /// gradients anew among all. All workers call it behind each step; they look for newcomers
    /// about four times in a second. `None` where nobody has come.
    ///
    /// # Errors
    /// [`Error::Strategy`], to be given to [`go_on`](Self::go_on).
    #[track_caller]
    pub fn admit(&mut self) -> Result<Option<Regrouped>, Error> {
        Ok(self.variables.admit(&mut self.strategy)?)
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
        let variables = &mut self.variables;
        self.strategy
            .run(|replica| variables.finish_save(replica))?;
        Ok(self.strategy)
    }

    /// The gradients of a loss, zeros for variables that it does not depend on, and its value.
    fn pass(&self, loss: &Tensor) -> Result<(LentTensors, f32), Error> {
        let value = loss.to_dtype(DType::F32)?.to_scalar::<f32>()?;
        let mut gradients = loss.backward()?;
        let mut named = Vec::with_capacity(self.trained.len());
        for (name, var) in &self.trained {
            let gradient = match gradients.remove(var) {
                Some(gradient) => gradient,
                None => var.zeros_like()?,
            };
            named.push((name.as_str(), gradient));
        }
        Ok((LentTensors::new(named)?, value))
    }
}

fn specs(named: &[(String, Var)]) -> Result<Vec<VariableSpec>, Error> {
    let spec = |(name, var): &(String, Var)| Ok(VariableSpec::new(name, var.dims())?);
    named.iter().map(spec).collect()
}

#[cfg(test)]
mod tests;
