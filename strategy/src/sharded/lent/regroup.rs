//! Variables of a model library whose optimizer is divided anew when workers have changed.

use super::{Lent, ShardedVariables, UNIT};
use crate::sharded::held::Held;
use crate::sharded::model::ShardedModel;
use crate::sharded::{ElementWise, Regrouped, Shard, Sharding, UnitSpec};
use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext};

impl<O: ElementWise> ShardedVariables<O> {
    /// Variables whose training is not divided among the workers yet: the first
    /// [`regroup`](Self::regroup) does that. With values of other workers' if it is one of a
    /// training that others have begun.
    ///
    /// # Errors
    /// [`Error::VariablesAreWhole`] for [`Shard::Parameters`].
    pub fn elastic(
        strategy: &MultiWorkerMirroredStrategy,
        sharding: Sharding,
        spec: UnitSpec,
        variables: Box<dyn Lent>,
        optimizer: O,
    ) -> Result<Self, Error> {
        match sharding.shard {
            Shard::Parameters => return Err(Error::VariablesAreWhole),
            Shard::Nothing | Shard::Optimizer | Shard::Gradients => {}
        }
        let units = std::slice::from_ref(&spec);
        let mut model = ShardedModel::elastic(strategy, sharding, units, optimizer);
        model.units[UNIT].put(Box::new(Held::lent(variables)));
        Ok(Self { model })
    }

    /// Divides state and gradients among the workers that are there now, and brings the variables
    /// to the values of the last step that any of them has made: see [`ShardedModel::regroup`].
    ///
    /// After [`Regrouped::New`] or [`Regrouped::Lost`], what the variables have are no values:
    /// [`load`](Self::load) or [`initialize`](Self::initialize) gives some.
    ///
    /// ```
    /// use meshwork_strategy::sharded::{AdamW, Lent, Regrouped, Shard, ShardedVariables};
    /// use meshwork_strategy::sharded::{Sharding, UnitSpec};
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
    ///
    /// #[derive(Debug)]
    /// struct Tensors(Vec<f32>);
    ///
    /// impl Lent for Tensors {
    ///     fn with(&mut self, _: usize, act: &mut dyn FnMut(&mut [f32])) {
    ///         act(&mut self.0);
    ///     }
    /// }
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let unit = UnitSpec::new("line", [VariableSpec::new("line.slope", &[2])?]);
    /// let sharding = Sharding::new(Shard::Optimizer).with_neighbour_copies();
    /// let lent = Box::new(Tensors(vec![1.0, 2.0]));
    /// let mut variables =
    ///     ShardedVariables::elastic(&strategy, sharding, unit, lent, AdamW::new(0.1))?;
    /// // In `Training::regroup`:
    /// if let Regrouped::New | Regrouped::Lost { .. } = variables.regroup(&mut strategy)? {
    ///     // … or from a checkpoint.
    ///     strategy.run(|replica| variables.initialize(replica))?;
    /// }
    /// assert_eq!(variables.regroup(&mut strategy)?, Regrouped::Kept);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ShardedModel::regroup`].
    #[track_caller]
    pub fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Regrouped, Error> {
        self.model.regroup(strategy)
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`, as
    /// [`regroup`](Self::regroup): see [`ShardedModel::go_on`].
    ///
    /// # Errors
    /// Those of [`ShardedModel::go_on`].
    pub fn go_on(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        error: Error,
    ) -> Result<Regrouped, Error> {
        self.model.go_on(strategy, error)
    }

    /// Lets processes in that wait to train too: see [`ShardedModel::admit`].
    ///
    /// # Errors
    /// Those of [`ShardedModel::admit`].
    #[track_caller]
    pub fn admit(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Option<Regrouped>, Error> {
        self.model.admit(strategy)
    }

    /// Says that what the variables have here are not the values of the last step, such as where a
    /// library has gone back to a copy of before: the next [`regroup`](Self::regroup) takes them
    /// and this worker's part of the optimizer from other workers, which needs
    /// [copies](Sharding::with_neighbour_copies) where the optimizer is in parts, and is
    /// [`Regrouped::Lost`] where these do not have all.
    pub fn forget_values(&mut self) {
        self.model.forget_values();
        // What came before a loss was written into the variables.
        self.model.units[UNIT].arriving = None;
    }

    /// Gives the variables, on every worker, the values that they have on the chief. Where there
    /// were steps, it begins anew.
    ///
    /// # Errors
    /// [`Error::Group`]
    #[track_caller]
    pub fn initialize(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        let group = self.model.group(replica)?;
        self.model.take_chiefs(group)
    }
}
