//! From a target back to the sources, op by op, the last one first. Gradients by a value that was
//! used several times are added up in that order, which is the same on every client.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rules;
use crate::Error;
use crate::record::{AnyTensor, Node, Recording, Value, with_float};

/// The ops between some sources and a target.
pub(super) struct Way<'a> {
    recording: &'a Recording,
    /// The op of the last target.
    last: usize,
    sources: &'a [Value],
    /// For each op whether it depends on a source.
    depends: Vec<bool>,
}

impl<'a> Way<'a> {
    pub(super) fn new(recording: &'a Recording, last: usize, sources: &'a [Value]) -> Self {
        let mut depends = vec![false; last + 1];
        for number in 0..=last {
            let is_source = sources.iter().any(|source| source.node == number);
            let known = |node: Arc<Node>| {
                let mut values = node.operands.iter().filter_map(|operand| operand.value);
                values.any(|value| depends[value.node])
            };
            depends[number] = is_source || recording.node(number).is_some_and(known);
        }
        Self {
            recording,
            last,
            sources,
            depends,
        }
    }

    /// The gradients by the sources, from those by the targets. Tells the number of each op that
    /// has been passed.
    #[track_caller]
    pub(super) fn follow(
        &self,
        mut gradients: BTreeMap<Value, AnyTensor>,
        passed: impl Fn(usize),
    ) -> Result<Vec<Option<AnyTensor>>, Error> {
        let mut found = vec![None; self.sources.len()];
        for number in (0..=self.last).rev() {
            let results: Vec<Value> = gradients
                .keys()
                .copied()
                .filter(|value| value.node == number)
                .collect();
            let mut upstream: Vec<(usize, AnyTensor)> = Vec::new();
            for value in results {
                if let Some(gradient) = gradients.remove(&value) {
                    upstream.push((value.result, gradient));
                }
            }
            for (result, gradient) in &upstream {
                let value = Value {
                    node: number,
                    result: *result,
                };
                let places = self.sources.iter().enumerate();
                for (place, _) in places.filter(|(_, source)| **source == value) {
                    found[place] = Some(Arc::clone(gradient));
                }
            }
            if let Some(node) = self.recording.node(number).filter(|_| !upstream.is_empty()) {
                self.pass(&node, upstream, &mut gradients)?;
            }
            passed(number);
        }
        Ok(found)
    }

    /// Carries the gradients by the results of an op to its operands.
    #[track_caller]
    fn pass(
        &self,
        node: &Node,
        upstream: Vec<(usize, AnyTensor)>,
        gradients: &mut BTreeMap<Value, AnyTensor>,
    ) -> Result<(), Error> {
        let is_needed = |value: &Value| self.depends[value.node];
        let values = node.operands.iter().map(|operand| operand.value);
        let values: Vec<Option<Value>> = values.map(|value| value.filter(is_needed)).collect();
        if values.iter().all(Option::is_none) {
            return Ok(());
        }
        let found = rules::gradients(node, &upstream)?;
        for (value, gradient) in values.into_iter().zip(found) {
            let (Some(value), Some(gradient)) = (value, gradient) else {
                continue;
            };
            let sum = match gradients.remove(&value) {
                Some(other) => added(&other, &gradient)?,
                None => gradient,
            };
            gradients.insert(value, sum);
        }
        Ok(())
    }
}

/// The sum of two gradients by one value.
#[track_caller]
pub(super) fn added(one: &AnyTensor, other: &AnyTensor) -> Result<AnyTensor, Error> {
    let sum = with_float!(&**one, |one| {
        let other = other.typed().ok_or(Error::NotKept)?;
        Arc::new(one.add(other)?) as AnyTensor
    });
    // Gradients are floats.
    sum.ok_or(Error::NotKept)
}
