//! A model that is divided anew among other workers: unit by unit, from the parts that these have
//! and their copies of those that are lost. What a unit was before is kept until all have taken
//! over from it, so that another loss meanwhile costs no more than the parts of the lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use meshwork_collectives::Group;

use super::agreement::agree_on;
use super::held::Held;
use super::mesh::ShardMesh;
use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::partition::Partition;
use super::relayout::{Arriving, Relayout};
use super::survivors::{self, Decision, Layout, NextStep, Sources, Standing};
use super::tensors::Tensors;
use super::unit::ShardedUnit;
use super::{Copies, Shard, UnitSpec};
use crate::replica::gather_uneven;
use crate::{Error, MultiWorkerMirroredStrategy, StateError};

/// What became of the values of a model when workers have changed: the same on all of them.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "a model without values has to be given some"]
pub enum Regrouped {
    /// All values are there, as after the last step that any of the workers has made.
    Kept,
    /// There never were any: [`ShardedModel::load`] or [`ShardedModel::initialize`] gives some.
    New,
    /// These parts were lost with all workers that had them, so that what is left is the last
    /// checkpoint: [`ShardedModel::load`] gives values, and goes back to its step. Where there is
    /// none, [`ShardedModel::initialize`] begins anew; until then the model is not to be used, and
    /// is lost again whenever the workers change.
    Lost {
        /// By the places of their workers; none where no worker was lost, and all values were
        /// overwritten, such as by a load that has failed, or forgotten.
        parts: Vec<usize>,
    },
}

impl<O: ElementWise> ShardedModel<O> {
    /// Divides the model among the workers that are there now, with the values of the last step
    /// that any of them has made. All workers call it, newcomers with a model of
    /// [`elastic`](Self::elastic); an elastic [`Training`] does so in `regroup`.
    ///
    /// The values are there as long as each part has a worker left that had it, or a copy of it
    /// ([`Sharding::with_neighbour_copies`]). What several groups have ([`Sharding::with_group`])
    /// are copies where the strategy is [elastic]: all wait for each other in a step then.
    ///
    /// Bits are those of a model that was saved after [`steps`](Self::steps) and loaded by these
    /// workers. A save that is under way is given up.
    ///
    /// ```
    /// use meshwork_strategy::sharded::{AdamW, Regrouped, Shard, ShardedModel, Sharding, UnitSpec};
    /// use meshwork_strategy::{Error, MultiWorkerMirroredStrategy, VariableSpec};
    ///
    /// let mut strategy = MultiWorkerMirroredStrategy::alone()?;
    /// let units = [UnitSpec::new("head", [VariableSpec::new("head.weight", &[4, 2])?])];
    /// let sharding = Sharding::new(Shard::Parameters).with_neighbour_copies();
    /// let mut model = ShardedModel::elastic(&strategy, sharding, &units, AdamW::new(0.1));
    /// // In `Training::regroup`:
    /// if let Regrouped::New | Regrouped::Lost { .. } = model.regroup(&mut strategy)? {
    ///     // … or from a checkpoint.
    ///     strategy.run(|replica| model.initialize(replica, |_, _, rows| rows.fill(1.0)))?;
    /// }
    /// assert_eq!(model.regroup(&mut strategy)?, Regrouped::Kept);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Group`], after which it can be called again among those who are left;
    /// [`Error::ShardGroup`] where groups do not fit the workers; those of [`new`](Self::new) on a
    /// newcomer that is not given the same model, without which the others go on.
    ///
    /// [`Sharding::with_group`]: super::Sharding::with_group
    /// [`Sharding::with_neighbour_copies`]: super::Sharding::with_neighbour_copies
    /// [`Training`]: crate::Training
    /// [elastic]: MultiWorkerMirroredStrategy::is_elastic
    #[track_caller]
    pub fn regroup(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Regrouped, Error> {
        let (decision, layout) = self.settle_in(strategy)?;
        let group = strategy.group_mut();
        let regrouped = match decision {
            Decision::Kept { units, .. } => {
                self.take_over(group, &units, layout)?;
                self.lost.clear();
                Regrouped::Kept
            }
            Decision::New => self.without(Regrouped::New, layout),
            Decision::Lost { parts } => {
                let what = match parts.is_empty() {
                    true => "no worker has values of the model any more",
                    false => "parts of the model are lost with all workers that had them",
                };
                tracing::warn!(?parts, "{what}: what is left is the last checkpoint");
                self.lost.clone_from(&parts);
                self.without(Regrouped::Lost { parts }, layout)
            }
        };
        self.workers = group.world();
        Ok(regrouped)
    }

    /// Finds its place among these workers, and what becomes of the model.
    #[track_caller]
    pub(super) fn settle_in(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<(Decision, Layout), Error> {
        if strategy.local_replicas() > 1 {
            let replicas = strategy.local_replicas();
            return Err(Error::SeveralReplicas { replicas });
        }
        self.give_up_operations();
        let specs: Vec<UnitSpec> = self.units.iter().map(|unit| unit.spec.clone()).collect();
        let agreed = agree_on::<O>(strategy, self.wanted, &specs);
        strategy.abort_on_error(agreed)?;
        let group = strategy.group_mut();
        let standings = self.tell_standings(group)?;
        let mesh = match self.wanted.shard {
            Shard::Nothing => ShardMesh::flat(group),
            Shard::Optimizer | Shard::Gradients | Shard::Parameters => {
                ShardMesh::new(group, self.wanted.among)?
            }
        };
        let mut decision = survivors::decide(&standings);
        match &mut decision {
            Decision::Kept { steps, .. } => {
                if !standings[group.rank().index()].reaches(*steps) {
                    self.forget_values();
                }
                self.catch_up(*steps)?;
            }
            Decision::Lost { parts } if parts.is_empty() => *parts = self.tell_lost(group)?,
            Decision::Lost { .. } | Decision::New => {}
        }
        self.had_values |= decision != Decision::New;
        self.next = NextStep::Open;
        let layout = self.place_in(group, mesh, survivors::next_id(&standings));
        let is_kept_in_groups = strategy.is_elastic() && self.mesh.has_groups();
        self.waits_for_all = self.wanted.copies == Copies::OfNeighbours || is_kept_in_groups;
        Ok((decision, layout))
    }

    /// Goes on with the workers that are left, if a loss is the reason for `error`, as
    /// [`regroup`](Self::regroup): for programs that make their steps without
    /// [`train`](MultiWorkerMirroredStrategy::train). Which step is the next,
    /// [`steps`](Self::steps) says; its samples are to be divided among the workers anew.
    ///
    /// # Errors
    /// `error` where the strategy is not [elastic](MultiWorkerMirroredStrategy::elastic), or it is
    /// this worker's own; [`Error::Group`] where too few are left.
    pub fn go_on(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
        mut error: Error,
    ) -> Result<Regrouped, Error> {
        loop {
            strategy.go_on_without_lost(error)?;
            match self.regroup(strategy) {
                Ok(regrouped) => return Ok(regrouped),
                Err(next) => error = next,
            }
        }
    }

    /// Lets processes in that wait to train too, and divides the model anew among all: for programs
    /// that make their steps without [`train`](MultiWorkerMirroredStrategy::train), on all workers
    /// behind each step. The workers look for newcomers about four times in a second. `None` where
    /// nobody has come; else, which step is the next, and from whom it takes its samples, is as
    /// after [`go_on`](Self::go_on). A newcomer begins with [`elastic`](Self::elastic) and
    /// [`regroup`](Self::regroup).
    ///
    /// # Errors
    /// Those of [`regroup`](Self::regroup), to be given to [`go_on`](Self::go_on).
    #[track_caller]
    pub fn admit(
        &mut self,
        strategy: &mut MultiWorkerMirroredStrategy,
    ) -> Result<Option<Regrouped>, Error> {
        match strategy.admit_if_due()? {
            true => self.regroup(strategy).map(Some),
            false => Ok(None),
        }
    }

    /// Takes the numbers back from operations, and forgets what was not finished.
    fn give_up_operations(&mut self) {
        self.workers = 0;
        self.saving = None;
        self.reducing.clear();
        for unit in &mut self.units {
            unit.passes = 0;
            let Some(mut held) = unit.take() else {
                unit.layout = Layout::NONE;
                continue;
            };
            self.pool.extend(held.gathered.take());
            if let Some(Tensors::Whole(scratch)) = held.scratch.take() {
                self.pool.push(scratch);
            }
            unit.put(held);
        }
    }

    /// What each worker has.
    #[track_caller]
    fn tell_standings(&self, group: &mut Group) -> Result<Vec<Standing>, Error> {
        let layouts = |unit: &ShardedUnit| {
            let before = unit.before.as_ref();
            [
                unit.layout,
                before.map_or(Layout::NONE, |before| before.layout),
            ]
        };
        let own = Standing {
            steps: self.steps,
            next: self.next,
            had_values: self.had_values,
            units: self.units.iter().map(layouts).collect(),
        };
        let len = survivors::words_of(self.units.len());
        let mut words = vec![0; len * group.world() as usize];
        group.all_gather(&own.words(), &mut words)?;
        Ok(Standing::read_all(&words, self.units.len()))
    }

    /// The parts that any worker knows to be lost.
    #[track_caller]
    fn tell_lost(&self, group: &mut Group) -> Result<Vec<usize>, Error> {
        let own: Vec<u64> = self.lost.iter().map(|part| *part as u64).collect();
        let (_, parts) = gather_uneven(group, &own)?;
        let parts = parts.into_iter().filter_map(|part| part.try_into().ok());
        let parts: BTreeSet<usize> = parts.collect();
        Ok(parts.into_iter().collect())
    }

    /// What others have is of a later step, or what this worker has is of one before.
    pub(super) fn forget_values(&mut self) {
        self.discount_values();
        self.units.iter_mut().for_each(|unit| unit.before = None);
    }

    /// Makes the update that others have made, or is a newcomer.
    fn catch_up(&mut self, steps: u64) -> Result<(), Error> {
        if self.next == NextStep::Ready && self.steps < steps {
            self.begin_update();
            for unit in 0..self.units.len() {
                self.update_unit(unit)?;
            }
        }
        self.steps = steps;
        Ok(())
    }

    /// Its place in this mesh.
    fn place_in(&mut self, group: &Group, mesh: ShardMesh, id: u64) -> Layout {
        // Who keeps a model alone has the whole of everything.
        let (shard, mesh) = match mesh.parts {
            1 => (Shard::Nothing, ShardMesh::flat(group)),
            _ => (self.wanted.shard, mesh),
        };
        let layout = match shard {
            Shard::Nothing => Layout::NONE,
            Shard::Optimizer | Shard::Gradients | Shard::Parameters => Layout {
                id: 0,
                parts: mesh.parts as usize,
                place: mesh.place,
                copied: match self.wanted.copies {
                    Copies::None => None,
                    Copies::OfNeighbours => mesh.neighbour(group.world()),
                },
            },
        };
        self.sharding.shard = shard;
        self.rank = group.rank();
        (self.mesh, self.id) = (mesh, id);
        layout
    }

    /// Zeros that do not count.
    fn without(&mut self, regrouped: Regrouped, layout: Layout) -> Regrouped {
        self.steps = 0;
        for index in 0..self.units.len() {
            let (partition, mut held) = self.zeros(index, &layout);
            let unit = &mut self.units[index];
            if let Some(mut old) = unit.take() {
                held.lend_from(&mut old);
            }
            (unit.before, unit.arriving) = (None, None);
            (unit.partition, unit.layout) = (partition, layout);
            unit.put(held);
        }
        regrouped
    }

    /// From now on, what the units have are values: as soon as all of them have come. They are
    /// others than any before.
    pub(super) fn count_values(&mut self) -> Result<(), Error> {
        for unit in &mut self.units {
            unit.here()?;
        }
        self.had_values = true;
        self.id = self.id.saturating_add(1);
        for unit in &mut self.units {
            unit.layout.id = self.id;
        }
        self.lost.clear();
        Ok(())
    }

    /// Refuses a model whose numbers do not count.
    pub(super) fn check_values(&self) -> Result<(), StateError> {
        if self.units.iter().all(|unit| unit.layout.id > 0) {
            return Ok(());
        }
        let parts = self.lost.clone();
        Err(match parts.is_empty() {
            true => StateError::NoValues,
            false => StateError::PartsLost { parts },
        })
    }

    /// What the units have is overwritten.
    pub(super) fn discount_values(&mut self) {
        for unit in &mut self.units {
            unit.layout.id = 0;
        }
    }

    fn zeros(&self, unit: usize, layout: &Layout) -> (Arc<Partition>, Box<Held>) {
        let partition = self.units[unit].divided(self.mesh.parts as usize);
        let held = Held::new(self.sharding.shard, &partition, layout, O::STATE.len());
        (Arc::new(partition), Box::new(held))
    }

    /// Takes all units over from those who have their parts.
    fn take_over(
        &mut self,
        group: &mut Group,
        units: &[Sources],
        layout: Layout,
    ) -> Result<(), Error> {
        for (index, sources) in units.iter().enumerate() {
            self.take_unit_over(group, index, sources, layout)?;
            if let Some(last) = index.checked_sub(1) {
                // Who has come here has all of that unit.
                self.units[last].before = None;
            }
        }
        group.barrier()?;
        if let Some(last) = self.units.last_mut() {
            last.before = None;
        }
        Ok(())
    }

    pub(super) fn take_unit_over(
        &mut self,
        group: &mut Group,
        index: usize,
        sources: &Sources,
        layout: Layout,
    ) -> Result<(), Error> {
        let relayout = self.relayout(index, sources);
        let mut arriving = self.arriving(index, &layout);
        let unit = &mut self.units[index];
        if let Err(error) = relayout.carry_out(group, unit, &mut arriving) {
            unit.arriving = Some(arriving);
            return Err(error);
        }
        unit.retire(sources.id, &mut arriving.held);
        unit.partition = arriving.partition;
        unit.layout = Layout {
            id: self.id,
            ..layout
        };
        unit.put(arriving.held);
        Ok(())
    }

    pub(super) fn relayout<'a>(&self, unit: usize, sources: &'a Sources) -> Relayout<'a> {
        Relayout {
            from: self.units[unit].divided(sources.of_parts.len()),
            sources,
            states: O::STATE.len(),
        }
    }

    pub(super) fn arriving(&self, unit: usize, layout: &Layout) -> Arriving {
        let (partition, held) = self.zeros(unit, layout);
        Arriving::new(held, partition, self.updated(), self.steps)
    }
}
