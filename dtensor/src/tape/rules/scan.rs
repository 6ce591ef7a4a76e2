//! The gradient of a loop: a loop over the same slices from the last to the first. Each time, what
//! the loop did is done once more, from what was carried into it, and differentiated.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use super::Gradients;
use crate::Error;
use crate::program::{Looped, Turn};
use crate::record::{AnyTensor, Direction, Node, Purpose, Recording, Scan, Value, with_float};
use crate::tape::backward::{Way, added};

/// The gradients of a loop, from those by some of its results, each with its number.
#[track_caller]
pub(super) fn gradients(
    node: &Node,
    scan: &Scan,
    upstream: &[(usize, AnyTensor)],
) -> Result<Gradients, Error> {
    let operands = node.operands.iter().map(|own| Arc::clone(&own.tensor));
    let operands: Vec<AnyTensor> = operands.collect();
    let first = scan.carried + scan.made;
    let kept = (first..first + scan.carried).map(|number| node.result(number));
    let kept: Vec<AnyTensor> = kept.collect::<Option<_>>().ok_or(Error::NotKept)?;
    let is_float = |place: &usize| operands[*place].element().is_float();
    let is_recorded = |place: &usize| is_float(place) && node.operands[*place].value.is_some();
    let constants = scan.carried + scan.stacked;
    let back = Back {
        scan,
        carried: (0..scan.carried).filter(is_float).collect(),
        stacked: (scan.carried..constants).filter(is_recorded).collect(),
        captured: (constants..operands.len()).filter(is_recorded).collect(),
        made: upstream
            .iter()
            .map(|(number, _)| *number)
            .filter(|number| (scan.carried..first).contains(number))
            .collect(),
        constants: operands[constants..].to_vec(),
    };
    let given = |number: usize| {
        let mut given = upstream.iter();
        given.find(|own| own.0 == number).map(|own| &own.1)
    };
    let mut carried = Vec::new();
    for place in &back.carried {
        let result = node.result(*place).ok_or(Error::NotKept)?;
        carried.push(match given(*place) {
            Some(gradient) => laid(gradient, &result)?,
            None => zeros(&result)?,
        });
    }
    for place in &back.captured {
        carried.push(zeros(&operands[*place])?);
    }
    let mut stacks = kept;
    stacks.extend_from_slice(&operands[scan.carried..constants]);
    for number in &back.made {
        let result = node.result(*number).ok_or(Error::NotKept)?;
        let gradient = given(*number).ok_or(Error::NotKept)?;
        stacks.push(laid(gradient, &result)?);
    }
    let looped = Looped {
        count: scan.count,
        direction: match scan.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        },
        carried,
        stacks,
        at: Some(Location::caller()),
    };
    let made = looped.carried_out(&mut |turn| back.turn(&turn))?;
    let mut found: Gradients = vec![None; operands.len()];
    let places = back.carried.iter().chain(&back.captured);
    let places = places.zip(made.carried);
    for (place, gradient) in places.chain(back.stacked.iter().zip(made.slices)) {
        found[*place] = Some(gradient);
    }
    Ok(found)
}

/// Which operands have gradients, and which results, by their places.
struct Back<'a> {
    scan: &'a Scan,
    carried: Vec<usize>,
    stacked: Vec<usize>,
    captured: Vec<usize>,
    made: Vec<usize>,
    /// What is captured.
    constants: Vec<AnyTensor>,
}

impl Back<'_> {
    /// One time, backwards: from gradients by what is carried out of it to those by what is carried
    /// into it, and sums of those by what is captured.
    #[track_caller]
    fn turn(&self, given: &Turn) -> Result<Turn, Error> {
        let Turn { carried, slices } = given;
        let recording = Recording::new(Purpose::Gradients);
        let given = slices.iter().take(self.scan.carried + self.scan.stacked);
        let given = given.chain(&self.constants);
        let given: Vec<AnyTensor> = given.map(|own| own.given(&recording)).collect();
        let made = self.scan.body.run(&given)?;
        recording.close();
        let (by_carried, sums) = carried.split_at(self.carried.len());
        let by_made = &slices[self.scan.carried + self.scan.stacked..];
        let results = self.carried.iter().chain(&self.made);
        let mut upstream: BTreeMap<Value, AnyTensor> = BTreeMap::new();
        for (place, gradient) in results.zip(by_carried.iter().chain(by_made)) {
            let Some(value) = made[*place].trace().value_in(&recording) else {
                continue;
            };
            let sum = match upstream.remove(&value) {
                Some(other) => added(&other, gradient)?,
                None => Arc::clone(gradient),
            };
            upstream.insert(value, sum);
        }
        let sources = self
            .carried
            .iter()
            .chain(&self.captured)
            .chain(&self.stacked);
        let sources: Vec<&AnyTensor> = sources.map(|place| &given[*place]).collect();
        let values = sources.iter().map(|own| own.trace().value_in(&recording));
        let values: Vec<Value> = values.collect::<Option<_>>().ok_or(Error::NotKept)?;
        let found = match upstream.keys().map(|value| value.node).max() {
            Some(last) => Way::new(&recording, last, &values).follow(upstream, |_| ())?,
            None => vec![None; values.len()],
        };
        let mut gradients = Vec::with_capacity(found.len());
        for (source, gradient) in sources.into_iter().zip(found) {
            gradients.push(match gradient {
                Some(gradient) => gradient,
                None => zeros(source)?,
            });
        }
        let slices = gradients.split_off(self.carried.len() + self.captured.len());
        for (gradient, sum) in gradients[self.carried.len()..].iter_mut().zip(sums) {
            *gradient = added(sum, gradient)?;
        }
        let carried = gradients;
        Ok(Turn { carried, slices })
    }
}

/// A gradient in the layout of what it is by.
#[track_caller]
fn laid(gradient: &AnyTensor, by: &AnyTensor) -> Result<AnyTensor, Error> {
    let layout = by.placement().layout();
    let laid = with_float!(&**gradient, |gradient| {
        Arc::new(gradient.relayout(layout)?) as AnyTensor
    });
    // Gradients are floats.
    laid.ok_or(Error::NotKept)
}

#[track_caller]
fn zeros(like: &AnyTensor) -> Result<AnyTensor, Error> {
    let zeros = with_float!(&**like, |like| Arc::new(like.zeros_like()?) as AnyTensor);
    zeros.ok_or(Error::NotKept)
}
