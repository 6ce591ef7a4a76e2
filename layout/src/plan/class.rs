//! States that a permutation turns into each other.

use smallvec::SmallVec;

use super::evenness::splits_alike;
use super::frame::Frame;
use super::problem::{Cost, Held, Problem};
use super::state::{Cuts, State, SubAxisId, SubAxisSet, bit, members};

/// The equivalence class of states that differ only in which device holds which block: where tensor
/// dimensions are cut, and how many terms there are of each element.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Class {
    /// For each tensor dimension the sizes it is cut by, major to minor. Where it has the same
    /// parts when it is cut at once, only their product matters.
    cuts: SmallVec<[SmallVec<[usize; 2]>; 4]>,
    terms: usize,
    renewed: bool,
}

impl Class {
    pub(super) fn of(problem: &Problem, frame: u8, state: &State) -> Self {
        let frame = problem.frame(frame);
        let cuts = |(cuts, &size): (&[SubAxisId], &usize)| {
            let sizes = sizes(frame, cuts);
            match splits_alike(size, &sizes) {
                true => SmallVec::from_iter([frame.count(cuts.iter().copied())]),
                false => sizes,
            }
        };
        Self {
            cuts: state.dims().zip(&problem.tensor.shape).map(cuts).collect(),
            terms: frame.count(members(state.partial())),
            renewed: state.is_renewed(),
        }
    }

    /// A cost that no plan from any of these states can beat.
    pub(super) fn bound(&self, problem: &Problem) -> Cost {
        let parts = self.cuts.iter().map(|sizes| sizes.iter().product());
        let held = if self.terms > 1 {
            Held::Nothing
        } else {
            Held::Overlap
        };
        problem.bound_of(held, parts)
    }

    /// All states of this class in a frame; some, where the effort that may be taken is used up.
    pub(super) fn states(&self, problem: &Problem, frame: &Frame, effort: &mut u64) -> Vec<State> {
        let mut filling = Filling {
            class: self,
            shape: &problem.tensor.shape,
            frame,
            effort,
            dims: SmallVec::new(),
            found: Vec::new(),
        };
        filling.fill(frame.all());
        filling.found
    }
}

/// A state of a class under construction.
struct Filling<'a> {
    class: &'a Class,
    shape: &'a [usize],
    frame: &'a Frame,
    effort: &'a mut u64,
    dims: SmallVec<[Cuts; 4]>,
    found: Vec<State>,
}

impl Filling<'_> {
    /// Fills the next tensor dimension with some of these sub-axes, and then the others.
    fn fill(&mut self, free: SubAxisSet) {
        let dim = self.dims.len();
        match self.class.cuts.get(dim) {
            Some(sizes) => {
                self.dims.push(Cuts::new());
                match sizes.as_slice() {
                    [parts] => self.fill_product(*parts, free),
                    sizes => self.fill_sizes(sizes, free),
                }
                self.dims.pop();
            }
            None => self.fill_partial(1, 0, free),
        }
    }

    /// Extends the last tensor dimension by sub-axes with this product, in any order that gives the
    /// same parts as cutting at once.
    fn fill_product(&mut self, parts: usize, free: SubAxisSet) {
        if parts == 1 {
            let dim = self.dims.len() - 1;
            if splits_alike(self.shape[dim], &sizes(self.frame, &self.dims[dim])) {
                self.fill(free);
            }
            return;
        }
        for sub_axis in members(free) {
            let size = self.frame.size(sub_axis);
            if parts.is_multiple_of(size) {
                self.with(sub_axis, |filling| {
                    filling.fill_product(parts / size, free & !bit(sub_axis));
                });
            }
        }
    }

    /// Extends the last tensor dimension by sub-axes of these sizes, in this order.
    fn fill_sizes(&mut self, sizes: &[usize], free: SubAxisSet) {
        let Some((&size, rest)) = sizes.split_first() else {
            return self.fill(free);
        };
        for sub_axis in members(free) {
            if self.frame.size(sub_axis) == size {
                self.with(sub_axis, |filling| {
                    filling.fill_sizes(rest, free & !bit(sub_axis));
                });
            }
        }
    }

    fn with(&mut self, sub_axis: SubAxisId, then: impl FnOnce(&mut Self)) {
        if !self.spend() {
            return;
        }
        let dim = self.dims.len() - 1;
        self.dims[dim].push(sub_axis);
        then(self);
        // What follows closes the dimensions it opens.
        self.dims[dim].pop();
    }

    /// Makes sub-axes partial, ascending, until there are as many terms as wanted.
    fn fill_partial(&mut self, terms: usize, partial: SubAxisSet, free: SubAxisSet) {
        if terms == self.class.terms {
            let state = State::new(self.dims.iter().map(SmallVec::as_slice), partial);
            self.found.push(if self.class.renewed {
                state.renewed()
            } else {
                state
            });
            return;
        }
        for sub_axis in members(free) {
            let terms = terms * self.frame.size(sub_axis);
            if self.class.terms.is_multiple_of(terms) && self.spend() {
                let above = free & !(bit(sub_axis) | (bit(sub_axis) - 1));
                self.fill_partial(terms, partial | bit(sub_axis), above);
            }
        }
    }

    /// Takes one of the effort, if any is left.
    fn spend(&mut self) -> bool {
        let is_left = *self.effort > 0;
        *self.effort -= u64::from(is_left);
        is_left
    }
}

fn sizes(frame: &Frame, cuts: &[SubAxisId]) -> SmallVec<[usize; 2]> {
    cuts.iter().map(|&sub_axis| frame.size(sub_axis)).collect()
}
