use super::Program;

impl Program {
    /// Leaves out what no output depends on.
    pub(super) fn drop_dead(&mut self) {
        let mut is_needed = vec![false; self.values.len()];
        for output in &self.outputs {
            is_needed[*output] = true;
        }
        let mut kept = Vec::with_capacity(self.steps.len());
        for step in std::mem::take(&mut self.steps).into_iter().rev() {
            if step.results.iter().any(|result| is_needed[*result]) {
                for operand in &step.operands {
                    is_needed[*operand] = true;
                }
                kept.push(step);
            }
        }
        kept.reverse();
        self.steps = kept;
        self.constants.retain(|(constant, _)| is_needed[*constant]);
    }
}
