//! How elements along an axis are made one by blocks of threads: pure.

use meshwork_accel::{ElementType, ReduceOp};

use super::{THREADS, computed_in};

/// A block of sizes `[outer, len, inner]` whose elements along the middle axis are made one, in one
/// pass or in two: where there are few results, several chunks of each are worked on at the same
/// time, and then made one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Along {
    op: ReduceOp,
    element: ElementType,
    sizes: [u64; 3],
    chunks: u64,
}

/// One run of the kernel; `struct along` of the source, but for the types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Pass {
    /// What makes elements of which type one.
    pub(crate) op: ReduceOp,
    pub(crate) element: ElementType,
    /// What it reads and writes: elements, or between two passes what they are computed in.
    pub(crate) source: ElementType,
    pub(crate) result: ElementType,
    /// Elements along the axis.
    pub(crate) len: u64,
    /// Neighbours of each of them that belong to other results.
    pub(crate) inner: u64,
    /// Into how many parts the axis is cut, and how many elements all but the last of them have.
    pub(crate) chunks: u64,
    pub(crate) per: u64,
    /// How many results there are.
    pub(crate) count: u64,
    /// How many threads share each.
    pub(crate) lanes: u32,
}

impl Along {
    /// No size is 0.
    pub(crate) fn new(
        op: ReduceOp,
        element: ElementType,
        [outer, len, inner]: [usize; 3],
        multiprocessors: u32,
    ) -> Self {
        let sizes = [outer as u64, len as u64, inner as u64];
        let [outer, len, inner] = sizes;
        // As many threads as fill the GPU, each with some elements to go through.
        let threads = u64::from(multiprocessors.max(1)) * u64::from(THREADS) * BLOCKS_EACH;
        let lanes = u64::from(lanes(len, inner));
        let wanted = (threads / (outer * inner).max(1)).div_ceil(lanes);
        let most = len / (LEAST_PER_LANE_OF_CHUNK * lanes);
        let chunks = wanted.min(most).max(1);
        // The last chunk must have an element.
        let chunks = len.div_ceil(len.div_ceil(chunks));
        Self {
            op,
            element,
            sizes,
            chunks,
        }
    }

    /// From the elements to results, or to one for each chunk.
    pub(crate) fn first(self) -> Pass {
        let [outer, len, inner] = self.sizes;
        Pass {
            op: self.op,
            element: self.element,
            source: self.element,
            result: match self.chunks {
                1 => self.element,
                _ => computed_in(self.element),
            },
            len,
            inner,
            chunks: self.chunks,
            per: len.div_ceil(self.chunks),
            count: outer * self.chunks * inner,
            lanes: lanes(len.div_ceil(self.chunks), inner),
        }
    }

    /// From those of the chunks to results, if there are several.
    pub(crate) fn second(self) -> Option<Pass> {
        let [outer, _, inner] = self.sizes;
        (self.chunks > 1).then(|| Pass {
            op: self.op,
            element: self.element,
            source: computed_in(self.element),
            result: self.element,
            len: self.chunks,
            inner,
            chunks: 1,
            per: self.chunks,
            count: outer * inner,
            lanes: lanes(self.chunks, inner),
        })
    }
}

impl Pass {
    /// Blocks of threads that have something to do.
    pub(crate) fn blocks(self) -> u64 {
        self.count.div_ceil(u64::from(THREADS / self.lanes))
    }

    /// How many elements it reads.
    pub(crate) fn sources(self) -> u64 {
        self.count / self.chunks * self.len
    }
}

/// The number of threads that share a result of this many elements, which has so many neighbours: a
/// power of two that divides the threads of a block.
fn lanes(elements: u64, inner: u64) -> u32 {
    let wanted = elements.div_ceil(LEAST_PER_LANE).max(1);
    // Threads that the GPU runs together read what lies together.
    let columns = inner.min(WARP).next_power_of_two();
    let most = u64::from(THREADS) / columns;
    let lanes = wanted.next_power_of_two().min(most);
    u32::try_from(lanes).expect("no more than the threads of a block")
}

/// With fewer, threads wait for each other longer than they work.
const LEAST_PER_LANE: u64 = 4;
const LEAST_PER_LANE_OF_CHUNK: u64 = 32;

/// Threads whose accesses the GPU joins.
const WARP: u64 = 32;

/// Blocks for each multiprocessor, which holds eight of this size at a time.
const BLOCKS_EACH: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn along(sizes: [usize; 3], multiprocessors: u32) -> Along {
        Along::new(ReduceOp::Sum, ElementType::F16, sizes, multiprocessors)
    }

    #[test]
    fn every_chunk_has_elements_and_together_they_have_all() {
        for len in [
            1,
            2,
            3,
            255,
            8191,
            8192,
            16_384,
            16_385,
            65_537,
            100_000_007,
        ] {
            for outer in [1, 2, 300, 1_000_000] {
                for multiprocessors in [0, 1, 2, 132] {
                    let along = along([outer, len, 3], multiprocessors);
                    let first = along.first();
                    assert_eq!(first.sources(), (outer * len * 3) as u64, "{along:?}");
                    assert!((first.chunks - 1) * first.per < first.len, "{along:?}");
                    assert!(first.chunks * first.per >= first.len, "{along:?}");
                    let last = along.second().unwrap_or(first);
                    assert_eq!((last.chunks, last.per), (1, last.len), "{along:?}");
                    assert_eq!(last.count, (outer * 3) as u64, "{along:?}");
                    let types = (first.source, last.result);
                    assert_eq!(types, (ElementType::F16, ElementType::F16), "{along:?}");
                    if let Some(second) = along.second() {
                        assert_eq!(second.sources(), first.count, "{along:?}");
                        assert_eq!(second.source, first.result, "{along:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lanes_are_a_power_of_two_that_divides_a_block() {
        for elements in (1..5000).chain([u64::MAX]) {
            for inner in [1, 2, 3, 31, 33, 8192, u64::MAX] {
                let lanes = lanes(elements, inner);
                assert!(
                    lanes.is_power_of_two() && THREADS.is_multiple_of(lanes),
                    "{elements}, {inner}"
                );
            }
        }
    }

    #[test]
    fn sums_of_columns_are_read_across_and_fill_the_gpu() {
        let first = along([1, 8192, 8192], 132).first();
        assert_eq!(THREADS / first.lanes, 32);
        assert!(first.blocks() >= 132 * 8, "{first:?}");
        assert_eq!(lanes(8192, 1), THREADS, "rows are read by all");
    }

    #[test]
    fn one_long_sum_fills_the_gpu_and_many_sums_take_one_pass() {
        let long = along([1, 64 << 20, 1], 132);
        assert!(long.first().blocks() > 132 * 4, "{long:?}");
        assert_eq!(along([100_000, 64, 1], 132).second(), None);
        assert_eq!(along([1, 64, 1], 132).second(), None);
    }
}
