//! From steps to graphs for the devices of a backend: each step is carried out on a backend that
//! takes note of what it is asked, and what all devices are asked alike is a graph. A step of which
//! that is not so is carried out by itself, between two graphs.
//!
//! ```text
//!     steps    0  1  2  3  4  5          3 looks at elements on the host
//!     parts    [module 0 1 2] [3] [module 4 5]
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use meshwork_accel::{Graph, Vector};
use meshwork_core::Mesh;
use meshwork_layout::Shape;

use super::{Program, Step, Task};
use crate::backend::{Backend, Bound, LocalDevices, Recorder, Unlike};
use crate::record::{AnyTensor, Described, made_of};
use crate::{Apart, Context, Error};

/// A graph in the place of steps.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    pub(super) graph: Graph,
    /// The values of the program that it needs, and those that it gives.
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// The steps that it stands for.
    pub(super) steps: Vec<usize>,
    /// Inputs by their place, whose elements have to be indices.
    pub(super) bounds: Vec<Bound>,
}

/// What is done at once.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Graph(Box<Lowered>),
    Step(usize),
}

/// A program in pieces, in order, and why steps are by themselves.
pub(super) struct Pieces {
    pub(super) pieces: Vec<Piece>,
    pub(super) apart: Vec<(usize, Apart)>,
}

/// The graphs and steps of a program on the devices of a mesh, and why steps are in no graph.
pub(super) fn lowered(
    program: &Program,
    context: &Context,
    site: &LocalDevices,
    like: Option<&Backend>,
) -> Result<Pieces, Error> {
    let (recorder, backend) = Recorder::new(site.devices.clone(), like.cloned());
    let mut lowerer = Lowerer {
        program,
        shadow: context.recording(&backend),
        context,
        site,
        recorder,
        backend,
        like,
        open: Open::default(),
        pieces: Vec::new(),
        apart: Vec::new(),
    };
    for number in 0..program.steps.len() {
        lowerer.step(number)?;
    }
    lowerer.close(program.steps.len())?;
    let Lowerer { pieces, apart, .. } = lowerer;
    Ok(Pieces { pieces, apart })
}

struct Lowerer<'a> {
    program: &'a Program,
    context: &'a Context,
    /// The same clients and devices, on a backend that takes note.
    shadow: Context,
    site: &'a LocalDevices,
    recorder: Arc<Recorder>,
    backend: Backend,
    like: Option<&'a Backend>,
    open: Open,
    pieces: Vec<Piece>,
    apart: Vec<(usize, Apart)>,
}

/// A graph to which steps are still added.
#[derive(Default)]
struct Open {
    /// By the numbers of the program's values.
    tensors: BTreeMap<usize, AnyTensor>,
    /// Values that come from outside, and their numbers in the recording.
    inputs: Vec<[usize; 2]>,
    /// Steps, and how many values were recorded before each.
    steps: Vec<[usize; 2]>,
    bounds: Vec<Bound>,
}

impl Lowerer<'_> {
    fn step(&mut self, number: usize) -> Result<(), Error> {
        let mark = self.recorder.len();
        match self.attempt(&self.program.steps[number], mark) {
            Ok(()) => self.open.steps.push([number, mark]),
            Err(why) => {
                self.forget(mark);
                self.close(number)?;
                self.pieces.push(Piece::Step(number));
                self.apart.push((number, why));
            }
        }
        Ok(())
    }

    /// Carries a step out on values of the graph.
    fn attempt(&mut self, step: &Step, mark: usize) -> Result<(), Apart> {
        let mut operands = Vec::with_capacity(step.operands.len());
        for operand in &step.operands {
            operands.push(self.tensor(*operand)?);
        }
        let values = step
            .results
            .iter()
            .map(|result| &self.program.values[*result]);
        for value in values {
            self.check(value)?;
        }
        // Whatever it is that an op lacks here, it lacks on the devices too, where the host helps.
        let made = match self.rolled(step, &operands)? {
            Some(made) => made,
            None => {
                let made = self.program.carried_out(step, operands);
                made.map_err(|_| Apart::OnHost)?
            }
        };
        let mut held = Vec::with_capacity(made.len());
        for tensor in &made {
            let mesh = tensor.placement().layout().mesh();
            let site = self.shadow.site(mesh).ok_or(Apart::Elsewhere)?;
            held.push(tensor.at(&site).map_err(|_| Apart::OnHost)?);
        }
        self.recorder.settle(mark).map_err(|unlike| match unlike {
            Unlike::Devices => Apart::Uneven,
            Unlike::Looked => Apart::OnHost,
        })?;
        let mut bounds = self.recorder.bounds();
        for bound in &mut bounds {
            let mut inputs = self.open.inputs.iter();
            let place = inputs.position(|[_, number]| *number == bound.value);
            bound.value = place.ok_or(Apart::OnHost)?;
        }
        let is_one = |blocks| self.recorder.number(blocks).is_some();
        if !held.iter().all(is_one) {
            return Err(Apart::Uneven);
        }
        for bound in bounds {
            // Those of rows are those of their gradient too, and are looked at once.
            if !self.open.bounds.contains(&bound) {
                self.open.bounds.push(bound);
            }
        }
        let results = step.results.iter().copied();
        self.open.tensors.extend(results.zip(made));
        Ok(())
    }

    /// A value in the graph, of which it becomes an input if it comes from outside.
    fn tensor(&mut self, value: usize) -> Result<AnyTensor, Apart> {
        if let Some(known) = self.open.tensors.get(&value) {
            return Ok(Arc::clone(known));
        }
        let described = &self.program.values[value];
        let sizes = self.check(described)?;
        let len = sizes.first().map_or(0, |sizes| sizes.iter().product());
        let element = described.element;
        let blocks = self.recorder.input(&self.backend, Vector { element, len });
        let number = self.recorder.number(&blocks).ok_or(Apart::Uneven)?;
        let made = made_of(&self.shadow, described, sizes, blocks);
        let made = made.map_err(|_| Apart::Elsewhere)?;
        self.open.inputs.push([value, number]);
        self.open.tensors.insert(value, Arc::clone(&made));
        Ok(made)
    }

    /// The sizes of a value's blocks, if it can be in a graph.
    fn check(&self, value: &Described) -> Result<Vec<Shape>, Apart> {
        let mesh = value.placement.layout().mesh();
        if !is_here(self.context, self.site, mesh) {
            return Err(Apart::Elsewhere);
        }
        let sizes = block_sizes(self.context, value).map_err(|_| Apart::Elsewhere)?;
        match &sizes[..] {
            [first, ..] if first.contains(&0) => Err(Apart::Empty),
            [first, rest @ ..] if rest.iter().all(|own| own == first) => Ok(sizes),
            _ => Err(Apart::Uneven),
        }
    }

    /// Forgets what was recorded from a number on.
    fn forget(&mut self, mark: usize) {
        self.recorder.forget(mark);
        let is_left = |input: &[usize; 2]| input[1] >= mark;
        let left = self.open.inputs.iter().copied().filter(is_left);
        for [value, _] in left.collect::<Vec<_>>() {
            self.open.tensors.remove(&value);
        }
        self.open.inputs.retain(|input| !is_left(input));
    }

    /// Ends the graph, with what steps from this one on need of it as its outputs.
    fn close(&mut self, next: usize) -> Result<(), Error> {
        let open = std::mem::take(&mut self.open);
        if !open.steps.is_empty() {
            let lowered = self.graph(&open, next)?;
            self.pieces.push(Piece::Graph(Box::new(lowered)));
        }
        self.recorder.forget(0);
        Ok(())
    }

    fn graph(&self, open: &Open, next: usize) -> Result<Lowered, Error> {
        let nodes = self.recorder.nodes();
        let inputs = open.inputs.iter();
        let vectors = inputs.clone().map(|[_, number]| nodes[*number].vector);
        let mut graph = Graph::new(self.site.devices.len(), vectors.collect());
        let places = inputs.clone().enumerate();
        let mut numbers: BTreeMap<usize, usize> = places
            .map(|(place, [_, number])| (*number, place))
            .collect();
        for (number, node) in nodes.iter().enumerate() {
            if let Some(op) = &node.op {
                let operands = node.operands.iter().map(|own| numbers.get(own).copied());
                let operands: Option<Vec<usize>> = operands.collect();
                let operands = operands.ok_or(Error::NotKept)?;
                let made = graph.add(op.clone(), &operands, &self.origin(open, number))?;
                numbers.insert(number, made);
            }
        }
        let mut outputs = Vec::new();
        for [step, _] in &open.steps {
            for result in &self.program.steps[*step].results {
                if self.is_needed(*result, next) && !outputs.contains(result) {
                    let number = self.number(open, *result)?;
                    graph.output(*numbers.get(&number).ok_or(Error::NotKept)?)?;
                    outputs.push(*result);
                }
            }
        }
        let inputs: Vec<usize> = inputs.map(|[value, _]| *value).collect();
        self.inherit(&mut graph, &inputs, &outputs);
        Ok(Lowered {
            graph,
            inputs,
            outputs,
            bounds: open.bounds.clone(),
            steps: open.steps.iter().map(|[step, _]| *step).collect(),
        })
    }

    /// The new value of a variable may take the memory of the old one: both have one place among
    /// inputs and outputs of the program.
    fn inherit(&self, graph: &mut Graph, inputs: &[usize], outputs: &[usize]) {
        let both = self.program.inputs.iter().zip(&self.program.outputs);
        for (old, new) in both {
            let old = inputs.iter().position(|value| value == old);
            let new = outputs.iter().position(|value| value == new);
            if let (Some(old), Some(new)) = (old, new) {
                graph.inherit(old, new);
            }
        }
    }

    /// The number of a value in the recording.
    fn number(&self, open: &Open, value: usize) -> Result<usize, Error> {
        let tensor = open.tensors.get(&value).ok_or(Error::NotKept)?;
        let mesh = tensor.placement().layout().mesh();
        let site = self.shadow.site(mesh).ok_or(Error::NotKept)?;
        let number = self.recorder.number(&tensor.at(&site)?);
        number.ok_or(Error::NotKept)
    }

    /// Whether a value is an output, or what a step from this one on needs.
    fn is_needed(&self, value: usize, next: usize) -> bool {
        let later = self.program.steps.iter().skip(next);
        let mut operands = later.flat_map(|step| &step.operands);
        self.program.outputs.contains(&value) || operands.any(|operand| *operand == value)
    }

    /// The op and line that a node is there for.
    fn origin(&self, open: &Open, number: usize) -> String {
        let mut steps = open.steps.iter().rev();
        let step = steps.find(|[_, mark]| *mark <= number);
        step.map_or_else(String::new, |[step, _]| self.program.steps[*step].origin())
    }
}

/// Whether a mesh has these devices, in their order.
fn is_here(context: &Context, site: &LocalDevices, mesh: &Mesh) -> bool {
    let own = context.devices_of(mesh);
    own.is_some_and(|devices| devices == site.devices)
}

/// The sizes of the blocks that this client has of a value.
pub(super) fn block_sizes(context: &Context, value: &Described) -> Result<Vec<Shape>, Error> {
    let layout = value.placement.layout();
    let placement = context.device_placement(layout.mesh())?;
    let ranks = placement.local().iter();
    let sizes = ranks.map(|rank| layout.local_shape(*rank, value.placement.shape()));
    Ok(sizes.collect::<Result<_, _>>()?)
}

impl Step {
    /// What it does, and where the program asked for it.
    pub(super) fn origin(&self) -> String {
        let name = match &self.task {
            Task::One(primitive) => primitive.name().to_owned(),
            Task::Fused(chain) => chain.to_string(),
        };
        format!("{name} {}:{}", self.at.file(), self.at.line())
    }
}

mod rolled;
#[cfg(test)]
mod tests;
