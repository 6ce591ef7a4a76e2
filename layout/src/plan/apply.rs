//! Plans carried out in memory, to prove them.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_core::MeshRank;

use super::Plan;
use crate::PartialReduction;

mod broken;
mod execution;
mod grid;
mod value;

use execution::{Block, Execution};
use grid::{End, Grid};

pub use broken::Broken;
pub use value::Term;

impl Plan {
    /// Carries the plan out on one shard for each rank of the source's mesh, row-major, and returns
    /// those of the ranks of the target's mesh.
    ///
    /// In each step a rank sees nothing but the shards of its group.
    ///
    /// # Errors
    /// [`Broken`]; for shards that fit the layout there is none, unless the planner is wrong.
    pub fn apply<T: Term>(&self, shards: &[Vec<T>]) -> Result<Vec<Vec<T>>, Broken> {
        let cells = self.shape().iter().map(|&size| (0..=size).collect());
        self.carry_out(&Grid::with_bounds(cells.collect()), shards)
    }

    /// Carries the plan out on symbols, one for each part of the tensor that no step cuts, so that
    /// its size does not matter, and checks what each rank of the target ends with.
    ///
    /// # Errors
    /// [`Broken`], if the planner is wrong.
    pub fn prove(&self) -> Result<(), Broken> {
        let grid = Grid::of(self);
        let mut terms: BTreeMap<Vec<usize>, Vec<i64>> = BTreeMap::new();
        let source = End::new(self.from());
        let mut shards = Vec::new();
        for rank in self.from().mesh().ranks() {
            let mut shard = Vec::new();
            for cell in grid.cells(&grid.covered(&source.held(rank, self.shape()))) {
                let term = source.term(rank);
                shard.push(symbol(&cell, term));
                let known = terms.entry(cell.clone()).or_default();
                // Copies of a term are the same.
                if known.len() == term {
                    known.push(symbol(&cell, term));
                }
            }
            shards.push(shard);
        }
        let ended = self.carry_out(&grid, &shards)?;
        let wanted = |cell: &[usize]| reduced(&terms[cell], self.from().reduction());
        check(&grid, self, &ended, wanted)
    }

    fn carry_out<T: Term>(&self, grid: &Grid, shards: &[Vec<T>]) -> Result<Vec<Vec<T>>, Broken> {
        let ranks = self.from().mesh().size();
        if shards.len() != ranks {
            return Err(Broken::ShardCount {
                found: shards.len(),
                expected: ranks,
            });
        }
        let mut held = Vec::with_capacity(ranks);
        let source = End::new(self.from());
        for (rank, values) in self.from().mesh().ranks().zip(shards) {
            let cells = grid.covered(&source.held(rank, self.shape()));
            let (found, expected) = (values.len(), cells.iter().map(Range::len).product());
            if found != expected {
                return Err(Broken::ShardLength {
                    rank,
                    found,
                    expected,
                });
            }
            let values = values.clone();
            held.push(Block { cells, values });
        }
        for (number, step) in self.steps().iter().enumerate() {
            held = Execution::of(self, grid, number, step).run(&held)?;
        }
        self.ended(grid, held)
    }

    /// The shards of the target's ranks, which may be numbered otherwise than where the last step
    /// left them.
    fn ended<T: Term>(&self, grid: &Grid, held: Vec<Block<T>>) -> Result<Vec<Vec<T>>, Broken> {
        let target = End::new(self.to());
        let last = self
            .steps()
            .last()
            .map_or_else(|| self.from().mesh(), |step| step.after().mesh());
        let renumbered = *last != self.target_mesh;
        let values = self.to().mesh().ranks().map(|rank| {
            let place = match renumbered {
                true => self.numbering.of(&self.target_mesh, rank),
                false => rank,
            };
            let block = &held[place.index()];
            let wanted = grid.covered(&target.held(rank, self.shape()));
            let empty = |cells: &[Range<usize>]| cells.iter().any(Range::is_empty);
            if block.cells != wanted && !(empty(&block.cells) && empty(&wanted)) {
                let step = self.steps().len();
                return Err(Broken::Disconnected { step, rank });
            }
            Ok(block.values.clone())
        });
        values.collect()
    }
}

/// Whether each rank of the target ends with what is wanted: as it is, or after the reduction that
/// is still to be done.
fn check(
    grid: &Grid,
    plan: &Plan,
    ended: &[Vec<i64>],
    wanted: impl Fn(&[usize]) -> i64,
) -> Result<(), Broken> {
    let target = End::new(plan.to());
    let mut sums: BTreeMap<(usize, Vec<usize>), i64> = BTreeMap::new();
    for (rank, values) in plan.to().mesh().ranks().zip(ended) {
        let block = grid.covered(&target.held(rank, plan.shape()));
        for (cell, &value) in grid.cells(&block).zip(values) {
            let reduction = plan.to().reduction();
            let sum = sums.entry((target.first(rank), cell));
            sum.and_modify(|sum| *sum = reduced(&[*sum, value], reduction))
                .or_insert(value);
        }
    }
    for ((rank, index), sum) in sums {
        if sum != wanted(&index) {
            let rank = MeshRank::new(rank);
            return Err(Broken::Wrong { rank, index });
        }
    }
    Ok(())
}

fn reduced(terms: &[i64], reduction: Option<PartialReduction>) -> i64 {
    let reduction = reduction.unwrap_or(PartialReduction::Max);
    let all = terms
        .iter()
        .copied()
        .reduce(|sum, term| sum.reduce(term, reduction));
    all.unwrap_or_else(|| i64::neutral(reduction))
}

/// A number for a term of a cell that no other has, as good as surely.
fn symbol(cell: &[usize], term: usize) -> i64 {
    let mixed = cell.iter().chain([&term]).fold(SEED, |mixed, &number| {
        (mixed ^ number as u64)
            .wrapping_mul(MULTIPLIER)
            .rotate_left(29)
    });
    mixed.cast_signed() >> 1
}

// Arbitrary odd numbers.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xd134_2543_de82_ef95;
