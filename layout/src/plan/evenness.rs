//! Whether cutting in two steps gives the same parts as cutting in one.

use std::ops::Range;

use smallvec::SmallVec;

use crate::geometry;

/// Whether the parts of a length are the same when it is cut at once, and when it is cut by one
/// size after the other, major to minor.
pub(super) fn splits_alike(length: usize, sizes: &[usize]) -> bool {
    let parts: usize = sizes.iter().product();
    if sizes.len() < 2 || length.is_multiple_of(parts) {
        return true;
    }
    let alike = |part: usize| {
        let at_once = geometry::part(&(0..length), parts, part);
        let nested = nested(length, sizes, part);
        at_once == nested || (at_once.is_empty() && nested.is_empty())
    };
    (0..parts.min(MOST_PARTS)).all(alike) && parts <= MOST_PARTS
}

/// The different lengths of the parts of a length.
pub(super) fn part_lengths(length: usize, parts: usize) -> SmallVec<[usize; 3]> {
    let chunk = length.div_ceil(parts);
    let mut lengths = SmallVec::from_iter([chunk]);
    if chunk > 0 {
        let rest = length % chunk;
        lengths.extend((rest > 0).then_some(rest));
        lengths.extend((length.div_ceil(chunk) < parts).then_some(0));
    }
    lengths
}

fn nested(length: usize, sizes: &[usize], part: usize) -> Range<usize> {
    let mut rest: usize = sizes.iter().product();
    let mut number = part;
    let mut piece = 0..length;
    for &size in sizes {
        rest /= size;
        piece = geometry::part(&piece, size, number / rest);
        number %= rest;
    }
    piece
}

const MOST_PARTS: usize = 4096;
