//! Boxes of indices, and what is left of one when others are taken out.

use std::ops::Range;

use meshwork_layout::Ranges;

/// The intersection; `None` if it is empty.
pub(crate) fn intersection(a: &[Range<usize>], b: &[Range<usize>]) -> Option<Ranges> {
    let both = a.iter().zip(b);
    let common = both.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end));
    let common: Ranges = common.collect();
    (!is_empty(&common)).then_some(common)
}

/// Whether it holds no index. A box without axes holds one.
pub(crate) fn is_empty(region: &[Range<usize>]) -> bool {
    region.iter().any(Range::is_empty)
}

/// Boxes that hold the indices of `whole` which are not in `part`, a box within it.
pub(crate) fn difference(whole: &[Range<usize>], part: &[Range<usize>]) -> Vec<Ranges> {
    let mut rest = Ranges::from(whole.to_vec());
    let mut boxes = Vec::new();
    for (axis, inner) in part.iter().enumerate() {
        let outer = rest[axis].clone();
        for side in [outer.start..inner.start, inner.end..outer.end] {
            if !side.is_empty() {
                let mut cut = rest.clone();
                cut[axis] = side;
                boxes.push(cut);
            }
        }
        rest[axis] = inner.clone();
    }
    boxes
}

/// The same indices, counted from the first index of `origin`.
pub(crate) fn within(region: &[Range<usize>], origin: &[Range<usize>]) -> Ranges {
    let both = region.iter().zip(origin);
    both.map(|(range, origin)| range.start - origin.start..range.end - origin.start)
        .collect()
}

/// The length of each axis.
pub(crate) fn sizes(region: &[Range<usize>]) -> meshwork_layout::Shape {
    region.iter().map(Range::len).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn points(region: &[Range<usize>]) -> BTreeSet<Vec<usize>> {
        region
            .iter()
            .fold(BTreeSet::from([vec![]]), |points, range| {
                let longer = |point: &Vec<usize>| {
                    let point = point.clone();
                    range
                        .clone()
                        .map(move |i| [point.as_slice(), &[i]].concat())
                };
                points.iter().flat_map(longer).collect()
            })
    }

    fn region() -> impl Strategy<Value = Vec<Range<usize>>> {
        prop::collection::vec(
            (0_usize..5, 0_usize..4).prop_map(|(start, len)| start..start + len),
            3,
        )
    }

    proptest! {
        #[test]
        fn boxes_are_the_sets_of_their_points(a in region(), b in region()) {
            let common = intersection(&a, &b);
            let points_of_both: BTreeSet<_> = points(&a).intersection(&points(&b)).cloned().collect();
            prop_assert_eq!(common.as_deref().map(points).unwrap_or_default(), points_of_both.clone());
            let Some(common) = common else { return Ok(()) };
            let rest = difference(&a, &common);
            let volume: usize = rest.iter().map(|region| points(region).len()).sum();
            let left: BTreeSet<_> = rest.iter().flat_map(|region| points(region)).collect();
            prop_assert_eq!(volume, left.len(), "boxes overlap");
            prop_assert_eq!(left, points(&a).difference(&points_of_both).cloned().collect());
            prop_assert_eq!(sizes(&within(&common, &a)), sizes(&common));
        }
    }

    #[test]
    fn a_box_without_axes_holds_one_index() {
        assert!(!is_empty(&[]));
        assert_eq!(intersection(&[], &[]), Some(Ranges::new()));
        assert!(difference(&[], &[]).is_empty());
    }
}
