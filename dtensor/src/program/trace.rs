//! From a recording to a program.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::modules::Order;
use super::relayouts::Relayouts;
use super::{Program, Step, Task, perform};
use crate::Error;
use crate::record::{AnyTensor, Described, Node, Primitive, Recording, Value};

/// The program of what was recorded, from these inputs to these outputs.
pub(crate) fn traced(
    recording: &Arc<Recording>,
    inputs: &[AnyTensor],
    outputs: &[AnyTensor],
) -> Result<Program, Error> {
    let mut program = recorded(recording, inputs, outputs)?;
    for (_, constant) in &mut program.constants {
        *constant = constant.untraced();
    }
    program.optimized()
}

/// The same as it was recorded. Others may record its constants.
pub(super) fn recorded(
    recording: &Arc<Recording>,
    inputs: &[AnyTensor],
    outputs: &[AnyTensor],
) -> Result<Program, Error> {
    let mut tracer = Tracer {
        recording,
        numbers: BTreeMap::new(),
        program: Program {
            values: Vec::new(),
            constants: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            steps: Vec::new(),
            recorded: 0,
            relayouts: Relayouts::default(),
            order: Order::default(),
        },
    };
    for input in inputs {
        let number = tracer.given(input);
        tracer.program.inputs.push(number);
    }
    for node in 0..recording.len() {
        if let Some(recorded) = recording.node(node) {
            tracer.step(node, &recorded)?;
        }
    }
    for output in outputs {
        let number = tracer.number(output.trace().value_in(recording), output);
        tracer.program.outputs.push(number);
    }
    tracer.program.recorded = tracer.program.steps.len();
    Ok(tracer.program)
}

struct Tracer<'a> {
    recording: &'a Arc<Recording>,
    /// The number in the program of each recorded value.
    numbers: BTreeMap<Value, usize>,
    program: Program,
}

impl Tracer<'_> {
    fn given(&mut self, input: &AnyTensor) -> usize {
        let number = self.program.add_value(Described::of(input));
        if let Some(value) = input.trace().value_in(self.recording) {
            self.numbers.insert(value, number);
        }
        number
    }

    fn step(&mut self, number: usize, node: &Node) -> Result<(), Error> {
        if node.primitive == Primitive::Given {
            return Ok(());
        }
        let elements = node.operands.iter().map(|operand| operand.tensor.element());
        if !perform::is_known(&node.primitive, &elements.collect::<Vec<_>>()) {
            return Err(Error::NotTraceable {
                op: node.primitive.name(),
                at: node.at,
            });
        }
        let operands = node.operands.iter();
        let operands = operands.map(|operand| self.number(operand.value, &operand.tensor));
        let operands = operands.collect();
        let mut results = Vec::new();
        while let Some(made) = node.result(results.len()) {
            let value = self.program.add_value(Described::of(&made));
            let result = results.len();
            let node = number;
            self.numbers.insert(Value { node, result }, value);
            results.push(value);
        }
        self.program.steps.push(Step {
            task: Task::One(node.primitive.clone()),
            operands,
            results,
            at: node.at,
        });
        Ok(())
    }

    /// The number of a value, or of a constant.
    fn number(&mut self, value: Option<Value>, tensor: &AnyTensor) -> usize {
        let known = value.and_then(|value| self.numbers.get(&value));
        if let Some(number) = known {
            return *number;
        }
        let number = self.program.add_value(Described::of(tensor));
        self.program.constants.push((number, Arc::clone(tensor)));
        number
    }
}
