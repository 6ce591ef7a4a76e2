//! `DeviceIds`: distinct device ids in rank order, run-length encoded, with a binary search from id
//! to position.

use std::iter::FusedIterator;

use crate::Error;

/// The ids of devices, in rank order or in the order of a host's devices; each id at most once.
///
/// Ids that follow each other, such as the usual `0..size`, are kept as one run of two words,
/// however many there are; in the worst order an id takes three.
///
/// ```
/// use meshwork_core::{DeviceIds, Error};
///
/// let ids = DeviceIds::new([8, 9, 10, 3])?;
/// assert_eq!(ids.get(2), Some(10));
/// assert_eq!(ids.position(3), Some(3));
/// assert_eq!(ids.min(), Some(3));
/// assert!(matches!(DeviceIds::new([4, 4]), Err(Error::DuplicateId { id: 4, .. })));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct DeviceIds {
    runs: Vec<Run>,
    /// The runs by their ids, as indices of `runs`; empty if they ascend as they stand.
    by_id: Vec<usize>,
}

/// Ids that follow each other: `first`, `first + 1`, and so on up to the position `end`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Run {
    first: i64,
    end: usize,
}

impl DeviceIds {
    /// These ids, in this order.
    ///
    /// # Errors
    /// [`Error::DuplicateId`].
    pub fn new(ids: impl IntoIterator<Item = i64>) -> Result<Self, Error> {
        let mut runs: Vec<Run> = Vec::new();
        let mut next = None;
        for (position, id) in ids.into_iter().enumerate() {
            match runs.last_mut() {
                Some(run) if next == Some(id) => run.end += 1,
                _ => runs.push(Run {
                    first: id,
                    end: position + 1,
                }),
            }
            next = id.checked_add(1);
        }
        runs.shrink_to_fit();
        Self::sorted(runs)
    }

    /// The ids `first`, `first + 1`, and so on, `len` of them.
    ///
    /// # Errors
    /// [`Error::IdsTooLarge`] when the last would be above the largest id, `i64::MAX`.
    pub fn consecutive(first: i64, len: usize) -> Result<Self, Error> {
        let Some(last) = len.checked_sub(1) else {
            return Ok(Self::default());
        };
        if i64::try_from(last).is_ok_and(|last| first.checked_add(last).is_some()) {
            let runs = vec![Run { first, end: len }];
            Ok(Self {
                runs,
                by_id: Vec::new(),
            })
        } else {
            Err(Error::IdsTooLarge { first, count: len })
        }
    }

    /// The ids 0 and up, for a mesh of `len` ranks: at most `i64::MAX`.
    pub(crate) fn counted(len: usize) -> Self {
        let runs = Vec::from_iter((len > 0).then_some(Run { first: 0, end: len }));
        Self {
            runs,
            by_id: Vec::new(),
        }
    }

    /// How many ids there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The id at this position; inverse of [`position`](Self::position).
    #[must_use]
    pub fn get(&self, position: usize) -> Option<i64> {
        let index = self.runs.partition_point(|run| run.end <= position);
        let run = self.runs.get(index)?;
        Some(
            run.first
                .wrapping_add_unsigned((position - self.start(index)) as u64),
        )
    }

    /// The position of this id; inverse of [`get`](Self::get).
    #[must_use]
    pub fn position(&self, id: i64) -> Option<usize> {
        let after = if self.by_id.is_empty() {
            self.runs.partition_point(|run| run.first <= id)
        } else {
            self.by_id
                .partition_point(|&index| self.runs[index].first <= id)
        };
        let found = after.checked_sub(1)?;
        let index = self.by_id.get(found).copied().unwrap_or(found);
        let distance = usize::try_from(id.abs_diff(self.runs[index].first)).ok()?;
        let start = self.start(index);
        (distance < self.runs[index].end - start).then(|| start + distance)
    }

    /// The smallest id.
    #[must_use]
    pub fn min(&self) -> Option<i64> {
        self.runs.iter().map(|run| run.first).min()
    }

    /// All ids, in order.
    pub fn iter(&self) -> impl FusedIterator<Item = i64> + '_ {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(|(index, run)| {
            let offsets = 0..(run.end - self.start(index)) as u64;
            offsets.map(|offset| run.first.wrapping_add_unsigned(offset))
        })
    }

    /// Checks that each id is one more than the id before it.
    pub(crate) fn check_consecutive(&self) -> Result<(), Error> {
        let [first, second, ..] = self.runs.as_slice() else {
            return Ok(());
        };
        Err(Error::IdsNotConsecutive {
            id: second.first,
            position: first.end,
            start: first.first,
        })
    }

    /// The first of these ids that `all` does not have; a run of ids at a time.
    pub(crate) fn first_outside(&self, all: &Self) -> Option<i64> {
        for (index, run) in self.runs.iter().enumerate() {
            let (mut id, mut left) = (run.first, run.end - self.start(index));
            while left > 0 {
                let Some(position) = all.position(id) else {
                    return Some(id);
                };
                let other = all.runs.partition_point(|other| other.end <= position);
                let covered = left.min(all.runs[other].end - position);
                left -= covered;
                id = id.wrapping_add_unsigned(covered as u64);
            }
        }
        None
    }

    fn sorted(runs: Vec<Run>) -> Result<Self, Error> {
        let mut by_id: Vec<usize> = (0..runs.len()).collect();
        by_id.sort_by_key(|&index| runs[index].first);
        let ascending = by_id.is_sorted();
        let mut ids = Self {
            runs,
            by_id: Vec::new(),
        };
        for pair in by_id.windows(2) {
            let (lower, upper) = (pair[0], pair[1]);
            let id = ids.runs[upper].first;
            let distance = id.abs_diff(ids.runs[lower].first);
            let lower_start = ids.start(lower);
            if distance < (ids.runs[lower].end - lower_start) as u64 {
                let distance = usize::try_from(distance).expect("below the length of a run");
                let twin = lower_start + distance;
                let (first, second) = (twin.min(ids.start(upper)), twin.max(ids.start(upper)));
                return Err(Error::DuplicateId { id, first, second });
            }
        }
        if !ascending {
            ids.by_id = by_id;
        }
        Ok(ids)
    }

    /// The position of a run's first id.
    fn start(&self, run: usize) -> usize {
        run.checked_sub(1).map_or(0, |before| self.runs[before].end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(ids: &[i64]) {
        let kept = DeviceIds::new(ids.iter().copied()).unwrap();
        assert!(kept.iter().eq(ids.iter().copied()), "{ids:?}");
        assert_eq!((kept.len(), kept.is_empty()), (ids.len(), ids.is_empty()));
        assert_eq!(kept.min(), ids.iter().copied().min());
        for (position, &id) in ids.iter().enumerate() {
            assert_eq!(kept.get(position), Some(id));
            assert_eq!(kept.position(id), Some(position));
        }
        assert_eq!(kept.get(ids.len()), None);
        let gap = ids
            .windows(2)
            .position(|pair| pair[0].checked_add(1) != Some(pair[1]));
        let expected = gap.map_or(Ok(()), |before| {
            Err(Error::IdsNotConsecutive {
                id: ids[before + 1],
                position: before + 1,
                start: ids[0],
            })
        });
        assert_eq!(kept.check_consecutive(), expected);
    }

    #[test]
    fn ids_are_found_by_position_and_by_value() {
        check(&[]);
        check(&[0, 1, 2, 3]);
        check(&[-2, -1, 0, 1]);
        check(&[15, 3, 7, 11]);
        check(&[4, 5, 6, 0, 1, 2]);
        check(&[i64::MAX, i64::MIN, 0]);
        check(&[i64::MAX - 1, i64::MAX]);
    }

    #[test]
    fn ids_that_follow_each_other_are_one_run() {
        let ids = DeviceIds::new(0..1000).unwrap();
        assert_eq!(ids.runs.len(), 1);
        assert_eq!(DeviceIds::consecutive(0, 1000), Ok(ids));
        assert_eq!(DeviceIds::consecutive(5, 0), DeviceIds::new([]));
    }

    #[test]
    fn the_first_id_that_another_list_lacks_is_found() {
        let outside = |some: &[i64], all: &[i64]| {
            let ids = |ids: &[i64]| DeviceIds::new(ids.iter().copied()).unwrap();
            ids(some).first_outside(&ids(all))
        };
        assert_eq!(outside(&[], &[]), None);
        assert_eq!(outside(&[0], &[]), Some(0));
        assert_eq!(outside(&[0, 1, 2, 3], &[2, 3, 0, 1]), None);
        assert_eq!(outside(&[3, 0, 1, 2], &[0, 1, 3]), Some(2));
        assert_eq!(outside(&[i64::MAX, 5], &[5, i64::MAX]), None);
    }

    #[test]
    fn ids_above_the_largest_are_refused() {
        let (first, count) = (i64::MAX, 2);
        assert_eq!(
            DeviceIds::consecutive(first, count),
            Err(Error::IdsTooLarge { first, count })
        );
        assert!(DeviceIds::consecutive(first, 1).is_ok());
        assert!(DeviceIds::consecutive(i64::MIN, usize::MAX).is_err());
    }

    #[test]
    fn an_id_given_twice_is_refused_with_both_positions() {
        let duplicate = |ids: &[i64]| DeviceIds::new(ids.iter().copied());
        let error = |id, first, second| Err(Error::DuplicateId { id, first, second });
        assert_eq!(duplicate(&[4, 4]), error(4, 0, 1));
        assert_eq!(duplicate(&[0, 1, 2, 1]), error(1, 1, 3));
        assert_eq!(duplicate(&[1, 0, 1, 2]), error(1, 0, 2));
    }

    proptest! {
        #[test]
        fn any_ids_are_kept_or_one_is_there_twice(ids in proptest::collection::vec(-6_i64..6, 0..8)) {
            let distinct = (0..ids.len()).all(|i| !ids[..i].contains(&ids[i]));
            match DeviceIds::new(ids.iter().copied()) {
                Ok(kept) => {
                    prop_assert!(distinct);
                    for id in -7..7 {
                        prop_assert_eq!(kept.position(id), ids.iter().position(|&other| other == id));
                    }
                    check(&ids);
                }
                Err(Error::DuplicateId { id, first, second }) => {
                    prop_assert!(first < second && ids[first] == id && ids[second] == id);
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}
