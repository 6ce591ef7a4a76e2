//! Which element-wise steps become one. Two may be joined if one takes what the other gives, both
//! give one shape in one layout, and no step between them has to wait for the one and be waited for
//! by the other.

use std::collections::{BTreeMap, BTreeSet};

use meshwork_layout::ops::{Op, infer};

use super::chain::{Chain, Kind, Link, Source};
use super::{Program, Step, Task};
use crate::record::Primitive;

/// More links than these fill a processor's cache with what is between them.
const MOST: usize = 32;

impl Program {
    pub(super) fn fuse(&mut self) {
        let units = self.units();
        let steps = std::mem::take(&mut self.steps);
        let fused = units.in_order().into_iter().map(|members| {
            let members: Vec<&Step> = members.iter().map(|member| &steps[*member]).collect();
            match members[..] {
                [one] => one.clone(),
                _ => self.joined(&members, &steps),
            }
        });
        let fused = fused.collect();
        self.steps = fused;
    }

    /// The steps that belong together.
    fn units(&self) -> Units {
        let mut maker = BTreeMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            maker.extend(step.results.iter().map(|result| (*result, number)));
        }
        let makers = self.steps.iter().map(|step| {
            let known = step
                .operands
                .iter()
                .filter_map(|operand| maker.get(operand));
            known.copied().collect::<BTreeSet<usize>>()
        });
        let mut units = Units::of(makers.collect());
        for (number, step) in self.steps.iter().enumerate() {
            for operand in step.operands.iter().filter(|_| self.is_link(step)) {
                let Some(before) = maker.get(operand) else {
                    continue;
                };
                let other = &self.steps[*before];
                let alike = self.values[step.results[0]] == self.values[other.results[0]];
                if alike && self.is_link(other) {
                    units.join(number, *before);
                }
            }
        }
        units
    }

    /// Whether a step can be a link of a chain: its operands lie as it has them, of its elements.
    fn is_link(&self, step: &Step) -> bool {
        let Task::One(primitive) = &step.task else {
            return false;
        };
        let element = self.values[step.results[0]].element;
        let mut operands = step.operands.iter();
        if Kind::of(primitive).is_none()
            || !element.is_float()
            || operands.any(|operand| self.values[*operand].element != element)
        {
            return false;
        }
        let op = match primitive {
            Primitive::Op(op) => op.clone(),
            Primitive::Pointwise(_) | Primitive::Pairwise(_) | Primitive::ByNumber(..) => {
                Op::Elementwise
            }
            Primitive::Given
            | Primitive::LogSoftmax { .. }
            | Primitive::ArgMin { .. }
            | Primitive::RowsAdded(_)
            | Primitive::Cast(_)
            | Primitive::Scan(_)
            | Primitive::Closure(_) => return false,
        };
        let placements = step.operands.iter();
        let placements = placements.map(|operand| self.values[*operand].placement.clone());
        let placements: Vec<_> = placements.collect();
        let Ok(inferred) = infer(&op, &placements) else {
            return false;
        };
        let mut both = placements.iter().zip(inferred.operands());
        let as_they_are = both.all(|(own, needed)| own.layout() == needed);
        let mut results = inferred.results().iter();
        as_they_are && results.all(|made| made.produced() == made.layout())
    }

    /// One step of several.
    fn joined(&self, members: &[&Step], all: &[Step]) -> Step {
        let mut operands: Vec<usize> = Vec::new();
        let mut made: BTreeMap<usize, usize> = BTreeMap::new();
        let mut links = Vec::new();
        for step in members {
            let Task::One(primitive) = &step.task else {
                continue;
            };
            let Some(kind) = Kind::of(primitive) else {
                continue;
            };
            let sources = step.operands.iter().map(|operand| match made.get(operand) {
                Some(link) => Source::Link(*link),
                None => Source::Operand(place_of(*operand, &mut operands)),
            });
            links.push(Link {
                sources: sources.collect(),
                primitive: primitive.clone(),
                kind,
            });
            made.insert(step.results[0], links.len() - 1);
        }
        let inside = |step: &&Step| members.iter().any(|member| std::ptr::eq(*member, *step));
        let outside = all.iter().filter(|step| !inside(step));
        let mut needed: BTreeSet<usize> = outside.flat_map(|step| step.operands.clone()).collect();
        needed.extend(&self.outputs);
        let results: Vec<usize> = made
            .keys()
            .copied()
            .filter(|value| needed.contains(value))
            .collect();
        let chain = Chain {
            links,
            results: results.iter().map(|result| made[result]).collect(),
        };
        Step {
            task: Task::Fused(chain),
            operands,
            results,
            at: members[0].at,
        }
    }
}

/// The place of a value among others, where it is put at the end if it is not there.
fn place_of(value: usize, among: &mut Vec<usize>) -> usize {
    let known = among.iter().position(|other| *other == value);
    known.unwrap_or_else(|| {
        among.push(value);
        among.len() - 1
    })
}

/// Steps in sets that are carried out as one, and which of these have to wait for which.
struct Units {
    /// The unit of each step; its number is that of one of its steps.
    of: Vec<usize>,
    /// For each unit all others that have to be done before.
    before: Vec<BTreeSet<usize>>,
}

impl Units {
    /// Each step by itself, which waits for these.
    fn of(makers: Vec<BTreeSet<usize>>) -> Self {
        let mut before: Vec<BTreeSet<usize>> = Vec::with_capacity(makers.len());
        for makers in makers {
            let earlier = makers.iter().flat_map(|maker| before[*maker].clone());
            let all = earlier.chain(makers.iter().copied());
            let all = all.collect();
            before.push(all);
        }
        Self {
            of: (0..before.len()).collect(),
            before,
        }
    }

    /// Joins the units of two steps, if none has to come between them.
    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of[one], self.of[other]);
        let size = self
            .of
            .iter()
            .filter(|unit| **unit == one || **unit == other);
        if one == other || size.count() > MOST || self.is_between(one, other) {
            return;
        }
        for unit in self.of.iter_mut().filter(|unit| **unit == other) {
            *unit = one;
        }
        let mut earlier = self.before[one].clone();
        earlier.extend(&std::mem::take(&mut self.before[other]));
        earlier.remove(&one);
        earlier.remove(&other);
        for waiting in &mut self.before {
            if waiting.remove(&other) | waiting.contains(&one) {
                waiting.insert(one);
                waiting.extend(&earlier);
            }
        }
        self.before[one] = earlier;
    }

    /// Whether a third unit waits for one of two and is waited for by the other.
    fn is_between(&self, one: usize, other: usize) -> bool {
        let between = |first: usize, last: usize| {
            let mut units = self.before[last].iter();
            units.any(|unit| *unit != first && self.before[*unit].contains(&first))
        };
        between(one, other) || between(other, one)
    }

    /// The steps of each unit, units in an order in which each comes behind what it waits for.
    fn in_order(&self) -> Vec<Vec<usize>> {
        let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (step, unit) in self.of.iter().enumerate() {
            members.entry(*unit).or_default().push(step);
        }
        let mut done = BTreeSet::new();
        let mut order = Vec::with_capacity(members.len());
        while !members.is_empty() {
            // As early as the function did it.
            let ready = members
                .iter()
                .filter(|(unit, _)| self.before[**unit].is_subset(&done));
            let next = ready.min_by_key(|(_, steps)| steps.last().copied());
            let Some(unit) = next.map(|(unit, _)| *unit) else {
                // No two units wait for each other.
                break;
            };
            done.insert(unit);
            order.extend(members.remove(&unit));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of five steps each may wait for any before it; any two are joined, in both orders.
    #[test]
    fn whatever_is_joined_each_step_comes_behind_those_that_it_waits_for() {
        let pairs: Vec<(usize, usize)> = (0..5)
            .flat_map(|later| (0..later).map(move |earlier| (later, earlier)))
            .collect();
        for edges in 0_usize..1 << pairs.len() {
            let mut makers = vec![BTreeSet::new(); 5];
            let drawn = pairs.iter().enumerate();
            for (_, (later, earlier)) in drawn.filter(|(bit, _)| edges >> bit & 1 == 1) {
                makers[*later].insert(*earlier);
            }
            let mut forward = Units::of(makers.clone());
            pairs.iter().for_each(|(a, b)| forward.join(*a, *b));
            let mut backward = Units::of(makers.clone());
            pairs.iter().rev().for_each(|(a, b)| backward.join(*b, *a));
            for units in [forward, backward] {
                let order = units.in_order().concat();
                assert_eq!(
                    order.iter().copied().collect::<BTreeSet<_>>(),
                    (0..5).collect()
                );
                for (place, step) in order.iter().enumerate() {
                    let before: BTreeSet<usize> = order[..place].iter().copied().collect();
                    assert!(makers[*step].is_subset(&before), "{makers:?} {order:?}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_joined_and_those_around_a_third_are_not() {
        let chain = |makers: [&[usize]; 3]| {
            let makers = makers.map(|makers| makers.iter().copied().collect());
            Units::of(makers.to_vec())
        };
        let mut straight = chain([&[], &[0], &[1]]);
        straight.join(1, 0);
        straight.join(2, 1);
        assert_eq!(straight.in_order(), [[0, 1, 2]]);
        let mut around = chain([&[], &[0], &[0, 1]]);
        around.join(2, 0);
        assert_eq!(around.in_order().len(), 3);
    }
}
