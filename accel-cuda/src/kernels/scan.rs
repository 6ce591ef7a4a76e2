//! How many threads share a line that is scanned: pure.

use super::THREADS;

/// Lines along the middle axis of a block of sizes `[outer, len, inner]`; `struct scan` of the
/// source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) struct Scan {
    len: u64,
    inner: u64,
    lines: u64,
    /// Elements of each lane, but for the last ones.
    per: u64,
    /// Threads that share a line: a power of two.
    lanes: u32,
}

impl Scan {
    /// No size is 0. So many lanes that the GPU is full, as long as each has something to do.
    pub(crate) fn new([outer, len, inner]: [usize; 3], multiprocessors: u32) -> Self {
        let [len, inner] = [len as u64, inner as u64];
        let lines = outer as u64 * inner;
        let full = u64::from(multiprocessors.max(1)) * u64::from(THREADS) * BLOCKS_EACH;
        let mut lanes = 1;
        while lanes < THREADS && lines.saturating_mul(lanes.into()) < full && u64::from(lanes) < len
        {
            lanes *= 2;
        }
        Self {
            len,
            inner,
            lines,
            per: len.div_ceil(lanes.into()),
            lanes,
        }
    }

    /// How many blocks of threads it takes, if each works once.
    pub(crate) fn blocks(self) -> u64 {
        self.lines.div_ceil(u64::from(THREADS / self.lanes))
    }

    /// Elements of all lines.
    pub(crate) fn elements(self) -> u64 {
        self.lines * self.len
    }
}

/// Blocks that a multiprocessor holds at a time.
const BLOCKS_EACH: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_all_elements_of_a_line_and_are_a_power_of_two() {
        for lines in [1, 2, 255, 257, 1 << 20] {
            for len in (1..600).chain([10_000, 1 << 30]) {
                let scan = Scan::new([lines, len, 1], 2);
                let lanes = u64::from(scan.lanes);
                assert!(lanes.is_power_of_two() && scan.lanes <= THREADS);
                assert!(scan.per * lanes >= scan.len && (scan.per - 1) * lanes < scan.len);
                let at_once = scan.blocks() * u64::from(THREADS / scan.lanes);
                assert!(at_once >= scan.lines && scan.elements() == (lines * len) as u64);
            }
        }
    }

    #[test]
    fn a_long_line_has_a_whole_block_and_many_lines_a_thread_each() {
        assert_eq!(Scan::new([1, 1 << 20, 1], 132).lanes, THREADS);
        assert_eq!(Scan::new([1 << 20, 1 << 10, 1], 132).lanes, 1);
        assert_eq!(Scan::new([1, 1, 1 << 20], 132).lanes, 1);
    }
}
