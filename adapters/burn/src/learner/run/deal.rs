//! Who takes which batches of an epoch: each worker those of its own part, and then, with all who
//! have no more, those of the parts of workers that were lost.

use std::collections::BTreeSet;

use meshwork_strategy::Rank;

use super::super::wire::{Place, State};
use crate::Error;

/// The parts of an epoch's data, and how far each is used. The same on all workers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Deal {
    pub(super) parts: Vec<Part>,
    /// The part that each worker has for itself, in the order of their ranks.
    owners: Vec<Option<usize>>,
}

/// A part of the data, which is read in one order by whoever reads it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Part {
    /// So many batches at its beginning are used.
    pub(super) used: usize,
    /// And these behind them.
    pub(super) ahead: BTreeSet<usize>,
    /// How many it has, once somebody has come to its end.
    pub(super) end: Option<usize>,
    /// Batches of the step in flight, which are used when it is made.
    dealt: BTreeSet<usize>,
}

/// What a worker has told of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) place: Option<Place>,
    pub(super) samples: u32,
    pub(super) state: State,
}

impl Deal {
    /// A part for each worker.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            parts: vec![Part::default(); workers],
            owners: (0..workers).map(Some).collect(),
        }
    }

    /// The parts as another worker says that they are, before it is known who has which.
    pub(super) fn of(parts: Vec<Part>) -> Self {
        let owners = Vec::new();
        Self { parts, owners }
    }

    /// Who has which part after the workers have changed, in the order of their ranks, and what
    /// they hold for the step that has failed. Who has none gets the part of one that was lost.
    pub(super) fn regroup(&mut self, owners: Vec<Option<usize>>, held: &[Place]) {
        self.owners = owners;
        for part in 0..self.parts.len() {
            let without = self.owners.iter().position(Option::is_none);
            let is_free = !self.owners.contains(&Some(part)) && !self.parts[part].is_over();
            if let Some(worker) = without.filter(|_| is_free) {
                self.owners[worker] = Some(part);
            }
        }
        self.parts.iter_mut().for_each(|part| part.dealt.clear());
        for place in held {
            self.parts[place.part].dealt.insert(place.batch);
        }
    }

    pub(super) fn part_of(&self, rank: Rank) -> Option<usize> {
        self.owners.get(rank.index()).copied().flatten()
    }

    /// The next batch of this worker; `None` where there is none left for it in this step.
    pub(super) fn next(&self, rank: Rank) -> Option<Place> {
        if let Some(part) = self.own_rest(rank.index()) {
            return Some(self.place(part, 0));
        }
        let free =
            |part: &usize| !self.parts[*part].is_over() && !self.owners.contains(&Some(*part));
        let part = (0..self.parts.len()).find(free)?;
        let before = (0..rank.index()).filter(|worker| self.own_rest(*worker).is_none());
        Some(self.place(part, before.count()))
    }

    /// This worker's own part, where batches are left in it.
    fn own_rest(&self, worker: usize) -> Option<usize> {
        let part = self.owners.get(worker).copied().flatten();
        part.filter(|part| !self.parts[*part].is_over())
    }

    /// The batch of `part` that is left behind `before` others.
    fn place(&self, part: usize, before: usize) -> Place {
        let of = &self.parts[part];
        let is_left = |batch: &usize| !of.ahead.contains(batch) && !of.dealt.contains(batch);
        let batch = (of.used..).filter(is_left).nth(before);
        let batch = batch.expect("numbers do not end");
        Place { part, batch }
    }

    /// These batches, of one worker each, are in the step in flight.
    ///
    /// # Errors
    /// [`Error::OutputForm`] for a part that there is not.
    pub(super) fn deal(&mut self, seen: &[Seen]) -> Result<(), Error> {
        for (rank, seen) in (0..).map(Rank::new).zip(seen) {
            let Some(place) = seen.place else {
                continue;
            };
            let part = self.parts.get_mut(place.part);
            let part = part.ok_or(Error::OutputForm { rank })?;
            if seen.samples > 0 {
                part.dealt.insert(place.batch);
            }
        }
        Ok(())
    }

    /// The step in flight is made, in which this was seen.
    pub(super) fn count(&mut self, seen: &[Seen]) {
        for part in &mut self.parts {
            part.ahead.append(&mut part.dealt);
            while part.ahead.remove(&part.used) {
                part.used += 1;
            }
        }
        for seen in seen.iter().filter(|seen| seen.state == State::Last) {
            if let Some(place) = seen.place {
                let end = place.batch + usize::from(seen.samples > 0);
                self.parts[place.part].end = Some(end);
            }
        }
    }

    pub(super) fn used(&self, part: usize) -> usize {
        self.parts[part].used
    }

    /// Whether all batches of all parts are used.
    pub(super) fn is_over(&self) -> bool {
        self.parts.iter().all(Part::is_over)
    }
}

impl Part {
    pub(super) fn new(used: usize, end: Option<usize>, ahead: Vec<usize>) -> Self {
        Self {
            used,
            end,
            ahead: ahead.into_iter().collect(),
            dealt: BTreeSet::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.used >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of so many batches each, and who has used what.
    struct Epoch {
        batches: Vec<usize>,
        deal: Deal,
        used: Vec<Place>,
    }

    impl Epoch {
        fn new(batches: &[usize]) -> Self {
            Self {
                batches: batches.to_vec(),
                deal: Deal::new(batches.len()),
                used: Vec::new(),
            }
        }

        /// What a worker reads where it is told to.
        fn read(&self, place: Option<Place>) -> Seen {
            let end = place.map_or(0, |place| self.batches[place.part]);
            let batch = place.map_or(0, |place| place.batch);
            let place = place.map(|place| Place {
                batch: batch.min(end),
                ..place
            });
            Seen {
                place,
                samples: u32::from(batch < end),
                state: if batch + 1 < end {
                    State::More
                } else {
                    State::Last
                },
            }
        }

        fn seen(&self, workers: u32) -> Vec<Seen> {
            let ranks = (0..workers).map(Rank::new);
            ranks.map(|rank| self.read(self.deal.next(rank))).collect()
        }

        fn make(&mut self, seen: &[Seen]) {
            self.deal.deal(seen).unwrap();
            self.deal.count(seen);
            let new = seen.iter().filter(|seen| seen.samples > 0);
            self.used.extend(new.filter_map(|seen| seen.place));
        }

        /// Steps of so many workers until all is used, and how many.
        fn finish(&mut self, workers: u32) -> usize {
            let mut steps = 0;
            while !self.deal.is_over() {
                let seen = self.seen(workers);
                self.make(&seen);
                steps += 1;
                assert!(steps < 100, "{:?}", self.deal);
            }
            steps
        }

        #[track_caller]
        fn assert_each_once(mut self) {
            self.used.sort();
            let all =
                self.batches.iter().enumerate().flat_map(|(part, batches)| {
                    (0..*batches).map(move |batch| Place { part, batch })
                });
            assert_eq!(self.used, all.collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_worker_takes_its_own_part_where_none_is_lost() {
        let mut epoch = Epoch::new(&[3, 3, 2]);
        let parts = epoch
            .seen(3)
            .into_iter()
            .map(|seen| seen.place.unwrap().part);
        assert_eq!(parts.collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(epoch.finish(3), 3);
        epoch.assert_each_once();
    }

    #[test]
    fn what_a_lost_worker_has_left_is_dealt_to_the_others_once_they_are_done() {
        let mut epoch = Epoch::new(&[5, 5, 6]);
        let seen = epoch.seen(3);
        epoch.make(&seen);
        epoch.deal.regroup(vec![Some(0), Some(1)], &[]);
        // Four each of their own, and five of the lost one's.
        assert_eq!(epoch.finish(2), 4 + 3);
        epoch.assert_each_once();
    }

    #[test]
    fn a_newcomer_takes_over_the_part_of_a_lost_worker() {
        let mut epoch = Epoch::new(&[4, 4, 4]);
        let seen = epoch.seen(3);
        epoch.make(&seen);
        epoch.deal.regroup(vec![Some(0), Some(2), None], &[]);
        assert_eq!(epoch.deal.part_of(Rank::new(2)), Some(1));
        assert_eq!(epoch.finish(3), 3);
        // One that comes when all have theirs takes what is left of none.
        epoch.deal.regroup(vec![Some(0), Some(2), None, None], &[]);
        assert_eq!(epoch.deal.next(Rank::new(3)), None);
        epoch.assert_each_once();
    }

    #[test]
    fn what_is_held_of_a_failed_step_is_dealt_to_nobody_else_and_what_was_lost_is_dealt_again() {
        let mut epoch = Epoch::new(&[0, 0, 0, 7]);
        let seen = epoch.seen(4);
        epoch.make(&seen);
        epoch.deal.regroup(vec![Some(0), Some(1), Some(2)], &[]);
        let seen = epoch.seen(3);
        epoch.deal.deal(&seen).unwrap();
        let batches: Vec<_> = seen.iter().map(|seen| seen.place.unwrap().batch).collect();
        assert_eq!(batches, [1, 2, 3]);
        // The step fails, as the second of three is lost.
        let held = [seen[0], seen[2]];
        let places = held.map(|seen| seen.place.unwrap());
        epoch.deal.regroup(vec![Some(0), Some(2)], &places);
        assert_eq!(epoch.deal.next(Rank::CHIEF).unwrap().batch, 2);
        epoch.make(&held);
        assert_eq!(epoch.finish(2), 2);
        epoch.assert_each_once();
    }
}
