//! What goes between the workers in a step: gradients, their norm, and updated rows.

use meshwork_collectives::Group;

use super::Shard;
use super::exchange::Onto;
use super::held::Updated;
use super::model::ShardedModel;
use super::optimizer::ElementWise;
use super::partition::Which;
use super::tensors::Tensors;
use super::unit::ShardedUnit;
use crate::Error;

/// Whether more passes of a step follow.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pass {
    Earlier,
    Last,
}

impl<O: ElementWise> ShardedModel<O> {
    /// Starts to reduce the gradients of a pass, or those of all passes where they are whole.
    pub(super) fn start_reduce(
        &mut self,
        group: &mut Group,
        unit: usize,
        pass: Pass,
    ) -> Result<(), Error> {
        let (exchange, shard) = (self.exchange(unit), self.sharding.shard);
        if group.world() == 1 || !self.units[unit].is_trainable() {
            return self.take_scratch(unit);
        }
        let onto = if self.units[unit].passes == 1 {
            Onto::Replace
        } else {
            Onto::Add
        };
        self.units[unit].start(group, move |group, held| {
            match (&mut held.gradients, &mut held.scratch) {
                (Tensors::Shard { values, .. }, Some(scratch)) => {
                    let mut all = scratch.all_rows().expect("a pass leaves whole gradients");
                    exchange.reduce_scatter(group, &mut all, values, onto)?;
                }
                (gradients, _) => {
                    let all = gradients.all_rows();
                    let mut all = all.expect("sharded gradients were there as whole ones");
                    match shard {
                        Shard::Nothing => exchange.all_reduce(group, &mut all)?,
                        Shard::Optimizer | Shard::Gradients | Shard::Parameters => {
                            exchange.reduce_in_place(group, &mut all)?;
                        }
                    }
                }
            }
            match pass {
                Pass::Earlier => Ok(()),
                Pass::Last => {
                    exchange.reduce_across(group, &mut held.gradients)?;
                    exchange.pass_on(group, held)
                }
            }
        })?;
        self.reducing.push_back(unit);
        Ok(())
    }

    /// Starts to reduce gradients among those that keep the same part, once all passes were reduced
    /// among those that keep a model.
    pub(super) fn start_reduce_across(
        &mut self,
        group: &mut Group,
        unit: usize,
    ) -> Result<(), Error> {
        let exchange = self.exchange(unit);
        self.units[unit].start(group, move |group, held| {
            exchange.reduce_across(group, &mut held.gradients)?;
            exchange.pass_on(group, held)
        })
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
    pub(super) fn limit_norm(&mut self, group: &mut Group, most: f32) -> Result<f64, Error> {
        let (place, updated) = (self.mesh.place, self.updated());
        let mut squares = Vec::with_capacity(self.by_name.len());
        for unit in &mut self.units {
            let partition = unit.partition.clone();
            squares.extend(unit.here()?.squares(&partition, place));
        }
        let is_cut: Vec<bool> = self.units.iter().flat_map(ShardedUnit::cuts).collect();
        let own = |of: bool| -> f64 {
            let those = self.by_name.iter().filter(|tensor| is_cut[**tensor] == of);
            those.map(|tensor| squares[*tensor]).sum()
        };
        let mut all = vec![[0.0; 2]; self.mesh.parts as usize];
        self.mesh.with(group, |row, _| {
            row.all_gather(&[own(false), own(true)], all.as_flattened_mut())
        })?;
        let sum = |of: usize| all.iter().map(|pair| pair[of]).sum();
        let norm = self.sum_over_replica(sum(0), sum(1))?.sqrt();
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
        if group.world() == 1 || is_updated_by_all {
            return Ok(());
        }
        let exchange = self.exchange(unit);
        if let Tensors::Shard { .. } = self.units[unit].here()?.parameters {
            return Ok(());
        }
        self.units[unit].start(group, move |group, held| {
            let all = held.parameters.all_rows();
            let mut all = all.expect("what is no shard has all rows");
            match which {
                Which::All => {
                    let tensors = 0..exchange.partition.count(which);
                    exchange.gather_in_place(group, &mut all, tensors)
                }
                // `update` has left copies of the rows in the place of their gradients.
                Which::Trainable => {
                    exchange.gather_updated(group, &mut all, &mut held.gradients)?;
                    held.updated = Updated::InPlace;
                    Ok(())
                }
            }
        })
    }
}
