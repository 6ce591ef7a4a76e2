//! The elements of a box in a block, as runs that lie behind one another in memory.

use std::ops::Range;

/// Which elements of a row-major block a box holds, in their order: runs of one length, and along
/// each axis where the block is wider than the box, how many there are and how far apart.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Runs {
    start: usize,
    len: usize,
    /// Count and distance, major to minor.
    steps: Vec<(usize, usize)>,
}

impl Runs {
    /// The box of these indices in a block of this shape.
    pub(crate) fn of(shape: &[usize], region: &[Range<usize>]) -> Self {
        let mut runs = Self {
            start: 0,
            len: 1,
            steps: Vec::new(),
        };
        let (mut stride, mut is_run) = (1, true);
        for (range, &size) in region.iter().zip(shape).rev() {
            runs.start += range.start * stride;
            match is_run {
                true => runs.len *= range.len(),
                false if range.len() == 1 => {}
                false => runs.steps.push((range.len(), stride)),
            }
            is_run = is_run && *range == (0..size);
            stride *= size;
        }
        runs.steps.reverse();
        runs
    }

    /// Some of a block's elements by their row-major numbers.
    pub(crate) fn span(elements: Range<usize>) -> Self {
        Self {
            start: elements.start,
            len: elements.len(),
            steps: Vec::new(),
        }
    }

    /// How many elements the box holds.
    pub(crate) fn count(&self) -> usize {
        self.steps
            .iter()
            .fold(self.len, |count, (times, _)| count * times)
    }

    /// The range of the elements in the block, if it is contiguous.
    pub(crate) fn as_span(&self) -> Option<Range<usize>> {
        (self.steps.is_empty()).then(|| self.start..self.start + self.len)
    }

    /// The same elements as a box of a block of this many elements: the sizes of the block, and the
    /// indices along each axis.
    pub(crate) fn as_box(&self, held: usize) -> (Vec<usize>, Vec<Range<usize>>) {
        if self.count() == 0 {
            return (vec![held], vec![Range::default()]);
        }
        let (mut rest, mut start) = (held, self.start);
        let (mut whole, mut part) = (Vec::new(), Vec::new());
        let mut along = |stride: usize, count: usize| {
            whole.push(rest / stride.max(1));
            let first = start / stride.max(1);
            part.push(first..first + count);
            (rest, start) = (stride, start % stride.max(1));
        };
        // Each stride divides the one before: it is the elements of all axes behind.
        for &(count, stride) in &self.steps {
            along(stride, count);
        }
        along(1, self.len);
        (whole, part)
    }

    /// The places in the block of some elements of the box, by their numbers in it, in order.
    pub(crate) fn ranges(&self, elements: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut next = elements.start;
        std::iter::from_fn(move || {
            if next >= elements.end {
                return None;
            }
            let (run, offset) = (next / self.len, next % self.len);
            let len = (self.len - offset).min(elements.end - next);
            next += len;
            let start = self.place(run) + offset;
            Some(start..start + len)
        })
    }

    /// Copies some elements of the box, by their numbers in it, out of the block.
    pub(crate) fn take<T: Copy>(&self, elements: Range<usize>, block: &[T], into: &mut [T]) {
        let mut rest = into;
        for range in self.ranges(elements) {
            let (part, behind) = rest.split_at_mut(range.len());
            part.copy_from_slice(&block[range]);
            rest = behind;
        }
    }

    /// Copies some elements of the box, by their numbers in it, into the block; inverse of
    /// [`take`](Self::take).
    pub(crate) fn put<T: Copy>(&self, elements: Range<usize>, block: &mut [T], from: &[T]) {
        let mut rest = from;
        for range in self.ranges(elements) {
            let (part, behind) = rest.split_at(range.len());
            block[range].copy_from_slice(part);
            rest = behind;
        }
    }

    /// Copies the box into that of another block, which holds as many elements: those in a part of
    /// it, by where the part begins in the block.
    pub(crate) fn copy<T: Copy>(&self, block: &[T], target: &Self, start: usize, into: &mut [T]) {
        let elements = target.before(start)..target.before(start + into.len());
        let mut done = elements.start;
        for range in target.ranges(elements) {
            let elements = done..done + range.len();
            done = elements.end;
            let range = range.start - start..range.end - start;
            self.take(elements, block, &mut into[range]);
        }
    }

    /// The number of elements of the box before a place in the block.
    fn before(&self, place: usize) -> usize {
        let Some(mut rest) = place.checked_sub(self.start) else {
            return 0;
        };
        let mut inner = self.count();
        let mut before = 0;
        for &(count, stride) in &self.steps {
            inner /= count.max(1);
            let along = rest / stride;
            if along >= count {
                return before + count * inner;
            }
            before += along * inner;
            rest -= along * stride;
        }
        before + rest.min(self.len)
    }

    /// Where the run of this number begins.
    fn place(&self, run: usize) -> usize {
        let along = |(place, rest): (usize, usize), (count, stride): &(usize, usize)| {
            (place + rest % count * stride, rest / count)
        };
        self.steps.iter().rev().fold((self.start, run), along).0
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array3, Slice};
    use proptest::prelude::*;

    use super::*;

    const SHAPE: [usize; 3] = [3, 4, 5];

    /// A box of these sizes somewhere in the block.
    fn boxes(sizes: [usize; 3]) -> impl Strategy<Value = Vec<Range<usize>>> {
        let along = |axis: usize| 0..=SHAPE[axis] - sizes[axis];
        (along(0), along(1), along(2)).prop_map(move |(a, b, c)| {
            let starts = [a, b, c].into_iter().zip(sizes);
            starts.map(|(start, len)| start..start + len).collect()
        })
    }

    fn pairs() -> impl Strategy<Value = [Vec<Range<usize>>; 2]> {
        (0..=3_usize, 0..=4_usize, 0..=5_usize).prop_flat_map(|(a, b, c)| {
            let sizes = [a, b, c];
            (boxes(sizes), boxes(sizes)).prop_map(|(source, target)| [source, target])
        })
    }

    fn numbered() -> Array3<usize> {
        Array3::from_shape_fn(SHAPE, |(i, j, k)| (i * 4 + j) * 5 + k)
    }

    proptest! {
        #[test]
        fn runs_are_the_elements_of_a_slice([region, target] in pairs(), cut in 0_usize..60) {
            let block = numbered();
            let at = |region: &[Range<usize>], axis: usize| Slice::from(region[axis].clone());
            let slice = block.slice_each_axis(|axis| at(&region, axis.axis.index()));
            let expected: Vec<usize> = slice.iter().copied().collect();
            let (all, runs) = (block.as_slice().unwrap(), Runs::of(&SHAPE, &region));
            prop_assert_eq!(runs.count(), expected.len());
            prop_assert!(runs.as_span().is_none_or(|span| all[span] == expected));

            let place = cut;
            let cut = cut.min(expected.len());
            let (sizes, part) = runs.as_box(all.len());
            let boxed = ndarray::ArrayView::from_shape(sizes, all).unwrap();
            let boxed = boxed.slice_each_axis(|axis| Slice::from(part[axis.axis.index()].clone()));
            prop_assert!(boxed.iter().eq(&expected));

            let mut taken = vec![0; expected.len()];
            runs.take(0..cut, all, &mut taken[..cut]);
            runs.take(cut..expected.len(), all, &mut taken[cut..]);
            prop_assert_eq!(&taken, &expected);

            let mut copied = Array3::from_elem(SHAPE, usize::MAX);
            let wanted = {
                let mut wanted = copied.clone();
                wanted.slice_each_axis_mut(|axis| at(&target, axis.axis.index())).assign(&slice);
                wanted
            };
            let into = Runs::of(&SHAPE, &target);
            let mut put = copied.clone();
            let (first, last) = copied.as_slice_mut().unwrap().split_at_mut(place);
            runs.copy(all, &into, 0, first);
            runs.copy(all, &into, place, last);
            into.put(cut..expected.len(), put.as_slice_mut().unwrap(), &expected[cut..]);
            into.put(0..cut, put.as_slice_mut().unwrap(), &expected[..cut]);
            prop_assert_eq!(&copied, &wanted);
            prop_assert_eq!(put, wanted);
        }
    }

    #[test]
    fn a_box_as_wide_as_its_block_is_one_run() {
        assert_eq!(Runs::of(&[2, 3], &[0..2, 0..3]), Runs::span(0..6));
        assert_eq!(Runs::of(&[2, 3], &[1..2, 0..3]), Runs::span(3..6));
        assert_eq!(Runs::of(&[2, 3], &[1..2, 1..3]).as_span(), Some(4..6));
        assert_eq!(Runs::of(&[2, 3], &[0..2, 1..3]).as_span(), None);
        assert_eq!(Runs::of(&[], &[]), Runs::span(0..1));
    }
}
