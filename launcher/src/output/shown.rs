//! Which workers' lines are shown: all, until one has failed and the others tell of it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use meshwork_collectives::Rank;

/// Survivors of a failure whose lines are shown: what hundreds say of it is the same.
const SURVIVORS: usize = 8;

/// Which workers' lines are shown.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// Those of so many, from rank 0 on.
    First(usize),
    /// Those of all; from a failure on those of the rank that failed first, once there is one, and
    /// of a few others.
    UntilFailure(Arc<OnceLock<Rank>>),
}

/// Decides about the lines of one run, and counts those that are not shown.
#[derive(Debug)]
pub(super) struct Filter {
    shown: Shown,
    survivors: BTreeSet<Rank>,
    /// Lines that a failure has kept from being shown.
    pub(super) hidden: usize,
}

impl Filter {
    pub(super) fn new(shown: Shown) -> Self {
        Self {
            shown,
            survivors: BTreeSet::new(),
            hidden: 0,
        }
    }

    /// These lines of this rank, or none of them.
    pub(super) fn pass<'a>(&mut self, rank: Rank, lines: &'a [u8]) -> &'a [u8] {
        let failed = match &self.shown {
            Shown::First(ranks) if rank.index() < *ranks => return lines,
            Shown::First(_) => return &[],
            Shown::UntilFailure(failed) => failed.get(),
        };
        let is_survivor = failed.is_some_and(|failed| *failed != rank);
        if lines.is_empty() || !is_survivor || self.survivors.contains(&rank) {
            return lines;
        }
        if self.survivors.len() < SURVIVORS {
            self.survivors.insert(rank);
            return lines;
        }
        self.hidden += lines.iter().filter(|byte| **byte == b'\n').count();
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_ranks_are_shown_where_a_number_is_given() {
        let mut filter = Filter::new(Shown::First(2));
        let shown = [0, 1, 2, 3].map(|rank| !filter.pass(Rank::new(rank), b"a\n").is_empty());
        assert_eq!(shown, [true, true, false, false]);
        assert_eq!(filter.hidden, 0);
    }

    #[test]
    fn after_a_failure_a_few_survivors_are_shown_and_the_lines_of_the_rest_counted() {
        let failed = Arc::new(OnceLock::new());
        let mut filter = Filter::new(Shown::UntilFailure(failed.clone()));
        let of_all = |filter: &mut Filter| {
            let shown = |rank: &u32| !filter.pass(Rank::new(*rank), b"a\nb\n").is_empty();
            (0..40).filter(shown).collect::<Vec<u32>>()
        };
        assert_eq!(of_all(&mut filter).len(), 40);
        failed.set(Rank::new(30)).unwrap();
        assert!(filter.pass(Rank::new(39), b"").is_empty());
        let expected = [0, 1, 2, 3, 4, 5, 6, 7, 30];
        for round in 1..=2 {
            assert_eq!(of_all(&mut filter), expected);
            assert_eq!(filter.hidden, round * 2 * 31);
        }
    }
}
