//! One step of a plan, carried out.

use std::collections::BTreeMap;
use std::ops::Range;

use meshwork_core::MeshRank;

use super::broken::Broken;
use super::grid::{Grid, shard};
use super::value::Term;
use crate::plan::{MeshPlacement, Plan, PlanStep, StepKind};

/// The block of a rank: a range of cells for each tensor dimension, and a value for each cell,
/// row-major.
#[derive(Clone, Debug)]
pub(super) struct Block<T> {
    pub(super) cells: Vec<Range<usize>>,
    pub(super) values: Vec<T>,
}

impl<T: Term> Block<T> {
    fn at(&self, cell: &[usize]) -> Option<T> {
        let mut place = 0;
        for (range, at) in self.cells.iter().zip(cell) {
            if !range.contains(at) {
                return None;
            }
            place = place * range.len() + at - range.start;
        }
        self.values.get(place).copied()
    }
}

/// One step of a plan that is carried out.
pub(super) struct Execution<'a> {
    plan: &'a Plan,
    grid: &'a Grid,
    number: usize,
    step: &'a PlanStep,
}

impl<'a> Execution<'a> {
    /// The step of this number, from 0.
    pub(super) fn of(plan: &'a Plan, grid: &'a Grid, number: usize, step: &'a PlanStep) -> Self {
        Self {
            plan,
            grid,
            number,
            step,
        }
    }

    pub(super) fn run<T: Term>(&self, held: &[Block<T>]) -> Result<Vec<Block<T>>, Broken> {
        let after = self.step.after();
        let donors = self.permutation()?;
        let new = after.mesh().ranks().map(|rank| {
            let cells = self.covered(after, rank);
            let group = self.group(rank, donors.as_deref());
            let mut received = 0;
            let values = self.grid.cells(&cells).map(|cell| {
                let (value, from_others) = self.value(rank, &cell, held, &group)?;
                received += from_others * self.grid.volume(&cell);
                Ok(value)
            });
            let values = values.collect::<Result<Vec<T>, Broken>>()?;
            self.check_received(rank, received)?;
            Ok(Block { cells, values })
        });
        new.collect()
    }

    /// The value of a cell that a rank holds after the step, and how many values it received for
    /// it.
    fn value<T: Term>(
        &self,
        rank: MeshRank,
        cell: &[usize],
        held: &[Block<T>],
        group: &[MeshRank],
    ) -> Result<(T, usize), Broken> {
        let own = held[rank.index()].at(cell);
        let mut found = group.iter().filter_map(|peer| held[peer.index()].at(cell));
        let found = match self.step.kind() {
            StepKind::MakePartial => {
                let repeats = self.step.had_copies() && !self.is_first(rank);
                let neutral = self.step.after().reduction().map(T::neutral);
                own.filter(|_| !repeats).or(neutral).map(|value| (value, 0))
            }
            StepKind::AllReduce | StepKind::ReduceScatter => {
                let terms: Vec<T> = found.collect();
                let complete = terms.len() == group.len();
                let reduction = self.step.before().reduction().filter(|_| complete);
                // However the group shares the work, something arrives for each element.
                reduction.and_then(|reduction| {
                    let sum = terms
                        .into_iter()
                        .reduce(|sum, term| sum.reduce(term, reduction));
                    Some((sum?, 1))
                })
            }
            StepKind::Permute => found.next().map(|value| (value, 1)),
            _ => {
                let other = || Some((found.next()?, 1));
                own.map(|value| (value, 0)).or_else(other)
            }
        };
        found.ok_or_else(|| Broken::Missing {
            step: self.number,
            rank,
            index: cell.to_vec(),
        })
    }

    /// The ranks that a rank may receive from, and itself.
    fn group(&self, rank: MeshRank, donors: Option<&[MeshRank]>) -> Vec<MeshRank> {
        if let Some(donors) = donors {
            return vec![donors[rank.index()]];
        }
        if !self.step.kind().communicates() {
            return vec![rank];
        }
        let group = self.step.group_of(rank).expect("a rank of the mesh");
        group.collect()
    }

    /// For a permutation, the rank whose block each rank receives: one with the same block and the
    /// same term, and another for each copy.
    fn permutation(&self) -> Result<Option<Vec<MeshRank>>, Broken> {
        if self.step.kind() != StepKind::Permute {
            return Ok(None);
        }
        let key = |placement: &MeshPlacement, rank| {
            let cells = self.covered(placement, rank);
            let bounds = cells.iter().flat_map(|range| [range.start, range.end]);
            (bounds.collect::<Vec<_>>(), placement.term(rank))
        };
        let mut donors: BTreeMap<_, Vec<MeshRank>> = BTreeMap::new();
        for rank in self.step.before().mesh().ranks() {
            donors
                .entry(key(self.step.before(), rank))
                .or_default()
                .push(rank);
        }
        let after = self.step.after();
        let donor = |rank| {
            let donor = donors.get_mut(&key(after, rank)).and_then(Vec::pop);
            donor.ok_or(Broken::Disconnected {
                step: self.number,
                rank,
            })
        };
        let donors: Result<Vec<MeshRank>, Broken> = after.mesh().ranks().map(donor).collect();
        donors.map(Some)
    }

    fn check_received(&self, rank: MeshRank, received: usize) -> Result<(), Broken> {
        let bytes = usize::try_from(self.step.bytes()).unwrap_or(usize::MAX);
        let planned = bytes / self.plan.element_size().max(1);
        if received <= planned {
            return Ok(());
        }
        Err(Broken::Received {
            step: self.number,
            rank,
            received,
            planned,
        })
    }

    fn is_first(&self, rank: MeshRank) -> bool {
        self.step.over().iter().all(|part| part.coord(rank) == 0)
    }

    fn covered(&self, placement: &MeshPlacement, rank: MeshRank) -> Vec<Range<usize>> {
        self.grid
            .covered(&shard(placement, rank, self.plan.shape()))
    }
}
