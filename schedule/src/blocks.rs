//! How a buffer is cut into blocks, evenly or not.

use std::ops::Range;

/// How the elements of a buffer are cut in contiguous blocks, which a schedule names by number.
///
/// ```
/// use meshwork_schedule::Blocks;
///
/// let even = Blocks::even(5, 4);
/// assert_eq!((0..4).map(|block| even.elements(block..block + 1)).collect::<Vec<_>>(), [0..2, 2..3, 3..4, 4..5]);
/// let uneven = Blocks::uneven([3, 0, 2]).expect("5 elements fit in memory");
/// assert_eq!(uneven.elements(1..3), 3..5);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Blocks {
    cut: Cut,
    /// By which the places in the cut are multiplied.
    size: usize,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Cut {
    Even {
        len: usize,
        count: usize,
    },
    /// Where each block ends.
    Uneven(Box<[usize]>),
}

impl Blocks {
    /// `len` elements in `count` blocks whose lengths differ by at most one, the longer ones first;
    /// empty ones follow when `len < count`.
    #[must_use]
    pub fn even(len: usize, count: usize) -> Self {
        Self {
            cut: Cut::Even { len, count },
            size: 1,
        }
    }

    /// Blocks of these lengths in elements, one after the other; `None` when their sum overflows.
    #[must_use]
    pub fn uneven(lengths: impl IntoIterator<Item = usize>) -> Option<Self> {
        let mut end = 0_usize;
        let ends = lengths.into_iter().map(|len| {
            end = end.checked_add(len)?;
            Some(end)
        });
        Some(Self {
            cut: Cut::Uneven(ends.collect::<Option<_>>()?),
            size: 1,
        })
    }

    /// The same blocks where each element is `size` smaller ones, such as its bytes; `None` when
    /// there are too many to be counted.
    ///
    /// ```
    /// use meshwork_schedule::Blocks;
    /// let bytes = Blocks::even(3, 2).in_parts(4).expect("they are 12");
    /// assert_eq!([bytes.elements(0..1), bytes.elements(1..2)], [0..8, 8..12]);
    /// ```
    #[must_use]
    pub fn in_parts(mut self, size: usize) -> Option<Self> {
        self.len().checked_mul(size)?;
        self.size *= size;
        Some(self)
    }

    /// How many blocks there are.
    #[must_use]
    pub fn count(&self) -> usize {
        match &self.cut {
            Cut::Even { count, .. } => *count,
            Cut::Uneven(ends) => ends.len(),
        }
    }

    /// Elements in all blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.start(self.count())
    }

    /// Whether all blocks are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of consecutive blocks. Blocks that do not exist are empty, at the end.
    #[must_use]
    pub fn elements(&self, blocks: Range<usize>) -> Range<usize> {
        self.start(blocks.start)..self.start(blocks.end)
    }

    fn start(&self, block: usize) -> usize {
        let block = block.min(self.count());
        let start = match &self.cut {
            Cut::Even { count: 0, .. } => 0,
            Cut::Even { len, count } => chunk(*len, *count, block).start,
            Cut::Uneven(ends) => block.checked_sub(1).map_or(0, |before| ends[before]),
        };
        start * self.size
    }
}

/// The elements of chunk `index` when `len` elements are cut into `chunks` contiguous chunks.
///
/// Lengths differ by at most one, the longer chunks first; chunks are empty when `len < chunks`.
/// Together they cover `0..len` exactly once.
///
/// ```
/// use meshwork_schedule::chunk;
/// assert_eq!((0..4).map(|i| chunk(5, 4, i)).collect::<Vec<_>>(), [0..2, 2..3, 3..4, 4..5]);
/// ```
#[must_use]
pub fn chunk(len: usize, chunks: usize, index: usize) -> Range<usize> {
    let (base, longer) = (len / chunks, len % chunks);
    let start = |index: usize| index * base + index.min(longer);
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_blocks_tile_the_buffer_and_differ_by_at_most_one() {
        for count in 1..=17 {
            for len in 0..=70 {
                let blocks = Blocks::even(len, count);
                let mut covered = 0;
                for index in 0..count {
                    let range = blocks.elements(index..index + 1);
                    assert_eq!(range, chunk(len, count, index));
                    assert_eq!(range.start, covered);
                    assert!(range.len() == len / count || range.len() == len.div_ceil(count));
                    covered = range.end;
                }
                assert_eq!((covered, blocks.len(), blocks.count()), (len, len, count));
            }
        }
    }

    #[test]
    fn uneven_blocks_have_the_lengths_they_were_given() {
        let lengths = [0, 3, 0, 0, 5, 1, 0];
        let blocks = Blocks::uneven(lengths).unwrap();
        for from in 0..=lengths.len() {
            for to in from..=lengths.len() {
                let elements = blocks.elements(from..to);
                assert_eq!(elements.len(), lengths[from..to].iter().sum::<usize>());
                assert_eq!(elements.start, lengths[..from].iter().sum::<usize>());
            }
        }
        assert_eq!((blocks.len(), blocks.count()), (9, 7));
    }

    #[test]
    fn no_blocks_and_lengths_beyond_memory_are_no_special_case() {
        for none in [Blocks::uneven([]).unwrap(), Blocks::even(0, 0)] {
            assert!(none.is_empty());
            assert_eq!(none.elements(0..0), 0..0);
            assert_eq!(none.elements(3..9), 0..0);
        }
        assert_eq!(Blocks::uneven([usize::MAX, 1]), None);
        assert_eq!(Blocks::even(usize::MAX / 4, 3).in_parts(5), None);
    }
}
