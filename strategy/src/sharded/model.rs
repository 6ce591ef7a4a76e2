//! `ShardedModel`: made, computed with unit by unit, and updated.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use meshwork_collectives::{Group, Rank};
use twox_hash::XxHash3_64;

use super::checkpoint::Saving;
use super::exchange::{Exchange, Onto, Staging};
use super::lent::Lent;
use super::optimizer::ElementWise;
use super::partition::{Partition, Which};
use super::tensors::{AllRows, Gradients, Parameters, Tensors, Whole, add, make_room};
use super::unit::{Held, ShardedUnit};
use super::{Shard, Sharding, UnitSpec};
use crate::statistics::Meter;
use crate::{Error, MultiWorkerMirroredStrategy, ReplicaContext, VariableSpec};

/// A model whose parameters, gradients and optimizer state are sharded among the workers, and that
/// is trained unit by unit: see the [module](super).
///
/// All workers make the same calls in the same order.
#[derive(Debug)]
#[doc(alias("FSDPModule", "FullyShardedDataParallel", "DeepSpeedEngine"))]
pub struct ShardedModel<O> {
    pub(super) sharding: Sharding,
    pub(super) optimizer: O,
    pub(super) rank: Rank,
    workers: u32,
    pub(super) steps: u64,
    pub(super) units: Vec<ShardedUnit>,
    /// All tensors that are trained, one unit's after the other's, in the order of their names:
    /// that in which the norm is added up, whatever the units are.
    by_name: Vec<usize>,
    /// Buffers for whole units that nobody uses.
    pub(super) pool: Vec<Whole>,
    /// Units whose gradients are being reduced out of such a buffer, the first first.
    reducing: VecDeque<usize>,
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
    /// each other.
    ///
    /// # Errors
    /// [`Error::SeveralReplicas`] where a worker has more than one; [`Error::DuplicateVariable`];
    /// [`Error::VariablesDiffer`] and [`Error::ShardingDiffers`], on every worker, where they are
    /// not given the same; [`Error::Group`].
    #[track_caller]
    pub fn new(
        strategy: &mut MultiWorkerMirroredStrategy,
        sharding: Sharding,
        units: &[UnitSpec],
        optimizer: O,
        mut initial: impl FnMut(&VariableSpec, Range<usize>, &mut [f32]),
    ) -> Result<Self, Error> {
        let mut model = Self::without_values(strategy, sharding, units, optimizer)?;
        let (rank, group) = (model.rank.index(), strategy.group_mut());
        for (index, spec) in units.iter().enumerate() {
            let partition = model.units[index].partition.clone();
            let held = model.units[index].here()?;
            for (tensor, parameter) in spec.parameters().iter().enumerate() {
                let elements = partition.elements(tensor, rank);
                let rows = held.parameters.rows_mut(&partition, tensor, Some(rank));
                initial(parameter, elements, rows);
            }
            model.share_rows(group, index, Which::All)?;
        }
        Ok(model)
    }

    /// The same with zeros.
    #[track_caller]
    pub(super) fn without_values(
        strategy: &mut MultiWorkerMirroredStrategy,
        sharding: Sharding,
        units: &[UnitSpec],
        optimizer: O,
    ) -> Result<Self, Error> {
        if strategy.local_replicas() > 1 {
            let replicas = strategy.local_replicas();
            return Err(Error::SeveralReplicas { replicas });
        }
        let agreed = agree_on::<O>(strategy, sharding, units);
        strategy.abort_on_error(agreed)?;
        let meter = strategy.meter.clone();
        let group = strategy.group_mut();
        let (rank, workers) = (group.rank(), group.world());
        // One worker has the whole of everything.
        let shard = match workers {
            1 => Shard::Nothing,
            _ => sharding.shard,
        };
        let unit = |spec: &UnitSpec| {
            let trainable = spec.trainable().len();
            let partition = Partition::new(spec.parameters(), trainable, workers as usize);
            let held = Held::new(shard, &partition, rank.index(), O::STATE.len());
            ShardedUnit::new(spec, partition, held)
        };
        Ok(Self {
            sharding: Sharding { shard, ..sharding },
            optimizer,
            rank,
            workers,
            steps: 0,
            units: units.iter().map(unit).collect(),
            by_name: by_name(units),
            pool: Vec::new(),
            reducing: VecDeque::new(),
            staging: Arc::default(),
            saving: None,
            draft_bytes: Vec::new(),
            meter,
        })
    }

    /// Computes with the parameters of a unit, which are gathered before, and freed behind it: for
    /// the forward pass, and for whatever else reads them.
    ///
    /// # Errors
    /// [`Error::Group`]; [`Error::UnitLost`] after an operation on the unit has failed;
    /// [`Error::WorkersChanged`]; [`Error::SeveralReplicas`].
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
        let group = self.group(replica)?;
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
        let group = self.group(replica)?;
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
        if self.sharding.shard >= Shard::Gradients || found == needed {
            self.start_reduce(group, unit)?;
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
        let needed = self.needed_passes();
        let wrong = |unit: &ShardedUnit| unit.is_trainable() && unit.passes != needed;
        if let Some(unit) = self.units.iter().position(wrong) {
            return Err(self.wrong_passes(unit, self.units[unit].passes, needed));
        }
        self.update(replica)
    }

    /// The update of a step, once all gradients are on their way.
    #[track_caller]
    pub(super) fn update(
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
        self.steps += 1;
        let updated = self.updated();
        for index in 0..self.units.len() {
            let unit = &mut self.units[index];
            let partition = unit.partition.clone();
            unit.here()?
                .update(&partition, updated, &self.optimizer, self.steps);
            unit.passes = 0;
            self.share_rows(group, index, Which::Trainable)?;
        }
        self.poll_save(replica)?;
        Ok(norm)
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
        (self.sharding.shard > Shard::Nothing).then_some(self.rank.index())
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

    fn exchange(&self, unit: usize) -> Exchange {
        Exchange {
            partition: self.units[unit].partition.clone(),
            worker: self.rank.index(),
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

    /// Starts to reduce the gradients of a pass, or those of all passes where they are whole.
    pub(super) fn start_reduce(&mut self, group: &mut Group, unit: usize) -> Result<(), Error> {
        let (exchange, shard) = (self.exchange(unit), self.sharding.shard);
        if self.workers == 1 || !self.units[unit].is_trainable() {
            return self.take_scratch(unit);
        }
        let onto = match self.units[unit].passes {
            1 => Onto::Replace,
            _ => Onto::Add,
        };
        self.units[unit].start(group, move |group, held| {
            if let (Tensors::Shard { values, .. }, Some(scratch)) =
                (&mut held.gradients, &mut held.scratch)
            {
                let mut all = scratch.all_rows().expect("a pass leaves whole gradients");
                return exchange.reduce_scatter(group, &mut all, values, onto);
            }
            let all = held.gradients.all_rows();
            let mut all = all.expect("sharded gradients were there as whole ones");
            match shard {
                Shard::Nothing => exchange.all_reduce(group, &mut all),
                Shard::Optimizer | Shard::Gradients | Shard::Parameters => {
                    exchange.reduce_in_place(group, &mut all)
                }
            }
        })?;
        self.reducing.push_back(unit);
        Ok(())
    }

    /// Waits until at most so many units are being reduced, and takes their buffers back.
    pub(super) fn finish_reducing(&mut self, most: usize) -> Result<(), Error> {
        while self.reducing.len() > most {
            let Some(unit) = self.reducing.pop_front() else {
                break;
            };
            self.take_scratch(unit)?;
        }
        Ok(())
    }

    /// Takes the buffer of a pass back, or drops what a model library has lent for it.
    fn take_scratch(&mut self, unit: usize) -> Result<(), Error> {
        match self.units[unit].here()?.scratch.take() {
            Some(Tensors::Whole(whole)) => self.pool.push(whole),
            Some(Tensors::Lent(_) | Tensors::Shard { .. }) | None => {}
        }
        Ok(())
    }

    /// Scales gradients down to a norm, and returns theirs.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a factor below 1 is rounded"
    )]
    fn limit_norm(&mut self, group: &mut Group, most: f32) -> Result<f64, Error> {
        let (rank, updated) = (self.rank.index(), self.updated());
        let mut squares = Vec::with_capacity(self.by_name.len());
        for unit in &mut self.units {
            let partition = unit.partition.clone();
            squares.extend(unit.here()?.squares(&partition, rank));
        }
        let own: f64 = self.by_name.iter().map(|tensor| squares[*tensor]).sum();
        let mut all = vec![0.0; self.workers as usize];
        group.all_gather(&[own], &mut all)?;
        let norm = all.iter().sum::<f64>().sqrt();
        if norm > f64::from(most) {
            let by = f64::from(most) / norm;
            for unit in &mut self.units {
                let partition = unit.partition.clone();
                unit.here()?.scale(&partition, updated, by as f32);
            }
        }
        Ok(norm)
    }

    /// Starts to give every worker the rows of all, where they are kept whole.
    pub(super) fn share_rows(
        &mut self,
        group: &mut Group,
        unit: usize,
        which: Which,
    ) -> Result<(), Error> {
        let is_new = which == Which::All;
        let is_updated_by_all = self.sharding.shard == Shard::Nothing && !is_new;
        if self.workers == 1 || is_updated_by_all {
            return Ok(());
        }
        let exchange = self.exchange(unit);
        if let Tensors::Shard { .. } = self.units[unit].here()?.parameters {
            return Ok(());
        }
        self.units[unit].start(group, move |group, held| {
            let all = held.parameters.all_rows();
            let mut all = all.expect("what is no shard has all rows");
            exchange.gather_in_place(group, &mut all, which)
        })
    }

    /// Takes the parameters of the only unit from a model library, with the chief's values.
    pub(super) fn lend(
        &mut self,
        group: &mut Group,
        parameters: Box<dyn Lent>,
    ) -> Result<(), Error> {
        let exchange = self.exchange(0);
        let unit = &mut self.units[0];
        let held = unit.here()?;
        held.parameters = Tensors::Lent(parameters);
        if let Tensors::Whole(_) = held.gradients {
            held.gradients = Tensors::NONE;
        }
        unit.start(group, move |group, held| {
            let all = held.parameters.all_rows();
            let mut all = all.expect("what is lent is whole");
            exchange.broadcast(group, &mut all)
        })?;
        self.units[0].here()?;
        Ok(())
    }
}

/// The tensors that are trained, one unit's after the other's, in the order of their names.
fn by_name(units: &[UnitSpec]) -> Vec<usize> {
    let trained = units.iter().flat_map(UnitSpec::trainable);
    let mut named: Vec<_> = trained.map(VariableSpec::name).enumerate().collect();
    named.sort_by_key(|(_, name)| *name);
    named.into_iter().map(|(tensor, _)| tensor).collect()
}

/// Compares what the workers are given with what the chief is.
#[track_caller]
fn agree_on<O: ElementWise>(
    strategy: &mut MultiWorkerMirroredStrategy,
    sharding: Sharding,
    units: &[UnitSpec],
) -> Result<(), Error> {
    let specs: Vec<VariableSpec> = units
        .iter()
        .flat_map(|unit| unit.parameters().iter().cloned())
        .collect();
    let mut names = BTreeSet::new();
    if let Some(twice) = specs.iter().find(|spec| !names.insert(spec.name())) {
        let name = twice.name().to_owned();
        return Err(Error::DuplicateVariable { name });
    }
    strategy.scope(|scope| scope.compare(&specs))?;
    let sizes: Vec<[usize; 2]> = units
        .iter()
        .map(|unit| [unit.trainable().len(), unit.parameters().len()])
        .collect();
    let mine = [
        sharding.shard as u64,
        XxHash3_64::oneshot(bytemuck::cast_slice(&sizes)),
        sharding.passes.map_or(0, NonZeroU32::get).into(),
        sharding
            .max_norm
            .map_or(u64::MAX, |norm| norm.to_bits().into()),
        sharding.prefetch as u64,
        O::STATE.len() as u64,
    ];
    let group = strategy.group_mut();
    let mut all = vec![[0; 6]; group.world() as usize];
    group.all_gather(&mine, all.as_flattened_mut())?;
    for (rank, theirs) in Rank::all(group.world()).zip(&all) {
        let differs = theirs
            .iter()
            .zip(&all[0])
            .position(|(own, chiefs)| own != chiefs);
        if let Some(place) = differs {
            let what = COMPARED[place];
            return Err(Error::ShardingDiffers { rank, what });
        }
    }
    Ok(())
}

/// What workers compare before they train together.
const COMPARED: [&str; 6] = [
    "kind of shards",
    "division into units and frozen parameters",
    "number of backward passes in a step",
    "largest norm of gradients",
    "number of units gathered ahead",
    "optimizer",
];
