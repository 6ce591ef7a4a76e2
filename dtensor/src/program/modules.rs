//! Graphs of a program, compiled by the backend of its devices.

use std::fmt::{self, Display};
use std::sync::Arc;

use meshwork_accel::{Error as Refusal, Graph};
use meshwork_layout::Shape;

use super::lower::{Lowered, Piece, Pieces, block_sizes, lowered};
use super::{Program, Step};
use crate::backend::{Bound, CompiledGraph, LocalDevices, Recorder};
use crate::{Apart, Context, Error};

/// What a program does, in order, and how long it keeps what.
#[derive(Clone, Default)]
pub(super) struct Order {
    pub(super) parts: Vec<Part>,
    /// For each value the part behind which it is not needed; for outputs, there is none.
    pub(super) last: Vec<usize>,
    pub(super) explained: Explained,
}

/// What is carried out at once.
#[derive(Clone)]
pub(super) enum Part {
    /// A step, as outside of programs or as a chain.
    Step(usize),
    /// Several steps, as one program of all devices.
    Module(Arc<Module>),
}

/// Steps that have become one program of all devices.
pub(super) struct Module {
    pub(super) inputs: Vec<usize>,
    pub(super) outputs: Vec<usize>,
    /// The sizes of the blocks of each output.
    pub(super) sizes: Vec<Vec<Shape>>,
    /// Inputs by their place, whose elements have to be indices.
    pub(super) bounds: Vec<Bound>,
    /// Places of inputs whose memory may be used up.
    pub(super) used_up: Vec<usize>,
    pub(super) site: LocalDevices,
    pub(super) compiled: CompiledGraph,
}

/// What became of the steps, which `Display` tells.
#[derive(Clone, Debug, Default)]
pub(super) struct Explained {
    devices: usize,
    /// How many steps each module has.
    modules: Vec<usize>,
    apart: Vec<(String, Apart)>,
    /// Whether old values of variables stay, as parts are behind the module that makes new ones.
    holds_both: bool,
}

impl Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            devices, modules, ..
        } = self;
        if *devices == 0 {
            return write!(f, "carried out step by step");
        }
        let (count, steps) = (modules.len(), modules.iter().sum::<usize>());
        write!(f, "{steps} steps in {count} modules for {devices} devices")?;
        for (step, why) in &self.apart {
            write!(f, "\n  by itself: {step}, as {why}")?;
        }
        if self.holds_both {
            let both = "old values of variables stay beside new ones, as later parts may fail";
            write!(f, "\n  {both}")?;
        }
        Ok(())
    }
}

impl Program {
    /// The same program, with its steps in as few modules as may be where a backend compiles for
    /// the devices of the program's mesh.
    pub(crate) fn compiled(mut self, context: &Context) -> Result<Self, Error> {
        let Some(site) = self.site(context).filter(|site| site.backend.compiles()) else {
            return Ok(self);
        };
        let Pieces { pieces, apart } = lowered(&self, context, &site, Some(&site.backend))?;
        let mut explained = Explained {
            devices: site.devices.len(),
            ..Explained::default()
        };
        let named = apart.into_iter();
        let named = named.map(|(step, why)| (self.steps[step].origin(), why));
        explained.apart = named.collect();
        let mut parts = Vec::with_capacity(pieces.len());
        for piece in pieces {
            parts.push(match piece {
                Piece::Step(step) => Part::Step(step),
                Piece::Graph(lowered) => {
                    explained.modules.push(lowered.steps.len());
                    Part::Module(Arc::new(self.module(context, &site, *lowered)?))
                }
            });
        }
        let has_heirs =
            |part: &Part| matches!(part, Part::Module(module) if !module.used_up.is_empty());
        explained.holds_both = parts.iter().rev().skip(1).any(has_heirs);
        self.order = self.ordered(parts, explained);
        Ok(self)
    }

    /// The program as a graph, for devices that need not be there: those of its mesh stand for
    /// them, whoever computes here.
    ///
    /// # Errors
    /// [`Error::NotOneGraph`] where a step cannot be in it; of a program without steps, of tensors
    /// of no elements, and those of [`Graph::add`].
    pub fn graph(&self, context: &Context) -> Result<Graph, Error> {
        Ok(self.in_one(context)?.graph)
    }

    /// The whole program as one graph.
    pub(super) fn in_one(&self, context: &Context) -> Result<Lowered, Error> {
        let first = self.steps.first().and_then(|step| step.results.first());
        let mesh = first.map(|first| self.values[*first].placement.layout().mesh());
        let devices = mesh.and_then(|mesh| context.devices_of(mesh));
        let devices = devices.ok_or(Error::NotHere)?;
        let (_, backend) = Recorder::new(devices.clone(), None);
        let site = LocalDevices { backend, devices };
        let Pieces { pieces, apart } = lowered(self, context, &site, None)?;
        if let Some((step, why)) = apart.first() {
            let (op, why) = (self.steps[*step].origin(), *why);
            return Err(Error::NotOneGraph { op, why });
        }
        match pieces.into_iter().next() {
            Some(Piece::Graph(lowered)) => Ok(*lowered),
            Some(Piece::Step(_)) | None => Err(Error::NotHere),
        }
    }

    /// Step by step.
    pub(super) fn in_order(mut self) -> Self {
        let parts = (0..self.steps.len()).map(Part::Step);
        self.order = self.ordered(parts.collect(), Explained::default());
        self
    }

    fn ordered(&self, parts: Vec<Part>, explained: Explained) -> Order {
        let mut last = vec![0; self.values.len()];
        for (number, part) in parts.iter().enumerate() {
            for operand in part.operands(&self.steps) {
                last[*operand] = number;
            }
        }
        for output in &self.outputs {
            last[*output] = usize::MAX;
        }
        Order {
            parts,
            last,
            explained,
        }
    }

    /// The devices of the first step's mesh.
    fn site(&self, context: &Context) -> Option<LocalDevices> {
        let first = self.steps.first()?.results.first()?;
        context.site(self.values[*first].placement.layout().mesh())
    }

    fn module(
        &self,
        context: &Context,
        site: &LocalDevices,
        lowered: Lowered,
    ) -> Result<Module, Error> {
        let compiled = site.backend.compile(&lowered.graph, &site.devices);
        let compiled = match compiled {
            Ok(compiled) => compiled.ok_or(Error::NotKept)?,
            Err(source) => return Err(self.culprit(site, &lowered, source)),
        };
        let used_up = lowered.graph.heirs().iter();
        let outputs = lowered.outputs.iter().map(|value| &self.values[*value]);
        let sizes = outputs.map(|output| block_sizes(context, output));
        Ok(Module {
            sizes: sizes.collect::<Result<_, _>>()?,
            used_up: used_up.map(|pair| pair.0).collect(),
            inputs: lowered.inputs,
            outputs: lowered.outputs,
            bounds: lowered.bounds,
            site: LocalDevices {
                backend: site.backend.clone(),
                devices: site.devices.clone(),
            },
            compiled,
        })
    }

    /// The step for which a graph does not compile: the first that does not by itself.
    fn culprit(&self, site: &LocalDevices, lowered: &Lowered, source: Refusal) -> Error {
        let steps = lowered.steps.iter().map(|step| &self.steps[*step]);
        for step in steps.clone() {
            let alone = alone(&lowered.graph, step);
            let compiled = alone.map(|alone| site.backend.compile(&alone, &site.devices));
            if let Ok(Err(source)) = compiled {
                let (op, source) = (step.origin(), Box::new(source));
                return Error::NotCompiled { op, source };
            }
        }
        let (steps, source) = (steps.count(), Box::new(source));
        Error::NotCompiledTogether { steps, source }
    }
}

impl Part {
    fn operands<'a>(&'a self, steps: &'a [Step]) -> &'a [usize] {
        match self {
            Self::Step(step) => &steps[*step].operands,
            Self::Module(module) => &module.inputs,
        }
    }
}

impl Program {
    /// How many modules of several steps there are, each one program of all devices; none where
    /// no backend compiles for them.
    #[must_use]
    pub fn modules(&self) -> usize {
        self.order.explained.modules.len()
    }

    /// How many steps are in no module.
    #[must_use]
    pub fn steps_apart(&self) -> usize {
        self.order.explained.apart.len()
    }
}

/// What one step is of a graph.
fn alone(graph: &Graph, step: &Step) -> Result<Graph, Refusal> {
    let origin = step.origin();
    let first = graph.inputs().len();
    let nodes = graph.nodes().iter().enumerate();
    let own: Vec<_> = nodes.filter(|(_, node)| node.origin() == origin).collect();
    let made = |value: usize| own.iter().position(|(number, _)| first + number == value);
    let mut inputs: Vec<usize> = Vec::new();
    for operand in own.iter().flat_map(|(_, node)| node.operands()) {
        if made(*operand).is_none() && !inputs.contains(operand) {
            inputs.push(*operand);
        }
    }
    let vectors = inputs.iter().map(|value| graph.vector(*value)).collect();
    let mut alone = Graph::new(graph.devices(), vectors);
    for (_, node) in &own {
        let place = |value: &usize| {
            let given = inputs.iter().position(|input| input == value);
            given.or_else(|| made(*value).map(|number| inputs.len() + number))
        };
        let operands: Option<Vec<usize>> = node.operands().iter().map(place).collect();
        let operation = "a node of a graph without its operands";
        let operands = operands.ok_or(Refusal::Unsupported { operation })?;
        let value = alone.add(node.op().clone(), &operands, &origin)?;
        alone.output(value)?;
    }
    Ok(alone)
}
