//! `BatchNorms`: batch normalisation with the statistics of each worker's batch, or of the batches
//! of all workers. The running statistics are in `statistics`, the arithmetic is in `normalize`.

mod normalize;
mod statistics;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{Device, Tensor};
use candle_nn::{Init, ModuleT, VarBuilder};
use meshwork_strategy::{MultiWorkerMirroredStrategy, Snapshot};

use crate::Error;
use normalize::Normalize;
use statistics::Statistics;

/// The batch normalisations of a model, with the running statistics of all of them.
///
/// candle keeps the running statistics of its own [`BatchNorm`](candle_nn::BatchNorm) among the
/// variables, which have to be equal on all workers, while each worker sees other batches. Layers
/// made here have the same variables, and keep their statistics apart:
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{Module, ModuleT, Optimizer, SGD, VarBuilder, VarMap, linear};
/// use meshwork_candle::{BatchNorms, Distributed, Error};
///
/// let vars = VarMap::new();
/// let builder = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
/// let norms = BatchNorms::new();
/// let hidden = linear(3, 8, builder.pp("hidden"))?;
/// let norm = norms.layer(8, builder.pp("norm"))?;
/// let mut optimizer = Distributed::new(SGD::new(vars.all_vars(), 0.1)?, &vars)?;
/// norms.synchronize(optimizer.strategy_mut())?; // or leave each worker its own statistics
///
/// let inputs = Tensor::rand(0.0_f32, 1.0, (16, 3), &Device::Cpu)?;
/// let normal = norm.forward_t(&hidden.forward(&inputs)?, true)?;
/// optimizer.backward_step(&normal.sqr()?.mean_all()?)?;
///
/// norms.broadcast(optimizer.strategy_mut())?;
/// let scores = norm.forward_t(&hidden.forward(&inputs)?, false)?;
/// assert_eq!(scores.dims(), [16, 8]);
/// # Ok::<(), Error>(())
/// ```
///
/// Without [`synchronize`](Self::synchronize) a batch is normalised by what is in it on this
/// worker, and each worker has running statistics of its own: [`broadcast`](Self::broadcast) gives
/// all the chief's, to be called before models are compared or measured.
///
/// With it, all workers' batches are one, forward and backward: one, two or four workers have the
/// same loss but for rounding, and equal running statistics. Each layer then costs two small
/// operations in a step. Its gradients are those of the *sum* of all workers' losses, so where
/// workers' parts differ in size, each loss is to be multiplied by
/// [`Batch::weight`](meshwork_strategy::Batch::weight) before the backward pass, and its gradients
/// summed with weight 1. A worker that has no samples takes part with any, at weight 0: see
/// [`set_inputs`](Self::set_inputs). That weight has to be a tensor: candle has no backward pass of
/// what is multiplied by the number 0, nor of empty tensors, and the other workers would miss it.
///
/// Clones are the same layers.
#[derive(Clone, Debug, Default)]
#[doc(alias(
    "SyncBatchNorm",
    "convert_sync_batchnorm",
    "BatchNorm2d",
    "synchronized BatchNormalization"
))]
pub struct BatchNorms(Arc<Mutex<Statistics>>);

/// What the layers of [`BatchNorms`] are given.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Inputs {
    /// Samples of this worker's part of the batch.
    #[default]
    Samples,
    /// Any, as this worker has none in this step.
    Padding,
}

/// One of the layers of [`BatchNorms`], in the place of candle's own.
///
/// # Shapes
/// `[samples, features, …]`, of `f32`. On other devices than the CPU the input passes through host
/// memory.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    name: Arc<str>,
    weight: Tensor,
    bias: Tensor,
    norms: BatchNorms,
}

impl BatchNorms {
    /// With 10⁻⁵ added to variances, and running statistics that take a tenth of each batch's.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds this to variances, before anything is normalised.
    #[must_use]
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        self.statistics().epsilon = epsilon;
        self
    }

    /// Takes this part of each batch's statistics into the running ones.
    #[must_use]
    pub fn with_momentum(self, momentum: f64) -> Self {
        self.statistics().momentum = momentum;
        self
    }

    /// The layer with the variables `weight` and `bias` of `vars`, whose prefix is its name. A
    /// layer that is made again, as by [`hooked`](crate::MirroredVars::hooked) variables in each
    /// step, goes on with the running statistics that it has.
    ///
    /// # Errors
    /// Those of candle; [`Error::NormFeatures`] inside of them, for a name that has another size.
    pub fn layer(&self, features: usize, vars: VarBuilder<'_>) -> candle_core::Result<BatchNorm> {
        let name = vars.prefix();
        self.statistics().add(&name, features)?;
        Ok(BatchNorm {
            name: name.into(),
            weight: vars.get_with_hints(features, "weight", Init::Const(1.0))?,
            bias: vars.get_with_hints(features, "bias", Init::Const(0.0))?,
            norms: self.clone(),
        })
    }

    /// Normalises by the batches of all workers from here on; for the layers that there are. To be
    /// called again when the workers have changed.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    pub fn synchronize(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        self.statistics().synchronize(strategy)
    }

    /// Says what forward passes are given from here on. Padding counts for no statistics, and gets
    /// no gradients of other workers' losses.
    pub fn set_inputs(&self, inputs: Inputs) {
        self.statistics().inputs = inputs;
    }

    /// Gives all workers the running statistics of the chief.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all when the workers' layers differ.
    pub fn broadcast(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<(), Error> {
        self.statistics().broadcast(strategy)
    }

    /// Checks that all workers have the same running statistics, bit for bit.
    ///
    /// # Errors
    /// [`Error::Strategy`] with the ranks that differ.
    #[track_caller]
    pub fn verify(&self, strategy: &mut MultiWorkerMirroredStrategy) -> Result<u64, Error> {
        let values = self.statistics().values();
        Ok(strategy.verify_replicas(&values)?)
    }

    /// Says that a step was made, so that [`roll_back`](Self::roll_back) goes no further back. Only
    /// trainings that make steps again need it.
    pub fn commit(&self) {
        self.statistics().commit();
    }

    /// Takes back what forward passes have done to running statistics since the last
    /// [`commit`](Self::commit), or since they were read or begun: for a step that is made again,
    /// in [`Training::regroup`](meshwork_strategy::Training::regroup).
    pub fn roll_back(&self) {
        self.statistics().roll_back();
    }

    /// Adds the running statistics to `snapshot`.
    ///
    /// # Errors
    /// [`Error::Strategy`]
    pub fn save(&self, snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.statistics().save(snapshot)
    }

    /// Takes over the running statistics of `snapshot`.
    ///
    /// # Errors
    /// [`Error::Strategy`] when some are missing or have another size.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.statistics().restore(snapshot)
    }

    fn statistics(&self) -> MutexGuard<'_, Statistics> {
        // Running statistics are replaced value by value, and are whole after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchNorm {
    /// By the statistics of the batch.
    fn train(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let host = |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.contiguous();
        let normalize = Normalize::new(self.norms.clone(), Arc::clone(&self.name));
        host(x)?
            .apply_op3(&host(&self.weight)?, &host(&self.bias)?, normalize)?
            .to_device(x.device())
    }

    /// By the running statistics.
    fn evaluate(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let (features, device) = (self.weight.dims1()?, x.device());
        let [mean, scale] = self.norms.statistics().scales(&self.name);
        let [mean, scale] = [mean, scale].map(|values| Tensor::from_vec(values, features, device));
        let scale = (scale? * &self.weight)?;
        let shift = (&self.bias - (mean? * &scale)?)?;
        let mut shape = vec![1; x.rank()];
        shape[1] = features;
        x.broadcast_mul(&scale.reshape(&shape[..])?)?
            .broadcast_add(&shift.reshape(&shape[..])?)
    }
}

impl ModuleT for BatchNorm {
    fn forward_t(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let features = self.weight.dims1()?;
        if x.dims().get(1) != Some(&features) {
            return Err(Error::NormShape {
                name: self.name.to_string(),
                features,
                found: x.dims().to_vec(),
            }
            .into());
        }
        match train {
            true => self.train(x),
            false => self.evaluate(x),
        }
    }
}

#[cfg(test)]
mod tests;
