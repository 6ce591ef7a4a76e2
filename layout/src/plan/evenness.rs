//! Whether cutting in several steps gives the same parts as cutting in one.

use smallvec::SmallVec;

/// Whether the parts of a length are the same when it is cut at once, and when it is cut by one
/// size after the other, major to minor.
pub(super) fn splits_alike(length: usize, sizes: &[usize]) -> bool {
    let mut parts: usize = sizes.iter().product();
    let chunk = length.div_ceil(parts);
    // Of the pieces of a cut all but the last that is not empty are whole chunks, and stay alike.
    let mut last = length;
    sizes.iter().all(|&size| {
        parts /= size;
        let (piece, whole) = (last.div_ceil(size), parts.saturating_mul(chunk));
        let is_alike = piece == whole || (piece == last && last <= whole);
        if piece < last {
            last %= piece;
        }
        is_alike
    })
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::geometry;

    /// The part of this number of a length that is cut by one size after the other.
    fn nested(length: usize, sizes: &[usize], part: usize) -> Range<usize> {
        let mut below: usize = sizes.iter().product();
        sizes.iter().fold(0..length, |piece, &size| {
            below /= size;
            geometry::part(&piece, size, part / below % size)
        })
    }

    #[test]
    fn lengths_split_alike_where_every_part_is_the_same() {
        for sizes in [[2, 2, 2], [1, 2, 3], [3, 1, 2], [4, 3, 2], [2, 3, 4]] {
            let parts: usize = sizes.iter().product();
            for length in 0..4 * parts {
                let is_same = |part| {
                    geometry::part(&(0..length), parts, part) == nested(length, &sizes, part)
                };
                assert_eq!(
                    splits_alike(length, &sizes),
                    (0..parts).all(is_same),
                    "{length} by {sizes:?}"
                );
            }
        }
    }

    #[test]
    fn many_parts_split_alike_as_few_do() {
        assert!(splits_alike(8191, &[2; 13]));
        assert!(!splits_alike(8193, &[2; 13]));
        assert!(splits_alike(usize::MAX, &[1, usize::MAX]));
    }
}
