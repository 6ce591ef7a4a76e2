//! A parameter of which several workers have a part each: where the part is in the whole.

use std::ops::Range;

use crate::VariableSpec;
use crate::bucketing::even_part;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Cut {
    pub(super) axis: usize,
    pub(super) whole: VariableSpec,
    /// Of the axis.
    pub(super) taken: Range<usize>,
}

impl Cut {
    /// All of it.
    pub(super) fn none(whole: &VariableSpec, axis: usize) -> Self {
        Self {
            axis,
            whole: whole.clone(),
            taken: 0..whole.shape()[axis],
        }
    }

    /// The part in this place of so many, and what it is.
    pub(super) fn part(&self, place: usize, parts: usize) -> (Self, VariableSpec) {
        let mut shape = self.whole.shape().to_vec();
        let size = shape[self.axis];
        let taken = even_part(size, parts, place);
        shape[self.axis] = taken.len();
        let spec = VariableSpec::new(self.whole.name(), &shape);
        let spec = spec.expect("a part is no larger than the whole");
        let part = Self {
            taken,
            ..self.clone()
        };
        (part, spec)
    }

    /// Where in the whole elements of the part are, row-major: runs of them in their order.
    pub(super) fn runs(&self, elements: Range<usize>) -> Vec<Range<usize>> {
        let inner: usize = self.whole.shape()[self.axis + 1..].iter().product();
        let (own, all) = (
            self.taken.len() * inner,
            self.whole.shape()[self.axis] * inner,
        );
        let mut runs = Vec::new();
        let mut start = elements.start;
        while start < elements.end {
            let (row, column) = (start / own, start % own);
            let len = (own - column).min(elements.end - start);
            let first = row * all + self.taken.start * inner + column;
            runs.push(first..first + len);
            start += len;
        }
        runs
    }

    /// Where in the whole a region of the part is.
    pub(super) fn shift(&self, region: &mut [Range<usize>]) {
        let along = &mut region[self.axis];
        *along = along.start + self.taken.start..along.end + self.taken.start;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_runs_of_all_parts_are_the_whole(
            shape in prop::collection::vec(0_usize..6, 1..4), axis in 0_usize..3,
            parts in 1_usize..5, split in 0_usize..20,
        ) {
            let axis = axis.min(shape.len() - 1);
            let whole = VariableSpec::new("v", &shape).unwrap();
            let mut taken = vec![0; whole.len()];
            for place in 0..parts {
                let (cut, part) = Cut::none(&whole, axis).part(place, parts);
                let split = split.min(part.len());
                let halves = [0..split, split..part.len()];
                let at: Vec<usize> = halves.into_iter().flat_map(|half| cut.runs(half)).flatten().collect();
                prop_assert_eq!(at.len(), part.len());
                prop_assert!(at.is_sorted());
                let inner: usize = shape[axis + 1..].iter().product();
                for at in at {
                    taken[at] += 1;
                    prop_assert!(cut.taken.contains(&(at / inner % shape[axis])));
                }
            }
            prop_assert!(taken.iter().all(|count| *count == 1));
        }
    }
}
