//! Loops of graphs: a graph that is carried out several times, as one op of another.

use super::result::alike;
use super::{Graph, Vector};
use crate::Error;
use crate::shape::count;

/// A graph carried out a given number of times: what it gives is what it is given the next time.
///
/// ```text
///     inputs of the body    carried, one slice of each stack, the rest as it is
///     outputs of the body   carried, slices of new stacks
/// ```
///
/// ```
/// use meshwork_accel::{ElementType, Graph, GraphOp, Loop, Pairwise, Vector};
///
/// let vector = |len| Vector { element: ElementType::F32, len };
/// let mut body = Graph::new(1, vec![vector(2), vector(2)]);
/// let sum = body.add(GraphOp::Pairwise(Pairwise::Add), &[0, 1], "sum")?;
/// body.output(sum)?;
/// // One vector is carried, and three are added to it.
/// let added = Loop::new(body, 3)?.carried(1)?.stacked(1)?;
/// let mut graph = Graph::new(1, vec![vector(2), vector(6)]);
/// let total = graph.add(GraphOp::Loop(Box::new(added)), &[0, 1], "total")?;
/// assert_eq!(graph.vector(total), vector(2));
/// # Ok::<(), meshwork_accel::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Loop {
    body: Graph,
    count: usize,
    carried: usize,
    stacked: usize,
    is_reversed: bool,
}

impl Loop {
    /// A graph so many times, of which nothing is carried or stacked yet.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no time at all, and for a graph that gives nothing.
    pub fn new(body: Graph, count: usize) -> Result<Self, Error> {
        let operation = "a loop that does nothing";
        match count == 0 || body.outputs().is_empty() {
            true => Err(Error::Unsupported { operation }),
            false => Ok(Self {
                body,
                count,
                carried: 0,
                stacked: 0,
                is_reversed: false,
            }),
        }
    }

    /// The same, with the first so many outputs as the first inputs of the next time.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are not so many, or they are not alike.
    pub fn carried(self, carried: usize) -> Result<Self, Error> {
        let outputs = self.body.outputs().iter();
        let outputs = outputs.map(|value| self.body.vector(*value));
        let outputs: Vec<Vector> = outputs.take(carried).collect();
        let inputs = self.body.inputs();
        let operation = "a loop that carries another value than it begins with";
        match outputs.len() == carried && inputs.get(..carried) == Some(&outputs[..]) {
            true => Ok(Self { carried, ..self }),
            false => Err(Error::Unsupported { operation }),
        }
    }

    /// The same, with so many inputs behind those that are carried as slices of stacks.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are not so many.
    pub fn stacked(self, stacked: usize) -> Result<Self, Error> {
        let operation = "a loop over more stacks than its body has inputs";
        match self.carried + stacked <= self.body.inputs().len() {
            true => Ok(Self { stacked, ..self }),
            false => Err(Error::Unsupported { operation }),
        }
    }

    /// The same from the last slices to the first.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            is_reversed: true,
            ..self
        }
    }

    /// What is done each time.
    #[must_use]
    pub const fn body(&self) -> &Graph {
        &self.body
    }

    /// How many times.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// How many values are carried.
    #[must_use]
    pub const fn carried_count(&self) -> usize {
        self.carried
    }

    /// How many inputs of the body are slices.
    #[must_use]
    pub const fn stacked_count(&self) -> usize {
        self.stacked
    }

    /// Whether slices are taken from the last one on.
    #[must_use]
    pub const fn is_reversed(&self) -> bool {
        self.is_reversed
    }

    /// What it takes: the inputs of the body, those that are sliced in stacks.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    pub fn operands(&self) -> Result<Vec<Vector>, Error> {
        let stacks = self.carried..self.carried + self.stacked;
        self.in_stacks(self.body.inputs().iter().copied(), |place| {
            stacks.contains(&place)
        })
    }

    /// What it gives: the outputs of the body, those that are not carried in stacks.
    ///
    /// # Errors
    /// [`Error::ShapeTooLarge`].
    pub fn results(&self) -> Result<Vec<Vector>, Error> {
        let outputs = self.body.outputs().iter();
        let outputs = outputs.map(|value| self.body.vector(*value));
        self.in_stacks(outputs, |place| place >= self.carried)
    }

    fn in_stacks(
        &self,
        vectors: impl Iterator<Item = Vector>,
        is_stack: impl Fn(usize) -> bool,
    ) -> Result<Vec<Vector>, Error> {
        let stacked = |(place, own): (usize, Vector)| match is_stack(place) {
            true => count(&[self.count, own.len]).map(|len| Vector { len, ..own }),
            false => Ok(own),
        };
        vectors.enumerate().map(stacked).collect()
    }

    /// What it makes of these operands: the first of its results.
    pub(super) fn result(&self, devices: usize, of: &[Vector]) -> Result<Vector, Error> {
        let (inputs, outputs) = (self.body.devices(), devices);
        if inputs != outputs {
            return Err(Error::CountMismatch { inputs, outputs });
        }
        let needed = self.operands()?;
        let (inputs, outputs) = (of.len(), needed.len());
        if inputs != outputs {
            return Err(Error::CountMismatch { inputs, outputs });
        }
        for (own, needed) in of.iter().zip(needed) {
            alike(needed, *own)?;
        }
        let results = self.results()?;
        let operation = "a loop that does nothing";
        let first = results.first().copied();
        first.ok_or(Error::Unsupported { operation })
    }
}

/// One of the results of a [`Loop`], which is the operand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LoopResult {
    /// Its place among the results.
    pub place: usize,
    /// What it is.
    pub vector: Vector,
}

#[cfg(test)]
mod tests;
