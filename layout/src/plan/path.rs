//! A way from a layout to another.

use smallvec::SmallVec;

use super::problem::{Cost, Place, Problem};
use super::state::{State, SubAxisId, SubAxisSet, members, set};
use super::step::StepKind;

/// Steps from start to goal.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) steps: Vec<Found>,
    pub(super) cost: Cost,
}

/// One step of a path.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) kind: StepKind,
    pub(super) over: SubAxisSet,
    pub(super) bytes: u64,
    pub(super) from: Place,
    pub(super) to: Place,
}

impl Path {
    /// A path of these steps, in which each run of slices is one, and each run of steps that make
    /// terms of copies.
    pub(super) fn of(problem: &Problem, steps: Vec<Found>) -> Self {
        let mut merged: Vec<Found> = Vec::new();
        for step in steps {
            match merged.last_mut() {
                Some(last) if last.continues_with(&step) => {
                    last.over |= step.over;
                    last.to = step.to;
                }
                _ => merged.push(step),
            }
        }
        let costs = merged.iter().map(|step| step.cost(problem));
        Self {
            cost: costs.fold(Cost::default(), Cost::and),
            steps: merged,
        }
    }

    /// The path of one exchange, where that is all it takes: on meshes of very many dimensions it
    /// is not found among all others.
    pub(super) fn exchange(problem: &Problem) -> Option<Self> {
        let (start, goal) = (&problem.start, &problem.goal);
        let same_terms =
            start.partial() == goal.partial() && start.is_renewed() == goal.is_renewed();
        if problem.goal_frame() != 0 || !same_terms {
            return None;
        }
        let frame = problem.frame(0);
        let (mut taken, mut given) = (0, 0);
        let mut parts: SmallVec<[usize; 4]> = SmallVec::new();
        for (from, to) in start.dims().zip(goal.dims()) {
            let common = from.len().min(to.len());
            if from[..common] != to[..common] {
                return None;
            }
            taken |= set(&from[common..]);
            given |= set(&to[common..]);
            parts.push(frame.count(from.iter().chain(&to[common..]).copied()));
        }
        if taken == 0 || taken != given {
            return None;
        }
        let others = frame.count(members(taken)) as u64 - 1;
        let at = |state: &State| Place {
            frame: 0,
            state: state.clone(),
        };
        let step = Found {
            kind: StepKind::AllToAll,
            over: taken,
            bytes: others * problem.tensor.block(parts.into_iter()),
            from: at(start),
            to: at(goal),
        };
        Some(Self::of(problem, vec![step]))
    }

    /// The path by which every device holds the whole tensor in between.
    pub(super) fn through_whole(problem: &Problem) -> Self {
        let (start, goal) = (&problem.start, &problem.goal);
        let mut steps = Vec::new();
        let mut place = Place {
            frame: 0,
            state: start.clone(),
        };
        let mut go = |kind, over, bytes, to: Place| {
            let from = std::mem::replace(&mut place, to.clone());
            if over != 0 {
                steps.push(Found {
                    kind,
                    over,
                    bytes,
                    from,
                    to,
                });
            }
        };
        let block = problem.block(0, start);
        let [ranks, terms] = [start.cutting(), start.partial()]
            .map(|sub_axes| problem.frame(0).count(members(sub_axes)) as u64);
        let at = |frame, state| Place { frame, state };
        let reduced = State::new(start.dims(), 0);
        let all_reduce = (2 * (terms - 1) * block).div_ceil(terms);
        go(
            StepKind::AllReduce,
            start.partial(),
            all_reduce,
            at(0, reduced),
        );
        let whole = State::new(start.dims().map(|_| [].as_slice()), 0);
        go(
            StepKind::AllGather,
            start.cutting(),
            (ranks - 1) * block,
            at(0, whole.clone()),
        );
        let frame = problem.goal_frame();
        go(StepKind::Slice, 0, 0, at(frame, whole));
        let cut = State::new(goal.dims(), 0);
        go(StepKind::Slice, goal.cutting(), 0, at(frame, cut));
        go(
            StepKind::MakePartial,
            goal.partial(),
            0,
            at(frame, goal.clone()),
        );
        Self::of(problem, steps)
    }

    /// The peak memory of a device, in bytes.
    pub(super) fn peak(&self, problem: &Problem) -> u64 {
        let peaks = self.steps.iter().map(|step| step.peak(problem));
        peaks.fold(problem.block(0, &problem.start), u64::max)
    }
}

impl Found {
    pub(super) fn cost(&self, problem: &Problem) -> Cost {
        match self.kind {
            StepKind::Permute => problem.permute_cost(self.bytes),
            StepKind::AllGather
            | StepKind::AllToAll
            | StepKind::ReduceScatter
            | StepKind::AllReduce => problem.cost(self.from.frame, self.over, self.bytes),
            StepKind::Slice | StepKind::MakePartial => Cost::free(),
        }
    }

    /// Whether both are done as one step: slices, and copies that become terms.
    fn continues_with(&self, next: &Self) -> bool {
        let makes_terms_of_copies = |step: &Self| {
            step.kind == StepKind::MakePartial && step.from.state.dims().eq(step.to.state.dims())
        };
        let is_slice = |step: &Self| step.kind == StepKind::Slice;
        [self, next].into_iter().all(is_slice)
            || [self, next].into_iter().all(makes_terms_of_copies)
    }

    /// The memory of a device during the step, in bytes.
    pub(super) fn peak(&self, problem: &Problem) -> u64 {
        let block = |place: &Place| problem.block(place.frame, &place.state);
        block(&self.from) + block(&self.to)
    }
}

/// The permutation between two states of a class.
pub(super) fn permuted(problem: &Problem, from: &Place, to: &Place) -> Found {
    Found {
        kind: StepKind::Permute,
        over: moved(problem, from, to),
        bytes: problem.block(from.frame, &from.state),
        from: from.clone(),
        to: to.clone(),
    }
}

/// The sub-axes of the source along which a permutation moves blocks: those that do not cut as
/// before.
fn moved(problem: &Problem, from: &Place, to: &Place) -> SubAxisSet {
    if from.frame != to.frame {
        return problem.frame(from.frame).all();
    }
    let differing = |(from, to): (&[SubAxisId], &[SubAxisId])| {
        let same = from
            .iter()
            .zip(to)
            .take_while(|(from, to)| from == to)
            .count();
        set(&from[same..]) | set(&to[same..])
    };
    let cut = from.state.dims().zip(to.state.dims()).map(differing);
    cut.fold(
        from.state.partial() ^ to.state.partial(),
        |set, sub_axes| set | sub_axes,
    )
}
