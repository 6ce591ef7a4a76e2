//! All single steps from a state.

use smallvec::SmallVec;

use super::problem::{Cost, Place, Problem};
use super::state::{Cuts, State, SubAxisSet, bit, members, set};
use super::step::StepKind;

/// A step from a state to another of the same frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Move {
    pub(super) kind: StepKind,
    /// The sub-axes along which devices exchange, or that begin or cease to cut or to be partial.
    pub(super) over: SubAxisSet,
    /// The most bytes that any device receives.
    pub(super) bytes: u64,
    pub(super) cost: Cost,
    pub(super) to: State,
    /// The bytes of the largest block afterwards.
    pub(super) block: u64,
    /// A cost that no plan from there can beat.
    pub(super) bound: Cost,
}

/// Which moves are worth to be made.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// The cost up to the state that moves are made from.
    pub(super) spent: Cost,
    /// The cost from which on nothing is of use.
    pub(super) best: Option<Cost>,
    /// How many moves may still be looked at.
    pub(super) effort: u64,
}

impl Limit {
    fn excludes(&self, rest: Cost) -> bool {
        self.best.is_some_and(|best| best <= self.spent.and(rest))
    }
}

/// A state that moves are made from, taken apart.
pub(super) struct Moves<'a> {
    problem: &'a Problem,
    frame: u8,
    state: &'a State,
    dims: SmallVec<[Cuts; 4]>,
    idle: SubAxisSet,
    block: u64,
    makes_partial: bool,
    limit: &'a mut Limit,
    found: Vec<Move>,
}

impl<'a> Moves<'a> {
    /// The slices, which are all that costs nothing but memory.
    pub(super) fn slices(
        problem: &'a Problem,
        place: &'a Place,
        limit: &'a mut Limit,
    ) -> Vec<Move> {
        let mut moves = Self::new(problem, place, limit);
        moves.slice();
        moves.found
    }

    /// All moves but slices and permutations.
    pub(super) fn others(
        problem: &'a Problem,
        place: &'a Place,
        limit: &'a mut Limit,
    ) -> Vec<Move> {
        let mut moves = Self::new(problem, place, limit);
        moves.take_suffixes();
        moves.reduce();
        if moves.makes_partial {
            moves.make_partial();
        }
        moves.found
    }

    fn new(problem: &'a Problem, place: &'a Place, limit: &'a mut Limit) -> Self {
        let Place { frame, state } = place;
        let used = state.cutting() | state.partial();
        Self {
            problem,
            frame: *frame,
            state,
            dims: state.dims().map(Cuts::from_slice).collect(),
            idle: problem.frame(*frame).all() & !used,
            block: problem.block(*frame, state),
            makes_partial: problem.may_make_partial(state),
            limit,
            found: Vec::new(),
        }
    }

    /// An idle sub-axis cuts what is left of one tensor dimension.
    fn slice(&mut self) {
        for sub_axis in members(self.idle) {
            for dim in 0..self.dims.len() {
                self.dims[dim].push(sub_axis);
                self.push(StepKind::Slice, bit(sub_axis), self.state.partial(), |_| 0);
                self.dims[dim].pop();
            }
        }
    }

    /// The most minor sub-axes of tensor dimensions, as many of each as there are ways to choose,
    /// are gathered, or exchanged so that they cut other dimensions, or made partial: what a rank
    /// does not hold is filled with terms that change nothing.
    fn take_suffixes(&mut self) {
        let whole = self.dims.clone();
        let mut kept: SmallVec<[usize; 4]> = whole.iter().map(SmallVec::len).collect();
        while self.limit.effort > 0
            && let Some(dim) = kept.iter().position(|&kept| kept > 0)
        {
            // Counts down through all combinations, the first dimension fastest.
            kept[dim] -= 1;
            for (kept, cuts) in kept[..dim].iter_mut().zip(&whole) {
                *kept = cuts.len();
            }
            let taken = whole
                .iter()
                .zip(&kept)
                .flat_map(|(cuts, &kept)| &cuts[kept..]);
            let taken: Cuts = taken.copied().collect();
            for (dim, (cuts, &kept)) in self.dims.iter_mut().zip(whole.iter().zip(&kept)) {
                dim.clear();
                dim.extend_from_slice(&cuts[..kept]);
            }
            let untouched = |dim: &usize| kept[*dim] == whole[*dim].len();
            let targets: SmallVec<[usize; 4]> = (0..whole.len()).filter(untouched).collect();
            self.take(&taken, &targets, &whole);
        }
        self.dims = whole;
    }

    fn take(&mut self, taken: &Cuts, targets: &[usize], whole: &[Cuts]) {
        let over = set(taken);
        let others = self.problem.frame(self.frame).count(taken.iter().copied()) as u64 - 1;
        let block = self.block;
        self.push(StepKind::AllGather, over, self.state.partial(), |_| {
            others * block
        });
        let (problem, frame) = (self.problem, self.frame);
        if self.makes_partial {
            let partial = self.state.partial() | over;
            self.push(StepKind::MakePartial, over, partial, |_| 0);
        }
        self.distribute(over, targets, &mut |moves| {
            let longer = moves.dims.iter().zip(whole).map(|(dim, whole)| {
                let sub_axes = if dim.len() > whole.len() { dim } else { whole };
                problem.frame(frame).count(sub_axes.iter().copied())
            });
            let chunk = problem.tensor.block(longer);
            let partial = moves.state.partial();
            moves.push(StepKind::AllToAll, over, partial, |_| others * chunk);
        });
    }

    /// Partial sub-axes are reduced, and cut tensor dimensions or are idle from then on.
    fn reduce(&mut self) {
        let partial = self.state.partial();
        let targets: SmallVec<[usize; 4]> = (0..self.dims.len()).collect();
        // All subsets but the empty one, descending.
        let mut over = partial;
        while over != 0 && self.limit.effort > 0 {
            let rest = partial & !over;
            let count = self.problem.frame(self.frame).count(members(over)) as u64;
            let block = self.block;
            let all_reduce = (2 * (count - 1) * block).div_ceil(count);
            self.push(StepKind::AllReduce, over, rest, |_| all_reduce);
            self.distribute(over, &targets, &mut |moves| {
                moves.push(StepKind::ReduceScatter, over, rest, |block| {
                    (count - 1) * block
                });
            });
            over = (over - 1) & partial;
        }
    }

    /// Where ranks hold the same along an idle sub-axis, all but the first take for their term one
    /// that changes nothing.
    fn make_partial(&mut self) {
        for sub_axis in members(self.idle) {
            let partial = self.state.partial() | bit(sub_axis);
            self.push(StepKind::MakePartial, bit(sub_axis), partial, |_| 0);
        }
    }

    /// Every way to append these sub-axes, in any order, to some of the tensor dimensions.
    fn distribute(
        &mut self,
        sub_axes: SubAxisSet,
        targets: &[usize],
        found: &mut dyn FnMut(&mut Self),
    ) {
        if self.limit.effort == 0 {
            return;
        }
        if sub_axes == 0 {
            return found(self);
        }
        let Some((&dim, later)) = targets.split_first() else {
            return;
        };
        for sub_axis in members(sub_axes) {
            self.dims[dim].push(sub_axis);
            self.distribute(sub_axes & !bit(sub_axis), targets, found);
            self.dims[dim].pop();
        }
        self.distribute(sub_axes, later, found);
    }

    /// The move to what the dimensions are now; its bytes depend on those of the block there.
    fn push(
        &mut self,
        kind: StepKind,
        over: SubAxisSet,
        partial: SubAxisSet,
        bytes: impl FnOnce(u64) -> u64,
    ) {
        self.limit.effort = self.limit.effort.saturating_sub(1);
        let frame = self.problem.frame(self.frame);
        let parts = self
            .dims
            .iter()
            .map(|cuts| frame.count(cuts.iter().copied()));
        let parts: SmallVec<[usize; 8]> = parts.collect();
        let block = self.problem.tensor.block(parts.iter().copied());
        let bytes = bytes(block);
        let cost = match kind.communicates() {
            true => self.problem.cost(self.frame, over, bytes),
            false => Cost::free(),
        };
        let dims = || self.dims.iter().map(SmallVec::as_slice);
        let held = self.problem.held(self.frame, dims(), partial);
        let bound = self.problem.bound_of(held, parts.into_iter());
        if self.limit.excludes(cost.and(bound)) {
            return;
        }
        let to = State::new(dims(), partial);
        let renewed = self.problem.two_reductions
            && (self.state.is_renewed() || kind == StepKind::MakePartial);
        self.found.push(Move {
            kind,
            over,
            bytes,
            cost,
            to: if renewed { to.renewed() } else { to },
            block,
            bound,
        });
    }
}
