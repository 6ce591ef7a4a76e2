//! A program carried out.

use std::sync::Arc;

use super::modules::{Module, Part};
use super::{Program, Step, Task, perform};
use crate::record::{AnyTensor, Described, made_of};
use crate::{Context, Error};

impl Program {
    /// The outputs for these inputs, which are described as those of the program. A value is given
    /// up behind the last step that needs it; the memory of an input that nobody else has may be
    /// used up, by the last part only: behind an error of a part before, inputs are as they were.
    ///
    /// # Errors
    /// Those of the ops.
    #[track_caller]
    pub(crate) fn run(&self, inputs: &[AnyTensor]) -> Result<Vec<AnyTensor>, Error> {
        let mut held: Vec<Option<AnyTensor>> = vec![None; self.values.len()];
        for (constant, tensor) in &self.constants {
            held[*constant] = Some(Arc::clone(tensor));
        }
        for (input, tensor) in self.inputs.iter().zip(inputs) {
            held[*input] = Some(Arc::clone(tensor));
        }
        for (number, part) in self.order.parts.iter().enumerate() {
            let step = match part {
                Part::Step(step) => &self.steps[*step],
                Part::Module(module) => {
                    self.run_module(module, number, &mut held)?;
                    continue;
                }
            };
            let operands = self.taken(&step.operands, number, &mut held)?;
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

    /// Values that a part needs, given up where it is the last one.
    fn taken(
        &self,
        values: &[usize],
        part: usize,
        held: &mut [Option<AnyTensor>],
    ) -> Result<Vec<AnyTensor>, Error> {
        let mut taken = Vec::with_capacity(values.len());
        for value in values {
            taken.push(held[*value].clone().ok_or(Error::NotKept)?);
        }
        for value in values {
            if self.order.last[*value] == part {
                held[*value] = None;
            }
        }
        Ok(taken)
    }

    /// All steps of a module at once.
    fn run_module(
        &self,
        module: &Module,
        part: usize,
        held: &mut [Option<AnyTensor>],
    ) -> Result<(), Error> {
        let inputs = self.taken(&module.inputs, part, held)?;
        for bound in &module.bounds {
            inputs[bound.value].check_bound(bound)?;
        }
        let is_last = part + 1 == self.order.parts.len();
        let is_kept = |place: &usize| {
            let input = &inputs[*place];
            // The caller has it, and this part; a third is an output, or what a loop carried on.
            !is_last || Arc::strong_count(input) > 2 || !input.is_spare()
        };
        let kept = module.used_up.iter().copied().filter(is_kept);
        let kept: Vec<usize> = kept.collect();
        let mut blocks = Vec::with_capacity(inputs.len());
        for input in &inputs {
            blocks.push(input.at(&module.site)?);
        }
        let context = inputs.first().map(|input| input.context().clone());
        let context: Context = context.ok_or(Error::NotKept)?;
        let made = module.compiled.execute(&blocks, &kept)?;
        let outputs = module.outputs.iter().zip(&module.sizes);
        for ((output, sizes), blocks) in outputs.zip(made) {
            let described = &self.values[*output];
            held[*output] = Some(made_of(&context, described, sizes.clone(), blocks)?);
        }
        Ok(())
    }

    #[track_caller]
    pub(super) fn carried_out(
        &self,
        step: &Step,
        operands: Vec<AnyTensor>,
    ) -> Result<Vec<AnyTensor>, Error> {
        let described = step.results.iter().map(|result| &self.values[*result]);
        let described: Vec<&Described> = described.collect();
        let elements: Vec<_> = described.iter().map(|value| value.element).collect();
        match &step.task {
            Task::One(primitive) => perform::perform(primitive, &operands, &elements),
            Task::Fused(chain) => chain.run(&operands, &described),
        }
    }
}
