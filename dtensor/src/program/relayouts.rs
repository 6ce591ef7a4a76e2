//! Relayouts of a whole program: those that ops ask for in silence become steps, one tensor is
//! brought into one layout once, from the copy of it from which that is cheapest.

use std::fmt::{self, Display};
use std::panic::Location;
use std::time::Duration;

use meshwork_layout::ops::{Op, TensorLayout, infer};
use meshwork_layout::{Layout, Relayout};

use super::{Program, Step, Task};
use crate::Error;
use crate::record::{Described, Primitive};

/// What became of relayouts, which `Display` tells.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Relayouts {
    /// How many the function or its ops asked for.
    asked: usize,
    /// How many of these found a copy that lies so.
    reused: usize,
    /// How many start from another copy than the one that was named, as that is cheaper.
    moved: usize,
    /// What all that are left take, by their plans.
    time: Duration,
    bytes: u64,
}

impl Display for Relayouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            asked,
            reused,
            moved,
            time,
            bytes,
        } = self;
        write!(
            f,
            "{asked} relayouts asked for: {reused} are copies that are there, {moved} start from a \
             nearer copy; the rest receive {bytes} B on each device and take {time:.1?}"
        )
    }
}

/// The op that says how operands of a primitive have to lie, and what it takes before them that is
/// no tensor; none where they may lie as they do.
fn rule(primitive: &Primitive) -> Option<(Op, &[TensorLayout])> {
    let op = match primitive {
        Primitive::RowsAdded(table) => {
            return Some((Op::EmbeddingGradient, std::slice::from_ref(&**table)));
        }
        Primitive::Op(op) => op.clone(),
        Primitive::Pairwise(_) => Op::Elementwise,
        Primitive::LogSoftmax { axis } => Op::Softmax { axis: *axis },
        Primitive::ArgMin { axis } => Op::ArgReduce { axis: *axis },
        Primitive::Given
        | Primitive::Pointwise(_)
        | Primitive::ByNumber(..)
        | Primitive::Cast(_)
        | Primitive::Scan(_)
        | Primitive::Closure(_) => return None,
    };
    Some((op, &[]))
}

impl Program {
    pub(super) fn plan_relayouts(&mut self) -> Result<(), Error> {
        let steps = std::mem::take(&mut self.steps);
        let mut planner = Planner {
            same: (0..self.values.len()).collect(),
            copies: Vec::new(),
            program: self,
        };
        for step in steps {
            planner.take(step)?;
        }
        let same = planner.same;
        for output in &mut self.outputs {
            *output = same[*output];
        }
        Ok(())
    }
}

struct Planner<'a> {
    program: &'a mut Program,
    /// What stands for each value of the program before.
    same: Vec<usize>,
    /// Values that are one tensor in several layouts.
    copies: Vec<Vec<usize>>,
}

impl Planner<'_> {
    fn take(&mut self, mut step: Step) -> Result<(), Error> {
        for operand in &mut step.operands {
            *operand = self.same[*operand];
        }
        let Task::One(primitive) = &step.task else {
            self.program.steps.push(step);
            return Ok(());
        };
        if let (Primitive::Op(Op::Relayout(to)), [from], [result]) =
            (primitive, &step.operands[..], &step.results[..])
        {
            self.same[*result] = self.laid([*from, *result], to, step.at)?;
            return Ok(());
        }
        if let Some((op, leading)) = rule(primitive) {
            step.operands = self.operands(&op, leading, step.operands, step.at)?;
        }
        self.program.steps.push(step);
        Ok(())
    }

    /// Operands as the op has to have them, if it then does the same; else as they are.
    fn operands(
        &mut self,
        op: &Op,
        leading: &[TensorLayout],
        given: Vec<usize>,
        at: &'static Location<'static>,
    ) -> Result<Vec<usize>, Error> {
        let placement = |value: &usize| self.program.values[*value].placement.clone();
        let before: Vec<TensorLayout> = given.iter().map(placement).collect();
        let inferred = infer(op, &[leading, &before].concat())?;
        let needed = before.iter().zip(&inferred.operands()[leading.len()..]);
        let needed = needed
            .map(|(own, layout)| TensorLayout::new(own.shape().iter().copied(), layout.clone()));
        let needed: Vec<TensorLayout> = needed.collect::<Result<_, _>>()?;
        let again = infer(op, &[leading, &needed].concat())?;
        if again.operands() != inferred.operands() || again.results() != inferred.results() {
            return Ok(given);
        }
        let mut laid = Vec::with_capacity(given.len());
        for (value, needed) in given.into_iter().zip(&needed) {
            let layout = needed.layout();
            if self.program.values[value].placement.layout() == layout {
                laid.push(value);
                continue;
            }
            let placement = needed.clone();
            let element = self.program.values[value].element;
            let made = self.program.add_value(Described { placement, element });
            self.same.push(made);
            laid.push(self.laid([value, made], layout, at)?);
        }
        Ok(laid)
    }

    /// A value in a layout: a copy that lies so, or else a new one.
    fn laid(
        &mut self,
        [value, made]: [usize; 2],
        layout: &Layout,
        at: &'static Location<'static>,
    ) -> Result<usize, Error> {
        self.program.relayouts.asked += 1;
        let group = self.group(value);
        let copies = self.copies[group].clone();
        let lies = |copy: &&usize| self.program.values[**copy].placement.layout() == layout;
        if let Some(copy) = copies.iter().find(lies) {
            self.program.relayouts.reused += 1;
            return Ok(*copy);
        }
        let (mut nearest, mut cost) = (value, self.cost(value, layout)?);
        for copy in copies {
            let other = self.cost(copy, layout)?;
            if other < cost {
                (nearest, cost) = (copy, other);
            }
        }
        self.program.relayouts.moved += usize::from(nearest != value);
        self.program.relayouts.time += cost.0;
        self.program.relayouts.bytes += cost.1;
        self.copies[group].push(made);
        let relayout = Primitive::Op(Op::Relayout(Box::new(layout.clone())));
        self.program.steps.push(Step {
            task: Task::One(relayout),
            operands: vec![nearest],
            results: vec![made],
            at,
        });
        Ok(made)
    }

    /// The time that a relayout takes by its plan, and the bytes that each device receives.
    fn cost(&self, value: usize, layout: &Layout) -> Result<(Duration, u64), Error> {
        let Described { placement, element } = &self.program.values[value];
        let relayout = Relayout::new(
            placement.layout(),
            layout,
            placement.shape(),
            element.size(),
        )?;
        let plan = relayout.plan()?;
        Ok((plan.time(), plan.bytes()))
    }

    fn group(&mut self, value: usize) -> usize {
        let known = self
            .copies
            .iter()
            .position(|copies| copies.contains(&value));
        known.unwrap_or_else(|| {
            self.copies.push(vec![value]);
            self.copies.len() - 1
        })
    }
}
