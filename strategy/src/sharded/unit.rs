//! The numbers of one unit, which are here, or with an operation that is under way.

use std::sync::Arc;

use meshwork_collectives::{Group, OperationError, Pending};

use super::optimizer::ElementWise;
use super::partition::{Partition, Which};
use super::tensors::{Tensors, Whole};
use super::{Shard, UnitSpec};
use crate::Error;

/// A unit of a model that is trained.
#[derive(Debug)]
pub(super) struct ShardedUnit {
    pub(super) spec: UnitSpec,
    pub(super) partition: Arc<Partition>,
    /// `None` while an operation has it, and after one that has failed.
    held: Option<Box<Held>>,
    pending: Option<Pending<Box<Held>>>,
    /// Backward passes since the last step.
    pub(super) passes: u32,
}

/// What a worker has of a unit.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) parameters: Tensors,
    pub(super) gradients: Tensors,
    /// For each name of the optimizer's state.
    pub(super) state: Vec<Tensors>,
    /// The parameters, while they are used.
    pub(super) gathered: Option<Whole>,
    /// The gradients of a pass, until they are reduced or added.
    pub(super) scratch: Option<Tensors>,
}

impl ShardedUnit {
    pub(super) fn new(spec: &UnitSpec, partition: Partition, held: Held) -> Self {
        Self {
            spec: spec.clone(),
            partition: Arc::new(partition),
            held: Some(Box::new(held)),
            pending: None,
            passes: 0,
        }
    }

    pub(super) fn is_trainable(&self) -> bool {
        !self.spec.trainable().is_empty()
    }

    /// Its numbers, when the operation that has them is done.
    pub(super) fn here(&mut self) -> Result<&mut Held, Error> {
        if let Some(pending) = self.pending.take() {
            self.held = Some(pending.wait()?);
        }
        self.held.as_deref_mut().ok_or_else(|| Error::UnitLost {
            unit: self.spec.name().to_owned(),
        })
    }

    /// Starts an operation on its numbers.
    pub(super) fn start(
        &mut self,
        group: &mut Group,
        operation: impl FnOnce(&mut Group, &mut Held) -> Result<(), OperationError> + Send + 'static,
    ) -> Result<(), Error> {
        self.here()?;
        if let Some(held) = self.held.take() {
            let started = group.start_operations(held, |group, held| operation(group, held));
            self.pending = Some(started?);
        }
        Ok(())
    }
}

impl Held {
    /// Zeros, as much of them as a worker keeps.
    pub(super) fn new(shard: Shard, partition: &Partition, worker: usize, states: usize) -> Self {
        let kept = |from: Shard, which| match shard >= from {
            true => Tensors::shard(partition, which, worker),
            false => Tensors::whole(partition, which),
        };
        Self {
            parameters: kept(Shard::Parameters, Which::All),
            gradients: kept(Shard::Gradients, Which::Trainable),
            state: (0..states)
                .map(|_| kept(Shard::Optimizer, Which::Trainable))
                .collect(),
            gathered: None,
            scratch: None,
        }
    }

    /// The parameters, whole; `None` where they are not gathered, or a model library has them.
    pub(super) fn parameters(&self) -> Option<&Whole> {
        match &self.parameters {
            Tensors::Whole(whole) => Some(whole),
            Tensors::Shard { .. } => self.gathered.as_ref(),
            Tensors::Lent(_) => None,
        }
    }

    /// For each tensor that is trained, the sum of the squares of a worker's rows of its gradient.
    pub(super) fn squares(&mut self, partition: &Partition, worker: usize) -> Vec<f64> {
        let trained = 0..partition.count(Which::Trainable);
        let mut of = |tensor| {
            let rows = |rows: &mut [f32]| sum_of_squares(rows);
            self.gradients.rows(partition, tensor, Some(worker), rows)
        };
        trained.map(&mut of).collect()
    }

    /// Multiplies the gradients that the update uses by a number.
    pub(super) fn scale(&mut self, partition: &Partition, updated: Option<usize>, by: f32) {
        for tensor in 0..partition.count(Which::Trainable) {
            self.gradients.rows(partition, tensor, updated, |rows| {
                rows.iter_mut().for_each(|gradient| *gradient *= by);
            });
        }
    }

    /// Updates the rows of one worker, or of all. Where others are to be given them, a copy is then
    /// in the place of their gradients, made while they are in a cache.
    pub(super) fn update<O: ElementWise>(
        &mut self,
        partition: &Partition,
        updated: Option<usize>,
        optimizer: &O,
        step: u64,
    ) {
        let Self {
            parameters,
            gradients,
            state,
            ..
        } = self;
        let then = match (updated, &*parameters) {
            (Some(_), Tensors::Whole(_) | Tensors::Lent(_)) => Then::Copy,
            (None, _) | (Some(_), Tensors::Shard { .. }) => Then::Leave,
        };
        for tensor in 0..partition.count(Which::Trainable) {
            let state = state
                .iter_mut()
                .map(|one| one.rows_mut(partition, tensor, updated));
            let mut state: Vec<&mut [f32]> = state.collect();
            parameters.rows(partition, tensor, updated, |values| {
                gradients.rows(partition, tensor, updated, |gradients| {
                    let rows = Rows {
                        values,
                        gradients,
                        then,
                    };
                    update_rows(optimizer, step, rows, &mut state);
                });
            });
        }
    }
}

/// Rows of a parameter, and their gradients.
struct Rows<'a> {
    values: &'a mut [f32],
    gradients: &'a mut [f32],
    then: Then,
}

/// What becomes of gradients that were used.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// Copies of what was updated by them.
    Copy,
    Leave,
}

/// Updates some elements at a time.
fn update_rows<O: ElementWise>(optimizer: &O, step: u64, rows: Rows<'_>, state: &mut [&mut [f32]]) {
    let Rows {
        values,
        gradients,
        then,
    } = rows;
    for start in (0..values.len()).step_by(CACHED) {
        let some = start..(start + CACHED).min(values.len());
        let state = state.iter_mut().map(|one| &mut one[some.clone()]);
        let mut state: Vec<&mut [f32]> = state.collect();
        let (values, gradients) = (&mut values[some.clone()], &mut gradients[some]);
        optimizer.update(step, values, gradients, &mut state);
        match then {
            Then::Copy => gradients.copy_from_slice(values),
            Then::Leave => {}
        }
    }
}

/// Elements that a core's cache has room for, with gradients and moments.
const CACHED: usize = 8 << 10;

/// In an order that depends on the length alone.
fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 8];
    let eights = values.chunks_exact(sums.len());
    let rest = eights.remainder();
    for eight in eights {
        for (sum, value) in sums.iter_mut().zip(eight) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += f64::from(*value) * f64::from(*value);
    }
    sums.iter().sum()
}
