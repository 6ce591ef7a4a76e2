//! A program carried out.

use std::sync::Arc;

use super::{Described, Program, Step, Task, perform};
use crate::Error;
use crate::record::AnyTensor;

impl Program {
    /// The outputs for these inputs, which are described as those of the program. A value is given
    /// up behind the last step that needs it.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub(crate) fn run(&self, inputs: Vec<AnyTensor>) -> Result<Vec<AnyTensor>, Error> {
        let mut held: Vec<Option<AnyTensor>> = vec![None; self.values.len()];
        for (constant, tensor) in &self.constants {
            held[*constant] = Some(Arc::clone(tensor));
        }
        for (input, tensor) in self.inputs.iter().zip(inputs) {
            held[*input] = Some(tensor);
        }
        let last = self.last_uses();
        for (number, step) in self.steps.iter().enumerate() {
            let mut operands = Vec::with_capacity(step.operands.len());
            for operand in &step.operands {
                operands.push(held[*operand].clone().ok_or(Error::NotKept)?);
            }
            for operand in &step.operands {
                if last[*operand] == number {
                    held[*operand] = None;
                }
            }
            let made = self.carried_out(step, operands)?;
            for (result, tensor) in step.results.iter().zip(made) {
                held[*result] = Some(tensor);
            }
        }
        let outputs = self.outputs.iter();
        outputs
            .map(|output| held[*output].clone().ok_or(Error::NotKept))
            .collect()
    }

    #[track_caller]
    fn carried_out(&self, step: &Step, operands: Vec<AnyTensor>) -> Result<Vec<AnyTensor>, Error> {
        let described = step.results.iter().map(|result| &self.values[*result]);
        let described: Vec<&Described> = described.collect();
        let elements: Vec<_> = described.iter().map(|value| value.element).collect();
        match &step.task {
            Task::One(primitive) => perform::perform(primitive, &operands, &elements),
            Task::Fused(chain) => chain.run(&operands, &described),
        }
    }

    /// For each value the step behind which it is not needed; for outputs, there is none.
    fn last_uses(&self) -> Vec<usize> {
        let mut last = vec![0; self.values.len()];
        for (number, step) in self.steps.iter().enumerate() {
            for operand in &step.operands {
                last[*operand] = number;
            }
        }
        for output in &self.outputs {
            last[*output] = usize::MAX;
        }
        last
    }
}
