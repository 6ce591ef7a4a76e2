//! Loops as one node of a graph, with the graph of what is done each time.

use meshwork_accel::{Graph, GraphOp, Loop, LoopResult};

use super::{Lowered, Lowerer, Piece, Pieces, block_sizes, lowered};
use crate::Apart;
use crate::program::scan::LoopBody;
use crate::program::{Program, Step, Task};
use crate::record::{AnyTensor, Direction, Primitive, Scan, made_of};

impl Lowerer<'_> {
    /// The results of a loop that is one; none for another step, and where the body is no graph:
    /// then each time is recorded behind the other.
    pub(super) fn rolled(
        &mut self,
        step: &Step,
        operands: &[AnyTensor],
    ) -> Result<Option<Vec<AnyTensor>>, Apart> {
        let Task::One(Primitive::Scan(scan)) = &step.task else {
            return Ok(None);
        };
        let Some(body) = scan.body.as_any().downcast_ref::<LoopBody>() else {
            return Ok(None);
        };
        let Some(body) = self.body(scan, &body.plain) else {
            return Ok(None);
        };
        let mut given = Vec::with_capacity(operands.len());
        for operand in operands {
            let mesh = operand.placement().layout().mesh();
            let site = self.shadow.site(mesh).ok_or(Apart::Elsewhere)?;
            given.push(operand.at(&site).map_err(|_| Apart::OnHost)?);
        }
        for bound in body.bounds {
            if !self
                .recorder
                .bound(&given[bound.value], bound.axis, bound.size)
            {
                return Err(Apart::OnHost);
            }
        }
        let vectors = body.own.results().map_err(|_| Apart::OnHost)?;
        let own = GraphOp::Loop(Box::new(body.own));
        let given: Vec<_> = given.iter().collect();
        let whole = self.recorder.together(&self.backend, &own, &given);
        let whole = whole.ok_or(Apart::OnHost)?;
        let mut made = Vec::with_capacity(vectors.len());
        for (place, vector) in vectors.into_iter().enumerate() {
            let result = GraphOp::LoopResult(LoopResult { place, vector });
            let blocks = self.recorder.together(&self.backend, &result, &[&whole]);
            let described = &self.program.values[step.results[place]];
            let sizes = block_sizes(self.context, described).map_err(|_| Apart::Elsewhere)?;
            let tensor = made_of(&self.shadow, described, sizes, blocks.ok_or(Apart::OnHost)?);
            made.push(tensor.map_err(|_| Apart::Elsewhere)?);
        }
        Ok(Some(made))
    }

    /// The loop of a body that is one graph.
    fn body(&self, scan: &Scan, program: &Program) -> Option<LoweredLoop> {
        let lowered = lowered(program, self.context, self.site, self.like);
        let Pieces { pieces, .. } = lowered.ok()?;
        let [Piece::Graph(lowered)] = &pieces[..] else {
            return None;
        };
        let place = |value: usize| program.inputs.iter().position(|input| *input == value);
        let mut bounds = Vec::with_capacity(lowered.bounds.len());
        for bound in &lowered.bounds {
            // What is carried is not there before the loop, and parts of slices are no stack's box.
            let value = place(lowered.inputs[bound.value]).filter(|_| bound.part.is_none());
            let value = value.filter(|value| *value >= scan.carried)?;
            let bound = bound.clone();
            bounds.push(crate::backend::Bound { value, ..bound });
        }
        let body = self.graph_of(scan, program, lowered)?;
        let own = Loop::new(body, scan.count).ok()?;
        let own = own.carried(scan.carried).ok()?.stacked(scan.stacked).ok()?;
        let own = match scan.direction {
            Direction::Forward => own,
            Direction::Backward => own.reversed(),
        };
        Some(LoweredLoop { own, bounds })
    }

    /// The graph with all inputs of the program in their order, and all outputs of the loop.
    fn graph_of(&self, scan: &Scan, program: &Program, lowered: &Lowered) -> Option<Graph> {
        let Lowered { graph, inputs, .. } = lowered;
        let mut vectors = Vec::with_capacity(program.inputs.len());
        for input in &program.inputs {
            let described = &program.values[*input];
            let sizes = self.check(described).ok()?;
            let len = sizes.first()?.iter().product();
            let element = described.element;
            vectors.push(meshwork_accel::Vector { element, len });
        }
        let place = |value: &usize| program.inputs.iter().position(|input| input == value);
        let mut numbers = inputs.iter().map(place).collect::<Option<Vec<usize>>>()?;
        let mut body = Graph::new(graph.devices(), vectors);
        for node in graph.nodes() {
            let operands = node.operands().iter().map(|own| numbers[*own]);
            let operands: Vec<usize> = operands.collect();
            let made = body.add(node.op().clone(), &operands, node.origin());
            numbers.push(made.ok()?);
        }
        let made = lowered.outputs.iter().zip(graph.outputs());
        for output in &program.outputs {
            let mut made = made.clone();
            let number = match made.find(|(value, _)| *value == output) {
                Some((_, number)) => numbers[*number],
                None => place(output)?,
            };
            body.output(number).ok()?;
        }
        let kept = if scan.keeps { scan.carried } else { 0 };
        (0..kept).try_for_each(|input| body.output(input).ok())?;
        Some(body)
    }
}

/// A loop, and what has to be an index, by the places of operands.
struct LoweredLoop {
    own: Loop,
    bounds: Vec<crate::backend::Bound>,
}
