//! `Program`: what a function did with its tensors, as a list of steps. Each value is made once,
//! and has a shape, a layout and a type of elements, but no elements.
//!
//! ```text
//!   recording ──trace──► steps ──dead, repeats──► ──relayouts──► ──fuse──► steps ──run──► tensors
//!                                                                            └─lower─► modules ─┘
//! ```

use std::fmt::{self, Display};
use std::panic::Location;

use crate::record::{AnyTensor, Described, Primitive};

mod chain;
mod dead;
mod fuse;
mod lower;
mod modules;
mod perform;
mod relayouts;
mod repeats;
mod run;
mod scan;
mod symbols;
mod trace;

use chain::Chain;
use modules::Order;
use relayouts::Relayouts;
pub(crate) use scan::{Looped, Turn};
pub(crate) use symbols::symbols;
pub(crate) use trace::traced;

/// The steps that a compiled function takes for arguments of certain shapes and layouts.
///
/// It prints itself: each value is written once, with what it is made by, its shape, layout and
/// elements, and the line of the program that asked for it.
#[derive(Clone)]
pub struct Program {
    /// By the number of each value.
    values: Vec<Described>,
    constants: Vec<(usize, AnyTensor)>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    steps: Vec<Step>,
    recorded: usize,
    relayouts: Relayouts,
    order: Order,
}

#[derive(Clone)]
struct Step {
    task: Task,
    operands: Vec<usize>,
    results: Vec<usize>,
    at: &'static Location<'static>,
}

#[derive(Clone, PartialEq)]
enum Task {
    /// An op, as it is carried out outside of programs.
    One(Primitive),
    /// Element-wise ops, in one pass over the elements.
    Fused(Chain),
}

impl Program {
    /// The same values by fewer and cheaper steps.
    fn optimized(self) -> Result<Self, crate::Error> {
        let mut program = self.simplified()?;
        program.fuse();
        Ok(program.in_order())
    }

    /// The same, without chains.
    fn simplified(mut self) -> Result<Self, crate::Error> {
        self.drop_dead();
        self.merge_repeats();
        self.plan_relayouts()?;
        self.merge_repeats();
        self.drop_dead();
        Ok(self)
    }

    /// How many steps there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether nothing is done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many ops the function did, one by one, before anything was left out or joined.
    #[must_use]
    pub fn recorded(&self) -> usize {
        self.recorded
    }

    /// How many relayouts are left, in steps of their own.
    #[must_use]
    pub fn relayouts(&self) -> usize {
        self.steps.iter().filter(|step| step.is_relayout()).count()
    }

    /// A value that is described so.
    fn add_value(&mut self, described: Described) -> usize {
        self.values.push(described);
        self.values.len() - 1
    }
}

impl Step {
    fn is_relayout(&self) -> bool {
        matches!(
            self.task,
            Task::One(Primitive::Op(meshwork_layout::ops::Op::Relayout(_)))
        )
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        let (recorded, steps) = (self.recorded, self.steps.len());
        writeln!(
            f,
            "{recorded} ops in {steps} steps, from {inputs} inputs to {outputs} outputs"
        )?;
        writeln!(f, "{}", self.relayouts)?;
        writeln!(f, "{}", self.order.explained)?;
        for input in &self.inputs {
            writeln!(f, "  %{input} = input  {}", self.values[*input])?;
        }
        for (constant, _) in &self.constants {
            writeln!(f, "  %{constant} = constant  {}", self.values[*constant])?;
        }
        for step in &self.steps {
            self.write_step(f, step)?;
        }
        write!(f, "  return{}", listed(&self.outputs))
    }
}

impl Program {
    fn write_step(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
        let results = listed(&step.results);
        let operands = listed(&step.operands);
        let name = match &step.task {
            Task::One(Primitive::Scan(scan)) => format!("scan {} times", scan.count),
            Task::One(primitive) => primitive.name().to_owned(),
            Task::Fused(chain) => chain.to_string(),
        };
        let made = step.results.first().map(|result| &self.values[*result]);
        let made = made.map_or_else(String::new, ToString::to_string);
        let (file, line) = (step.at.file(), step.at.line());
        writeln!(f, " {results} = {name}{operands}  {made}  {file}:{line}")?;
        let body = match &step.task {
            Task::One(Primitive::Scan(scan)) => scan.body.lines(),
            Task::One(_) | Task::Fused(_) => Vec::new(),
        };
        let mut lines = body.into_iter();
        lines.try_for_each(|line| writeln!(f, "    {line}"))
    }
}

fn listed(values: &[usize]) -> String {
    values.iter().map(|value| format!(" %{value}")).collect()
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}
