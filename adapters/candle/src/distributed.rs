//! `Distributed`: a training loop of candle's, on many workers.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use candle_nn::{Optimizer, VarMap};
use meshwork_strategy::MultiWorkerMirroredStrategy;

use crate::{Error, MirroredVars};

/// An optimizer whose steps are made with the gradients of all workers, so that their models stay
/// equal: the mean of the gradients, where every worker's loss is the mean over a batch of the same
/// size.
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
/// have on the chief. Programs that reduce some gradients while others are computed, weight batches
/// of several sizes, save checkpoints, or go on without lost workers use [`MirroredVars`].
#[derive(Debug)]
#[doc(alias("DistributedDataParallel", "DistributedOptimizer"))]
pub struct Distributed<O> {
    optimizer: O,
    strategy: MultiWorkerMirroredStrategy,
    mirrored: MirroredVars,
    /// Of backward passes before the one that makes the step.
    accumulated: Option<GradStore>,
    max_norm: Option<f64>,
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

    /// Scales the gradients of a step down where the norm of all of them together is larger.
    #[must_use]
    #[doc(alias = "clip_grad_norm_")]
    pub fn with_max_norm(mut self, norm: f64) -> Self {
        self.max_norm = Some(norm);
        self
    }

    /// The backward pass of this worker's `loss`, and a step with the mean of all workers'
    /// gradients. Returns the mean of all workers' losses.
    ///
    /// The same operation checks that all copies of the model are equal, bit for bit.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`].
    #[track_caller]
    pub fn backward_step(&mut self, loss: &Tensor) -> Result<f32, Error> {
        let gradients = self.backward(loss);
        let mut gradients = self.abort_on_error(gradients)?;
        let weight = 1.0 / self.workers() as f32;
        let own = loss
            .to_dtype(DType::F32)
            .and_then(|loss| loss.to_scalar::<f32>());
        self.mirrored.extra_mut()?[0] = self.abort_on_error(own.map_err(Error::from))? * weight;
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
    /// [`backward_step`](Self::backward_step). They are added, not averaged.
    ///
    /// # Errors
    /// [`Error::Candle`], which ends the training on all workers.
    #[doc(alias("no_sync", "gradient accumulation"))]
    pub fn accumulate(&mut self, loss: &Tensor) -> Result<(), Error> {
        let gradients = self.backward(loss);
        self.accumulated = Some(self.abort_on_error(gradients)?);
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

    /// The gradients of a loss and of the passes before.
    fn backward(&mut self, loss: &Tensor) -> Result<GradStore, Error> {
        let mut gradients = loss.backward()?;
        if let Some(before) = self.accumulated.take() {
            for (_, var) in self.mirrored.named() {
                let sum = match (gradients.get(&var), before.get(&var)) {
                    (Some(now), Some(before)) => now.add(before)?,
                    (None, Some(before)) => before.clone(),
                    (Some(_) | None, None) => continue,
                };
                gradients.insert(&var, sum);
            }
        }
        Ok(gradients)
    }

    /// An error of one worker ends the training on all.
    fn abort_on_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| self.strategy.abort(error))
    }
}

#[cfg(test)]
mod tests;
