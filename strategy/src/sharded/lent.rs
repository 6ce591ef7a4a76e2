//! Variables that a model library keeps: whole for it, sharded for their gradients and for the
//! optimizer.

mod regroup;

use std::fmt;
use std::num::NonZeroU32;

use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::reducing::Pass;
use super::tensors::{Tensors, add};
use super::{Regrouped, Shard, ShardedCheckpoints, Sharding, UnitSpec};
use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext};

/// Tensors of a model library in host memory, row-major, which may be written in place.
pub trait Lent: fmt::Debug + Send {
    /// Calls `act` once, with all elements of a tensor.
    fn with(&mut self, tensor: usize, act: &mut dyn FnMut(&mut [f32]));
}

/// Lets `act` have a tensor and returns what it does.
pub(super) fn with_lent<R>(
    lent: &mut dyn Lent,
    tensor: usize,
    act: impl FnOnce(&mut [f32]) -> R,
) -> R {
    let (mut act, mut acted) = (Some(act), None);
    lent.with(tensor, &mut |values| {
        acted = act.take().map(|act| act(values));
    });
    acted.expect("`Lent::with` calls what it is given")
}

/// Variables of a model library that are trained with a part of the optimizer's state in each
/// worker, and with a part of the gradients between backward passes.
///
/// The library computes with whole variables, by code of its own, and gives its gradients up when
/// it has made them. All workers make the same calls in the same order.
///
/// ```
/// use meshwork_strategy::sharded::{AdamW, Lent, Shard, ShardedVariables, Sharding, UnitSpec};
/// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
/// use std::sync::{Arc, Mutex};
///
/// /// A library whose tensors are shared vectors.
/// #[derive(Clone, Debug)]
/// struct Tensors(Vec<Arc<Mutex<Vec<f32>>>>);
///
/// impl Lent for Tensors {
///     fn with(&mut self, tensor: usize, act: &mut dyn FnMut(&mut [f32])) {
///         act(&mut self.0[tensor].lock().unwrap());
///     }
/// }
///
/// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
/// let slope = Tensors(vec![Arc::new(Mutex::new(vec![0.0]))]);
/// let unit = UnitSpec::new("line", [VariableSpec::new("line.slope", &[1])?]);
/// let sharding = Sharding::new(Shard::Optimizer);
/// let lent = Box::new(slope.clone());
/// let optimizer = AdamW::new(0.1);
/// let mut variables =
///     ShardedVariables::new(&mut strategy, sharding, unit, lent, optimizer)?;
/// for _ in 0..200 {
///     let gradient = 2.0 * (slope.0[0].lock().unwrap()[0] - 3.0);
///     strategy.run(|replica| {
///         let gradients = Tensors(vec![Arc::new(Mutex::new(vec![gradient]))]);
///         variables.add_gradients(replica, Box::new(gradients))?;
///         variables.step(replica)
///     })?;
/// }
/// assert!((slope.0[0].lock().unwrap()[0] - 3.0).abs() < 0.1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[doc(alias("ZeroRedundancyOptimizer"))]
pub struct ShardedVariables<O> {
    pub(super) model: ShardedModel<O>,
}

impl<O: ElementWise> ShardedVariables<O> {
    /// Gives `variables`, on every worker, the values that they have on the chief. `spec` describes
    /// them, those that are trained first. In a training that others have begun, they get the
    /// values that these have, as after [`regroup`](Self::regroup).
    ///
    /// # Errors
    /// [`Error::VariablesAreWhole`] for [`Shard::Parameters`], and those of [`ShardedModel::new`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        sharding: Sharding,
        spec: UnitSpec,
        variables: Box<dyn Lent>,
        optimizer: O,
    ) -> Result<Self, Error> {
        let made = Self::elastic(strategy, sharding, spec, variables, optimizer);
        let mut made = strategy.abort_on_error(made)?;
        if made.regroup(strategy)? == Regrouped::New {
            made.model.take_chiefs(strategy.group_mut())?;
        }
        Ok(made)
    }

    /// Adds the gradients of a backward pass to those of the passes before since the last step.
    /// They are added, not averaged. `gradients` are those of the variables that are trained, which
    /// nothing else uses any more.
    ///
    /// With [`Shard::Gradients`] they begin to be reduced, and are dropped when they are, while the
    /// caller goes on.
    ///
    /// # Errors
    /// [`Error::UnitPasses`] for a pass more than [`Sharding::with_accumulation`] says, if it is
    /// used; [`Error::Group`]; [`Error::UnitLost`] after an operation has failed;
    /// [`Error::WorkersChanged`]; [`Error::SeveralReplicas`]; [`Error::State`] while the variables
    /// have no values.
    #[track_caller]
    pub fn add_gradients(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        gradients: Box<dyn Lent>,
    ) -> Result<(), Error> {
        let group = self.model.group_of_values(replica)?;
        self.model.finish_reducing(0)?;
        let found = self.model.units[UNIT].passes + 1;
        if let Some(needed) = self.model.sharding.passes.filter(|most| found > most.get()) {
            return Err(self.model.wrong_passes(UNIT, found, needed.get()));
        }
        let unit = &mut self.model.units[UNIT];
        let (partition, trained) = (unit.partition.clone(), unit.spec.trainable().len());
        unit.passes = found;
        let held = unit.here()?;
        let mut gradients = Tensors::Lent(gradients);
        if self.model.sharding.shard >= Shard::Gradients {
            held.scratch = Some(gradients);
            // Whether it is the last is not known.
            return self.model.start_reduce(group, UNIT, Pass::Earlier);
        }
        if found > 1 {
            for tensor in 0..trained {
                held.gradients.rows(&partition, tensor, None, |sum| {
                    gradients.rows(&partition, tensor, None, |more| add(sum, more));
                });
            }
            return Ok(());
        }
        held.gradients = gradients;
        Ok(())
    }

    /// Updates the variables by their gradients. Where norms are limited, returns that of all
    /// gradients together, before they are scaled.
    ///
    /// # Errors
    /// [`Error::UnitPasses`] where there were fewer passes than a step has, and those of
    /// [`add_gradients`](Self::add_gradients).
    #[track_caller]
    pub fn step(&mut self, replica: &mut ReplicaContext<'_>) -> Result<Option<f64>, Error> {
        let model = &mut self.model;
        model.group_of_values(replica)?;
        let found = model.units[UNIT].passes;
        let needed = model
            .sharding
            .passes
            .map_or_else(|| found.max(1), NonZeroU32::get);
        if found != needed {
            return Err(model.wrong_passes(UNIT, found, needed));
        }
        model.start_last_reduce(replica)?;
        let norm = model.update(replica)?;
        let held = model.units[UNIT].here()?;
        if let Tensors::Lent(_) = &held.gradients {
            held.gradients = Tensors::NONE;
        }
        Ok(norm)
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.model.steps()
    }

    /// The optimizer: see [`ShardedModel::optimizer_mut`].
    pub fn optimizer_mut(&mut self) -> &mut O {
        self.model.optimizer_mut()
    }

    /// Starts to save the variables: see [`ShardedModel::save`].
    ///
    /// # Errors
    /// Those of [`finish_save`](Self::finish_save) for the save before.
    #[track_caller]
    pub fn save(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<(), Error> {
        self.model.save(replica, checkpoints)
    }

    /// Waits until the save that is under way is whole: see [`ShardedModel::finish_save`].
    ///
    /// # Errors
    /// Those of [`ShardedModel::finish_save`].
    #[track_caller]
    pub fn finish_save(&mut self, replica: &mut ReplicaContext<'_>) -> Result<(), Error> {
        self.model.finish_save(replica)
    }

    /// Loads the last whole checkpoint, which any sharded model may have saved: see
    /// [`ShardedModel::load`].
    ///
    /// # Errors
    /// Those of [`ShardedModel::load`].
    #[track_caller]
    pub fn load(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        checkpoints: &ShardedCheckpoints,
    ) -> Result<Option<u64>, Error> {
        self.model.load(replica, checkpoints)
    }
}

impl<O: ElementWise> ShardedModel<O> {
    /// Starts to reduce what the passes of a step have left, behind the last of them.
    pub(super) fn start_last_reduce(
        &mut self,
        replica: &mut ReplicaContext<'_>,
    ) -> Result<(), Error> {
        let group = self.group(replica)?;
        match self.sharding.shard {
            Shard::Nothing | Shard::Optimizer => self.start_reduce(group, UNIT, Pass::Last),
            Shard::Gradients | Shard::Parameters => {
                self.finish_reducing(0)?;
                self.start_reduce_across(group, UNIT)
            }
        }
    }
}

/// All variables are in one.
const UNIT: usize = 0;
