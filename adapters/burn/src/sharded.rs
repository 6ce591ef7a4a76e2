//! `ShardedParams`: burn modules trained with a part of the optimizer's state, and of gradients, in
//! each worker.

mod regroup;

use std::collections::BTreeMap;

use burn_core::module::{Module, ParamId};
use burn_core::tensor::TensorData;
use burn_optim::GradientsParams;
use meshwork_strategy::sharded::{
    ElementWise, Regrouped, ShardedCheckpoints, ShardedVariables, Sharding, UnitSpec,
};
use meshwork_strategy::{Fingerprint, MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec};

use crate::Error;
use crate::values::{Emptied, Values};
use crate::visits::{Slot, Take, places_of, survey};
use crate::walk::{Path, Place, walk};

/// The parameters of a burn module and an optimizer whose state is in parts, one in each worker, as
/// are gradients between backward passes if so chosen: ZeRO-1 and ZeRO-2.
///
/// It takes the place of an optimizer of burn's. burn computes with whole parameters; a step takes
/// their memory and gives it back. Floats that are not trained have rank 0's values at first and
/// are each worker's own from then on, such as running means.
///
/// ```
/// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
/// use burn_optim::GradientsParams;
/// use meshwork_burn::{Error, ShardedParams};
/// use meshwork_strategy::MultiWorkerMirroredStrategy;
/// use meshwork_strategy::sharded::{AdamW, Shard};
/// # #[derive(Module, Debug)]
/// # struct Model { weight: Param<Tensor<1>> }
///
/// let mut strategy = MultiWorkerMirroredStrategy::from_env().map_err(Error::from)?;
/// let model = Model { weight: Param::from_data([5.0], &Device::flex().autodiff()) };
/// let optimizer = AdamW::new(0.1);
/// let (mut sharded, mut model) =
///     ShardedParams::new(&mut strategy, model, optimizer, Shard::Optimizer)?;
/// for _ in 0..200 {
///     let loss = model.weight.val().square().sum(); // of this worker's part of the batch
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     let stepped = strategy.run(|replica| {
///         sharded.add_gradients(replica, &model, gradients)?;
///         sharded.step(replica, model)
///     });
///     model = stepped?.into_first();
/// }
/// assert!(model.weight.val().into_scalar::<f32>().abs() < 0.1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[doc(alias("ZeroRedundancyOptimizer", "ZeRO"))]
pub struct ShardedParams<O> {
    variables: ShardedVariables<O>,
    /// The parameters, while a module has given them up.
    values: Values,
    /// Those that are trained, as they were before the last call that has changed them.
    before: Option<Fingerprint>,
    /// Where no worker can be lost, nobody asks for them.
    is_elastic: bool,
    places: BTreeMap<ParamId, Place>,
    trained: Vec<VariableSpec>,
    norm: Option<f64>,
    path: Path,
}

impl<O: ElementWise> ShardedParams<O> {
    /// Shards the training of `module`, whose parameters then have the values that they have on
    /// rank 0, or in a training that others have begun those that they have there.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Read`]; [`Error::Strategy`], above all when the workers'
    /// modules or settings differ, and for parameters in parts.
    pub fn new<M: Module>(
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<(Self, M), Error> {
        let sharded = Self::elastic(strategy, &module, optimizer, sharding);
        let mut sharded = sharded.inspect_err(|error| strategy.abort(error))?;
        let (regrouped, mut module) = sharded.regroup(strategy, module)?;
        if regrouped == Regrouped::New {
            let begun = strategy.run(|replica| sharded.initialize(replica, module))?;
            module = begun.into_first();
        }
        Ok((sharded, module))
    }

    /// The same before the training is divided among the workers: the first
    /// [`regroup`](Self::regroup) does that. With parameters of other workers' if it is one of a
    /// training that others have begun.
    ///
    /// # Errors
    /// [`Error::ElementType`]; [`Error::Read`]; [`Error::Strategy`] for parameters in parts.
    pub fn elastic<M: Module>(
        strategy: &MultiWorkerMirroredStrategy,
        module: &M,
        optimizer: O,
        sharding: impl Into<Sharding>,
    ) -> Result<Self, Error> {
        let mut path = Path::default();
        let found = survey(module, &mut path)?;
        let of = |is_trained: bool| {
            let those = found
                .iter()
                .filter(move |found| found.is_trained == is_trained);
            those.map(|found| found.spec.clone())
        };
        let trained: Vec<VariableSpec> = of(true).collect();
        let spec = UnitSpec::new("parameters", trained.clone()).with_frozen(of(false));
        let (values, sharding) = (Values::default(), sharding.into());
        let lent = Box::new(values.clone());
        Ok(Self {
            variables: ShardedVariables::elastic(strategy, sharding, spec, lent, optimizer)?,
            values,
            before: None,
            is_elastic: strategy.is_elastic(),
            places: places_of(&found),
            trained,
            norm: None,
            path,
        })
    }

    /// Adds the gradients of a backward pass to those of the passes before since the last step.
    /// They are added, not averaged. A parameter without a gradient counts as zero, also where no
    /// worker has one of it: AdamW still decays it and goes on by its moments, where
    /// [`MirroredParams`](crate::MirroredParams) leaves it alone. What is never trained is frozen,
    /// as by `no_grad`, before its training begins.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::NotMirrored`], [`Error::ElementType`], [`Error::Read`].
    #[track_caller]
    #[doc(alias = "GradientsAccumulator")]
    pub fn add_gradients<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: &M,
        mut gradients: GradientsParams,
    ) -> Result<(), Error> {
        let mut slots: Vec<Slot> = self.trained.iter().map(|_| Slot::Waiting).collect();
        let mut take = Take {
            places: &self.places,
            gradients: &mut gradients,
            slots: &mut slots,
        };
        walk(module, &mut self.path, &mut take)?;
        let data = slots.into_iter().zip(&self.trained);
        let data = data.map(|(slot, spec)| match slot {
            Slot::Taken(Some(data)) | Slot::Handed(Some(data)) => data,
            Slot::Taken(None) | Slot::Handed(None) | Slot::Waiting => {
                TensorData::zeros::<f32, _>(spec.shape().to_vec())
            }
        });
        let gradients = Values::new(data.collect());
        Ok(self.variables.add_gradients(replica, Box::new(gradients))?)
    }

    /// The module after a step with the mean of all workers' gradients: the one for
    /// [`regroup`](Self::regroup) if a worker is lost before the next.
    ///
    /// # Errors
    /// [`Error::Strategy`] where there were no gradients, or a worker is lost; [`Error::Read`].
    #[track_caller]
    pub fn step<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: M,
    ) -> Result<M, Error> {
        let taken = self.take_from(module)?;
        self.norm = self.variables.step(replica)?;
        Ok(self.give_to(taken))
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
        self.variables.steps()
    }

    /// The optimizer, to be exchanged for one of another learning rate, in the same way on every
    /// worker.
    pub fn optimizer_mut(&mut self) -> &mut O {
        self.variables.optimizer_mut()
    }

    /// Starts to save parameters and state: copies this worker's rows, and returns while they are
    /// written. It counts once all workers have written, which a later step finds out, or
    /// [`finish_save`](Self::finish_save).
    ///
    /// # Errors
    /// [`Error::Strategy`] for the save before; [`Error::Read`].
    #[track_caller]
    pub fn save<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: M,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<M, Error> {
        let taken = self.values.take_from(module, &self.places)?;
        self.variables.save(replica, checkpoints)?;
        Ok(self.values.give_to(taken, &self.places))
    }

    /// Waits until the save that is under way is whole, if there is one.
    ///
    /// # Errors
    /// [`Error::Strategy`] for what cannot be written.
    #[track_caller]
    pub fn finish_save(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        Ok(self.variables.finish_save(replica)?)
    }

    /// The module with the parameters of the last whole checkpoint, which any number of workers has
    /// saved, sharded in any way, and its step; as it was where there is none.
    ///
    /// # Errors
    /// [`Error::Strategy`], above all for a checkpoint of another model; [`Error::Read`].
    #[track_caller]
    pub fn load<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: M,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<(Option<u64>, M), Error> {
        let taken = self.take_from(module)?;
        let step = self.variables.load(replica, checkpoints)?;
        Ok((step, self.give_to(taken)))
    }

    /// A module without its values, by which it is known if it is given again.
    fn take_from<M: Module>(&mut self, module: M) -> Result<Emptied<M>, Error> {
        let taken = self.values.take_from(module, &self.places)?;
        self.before = self.fingerprint(&self.values);
        Ok(taken)
    }

    /// The module with its values, which a step of no length leaves as they were.
    fn give_to<M: Module>(&mut self, taken: Emptied<M>) -> M {
        let now = self.fingerprint(&self.values);
        self.before = self.before.filter(|before| now != Some(*before));
        self.values.give_to(taken, &self.places)
    }

    /// Of the values that are trained.
    fn fingerprint(&self, values: &Values) -> Option<Fingerprint> {
        self.is_elastic.then(|| {
            let mut copy = Fingerprint::new();
            for data in values.data().iter().take(self.trained.len()) {
                copy.add(data.as_slice().expect("values of f32 were taken from burn"));
            }
            copy
        })
    }
}

#[cfg(test)]
mod tests;
