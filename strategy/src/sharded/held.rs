//! What a worker keeps of one unit: its own part, and a copy of a neighbour's where it is to
//! outlive that one.

use std::mem;

use super::Shard;
use super::lent::Lent;
use super::optimizer::ElementWise;
use super::partition::{Partition, Which};
use super::survivors::Layout;
use super::tensors::{Tensors, Whole};

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
    pub(super) updated: Updated,
    pub(super) copied: Option<Copied>,
}

/// The part of a neighbour. There is no copy of what each worker has whole.
#[derive(Debug)]
pub(super) struct Copied {
    worker: usize,
    parameters: Option<Tensors>,
    gradients: Option<Tensors>,
    state: Vec<Tensors>,
}

/// Where parameters are that the last step has updated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Updated {
    InPlace,
    /// On their way between workers, and until then in the place of their gradients.
    AsGradients,
}

/// Whose part it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Whose {
    Own,
    Neighbours,
}

impl Whose {
    pub(super) const ALL: [Self; 2] = [Self::Own, Self::Neighbours];
}

/// What there is of each part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Parameters,
    /// What the optimizer remembers under this number.
    State(usize),
}

impl Kind {
    /// The tensors that have it.
    pub(super) fn which(self) -> Which {
        match self {
            Self::Parameters => Which::All,
            Self::State(_) => Which::Trainable,
        }
    }
}

/// One part of a unit, where it is.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Whose; `None` where it is all.
    pub(super) worker: Option<usize>,
    parameters: &'a mut Tensors,
    pub(super) gradients: &'a mut Tensors,
    state: &'a mut [Tensors],
    updated: Updated,
}

impl Held {
    /// Zeros, as much of them as a worker keeps.
    pub(super) fn new(shard: Shard, partition: &Partition, layout: &Layout, states: usize) -> Self {
        let kept = |from: Shard, which| match shard >= from {
            true => Tensors::shard(partition, which, layout.place),
            false => Tensors::whole(partition, which),
        };
        let copied = layout.copied.map(|worker| {
            let zeros = |which| Tensors::shard(partition, which, worker);
            let copy = |from: Shard, which| (shard >= from).then(|| zeros(which));
            Copied {
                worker,
                parameters: copy(Shard::Parameters, Which::All),
                gradients: copy(Shard::Gradients, Which::Trainable),
                state: (0..states).map(|_| zeros(Which::Trainable)).collect(),
            }
        });
        Self {
            parameters: kept(Shard::Parameters, Which::All),
            gradients: kept(Shard::Gradients, Which::Trainable),
            state: (0..states)
                .map(|_| kept(Shard::Optimizer, Which::Trainable))
                .collect(),
            gathered: None,
            scratch: None,
            updated: Updated::InPlace,
            copied,
        }
    }

    /// Parameters that a model library has, before they are divided.
    pub(super) fn lent(parameters: Box<dyn Lent>) -> Self {
        Self {
            parameters: Tensors::Lent(parameters),
            gradients: Tensors::NONE,
            state: Vec::new(),
            gathered: None,
            scratch: None,
            updated: Updated::InPlace,
            copied: None,
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

    /// Whose part there is a copy of.
    pub(super) fn neighbour(&self) -> Option<usize> {
        self.copied.as_ref().map(|copied| copied.worker)
    }

    /// A part that this worker keeps; `worker` is whose its own is, `None` if that is all.
    pub(super) fn part(&mut self, whose: Whose, worker: Option<usize>) -> Option<Part<'_>> {
        let Self {
            parameters,
            gradients,
            state,
            updated,
            copied,
            ..
        } = self;
        let updated = *updated;
        Some(match whose {
            Whose::Own => Part {
                worker,
                parameters,
                gradients,
                state,
                updated,
            },
            Whose::Neighbours => {
                let copied = copied.as_mut()?;
                Part {
                    worker: Some(copied.worker),
                    parameters: copy_or_whole(&mut copied.parameters, parameters),
                    gradients: copy_or_whole(&mut copied.gradients, gradients),
                    state: &mut copied.state,
                    updated,
                }
            }
        })
    }

    /// Takes over the parameters that a model library has, if it has them.
    pub(super) fn lend_from(&mut self, other: &mut Self) -> bool {
        let is_lent = matches!(other.parameters, Tensors::Lent(_));
        if is_lent {
            self.parameters = mem::replace(&mut other.parameters, Tensors::NONE);
            // It gives its gradients too.
            if let Tensors::Whole(_) = self.gradients {
                self.gradients = Tensors::NONE;
            }
        }
        is_lent
    }

    /// Zeros for what the optimizer remembers.
    pub(super) fn forget_state(&mut self) {
        let copies = self.copied.iter_mut().flat_map(|copied| &mut copied.state);
        self.state
            .iter_mut()
            .chain(copies)
            .for_each(Tensors::fill_zeros);
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
        for whose in Whose::ALL {
            let Some(part) = self.part(whose, updated) else {
                continue;
            };
            for tensor in 0..partition.count(Which::Trainable) {
                part.gradients.rows(partition, tensor, part.worker, |rows| {
                    rows.iter_mut().for_each(|gradient| *gradient *= by);
                });
            }
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
        let then = match (updated, &self.parameters) {
            (Some(_), Tensors::Whole(_) | Tensors::Lent(_)) => Then::Copy,
            (None, _) | (Some(_), Tensors::Shard { .. }) => Then::Leave,
        };
        for whose in Whose::ALL {
            if let Some(part) = self.part(whose, updated) {
                part.update(partition, optimizer, step, then);
            }
        }
        self.updated = match then {
            Then::Copy => Updated::AsGradients,
            Then::Leave => Updated::InPlace,
        };
    }
}

#[cfg(test)]
impl Copied {
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensors> {
        let tensors = self.parameters.iter().chain(&self.gradients);
        tensors.chain(&self.state)
    }
}

impl Part<'_> {
    /// Lets `act` have the rows of a tensor as they are after the last step.
    pub(super) fn rows<R>(
        &mut self,
        partition: &Partition,
        kind: Kind,
        tensor: usize,
        act: impl FnOnce(&mut [f32]) -> R,
    ) -> R {
        let is_trained = tensor < partition.count(Which::Trainable);
        let tensors = match kind {
            Kind::State(number) => &mut self.state[number],
            Kind::Parameters if self.updated == Updated::AsGradients && is_trained => {
                &mut *self.gradients
            }
            Kind::Parameters => &mut *self.parameters,
        };
        tensors.rows(partition, tensor, self.worker, act)
    }

    fn update<O: ElementWise>(self, partition: &Partition, optimizer: &O, step: u64, then: Then) {
        for tensor in 0..partition.count(Which::Trainable) {
            let state = self
                .state
                .iter_mut()
                .map(|one| one.rows_mut(partition, tensor, self.worker));
            let mut state: Vec<&mut [f32]> = state.collect();
            let (gradients, worker) = (&mut *self.gradients, self.worker);
            self.parameters.rows(partition, tensor, worker, |values| {
                gradients.rows(partition, tensor, worker, |gradients| {
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

fn copy_or_whole<'a>(copy: &'a mut Option<Tensors>, whole: &'a mut Tensors) -> &'a mut Tensors {
    match copy {
        Some(copy) => copy,
        None => whole,
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
