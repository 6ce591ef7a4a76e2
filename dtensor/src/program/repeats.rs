use std::collections::HashMap;

use super::Program;

impl Program {
    /// Leaves out steps that do again what was done before: both ends of a step use one softmax.
    pub(super) fn merge_repeats(&mut self) {
        let mut same: Vec<usize> = (0..self.values.len()).collect();
        let mut known: HashMap<Vec<usize>, Vec<usize>> = HashMap::new();
        let mut kept: Vec<super::Step> = Vec::with_capacity(self.steps.len());
        for mut step in std::mem::take(&mut self.steps) {
            for operand in &mut step.operands {
                *operand = same[*operand];
            }
            let alike = known.entry(step.operands.clone()).or_default();
            let mut others = alike.iter().map(|place| &kept[*place]);
            // The same op may make elements of another type, as of the same classes.
            let same_types = |other: &super::Step| {
                let mut pairs = step.results.iter().zip(&other.results);
                pairs.all(|(own, other)| self.values[*own].element == self.values[*other].element)
            };
            let found = others.find(|other| other.task == step.task && same_types(other));
            if let Some(other) = found {
                for (own, others) in step.results.iter().zip(&other.results) {
                    same[*own] = *others;
                }
                continue;
            }
            alike.push(kept.len());
            kept.push(step);
        }
        self.steps = kept;
        for output in &mut self.outputs {
            *output = same[*output];
        }
    }
}
