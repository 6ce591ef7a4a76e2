//! `Distributed`: a training loop of candle's, on many workers.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use candle_nn::{Optimizer, VarMap};
use meshwork_strategy::MultiWorkerMirroredStrategy;

use crate::{Error, MirroredVars};

/// An optimizer whose steps are made with the gradients of all workers, so that their models stay
/// equal: the mean of the gradients, where every worker's loss is the mean over a batch of the same
/// size. Batches of several sizes are weighted, by
/// [`backward_step_weighted`](Self::backward_step_weighted).
///
/// A loop that trains on one process needs two changes: the optimizer is wrapped, and each worker
/// takes its own part of the data.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss};
/// use meshwork_candle::{Distributed, Error};
///
/// let vars = VarMap::new();
/// let model = linear(2, 1, VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
/// let optimizer = AdamW::new(vars.all_vars(), ParamsAdamW { lr: 0.1, ..Default::default() })?;
/// let mut optimizer = Distributed::new(optimizer, &vars)?;
///
/// let (worker, workers) = (optimizer.worker(), optimizer.workers());
/// let samples: Vec<f32> = (0..12).skip(worker).step_by(workers).map(|x| x as f32).collect();
/// let rows = samples.len();
/// let inputs = Tensor::from_vec(samples, (rows, 1), &Device::Cpu)?.repeat((1, 2))?;
/// for _ in 0..100 {
///     let loss = loss::mse(&model.forward(&inputs)?, &(&inputs.narrow(1, 0, 1)? * 3.0)?)?;
///     let mean = optimizer.backward_step(&loss)?;
///     assert!(mean.is_finite());
/// }
/// optimizer.leave()?;
/// # Ok::<(), Error>(())
/// ```
///
/// The optimizer has to be made with the variables of the map, which then have the values that they
/// have on the chief. Programs that reduce some gradients while others are computed, save
/// checkpoints, or go on without lost workers use [`MirroredVars`].
#[derive(Debug)]
#[doc(alias("DistributedDataParallel", "DistributedOptimizer"))]
pub struct Distributed<O> {
    optimizer: O,
    strategy: MultiWorkerMirroredStrategy,
    mirrored: MirroredVars,
    /// Before the one that makes the step.
    accumulated: Option<Passes>,
    max_norm: Option<f64>,
}

/// What backward passes have given, added up.
#[derive(Debug, Default)]
struct Passes {
    gradients: GradStore,
    loss: f32,
}

impl<O: Optimizer> Distributed<O> {
    /// Trains on the workers that the environment tells of: see
    /// [`MultiWorkerMirroredStrategy::from_env`].
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' variables differ, or one of them does not
    /// come; [`Error::ElementType`]; [`Error::Candle`].
    pub fn new(optimizer: O, vars: &VarMap) -> Result<Self, Error> {
        Self::with_strategy(MultiWorkerMirroredStrategy::from_env()?, optimizer, vars)
    }

    /// Trains on the workers of this strategy.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_strategy(
        mut strategy: MultiWorkerMirroredStrategy,
        optimizer: O,
        vars: &VarMap,
    ) -> Result<Self, Error> {
        let mirrored = MirroredVars::with_extra(&mut strategy, vars, 1)?;
        Ok(Self {
            optimizer,
            strategy,
            mirrored,
            accumulated: None,
            max_norm: None,
        })
    }

    /// Scales the gradients of a step down where the norm of all of them together is larger. A norm
    /// that is not above 0 is refused by the first step.
    #[must_use]
    #[doc(alias = "clip_grad_norm_")]
    pub fn with_max_norm(mut self, norm: f64) -> Self {
        self.max_norm = Some(norm);
        self
    }

    /// The backward pass of this worker's `loss`, and a step with the mean of all workers'
    /// gradients. Returns the mean over all workers of the losses of their passes, added up.
    ///
    /// Every worker counts the same: where their batches have several sizes, as those of
    /// [`distribute_dataset`](MultiWorkerMirroredStrategy::distribute_dataset) may, samples do not,
    /// and [`backward_step_weighted`](Self::backward_step_weighted) is for them.
    ///
    /// The same operation checks that all copies of the model are equal, bit for bit.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`], [`Error::MaxNorm`].
    #[track_caller]
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<f32, Error> {
        let weight = 1.0 / self.workers() as f64;
        self.backward_step_weighted(Some(loss), weight)
    }

    /// As [`backward_step`](Self::backward_step), with the `weight` of this worker's part: of
    /// `loss`, which is `None` where it has no samples, and of the passes before. The weights of
    /// all workers add up to 1.
    ///
    /// With the mean over the worker's samples, [`Batch::weight`] makes the gradients, and the loss
    /// that is returned, those of the mean over the global batch.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use candle_nn::{Init, Optimizer, SGD, VarMap};
    /// use meshwork_candle::{Distributed, Error};
    ///
    /// let vars = VarMap::new();
    /// let weight = vars.get(1, "weight", Init::Const(0.0), DType::F32, &Device::Cpu)?;
    /// let mut optimizer = Distributed::new(SGD::new(vars.all_vars(), 0.1)?, &vars)?;
    /// let samples = optimizer.strategy_mut().distribute_dataset(11, 5)?;
    /// for batch in samples.epoch(0) {
    ///     // The last batch has one sample, which only the first worker gets.
    ///     let loss = match batch.indices() {
    ///         [] => None,
    ///         own => {
    ///             let own = Tensor::from_iter(own.iter().map(|one| *one as f32), &Device::Cpu)?;
    ///             Some(own.broadcast_sub(&weight)?.sqr()?.mean_all()?)
    ///         }
    ///     };
    ///     let mean = optimizer.backward_step_weighted(loss.as_ref(), batch.weight())?;
    ///     assert!(mean.is_finite());
    /// }
    /// optimizer.leave()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`], [`Error::MaxNorm`].
    ///
    /// [`Batch::weight`]: meshwork_strategy::Batch::weight
    #[track_caller]
    #[doc(alias = "Join")]
    pub fn backward_step_weighted(
        &mut self,
        loss: Option<&Tensor>,
        weight: f64,
    ) -> Result<f32, Error> {
        let passes = self.passes(loss);
        let Passes {
            mut gradients,
            loss,
        } = self.abort_on_error(passes)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "gradients are of this precision"
        )]
        let weight = weight as f32;
        self.mirrored.extra_mut()?[0] = loss * weight;
        let (mirrored, max_norm) = (&mut self.mirrored, self.max_norm);
        let optimizer = &mut self.optimizer;
        self.strategy.run(|replica| {
            mirrored.all_reduce(replica, &mut gradients, weight)?;
            if let Some(most) = max_norm {
                mirrored.clip_norm(&mut gradients, most)?;
            }
            Ok::<_, Error>(optimizer.step(&gradients)?)
        })?;
        Ok(self.mirrored.extra()[0])
    }

    /// The backward pass of a loss whose gradients are added to those of the next
    /// [`backward_step`](Self::backward_step), and weighted with them. They are added, not
    /// averaged, and so are the losses.
    ///
    /// # Errors
    /// [`Error::Candle`], which ends the training on all workers.
    #[doc(alias("no_sync", "gradient accumulation"))]
    pub fn accumulate(&mut self, loss: &Tensor) -> Result<(), Error> {
        let passes = self.passes(Some(loss));
        self.accumulated = Some(self.abort_on_error(passes)?);
        Ok(())
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

    /// Whether this worker is the one that reports, and writes files.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        self.strategy.is_chief()
    }

    /// The optimizer, such as for its learning rate, which is the same on every worker.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// The strategy, such as for metrics of all workers.
    pub fn strategy_mut(&mut self) -> &mut MultiWorkerMirroredStrategy {
        &mut self.strategy
    }

    /// Leaves the job: returns when all workers have finished.
    ///
    /// # Errors
    /// [`Error::Strategy`] when a worker was lost.
    #[track_caller]
    pub fn leave(self) -> Result<(), Error> {
        Ok(self.strategy.leave()?)
    }

    /// The passes before, and that of a loss.
    fn passes(&mut self, loss: Option<&Tensor>) -> Result<Passes, Error> {
        let mut passes = match loss {
            Some(loss) => Passes {
                gradients: loss.backward()?,
                loss: loss.to_dtype(DType::F32)?.to_scalar::<f32>()?,
            },
            None => Passes::default(),
        };
        if let Some(before) = self.accumulated.take() {
            passes.loss += before.loss;
            for (_, var) in self.mirrored.named() {
                let sum = match (passes.gradients.get(&var), before.gradients.get(&var)) {
                    (Some(now), Some(before)) => now.add(before)?,
                    (None, Some(before)) => before.clone(),
                    (Some(_) | None, None) => continue,
                };
                passes.gradients.insert(&var, sum);
            }
        }
        Ok(passes)
    }

    /// An error of one worker ends the training on all.
    fn abort_on_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| self.strategy.abort(error))
    }
}

#[cfg(test)]
mod tests;
