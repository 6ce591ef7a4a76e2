//! The rule that cuts one tensor dimension.
//!
//! `parts` ranks share a piece of `len` indices in chunks of ⌈len / parts⌉, in order, until the
//! indices run out: the last non-empty part may be shorter and those after it are empty. Nested
//! cuts apply the rule to the outcome of the one before, so that joining the parts of the minor cut
//! always gives a part of the major one.

use std::ops::Range;

/// The indices of one part of a piece; empty, at the end of the piece, where none are left.
pub(crate) fn part(piece: &Range<usize>, parts: usize, part: usize) -> Range<usize> {
    let chunk = piece.len().div_ceil(parts);
    // A product that saturates is past the end all the same.
    let start = part.saturating_mul(chunk).min(piece.len());
    let end = start.saturating_add(chunk).min(piece.len());
    piece.start + start..piece.start + end
}

/// The part of a piece that holds this index of it; inverse of [`part`].
pub(crate) fn part_of(piece: &Range<usize>, parts: usize, index: usize) -> usize {
    (index - piece.start) / piece.len().div_ceil(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_parts(len: usize, parts: usize, expected: &[Range<usize>]) {
        let found: Vec<_> = (0..parts)
            .map(|number| part(&(0..len), parts, number))
            .collect();
        assert_eq!(found, expected, "{len} over {parts}");
    }

    #[test]
    fn the_last_parts_are_shorter_or_empty() {
        check_parts(8, 4, &[0..2, 2..4, 4..6, 6..8]);
        check_parts(11, 4, &[0..3, 3..6, 6..9, 9..11]);
        check_parts(5, 4, &[0..2, 2..4, 4..5, 5..5]);
        check_parts(3, 4, &[0..1, 1..2, 2..3, 3..3]);
        check_parts(0, 2, &[0..0, 0..0]);
        check_parts(5, 1, std::slice::from_ref(&(0..5)));
    }

    #[test]
    fn parts_of_a_piece_begin_where_it_begins() {
        assert_eq!(part(&(10..15), 2, 1), 13..15);
        assert_eq!(part_of(&(10..15), 2, 12), 0);
        assert_eq!(part_of(&(10..15), 2, 13), 1);
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let (len, parts) = (usize::MAX, usize::MAX / 2 + 1);
        assert_eq!(part(&(0..len), parts, parts - 1), len - 1..len);
        assert_eq!(part(&(0..len), usize::MAX - 1, usize::MAX - 2), len..len);
        assert_eq!(part_of(&(0..len), parts, len - 1), parts - 1);
    }

    proptest! {
        #[test]
        fn parts_follow_each_other_and_cover_the_piece(start in 0_usize..1000, len in 0_usize..1000, parts in 1_usize..100) {
            let piece = start..start + len;
            let all: Vec<_> = (0..parts).map(|number| part(&piece, parts, number)).collect();
            prop_assert!(all.iter().flat_map(Clone::clone).eq(piece.clone()));
            prop_assert!(all.iter().map(Range::len).is_sorted_by(|a, b| a >= b));
            for index in piece.clone() {
                prop_assert!(all[part_of(&piece, parts, index)].contains(&index));
            }
        }
    }
}
