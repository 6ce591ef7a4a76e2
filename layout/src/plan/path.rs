//! A way from a layout to another.

use super::problem::{Cost, Place, Problem};
use super::state::{State, SubAxisId, SubAxisSet, bit};
use super::step::StepKind;

/// Steps from start to goal.
#[derive(Clone, Debug)]
pub(super) struct Path {
    pub(super) steps: Vec<Found>,
    pub(super) cost: Cost,
    /// Whether it is proven optimal.
    pub(super) is_proven: bool,
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
    /// A path of these steps, with each run of slices made one.
    pub(super) fn of(problem: &Problem, steps: Vec<Found>) -> Self {
        let mut merged: Vec<Found> = Vec::new();
        for step in steps {
            match merged.last_mut() {
                Some(last) if step.kind == StepKind::Slice && last.kind == StepKind::Slice => {
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
            is_proven: false,
        }
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
            .map(|sub_axes| problem.frame(0).count(super::state::members(sub_axes)) as u64);
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
        let rest = from[same..].iter().chain(&to[same..]);
        rest.fold(0, |set, &sub_axis| set | bit(sub_axis))
    };
    let cut = from.state.dims().zip(to.state.dims()).map(differing);
    cut.fold(
        from.state.partial() ^ to.state.partial(),
        |set, sub_axes| set | sub_axes,
    )
}
