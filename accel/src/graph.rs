//! Graphs: what several devices do together, as data. A backend that compiles whole graphs
//! ([`Graphs`]) is told all of a program at once, and not op by op.
//!
//! ```text
//!     inputs, one buffer on each device     %0, %1
//!     nodes: an op of values before         %2 = product %0 %1    %3 = all-reduce %2
//!     outputs, one buffer on each device    %3
//! ```
//!
//! All devices do the same. Where they differ is in the values that they hold, and in what a node
//! says [for each of them](PerDevice): where a part begins, or the elements of a constant.

use crate::{Accelerator, DeviceId, ElementType, Error};

mod op;
mod repeated;
mod result;

pub use op::{GraphOp, Groups, PerDevice, TableRows};
pub use repeated::{Loop, LoopResult};

/// Elements in a row.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Vector {
    /// Their type.
    pub element: ElementType,
    /// How many.
    pub len: usize,
}

/// What several devices do together, as data: inputs, nodes and outputs by number.
///
/// ```
/// use meshwork_accel::{ElementType, Graph, GraphOp, Pairwise, ReduceOp, Vector};
///
/// let vector = Vector { element: ElementType::F32, len: 6 };
/// let mut graph = Graph::new(2, vec![vector, vector]);
/// let sum = graph.add(GraphOp::Pairwise(Pairwise::Add), &[0, 1], "sum")?;
/// let groups = vec![vec![0, 1]];
/// let total = graph.add(GraphOp::AllReduce(ReduceOp::Sum, groups), &[sum], "total")?;
/// graph.output(total)?;
/// assert_eq!(graph.vector(total), vector);
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Graph {
    devices: usize,
    values: Vec<Vector>,
    inputs: usize,
    nodes: Vec<Node>,
    outputs: Vec<usize>,
    /// By input, the output that may take its memory.
    heirs: Vec<(usize, usize)>,
}

/// An op of a graph.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    op: GraphOp,
    operands: Vec<usize>,
    origin: String,
}

impl Graph {
    /// One of no nodes yet, for so many devices, each of which has such inputs: the first values.
    #[must_use]
    pub fn new(devices: usize, inputs: Vec<Vector>) -> Self {
        Self {
            devices,
            inputs: inputs.len(),
            values: inputs,
            nodes: Vec::new(),
            outputs: Vec::new(),
            heirs: Vec::new(),
        }
    }

    /// One more node, and the number of what it makes. `origin` is what it is there for, in words
    /// that those who read errors and profiles of the program know.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for values that are not there, or without elements, and for reduce
    /// ops by which there is no pooling or index; [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::CountMismatch`], [`Error::ShapeTooLarge`]; of collectives [`Error::UnknownDevice`]
    /// and [`Error::DeviceRepeated`].
    pub fn add(&mut self, op: GraphOp, operands: &[usize], origin: &str) -> Result<usize, Error> {
        let known = operands.iter().map(|number| self.value(*number));
        let known: Vec<Vector> = known.collect::<Result<_, _>>()?;
        let made = op.result(self.devices, &known)?;
        if let (GraphOp::LoopResult(result), [of]) = (&op, operands) {
            self.check_result(*result, *of)?;
        }
        if made.len == 0 || known.iter().any(|operand| operand.len == 0) {
            let operation = "a graph with values of no elements";
            return Err(Error::Unsupported { operation });
        }
        self.values.push(made);
        self.nodes.push(Node {
            op,
            operands: operands.to_vec(),
            origin: origin.to_owned(),
        });
        Ok(self.values.len() - 1)
    }

    /// Refuses a result of a loop that is none.
    fn check_result(&self, result: LoopResult, of: usize) -> Result<(), Error> {
        let operation = "a result of a loop that is none";
        let node = of.checked_sub(self.inputs).map(|node| &self.nodes[node]);
        let Some(GraphOp::Loop(own)) = node.map(Node::op) else {
            return Err(Error::Unsupported { operation });
        };
        match own.results()?.get(result.place) == Some(&result.vector) {
            true => Ok(()),
            false => Err(Error::Unsupported { operation }),
        }
    }

    /// Makes a value the next output.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a value that is not there.
    pub fn output(&mut self, value: usize) -> Result<(), Error> {
        self.value(value)?;
        self.outputs.push(value);
        Ok(())
    }

    /// Lets an output take the memory of an input, each by its place among its kind, if they are
    /// alike and neither has another partner; whether it may now.
    pub fn inherit(&mut self, input: usize, output: usize) -> bool {
        let Some(made) = self.outputs.get(output) else {
            return false;
        };
        let is_alike = input < self.inputs && self.values[input] == self.values[*made];
        let is_taken = |pair: &(usize, usize)| pair.0 == input || pair.1 == output;
        let may = is_alike && !self.heirs.iter().any(is_taken);
        if may {
            self.heirs.push((input, output));
        }
        may
    }

    fn value(&self, number: usize) -> Result<Vector, Error> {
        let operation = "a graph that needs a value before it is made";
        let known = self.values.get(number).copied();
        known.ok_or(Error::Unsupported { operation })
    }

    /// How many devices there are.
    #[must_use]
    pub const fn devices(&self) -> usize {
        self.devices
    }

    /// The inputs, in their order.
    #[must_use]
    pub fn inputs(&self) -> &[Vector] {
        &self.values[..self.inputs]
    }

    /// The nodes, each behind those that it needs. The first makes the value behind the inputs.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The numbers of the outputs, in their order.
    #[must_use]
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Inputs by their place, each with the place of the output that may take its memory.
    #[must_use]
    pub fn heirs(&self) -> &[(usize, usize)] {
        &self.heirs
    }

    /// A value, by its number.
    ///
    /// # Panics
    /// For a number that is neither an input's nor one that [`add`](Self::add) gave.
    #[must_use]
    pub fn vector(&self, value: usize) -> Vector {
        self.values[value]
    }
}

impl Node {
    /// What is done.
    #[must_use]
    pub const fn op(&self) -> &GraphOp {
        &self.op
    }

    /// The numbers of the values that it is done with.
    #[must_use]
    pub fn operands(&self) -> &[usize] {
        &self.operands
    }

    /// What it is there for.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// Whole graphs compiled to one program, which its devices run together.
pub trait Graphs: Accelerator {
    /// A compiled graph.
    type Compiled: Send + Sync;

    /// Compiles a graph for these devices, in the order in which its nodes speak of them.
    ///
    /// # Errors
    /// [`Error::CountMismatch`] for another number of devices than the graph has,
    /// [`Error::UnknownDevice`], and [`Error::DeviceFailed`] with what the compiler says.
    fn compile(&self, graph: &Graph, devices: &[DeviceId]) -> Result<Self::Compiled, Error>;

    /// Runs a compiled graph: of each input one buffer for each device, and of each output a new
    /// one. The memory of inputs that have an [heir](Graph::heirs) is used up, but of those whose
    /// places are in `kept`; they are of no use to anybody then.
    ///
    /// # Errors
    /// [`Error::CountMismatch`], [`Error::ElementMismatch`], [`Error::LengthMismatch`],
    /// [`Error::DeviceMismatch`], [`Error::DeviceFailed`].
    fn execute(
        &self,
        compiled: &Self::Compiled,
        inputs: &[Vec<&Self::Buffer>],
        kept: &[usize],
    ) -> Result<Vec<Vec<Self::Buffer>>, Error>;
}

#[cfg(test)]
mod tests;
