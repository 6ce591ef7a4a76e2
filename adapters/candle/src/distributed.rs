//! `Distributed`: a training loop of candle's, on many workers.

use candle_core::backprop::GradStore;
use candle_core::{DType, Tensor};
use candle_nn::{Optimizer, VarMap};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Rank};

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
/// have on the chief. One that no worker has a gradient of in a step is left alone. Programs that
/// reduce some gradients while others are computed, save checkpoints, or go on without lost workers
/// use [`MirroredVars`].
///
/// A loss that is a NaN or an infinity on one worker would make all variables so on all of them:
/// the step is not made then, and [`Error::NotFinite`] says on every worker whose it is. What was
/// saved before is whole, and a program may go on with the next batch.
///
/// Call [`leave`](Self::leave) behind the last step: it waits for the others, and tells whether all
/// went well. A worker that is dropped without it is lost to the others, who hear so at once, as an
/// error of the program in the midst of its training drops it, too.
#[derive(Debug)]
#[doc(alias("DistributedDataParallel", "DistributedOptimizer"))]
pub struct Distributed<O> {
    optimizer: O,
    strategy: MultiWorkerMirroredStrategy,
    /// With the loss of all workers, and which of them have one that is not finite.
    mirrored: MirroredVars,
    /// Before the one that makes the step.
    accumulated: Option<Passes>,
    limits: Limits,
}

/// What is asked of the sums of a step before it is made.
#[derive(Clone, Copy, Debug)]
struct Limits {
    max_norm: Option<f64>,
    nonfinite: Nonfinite,
}

/// What follows where losses or gradients have a NaN or an infinity.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Nonfinite {
    Error,
    Step,
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
        let workers = strategy.num_replicas_in_sync();
        let mirrored = MirroredVars::with_extra(&mut strategy, vars, 1 + workers)?;
        Ok(Self {
            optimizer,
            strategy,
            mirrored,
            accumulated: None,
            limits: Limits {
                max_norm: None,
                nonfinite: Nonfinite::Error,
            },
        })
    }

    /// Scales the gradients of a step down where the norm of all of them together is larger. A norm
    /// that is not above 0 is refused by the first step.
    #[must_use]
    #[doc(alias = "clip_grad_norm_")]
    pub fn with_max_norm(mut self, norm: f64) -> Self {
        self.limits.max_norm = Some(norm);
        self
    }

    /// Makes steps with losses, and norms of gradients, that are a NaN or an infinity too, in the
    /// same way on every worker: for programs that look themselves, as at the mean that
    /// [`backward_step`](Self::backward_step) returns.
    #[must_use]
    #[doc(alias("error_if_nonfinite", "detect_anomaly", "terminate_on_nan"))]
    pub fn without_error_if_nonfinite(mut self) -> Self {
        self.limits.nonfinite = Nonfinite::Step;
        self
    }

    /// The backward pass of this worker's `loss`, and a step with the mean of all workers'
    /// gradients. Returns the mean over all workers of the losses of their passes, added up.
    ///
    /// Every worker counts the same: where their batches have several sizes, as those of
    /// [`distribute_dataset`](MultiWorkerMirroredStrategy::distribute_dataset) may, samples do not,
    /// and [`backward_step_weighted`](Self::backward_step_weighted) is for them.
    ///
    /// The same operation checks that all copies of the model are equal, bit for bit, and that all
    /// losses are finite. Gradients are looked at only where [a norm](Self::with_max_norm) limits
    /// them.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Candle`], [`Error::MaxNorm`]; behind [`Error::NotFinite`] and
    /// [`Error::NormNotFinite`], which all workers get, variables are as they were, and training
    /// can go on with another batch.
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
    /// Those of [`backward_step`](Self::backward_step).
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
        let (limits, worker) = (self.limits, self.worker());
        let (optimizer, mirrored) = (&mut self.optimizer, &mut self.mirrored);
        let made = self.strategy.run(|replica| {
            let numbers = mirrored.extra_mut()?;
            numbers.fill(0.0);
            numbers[0] = loss * weight;
            numbers[1 + worker] = f32::from(!loss.is_finite());
            mirrored.all_reduce(replica, &mut gradients, weight)?;
            match limits.hold(mirrored, &mut gradients) {
                Ok(()) => Ok(Ok(optimizer.step(&gradients)?)),
                // No error of the step, which would end the training.
                Err(error) if error.is_of_all() => Ok(Err(error)),
                Err(error) => Err(error),
            }
        });
        made?.into_first()?;
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
        if let Err(error) = &result {
            self.strategy.abort(error);
        }
        result
    }
}

impl Limits {
    /// Clips what was summed, or says why no step is to be made with it: the same on every worker.
    fn hold(self, mirrored: &MirroredVars, gradients: &mut GradStore) -> Result<(), Error> {
        let is_strict = self.nonfinite == Nonfinite::Error;
        let marks = Rank::all(u32::MAX).zip(&mirrored.extra()[1..]);
        let ranks: Vec<_> = marks
            .filter(|(_, mark)| **mark != 0.0)
            .map(|(rank, _)| rank)
            .collect();
        if is_strict && !ranks.is_empty() {
            return Err(Error::NotFinite { ranks });
        }
        let Some(most) = self.max_norm else {
            return Ok(());
        };
        match mirrored.clip_norm(gradients, most) {
            Err(Error::NormNotFinite { norm, most }) if !is_strict => {
                mirrored.scale(gradients, most / norm)
            }
            clipped => clipped.map(drop),
        }
    }
}

#[cfg(test)]
mod tests;
