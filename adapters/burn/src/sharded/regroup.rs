//! Modules whose training is divided anew when workers have changed.

use std::mem;

use burn_core::module::Module;
use meshwork_strategy::sharded::{ElementWise, Regrouped};
use meshwork_strategy::{MultiWorkerMirroredStrategy, ReplicaContext};

use super::ShardedParams;
use crate::Error;
use crate::values::{Emptied, Values};

impl<O: ElementWise> ShardedParams<O> {
    /// Divides state and gradients among the workers that are there now, and returns the module
    /// after the last step that any of them has made: see [`ShardedModel::regroup`]. What is not
    /// trained, such as running means, comes row by row from whoever gives these rows.
    ///
    /// `module` is the one that was returned last, by [`step`](Self::step) or another call here,
    /// also if all workers have changed its parameters since, such as by clamping them. If a call
    /// that took it has failed, its values are still here, and it may be one of a step before.
    /// Otherwise, where the strategy is [elastic], the one that the last call took does not count:
    /// its parameters and this worker's part of the optimizer come from other workers, which needs
    /// [copies] where the optimizer is in parts. What nobody else has is [`Regrouped::Lost`].
    ///
    /// After [`Regrouped::New`] or [`Regrouped::Lost`], its parameters are no values:
    /// [`load`](Self::load) or [`initialize`](Self::initialize) gives some.
    ///
    /// ```
    /// use burn_core::{self as burn, module::{Module, Param}, tensor::{Device, Tensor}};
    /// use meshwork_burn::{Error, ShardedParams};
    /// use meshwork_strategy::MultiWorkerMirroredStrategy;
    /// use meshwork_strategy::sharded::{AdamW, Regrouped, Shard, Sharding};
    /// # #[derive(Module, Debug)]
    /// # struct Model { weight: Param<Tensor<1>> }
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::elastic_from_env().map_err(Error::from)?;
    /// let model = Model { weight: Param::from_data([5.0], &Device::flex().autodiff()) };
    /// let sharding = Sharding::new(Shard::Optimizer).with_neighbour_copies();
    /// let mut sharded = ShardedParams::elastic(&strategy, &model, AdamW::new(0.1), sharding)?;
    /// // In `Training::regroup`:
    /// let (regrouped, mut model) = sharded.regroup(&mut strategy, model)?;
    /// if regrouped != Regrouped::Kept {
    ///     // … or from a checkpoint.
    ///     model = strategy.run(|replica| sharded.initialize(replica, model))?.into_first();
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Strategy`], after which it can be called again, with any module of these
    /// parameters; [`Error::Read`].
    ///
    /// [`ShardedModel::regroup`]: meshwork_strategy::sharded::ShardedModel::regroup
    /// [copies]: meshwork_strategy::sharded::Sharding::with_neighbour_copies
    /// [elastic]: MultiWorkerMirroredStrategy::is_elastic
    #[track_caller]
    pub fn regroup<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        module: M,
    ) -> Result<(Regrouped, M), Error> {
        let taken = self.take_structure(module)?;
        let regrouped = self.variables.regroup(strategy)?;
        Ok((regrouped, self.give_to(taken)))
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`, as
    /// [`regroup`](Self::regroup): for programs that make their steps without
    /// [`train`](MultiWorkerMirroredStrategy::train). [`steps`](Self::steps) says which step is
    /// the next, from its first pass on.
    ///
    /// # Errors
    /// `error` where the strategy is not [elastic](MultiWorkerMirroredStrategy::elastic), or it is
    /// this worker's own; [`Error::Strategy`] where too few are left; [`Error::Read`].
    pub fn go_on<M: Module>(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        error: Error,
        module: M,
    ) -> Result<(Regrouped, M), Error> {
        let Error::Strategy(error) = error else {
            return Err(error);
        };
        let taken = self.take_structure(module)?;
        let regrouped = self.variables.go_on(strategy, error)?;
        self.norm = None;
        Ok((regrouped, self.give_to(taken)))
    }

    /// The module with the parameters that it has on rank 0. Where there were steps, the training
    /// begins anew.
    ///
    /// # Errors
    /// [`Error::Strategy`], [`Error::Read`].
    #[track_caller]
    pub fn initialize<M: Module>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        module: M,
    ) -> Result<M, Error> {
        let taken = self.take_from(module)?;
        self.variables.initialize(replica)?;
        Ok(self.give_to(taken))
    }

    /// A module without its values, which count only where no step that has failed has left some,
    /// and if they are not those of before the last step.
    fn take_structure<M: Module>(&mut self, module: M) -> Result<Emptied<M>, Error> {
        let given = Values::default();
        let taken = given.take_from(module, &self.places)?;
        let now = self.fingerprint(&given);
        if self.values.data().is_empty() {
            // Older ones cannot be told from one that the program has changed since the step.
            if now.is_some() && now == self.before {
                self.variables.forget_values();
            }
            *self.values.data() = mem::take(&mut *given.data());
        }
        self.before = now;
        Ok(taken)
    }
}
