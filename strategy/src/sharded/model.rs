//! `ShardedModel`: made, computed with unit by unit, and updated.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use meshwork_collectives::{Group, Rank};

use super::checkpoint::Saving;
use super::exchange::{Exchange, Staging};
use super::mesh::ShardMesh;
use super::optimizer::ElementWise;
use super::partition::Which;
use super::reducing::Pass;
use super::survivors::NextStep;
use super::tensors::{AllRows, Gradients, Parameters, Tensors, Whole, add, make_room};
use super::unit::ShardedUnit;
use super::{Regrouped, Shard, Sharding, UnitSpec, tensor_parallel};
use crate::statistics::Meter;
use crate::strategy::TensorDimension;
use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec};

/// A model whose parameters, gradients and optimizer state are sharded among the workers, and that
/// is trained unit by unit: see the [module](super).
///
/// All workers make the same calls in the same order.
#[derive(Debug)]
#[doc(alias("FSDPModule", "FullyShardedDataParallel", "DeepSpeedEngine"))]
pub struct ShardedModel<O> {
    /// How it is sharded among these workers.
    pub(super) sharding: Sharding,
    /// And among any.
    pub(super) wanted: Sharding,
    pub(super) optimizer: O,
    pub(super) rank: Rank,
    /// 0 while it is divided among none.
    pub(super) workers: u32,
    pub(super) mesh: ShardMesh,
    /// Those that compute a replica with this worker, if there are any.
    pub(super) dimension: Option<TensorDimension>,
    pub(super) steps: u64,
    /// Whether the update that comes can be made whatever becomes of the others.
    pub(super) next: NextStep,
    /// Whether all wait for each other before it, so that it is made by all or by none.
    pub(super) waits_for_all: bool,
    /// Whether this worker knows of values that there were.
    pub(super) had_values: bool,
    /// Of the layout that the units have if they have values.
    pub(super) id: u64,
    /// The parts without which it has no values any more.
    pub(super) lost: Vec<usize>,
    pub(super) units: Vec<ShardedUnit>,
    /// All tensors that are trained, one unit's after the other's, in the order of their names:
    /// that in which the norm is added up, whatever the units are.
    pub(super) by_name: Vec<usize>,
    /// Buffers for whole units that nobody uses.
    pub(super) pool: Vec<Whole>,
    /// Units whose gradients are being reduced out of such a buffer, the first first.
    pub(super) reducing: VecDeque<usize>,
    staging: Arc<Mutex<Staging>>,
    pub(super) saving: Option<Saving>,
    /// Memory for the next save.
    pub(super) draft_bytes: Vec<u8>,
    /// Tells observers of the strategy about saves.
    pub(super) meter: Arc<Meter>,
}

impl<O: ElementWise> ShardedModel<O> {
    /// A model of these units. `initial` is called for the rows that this worker keeps of each
    /// parameter, with their range of its elements, row-major, and where to write them: what it
    /// writes has to depend on the name and the range alone. What workers keep whole they get from
    /// each other. In a training that others have begun, the model has their values instead, as
    /// after [`regroup`](Self::regroup), and none where parts of these are lost.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] where a worker has more than one; [`Error::DuplicateVariable`];
    /// [`Error::VariablesDiffer`] and [`DifferenceError::Sharding`](crate::DifferenceError), on
    /// every worker, where they are not given the same, or in a job that is elastic on the one that
    /// differs; [`Error::Group`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        sharding: Sharding,
        units: &[UnitSpec],
        optimizer: O,
        initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<Self, Error> {
        let mut model = Self::elastic(strategy, sharding, units, optimizer);
        if model.regroup(strategy)? == Regrouped::New {
            model.fill(strategy.group_mut(), initial)?;
        }
        Ok(model)
    }

    /// A model of these units that is not divided among the workers yet: the first
    /// [`regroup`](Self::regroup) does that. With values of other workers' if it is one of a
    /// training that others have begun.
    #[must_use]
    pub fn elastic(
        strategy: &MultiWorkerMirroredStrategy,
        sharding: Sharding,
        units: &[UnitSpec],
        optimizer: O,
    ) -> Self {
        let dimension = strategy.tensor_dimension();
        let units = tensor_parallel::parts_of(dimension.as_ref(), units);
        Self {
            wanted: sharding,
            sharding,
            optimizer,
            rank: Rank::CHIEF,
            workers: 0,
            steps: 0,
            next: NextStep::Open,
            waits_for_all: false,
            had_values: false,
            id: 0,
            lost: Vec::new(),
            units: units.iter().map(ShardedUnit::empty).collect(),
            mesh: ShardMesh::ALONE,
            dimension,
            by_name: by_name(&units),
            pool: Vec::new(),
            reducing: VecDeque::new(),
            staging: Arc::default(),
            saving: None,
            draft_bytes: Vec::new(),
            meter: strategy.meter.clone(),
        }
    }

    /// Computes with the parameters of a unit, which are gathered before, and freed behind it: for
    /// the forward pass, and for whatever else reads them.
    ///
    /// # Errors
    /// [`Error::Group`]; [`Error::UnitLost`] after an operation on the unit has failed;
    /// [`Error::WorkersChanged`]; [`Error::SeveralReplicas`]; [`Error::State`] while the model has
    /// no values.
    ///
    /// # Panics
    /// When there is no such unit.
    #[track_caller]
    pub fn forward<R>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        unit: usize,
        compute: impl FnOnce(Parameters<'_>) -> R,
    ) -> Result<R, Error> {
        let group = self.group_of_values(replica)?;
        let last = self.units.len().saturating_sub(1);
        let ahead = unit.saturating_add(self.sharding.prefetch);
        if ahead < last {
            // A forward pass may have gone before, without a backward pass.
            self.free(last)?;
        }
        for next in unit..=ahead.min(last) {
            self.gather(group, next)?;
        }
        let ShardedUnit { partition, .. } = &self.units[unit];
        let partition = partition.clone();
        let held = self.units[unit].here()?;
        let whole = held.parameters().expect("they were gathered for this call");
        let computed = compute(Parameters::new(whole, &partition));
        if unit < last {
            // The backward pass begins with the last.
            self.free(unit)?;
        }
        Ok(computed)
    }

    /// Computes the gradients of a unit from its parameters. `compute` writes all of every
    /// gradient; what it finds there is unspecified, whether or not there was a pass before.
    ///
    /// With the last backward pass of a step they begin to be reduced: they become the mean over
    /// all workers, while the caller goes on.
    ///
    /// # Errors
    /// [`Error::UnitPasses`] for a backward pass more than a step has, and those of
    /// [`forward`](Self::forward).
    ///
    /// # Panics
    /// When there is no such unit.
    #[track_caller]
    pub fn backward<R>(
        &mut self,
        replica: &mut ReplicaContext<'_>,
        unit: usize,
        compute: impl FnOnce(Parameters<'_>, &mut Gradients<'_>) -> R,
    ) -> Result<R, Error> {
        let group = self.group_of_values(replica)?;
        let needed = self.needed_passes();
        let found = self.units[unit].passes + 1;
        if found > needed {
            return Err(self.wrong_passes(unit, found, needed));
        }
        for before in (unit.saturating_sub(self.sharding.prefetch)..=unit).rev() {
            self.gather(group, before)?;
        }
        let computed = self.compute_gradients(unit, compute)?;
        self.free(unit)?;
        self.units[unit].passes = found;
        if found == needed {
            self.start_reduce(group, unit, Pass::Last)?;
        } else if self.sharding.shard >= Shard::Gradients {
            self.start_reduce(group, unit, Pass::Earlier)?;
        }
        Ok(computed)
    }

    /// Updates the parameters by their gradients, when every unit that is trained has had its
    /// backward passes. Where norms are limited, returns that of all gradients together, before
    /// they are scaled.
    ///
    /// Whole parameters are then on their way between the workers until they are used.
    ///
    /// # Errors
    /// [`Error::UnitPasses`] for a unit that has had fewer, and those of
    /// [`forward`](Self::forward).
    #[track_caller]
    pub fn step(&mut self, replica: &mut ReplicaContext<'_>) -> Result<Option<f64>, Error> {
        self.group_of_values(replica)?;
        let needed = self.needed_passes();
        let wrong = |unit: &ShardedUnit| unit.is_trainable() && unit.passes != needed;
        if let Some(unit) = self.units.iter().position(wrong) {
            return Err(self.wrong_passes(unit, self.units[unit].passes, needed));
        }
        self.update(replica)
    }

    /// Waits for all that the update of a step takes, once it is on its way.
    #[track_caller]
    pub(super) fn prepare_update(
        &mut self,
        replica: &mut ReplicaContext<'_>,
    ) -> Result<Option<f64>, Error> {
        let group = self.group(replica)?;
        self.finish_reducing(0)?;
        for unit in 0..self.units.len() {
            self.units[unit].here()?;
            self.free(unit)?;
        }
        let norm = match self.sharding.max_norm {
            Some(most) => Some(self.limit_norm(group, most)?),
            None => None,
        };
        self.next = NextStep::Ready;
        Ok(norm)
    }

    /// The update of a step, once all gradients are on their way.
    #[track_caller]
    pub(super) fn update(
        &mut self,
        replica: &mut ReplicaContext<'_>,
    ) -> Result<Option<f64>, Error> {
        let norm = self.prepare_update(replica)?;
        let group = self.group(replica)?;
        if self.waits_for_all {
            // Who is behind this knows that all others can make the step too.
            group.barrier()?;
        }
        self.begin_update();
        for unit in 0..self.units.len() {
            self.update_unit(unit)?;
            self.share_rows(group, unit, Which::Trainable)?;
        }
        self.poll_save(replica)?;
        Ok(norm)
    }

    /// The number of the step whose updates are made next.
    pub(super) fn begin_update(&mut self) {
        self.next = NextStep::Open;
        self.steps += 1;
    }

    pub(super) fn update_unit(&mut self, unit: usize) -> Result<(), Error> {
        let updated = self.updated();
        let unit = &mut self.units[unit];
        let partition = unit.partition.clone();
        unit.passes = 0;
        let held = unit.here()?;
        held.update(&partition, updated, &self.optimizer, self.steps);
        Ok(())
    }

    /// How many steps were made.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The optimizer, to be exchanged for one of another learning rate, in the same way on every
    /// worker.
    pub fn optimizer_mut(&mut self) -> &mut O {
        &mut self.optimizer
    }

    /// Backward passes of each unit in a step.
    fn needed_passes(&self) -> u32 {
        self.sharding.passes.map_or(1, NonZeroU32::get)
    }

    pub(super) fn wrong_passes(&self, unit: usize, found: u32, needed: u32) -> Error {
        let unit = self.units[unit].spec.name().to_owned();
        Error::UnitPasses {
            unit,
            found,
            needed,
        }
    }

    /// Whose rows this worker updates: its own, or those of all.
    pub(super) fn updated(&self) -> Option<usize> {
        (self.sharding.shard > Shard::Nothing).then_some(self.mesh.place)
    }

    pub(super) fn group<'a>(
        &self,
        replica: &'a mut ReplicaContext<'_>,
    ) -> Result<&'a mut Group, Error> {
        let group = replica.only_group()?;
        let (sharded, now) = (self.workers, group.world());
        match sharded == now && group.rank() == self.rank {
            true => Ok(group),
            false => Err(Error::WorkersChanged { sharded, now }),
        }
    }

    /// The same for what takes values, which a model may not have.
    pub(super) fn group_of_values<'a>(
        &self,
        replica: &'a mut ReplicaContext<'_>,
    ) -> Result<&'a mut Group, Error> {
        let group = self.group(replica)?;
        self.check_values()?;
        Ok(group)
    }

    pub(super) fn exchange(&self, unit: usize) -> Exchange {
        Exchange {
            partition: self.units[unit].partition.clone(),
            mesh: self.mesh.clone(),
            staging: self.staging.clone(),
        }
    }

    /// Starts to gather the parameters of a unit, if they are not there already.
    fn gather(&mut self, group: &mut Group, unit: usize) -> Result<(), Error> {
        if self.sharding.shard < Shard::Parameters || self.units[unit].here()?.gathered.is_some() {
            return Ok(());
        }
        let (exchange, mut whole) = (self.exchange(unit), self.pool.pop().unwrap_or_default());
        self.units[unit].start(group, move |group, held| {
            if let Tensors::Shard { values, .. } = &held.parameters {
                make_room(&mut whole, exchange.partition.len(Which::All));
                exchange.gather(group, values, &mut AllRows::Buffer(&mut whole))?;
                held.gathered = Some(whole);
            }
            Ok(())
        })
    }

    /// Gives the buffers of a unit's parameters back.
    pub(super) fn free(&mut self, unit: usize) -> Result<(), Error> {
        self.pool.extend(self.units[unit].here()?.gathered.take());
        Ok(())
    }

    fn compute_gradients<R>(
        &mut self,
        unit: usize,
        compute: impl FnOnce(Parameters<'_>, &mut Gradients<'_>) -> R,
    ) -> Result<R, Error> {
        let is_whole = self.sharding.shard < Shard::Gradients;
        let in_place = is_whole && self.units[unit].passes == 0;
        if !is_whole {
            self.finish_reducing(self.sharding.prefetch)?;
        }
        let mut scratch = match in_place {
            true => None,
            false => Some(self.pool.pop().unwrap_or_default()),
        };
        let partition = self.units[unit].partition.clone();
        let held = self.units[unit].here()?;
        if let Some(scratch) = &mut scratch {
            make_room(scratch, partition.len(Which::Trainable));
        }
        let gathered = held.gathered.take();
        let parameters = match (&held.parameters, &gathered) {
            (Tensors::Whole(whole), _) | (Tensors::Shard { .. }, Some(whole)) => whole,
            (Tensors::Shard { .. }, None) => unreachable!("they were gathered for this call"),
            (Tensors::Lent(_), _) => unreachable!("a model library computes with its own"),
        };
        let whole = match (&mut held.gradients, &mut scratch) {
            (_, Some(scratch)) => scratch,
            (Tensors::Whole(whole), None) => whole,
            (Tensors::Shard { .. } | Tensors::Lent(_), None) => {
                unreachable!("sharded gradients are made elsewhere")
            }
        };
        let trained = &mut whole[..partition.len(Which::Trainable)];
        let parameters = Parameters::new(parameters, &partition);
        let computed = compute(parameters, &mut Gradients::new(trained, &partition));
        held.gathered = gathered;
        match (&mut held.gradients, scratch) {
            (Tensors::Whole(sum), Some(scratch)) => {
                add(sum, &scratch);
                self.pool.push(scratch);
            }
            (_, scratch) => held.scratch = scratch.map(Tensors::Whole),
        }
        Ok(computed)
    }
}

/// The tensors that are trained, one unit's after the other's, in the order of their names.
fn by_name(units: &[UnitSpec]) -> Vec<usize> {
    let trained = units.iter().flat_map(UnitSpec::trainable);
    let mut named: Vec<_> = trained.map(VariableSpec::name).enumerate().collect();
    named.sort_by_key(|(_, name)| *name);
    named.into_iter().map(|(tensor, _)| tensor).collect()
}
